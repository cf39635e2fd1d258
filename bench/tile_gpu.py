"""The lessons of tutorial/tile on a GPU, beside Triton with the same source, sizes and configurations.

usage: python bench/tile_gpu.py [--json FILE] [--only NAME]

Each kernel is imported twice, once with Triton's names. Rounds of both alternate; the medians of rounds are printed, in
microseconds of the GPU (events around many launches), and what a launch takes of the processor. Needs torch and triton.
"""

import argparse
import importlib.util
import json
import pathlib
import statistics
import sys
import tempfile
import time

import torch

LESSONS = pathlib.Path(__file__).resolve().parents[1] / "tutorial" / "tile"
ROUNDS, LEAST_MS = 7, 5.0


def lesson(name, triton):
    """A lesson as a module; for Triton, its imports are changed."""
    text = (LESSONS / f"{name}.py").read_text()
    if triton:
        text = text.replace("import tessera.tile as tile", "import triton as tile")
        text = text.replace("import tessera.tile.language as tl", "import triton.language as tl")
    folder = pathlib.Path(tempfile.mkdtemp())
    path = folder / f"{name}_{'theirs' if triton else 'ours'}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def cdiv(a, b): return -(-a // b)


def vector_add(m, n=1 << 25):
    x, y = torch.rand(n, device="cuda"), torch.rand(n, device="cuda")
    z = torch.empty_like(x)
    return lambda: m.add[(cdiv(n, 1024),)](x, y, z, n, BLOCK=1024), lambda: (z, x + y)


def softmax(m, rows=8192, n=4096, dtype=torch.float32, warps=8):
    x = torch.randn(rows, n, device="cuda", dtype=dtype)
    z = torch.empty_like(x)
    return (lambda: m.softmax[(rows,)](z, x, n, n, BLOCK=n, num_warps=warps)), lambda: (z, torch.softmax(x, 1))


def matmul(m, size, bm, bn, bk, warps):
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty_like(a)
    kernel, grid = m.matmul.fn, (cdiv(size, bm) * cdiv(size, bn),)
    return (lambda: kernel[grid](a, b, c, size, size, size, size, 1, size, 1, size, 1, BM=bm, BN=bn, BK=bk, GROUP=8,
                                 ACTIVATION="", num_warps=warps)), lambda: (c, a @ b)


def dropout(m, n=1 << 25):
    x = torch.ones(n, device="cuda")
    y = torch.empty_like(x)
    return (lambda: m.dropout[(cdiv(n, 1024),)](x, y, n, 0.25, 123, BLOCK=1024)), lambda: (y.mean(), x.mean())


def layer_norm(m, rows=8192, n=4096):
    x, w, b = torch.randn(rows, n, device="cuda"), torch.rand(n, device="cuda"), torch.rand(n, device="cuda")
    y, mean, rstd = torch.empty_like(x), torch.empty(rows, device="cuda"), torch.empty(rows, device="cuda")
    return (lambda: m.forward[(rows,)](x, y, w, b, mean, rstd, n, 1e-5, BLOCK=n, num_warps=8)), \
        lambda: (y, torch.nn.functional.layer_norm(x, (n,), w, b))


def attention(m, causal, heads=32, length=4096, size=64, bm=128, bn=64, warps=8):
    q, k, v = (torch.randn(1, heads, length, size, device="cuda", dtype=torch.float16) for _ in range(3))
    out = torch.empty_like(q)
    return (lambda: m.attention[(cdiv(length, bm), heads)](q, k, v, out, size**-0.5, length, D=size, BM=bm, BN=bn,
                                                           CAUSAL=causal, num_warps=warps)), \
        lambda: (out, torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal))


CASES = {
    "vector add 2^25": ("vector_add", vector_add, {}),
    "softmax 8192 x 4096": ("softmax", softmax, {}),
    "softmax 8192 x 1024, f16": ("softmax", softmax, {"n": 1024, "dtype": torch.float16, "warps": 4}),
    "matmul f16 512, 64 x 64 x 64": ("matmul", matmul, {"size": 512, "bm": 64, "bn": 64, "bk": 64, "warps": 4}),
    "matmul f16 1024, 128 x 64 x 64": ("matmul", matmul, {"size": 1024, "bm": 128, "bn": 64, "bk": 64, "warps": 4}),
    "matmul f16 4096, 128 x 128 x 64": ("matmul", matmul, {"size": 4096, "bm": 128, "bn": 128, "bk": 64, "warps": 8}),
    "matmul f16 4096, 128 x 256 x 64": ("matmul", matmul, {"size": 4096, "bm": 128, "bn": 256, "bk": 64, "warps": 8}),
    "dropout 2^25": ("dropout", dropout, {}),
    "layer norm 8192 x 4096": ("layer_norm", layer_norm, {}),
    "attention 32 x 4096 x 64": ("attention", attention, {"causal": False}),
    "attention 32 x 4096 x 64, causal": ("attention", attention, {"causal": True}),
}


def milliseconds(call, count):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(count):
        call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / count


def launch_seconds(call):
    """Of the processor, for one launch; few at a time, so that the queue never fills."""
    times = []
    for _ in range(20):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(50):
            call()
        times.append((time.perf_counter() - began) / 50)
    return statistics.median(times)


def compare(name):
    source, make, sizes = CASES[name]
    calls, compile_s, found = {}, {}, {}
    for who in ("theirs", "ours"):
        torch.manual_seed(0)
        try:
            call, both = make(lesson(source, who == "theirs"), **sizes)
            began = time.perf_counter()
            call()
            torch.cuda.synchronize()
            compile_s[who] = time.perf_counter() - began
            made, wanted = both()
            found[who] = ((made.float() - wanted.float()).norm() / wanted.float().norm()).item()
            calls[who] = call
        except Exception as e:  # noqa: BLE001  the others are measured all the same
            print(f"{name}: {who} failed: {type(e).__name__}: {str(e)[:2000]}", flush=True)
    counts = {w: max(3, int(LEAST_MS / max(milliseconds(c, 3), 1e-3))) for w, c in calls.items()}
    times = {w: [] for w in calls}
    for _ in range(ROUNDS):
        for who, call in calls.items():
            times[who].append(milliseconds(call, counts[who]))
    return {"us": {w: statistics.median(t) * 1e3 for w, t in times.items()}, "error": found, "compile_s": compile_s,
            "launch_us": {w: launch_seconds(c) * 1e6 for w, c in calls.items()}}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    results = {}
    print(f"{'':36} {'ours, us':>10} {'Triton, us':>10} {'ratio':>6} {'error':>9} {'compile s':>9} {'launch us, ours / theirs'}")
    for name in CASES:
        if options.only not in name:
            continue
        r = results[name] = compare(name)
        us = r["us"]
        ratio = us["theirs"] / us["ours"] if len(us) == 2 else float("nan")
        print(f"{name:36} {us.get('ours', float('nan')):10.2f} {us.get('theirs', float('nan')):10.2f} {ratio:6.2f} "
              f"{r['error'].get('ours', float('nan')):9.1e} {r['compile_s'].get('ours', float('nan')):9.2f} "
              f"{r['launch_us'].get('ours', float('nan')):.2f} / {r['launch_us'].get('theirs', float('nan')):.2f}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
