"""Tile kernels beside the graph compiler's own and NumPy's, on one thread or many.

usage: OPENBLAS_NUM_THREADS=1 python bench/tile.py [--threads N] [--rows N] [--seconds S] [--json FILE]

Rounds over all of them alternate; medians of rounds are printed. Needs numpy and tessera.
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile
import time

import numpy as np

import tessera
import tessera.tile as tile
import tessera.tile.language as tl

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tutorial" / "tile"))
import attention as attention_lesson  # noqa: E402
import matmul as matmul_lesson  # noqa: E402
import softmax as softmax_lesson  # noqa: E402


@tile.jit
def copy(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


def graph(text, threads, fuse=True, **inputs):
    """The graph compiler's program for a graph, as a call."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "graph.tsr"
        path.write_text(text)
        program = tessera.compile(path, threads=threads, fuse=fuse)
    return lambda: program.run(inputs)


def softmax_between(term, m, n):
    """A graph with a softmax in it that has neighbours: a scale and a bias before it, a factor for each row behind it."""
    return (f"graph g(x: f32[{m},{n}], b: f32[{n}], c: f32[{m},1]) {{\n  %s = add(mul(x, 0.125), b)\n  %p = {term}\n"
            "  return add(mul(%p, c), 1.0)\n}")


def cases(threads, rows):
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.standard_normal(shape, dtype=np.float32)  # noqa: E731
    n = 1024
    a, b, c = draw(n, n), draw(n, n), np.empty((n, n), np.float32)
    grid = lambda meta: (tile.cdiv(n, meta["BM"]) * tile.cdiv(n, meta["BN"]),)  # noqa: E731
    yield "matmul 1024^3", 2 * n**3 / 1e9, "GFLOP/s", {
        "tile": lambda: matmul_lesson.matmul[grid](a, b, c, n, n, n, n, 1, n, 1, n, 1, ACTIVATION=""),
        "graph": graph(f"graph g(a: f32[{n},{n}], b: f32[{n},{n}]) {{\n  return matmul(a, b)\n}}", threads, a=a, b=b),
        "numpy": lambda: np.matmul(a, b, out=c)}
    columns = 4096
    x, y = draw(rows, columns), np.empty((rows, columns), np.float32)
    yield f"softmax {rows}x{columns}", 2 * x.nbytes / 1e9, "GB/s", {
        "tile": lambda: softmax_lesson.softmax[(rows,)](y, x, columns, columns, BLOCK=columns),
        "graph": graph(f"graph g(x: f32[{rows},{columns}]) {{\n  return softmax(x, axis=-1)\n}}", threads, x=x),
        "numpy copy": lambda: np.copyto(y, x)}
    yield f"copy of {x.nbytes >> 20} MiB", 2 * x.nbytes / 1e9, "GB/s", {
        "tile": lambda: copy[(x.size // 4096,)](x, y, x.size, BLOCK=4096),
        "numpy copy": lambda: np.copyto(y, x)}
    m, n = rows, 1024
    kernel = tile.op(softmax_lesson.softmax, tile.Output("f32", "in0.d0", "in0.d1"), tile.Input("f32"), "in0.d1", "in0.d1",
                     BLOCK=n, grid=("in0.d0",))
    inputs = {"x": draw(m, n), "b": draw(n), "c": draw(m, 1)}
    alone = f"graph g(x: f32[{m},{n}]) {{\n  return {kernel('x')}\n}}"
    yield f"softmax {m}x{n} in a model", 2 * inputs["x"].nbytes / 1e9, "GB/s", {
        "tile": graph(softmax_between(kernel("%s"), m, n), threads, **inputs),
        "apart": graph(softmax_between(kernel("%s"), m, n), threads, fuse=False, **inputs),
        "kernel alone": graph(alone, threads, x=inputs["x"]),
        "graph": graph(softmax_between("softmax(%s, axis=-1)", m, n), threads, **inputs)}
    heads, length, size = 8, 1024, 64
    q, k, v = (draw(heads, length, size) for _ in range(3))
    out = np.empty_like(q)
    text = (f"graph g(q: f32[1,{heads},{length},{size}], k: f32[1,{heads},{length},{size}], v: f32[1,{heads},{length},{size}]) {{\n"
            "  return attention(q, k, v)\n}")
    yield "attention 8x1024x64", 4 * heads * length**2 * size / 1e9, "GFLOP/s", {
        "tile": lambda: attention_lesson.attention[(length // 128, heads)](q, k, v, out, size**-0.5, length, D=size, BM=128, BN=64, CAUSAL=False),
        "graph": graph(text, threads, q=q[None], k=k[None], v=v[None])}


def launch_seconds(call, count=1000):
    times = []
    for _ in range(21):
        start = time.perf_counter()
        for _ in range(count):
            call()
        times.append((time.perf_counter() - start) / count)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rows", type=int, default=4096, help="of the softmax and the copy, 16 KiB each")
    parser.add_argument("--seconds", type=float, default=2, help="of each case")
    parser.add_argument("--json", help="write what was measured there")
    options = parser.parse_args()
    tile.set_threads(options.threads)
    measured = {}
    for name, work, unit, calls in cases(options.threads, options.rows):
        times = {who: [] for who in calls}
        for call in calls.values():
            call()
        began = time.perf_counter()
        while time.perf_counter() - began < options.seconds or len(times["tile"]) < 5:
            for who, call in calls.items():
                start = time.perf_counter()
                call()
                times[who].append(time.perf_counter() - start)
        medians = {who: statistics.median(t) for who, t in times.items()}
        measured[name] = medians
        rates = "  ".join(f"{who} {work / t:8.1f}" for who, t in medians.items())
        print(f"{name:22} {rates}  {unit}", flush=True)
    x, y = np.zeros(16, np.float32), np.empty(16, np.float32)
    measured["launch"] = {"tile": launch_seconds(lambda: copy[(1,)](x, y, 16, BLOCK=16))}
    print(f"{'launch of 16 elements':22} tile {measured['launch']['tile'] * 1e6:8.2f}  us")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(measured, indent=1))


if __name__ == "__main__":
    main()
