"""Looks for cliffs on a GPU: chains of layers drawn at random beside Inductor: python bench/cliffs_gpu.py --seed 1

With --products N sizes of matrix products beside cuBLAS instead, with --rows N norms and softmaxes beside the better of
Inductor and 85 % of the rate of a copy, with --attentions N attention of few queries beside the best of PyTorch's kernels
and, where keys and values exceed the cache, 85 % of the rate of a copy. Both sides are CUDA graphs, timed in turns. Cases are prepared in --jobs processes
at once, each with its share of them, then timed one by one (bench/in_waves.py); ours of one share in one process. Errors
are those to PyTorch in f32 without tf32. With --target host both sides run on the processor, to see that everything works."""
import argparse
import json
import logging
import math
import os
import pathlib
import sys
import tempfile
import time
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "2")

import in_waves  # noqa: E402

GOOD, WORST = 0.9, 0.5
COPY_SHARE = 0.85
COMPARED_ROWS = 256  # of a product
ATTENTION_ELEMENTS = 1 << 25  # of the keys of one head
CACHE_BYTES = 60e6
ROUNDED = {"f16": 2e-3, "bf16": 1e-2, "f32": 2e-5}  # errors that are not looked at


class Case:
    """Both sides of one case: a model in a file, and what PyTorch computes."""

    def __init__(self, name, text, dtype, path, inputs, reference, rows=slice(None)):
        self.name, self.text, self.dtype, self.path, self.inputs = name, text, dtype, path, inputs
        self.reference, self.rows, self.peers, self.errors = reference, rows, {}, {}

    def error(self, found):
        """Of the rows that the reference has."""
        import served

        return served.error(found[self.rows].cpu(), self.reference)["norm"]

    def add_peer(self, name, call, gpu):
        import served

        if gpu:
            replay, result = served.capture(call)
            replay()
            self.peers[name] = served.replayed(replay)
        else:
            result = call()
            self.peers[name] = served.called(call)
        if result is not None:
            self.errors[name] = self.error(result)


def of_chain(kind, seed, name, folder, gpu):
    import torch

    import cliff_gpu_chains
    import served

    model, x, dtype, text = cliff_gpu_chains.draw(kind, seed)
    device = "cuda" if gpu else "cpu"
    reference = model.to(device)(x.to(device)).float().cpu()
    model, given = model.to(device="cpu", dtype=dtype), {"x": x.to(dtype)}
    path = folder / f"{name}.onnx"
    served.export(model, given, path)
    case = Case(name, text, text.split()[0], path, given, reference)
    model, x = model.to(device), given["x"].to(device)
    fast = torch.compile(model) if gpu else model
    torch._dynamo.reset()
    case.add_peer("Inductor", lambda: fast(x), gpu)
    if kind == "rows":
        to = torch.empty_like(x)
        case.add_peer("copy", lambda: copied(to, x), gpu)
    return case


def copied(to, x):
    """Gives nothing that would be compared."""
    to.copy_(x)


def drawn_product(seed):
    import numpy as np

    random = np.random.default_rng(seed)

    def dimension():
        n = int(random.integers(1, 20001)) if random.random() < 0.5 else int(round(20000 ** random.random()))
        return max(1, n // 8 * 8) if random.random() < 0.5 else n

    m, k, n = (dimension() for _ in range(3))
    return m, k, n, ("f16", "bf16")[random.integers(2)], bool(random.integers(2))


def of_product(seed, name, folder, gpu):
    import onnx
    import torch
    from onnx import helper

    m, k, n, dtype, transposed = drawn_product(seed)
    if not gpu:
        m, k, n = (max(1, d // 64) for d in (m, k, n))
    kind = torch.float16 if dtype == "f16" else torch.bfloat16
    element = onnx.TensorProto.FLOAT16 if dtype == "f16" else onnx.TensorProto.BFLOAT16
    device = "cuda" if gpu else "cpu"
    torch.manual_seed(seed)
    shapes = {"a": [m, k], "b": [n, k] if transposed else [k, n]}
    a, b = (torch.randn(s, device=device, dtype=torch.float32).to(kind) for s in shapes.values())
    nodes = [helper.make_node("Transpose", ["b"], ["t"], perm=[1, 0])] if transposed else []
    nodes.append(helper.make_node("MatMul", ["a", "t" if transposed else "b"], ["y"]))
    graph = helper.make_graph(nodes, "product", [helper.make_tensor_value_info(i, element, s) for i, s in shapes.items()],
                              [helper.make_tensor_value_info("y", element, [m, n])])
    path = folder / f"{name}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    wide = b.T if transposed else b
    rows = torch.linspace(0, m - 1, min(m, COMPARED_ROWS)).round().long()
    reference = (a[rows.to(device)].float() @ wide.float()).cpu()
    case = Case(name, f"{dtype} {m} x {k} x {n} {'NT' if transposed else 'NN'}", dtype, path, {"a": a.cpu(), "b": b.cpu()},
                reference, rows)
    case.flops = 2.0 * m * k * n
    case.add_peer("cuBLAS", lambda: a @ wide, gpu)
    return case


def drawn_attention(seed):
    """Batch, queries, heads, heads of keys, keys, elements of a head, element type."""
    import numpy as np

    from cliff_cases import between, pick

    random = np.random.default_rng(seed)
    head, keys = pick(random, 64, 128, 128, 256), between(random, 1024, 131072)
    queries = pick(random, 1, 1, 1, int(random.integers(2, 17)))
    batch = between(random, 1, 64)
    while batch * keys * head > ATTENTION_ELEMENTS and batch > 1:
        batch //= 2
    keys = keys // 64 * 64 if random.random() < 0.5 else keys
    return batch, queries, 32, 8, keys, head, ("f16", "bf16")[random.integers(2)]


def of_attention(seed, name, folder, gpu):
    import torch
    from torch.nn import functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    batch, queries, heads, shared, keys, head, dtype = drawn_attention(seed)
    if not gpu:
        batch, keys = 1, min(keys, 300)
    device = "cuda" if gpu else "cpu"
    kind = torch.float16 if dtype == "f16" else torch.bfloat16
    torch.manual_seed(seed)
    q, k, v = (torch.randn(batch, h, n, head, device=device).to(kind)
               for h, n in ((heads, queries), (shared, keys), (shared, keys)))
    path = folder / f"{name}.tsr"
    texts = [f"{n}: {dtype}[{','.join(map(str, t.shape))}]" for n, t in (("q", q), ("k", k), ("v", v))]
    path.write_text(f"graph attention({', '.join(texts)}) {{\n  y = attention(q, k, v)\n  return y\n}}\n")
    folded = q.view(batch, shared, heads // shared * queries, head)
    reference = torch.cat([F.scaled_dot_product_attention(*(t[i:i + 1].float() for t in (folded, k, v)))
                           for i in range(batch)]).view(q.shape).cpu()
    case = Case(name, f"{dtype} batch {batch}, {queries} queries, {keys} keys, {heads}:{shared} heads of {head}", dtype, path,
                {"q": q.cpu(), "k": k.cpu(), "v": v.cpu()}, reference)
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION) if gpu else (
            SDPBackend.MATH,):
        for shape in ("grouped", "folded"):
            def call(backend=backend, rows=q if shape == "grouped" else folded):
                with sdpa_kernel(backend):
                    return F.scaled_dot_product_attention(rows, k, v, enable_gqa=rows is q).view(q.shape)

            try:
                case.add_peer(f"{backend.name.split('_')[0].lower()} {shape}", call, gpu)
            except RuntimeError:
                continue  # the kernel does not take it
    if gpu and k.nbytes + v.nbytes > 2 * CACHE_BYTES:
        to = torch.empty_like(k)
        case.add_peer("copy", lambda: copied(to, k), gpu)
    return case


def prepare(batch):
    """All cases of a share; those that cannot be prepared, or not in time, say so."""
    import torch

    import served

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_grad_enabled(False)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    gpu = batch["target"] != "host"
    if gpu:
        served.one_benchmark_at_a_time(batch["lock"])
    until, folder = time.monotonic() + batch["prepare_s"], pathlib.Path(batch["folder"])
    ready, failed, cache = [], [], tempfile.mkdtemp(prefix="cache-")
    for seed in batch["seeds"]:
        name = f"{batch['kind']}_{seed}"
        if time.monotonic() > until:
            failed.append({"name": name, "skipped": "not prepared in time"})
            continue
        try:
            make = {"product": of_product, "attention": of_attention}.get(batch["kind"])
            made = make(seed, name, folder, gpu) if make else of_chain(batch["kind"], seed, name, folder, gpu)
            ready.append(made)
            compile_ahead(batch, made, cache)
        except Exception as error:  # noqa: BLE001  a peer's failure is no miss of ours
            failed.append({"name": name, "skipped": f"{type(error).__name__}: {in_waves.first_line(error)}"})
    return {}, lambda: {"rows": failed + measure(batch, ready, cache)}


def compile_ahead(batch, case, cache):
    """Into the cache, on all cores; what fails here fails again where it is measured."""
    import served

    ours = served.Served(batch["tessera"], batch["target"], cache)
    try:
        case.compile_s = ours.load(case.path, case.inputs)
    except RuntimeError:
        case.compile_s = math.nan
    finally:
        ours.close()


def measure(batch, cases, cache):
    import served

    ours, rows = None, []
    until = time.monotonic() + batch["time_s"]
    for case in cases:
        row = {"name": case.name, "text": case.text, "dtype": case.dtype}
        rows.append(row)
        if time.monotonic() > until:
            row["skipped"] = "not timed in time"
            continue
        try:
            ours = ours or served.Served(batch["tessera"], batch["target"], cache)
            row["compile_s"] = case.compile_s
            ours.load(case.path, case.inputs)
            found = ours.outputs()[0]
            row["error"] = {"ours": case.error(found), **case.errors}
            row["seconds"] = served.in_turns({"ours": ours.turn, **case.peers}, batch["timed_s"], rounds=5)
            if hasattr(case, "flops"):
                row["tflops"] = case.flops / row["seconds"]["ours"] / 1e12
        except RuntimeError as error:
            row["failed"] = in_waves.first_line(error)
            if ours:
                ours.close()
            ours = None  # what failed may leave the GPU's state broken
        case.path.unlink(missing_ok=True)
        case.inputs = case.reference = None
    if ours:
        ours.close()
    return rows


def ratio(row):
    """The better peer's time over ours; a copy counts at its share."""
    times = [t / COPY_SHARE if name == "copy" else t for name, t in row["seconds"].items() if name != "ours"]
    return min(times) / row["seconds"]["ours"]


def wrong(row):
    theirs = min(e for name, e in row["error"].items() if name != "ours")
    return row["error"]["ours"] > max(1.5 * theirs, ROUNDED[row["dtype"]])


def line_of(row):
    if "seconds" not in row:
        return f"   -   {row['name']}  {row.get('failed') or row.get('skipped')}  {row.get('text', '')}"
    times = " / ".join(f"{1e6 * t:.1f}" for t in row["seconds"].values())
    names = " / ".join(row["seconds"])
    rate = f"  {row['tflops']:.0f} TFLOP/s" if "tflops" in row else ""
    error = f"  WRONG: {row['error']}" if wrong(row) else ""
    return f"{ratio(row):6.2f}  {row['name']}  {times} us ({names}){rate}  {row['text']}{error}"


def summary(rows, worst):
    failed = [row for row in rows if "failed" in row]
    done = sorted((row for row in rows if "seconds" in row), key=ratio)
    skipped = [row for row in rows if "skipped" in row]
    for row in skipped + failed:
        print(line_of(row)[:400])
    for row in [row for row in done if wrong(row)]:
        print(line_of(row)[:400])
    print(f"\nthe slowest {min(worst, len(done))}:")
    for row in done[:worst]:
        print(line_of(row)[:400])
    ratios = [ratio(row) for row in done]
    judged = len(done) + len(failed)
    print(f"\n{judged} cases, {len(failed)} failed, {sum(map(wrong, done))} wrong, {len(skipped)} skipped")
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"at {GOOD} or better {100 * sum(r >= GOOD for r in ratios) / judged:.1f} %, below {WORST}: "
              f"{sum(r < WORST for r in ratios)}, least {ratios[0]:.2f}, geometric mean {mean:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200, help="chains")
    parser.add_argument("--products", type=int, default=0, metavar="N", help="so many products instead of chains")
    parser.add_argument("--rows", type=int, default=0, metavar="N", help="so many norms and softmaxes instead of chains")
    parser.add_argument("--attentions", type=int, default=0, metavar="N", help="so many attentions instead of chains")
    parser.add_argument("--only", default="", metavar="SEEDS", help="the cases of these names' numbers, with commas")
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--tessera", default="tessera", help="the command line")
    parser.add_argument("--seconds", type=float, default=0.1, help="of timing, for each side of a case")
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--prepare-seconds", type=float, default=240)
    parser.add_argument("--time-seconds", type=float, default=300, help="of all cases")
    parser.add_argument("--worst", type=int, default=30, help="cases to print")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--folder", type=pathlib.Path, help="for exported models and logs")
    options = parser.parse_args()
    if options.worker:
        return in_waves.serve_worker(json.loads(options.worker), prepare)
    folder = options.folder or pathlib.Path(tempfile.mkdtemp(prefix="cliffs-"))
    folder.mkdir(parents=True, exist_ok=True)
    counts = {"product": options.products, "rows": options.rows, "attention": options.attentions, "chain": options.count}
    kind, count = next((kind, count) for kind, count in counts.items() if count)
    seeds = [int(s) for s in options.only.split(",") if s] or [options.seed * 100000 + i for i in range(count)]
    jobs = min(options.jobs, len(seeds))
    batches = [{"name": f"share_{i}", "kind": kind, "seeds": seeds[i::jobs], "folder": str(folder),
                "lock": str(folder / "lock"), "target": options.target, "tessera": options.tessera,
                "timed_s": options.seconds, "prepare_s": options.prepare_seconds,
                "time_s": options.time_seconds / jobs} for i in range(jobs)]
    rows = []
    for share in in_waves.run(str(pathlib.Path(__file__).resolve()), batches, folder, jobs, options.prepare_seconds + 60,
                              options.time_seconds / jobs + 60):
        rows += share.get("rows") or [{"name": f"{kind}_{seed}", "failed": share.get("failed", "no result")}
                                      for seed in share["seeds"]]
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1))
    summary(rows, options.worst)
    return None


if __name__ == "__main__":
    sys.exit(main())
