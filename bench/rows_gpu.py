"""Times selections, running sums, scatters, searches and products of bytes beside PyTorch: python bench/rows_gpu.py

Each is compiled as a model of one op. Both sides get the same tensors on the GPU and are replayed as graphs where they
can be, in turns; results are compared first. Prints microseconds of a call, medians, and the ratio, above 1 where ours is
faster. With --target host both run on the processor, to see that it works."""

import argparse
import json
import statistics

import torch

import tessera
from in_place_gpu import between_events, on_the_processor


def top_k(rows, n, k, dtype="f32"):
    text = f"x: {dtype}[{rows},{n}]) {{ %v, %i = top_k(x, [{k}]) return %v, %i }}"
    return f"top {k} of {rows} x {n}, {dtype}", text, lambda x: torch.topk(x, k)


def cum_sum(rows, n):
    return f"running sums of {rows} x {n}", f"x: f32[{rows},{n}]) {{ return cum_sum(x, 1) }}", lambda x: torch.cumsum(x, 1)


def columns(n, inner):
    return (f"running sums along {n} of {n} x {inner}", f"x: f32[{n},{inner}]) {{ return cum_sum(x, 0) }}",
            lambda x: torch.cumsum(x, 0))


def scatter_rows(rows, updates, inner):
    text = (f"x: f32[{rows},{inner}], i: i64[{updates},1], u: f32[{updates},{inner}]) "
            '{ return scatter_nd(x, i, u, reduction="add") }')
    return (f"{updates} rows of {inner} added to {rows}", text, lambda x, i, u: x.index_add(0, i[:, 0], u))


def scatter_elements(n, updates, reduction):
    text = (f"x: f32[{n}], i: i64[{updates}], u: f32[{updates}]) "
            f'{{ return scatter_elements(x, i, u, reduction="{reduction}") }}')
    theirs = {"none": lambda x, i, u: x.scatter(0, i, u), "add": lambda x, i, u: x.scatter_add(0, i, u),
              "max": lambda x, i, u: x.scatter_reduce(0, i, u, "amax")}[reduction]
    return f"{updates} elements into {n}, {reduction}", text, theirs


def non_zero(n):
    return f"places of {n} that are not 0", f"x: f32[{n}]) {{ return non_zero(x) }}", lambda x: torch.nonzero(x).T


def bytes_product(m, k, n, transposed):
    if transposed:
        text = f"a: i8[{m},{k}], b: i8[{n},{k}]) {{ %t = transpose(b, perm=[1,0]) return matmul_integer(a, %t) }}"
        return f"bytes {m} x {k} x {n}, NT", text, lambda a, b: torch._int_mm(a, b.T)
    text = f"a: i8[{m},{k}], b: i8[{k},{n}]) {{ return matmul_integer(a, b) }}"
    return f"bytes {m} x {k} x {n}, NN", text, lambda a, b: torch._int_mm(a, b)


CASES = [
    top_k(1, 50257, 1), top_k(1, 50257, 50), top_k(64, 128256, 50, "f16"), top_k(8192, 64, 8), top_k(8192, 1024, 1),
    top_k(1, 8400, 300), top_k(1, 1 << 20, 1 << 20), top_k(1, 1 << 20, 1000),
    cum_sum(1, 1 << 20), cum_sum(1, 1 << 26), cum_sum(8192, 4096), columns(4096, 8192), columns(1 << 20, 8),
    scatter_rows(50257, 8192, 768), scatter_elements(1 << 24, 1 << 20, "none"), scatter_elements(1 << 24, 1 << 20, "add"),
    scatter_elements(1 << 24, 1 << 20, "max"), non_zero(1 << 24),
    bytes_product(4096, 4096, 4096, True), bytes_product(4096, 4096, 4096, False), bytes_product(1024, 1024, 1024, False),
    bytes_product(128, 4096, 4096, True),
]


def given(name, text, device):
    """Random inputs of a graph written as text: places are inside, and no two of them are equal."""
    torch.manual_seed(1)
    types = dict(part.split(": ") for part in text[:text.index(")")].split("], ") for part in [part.rstrip("]")])
    inputs = {}
    for input_name, typed in types.items():
        dtype, sizes = typed.split("[")
        shape = [int(size) for size in sizes.rstrip("]").split(",")]
        if dtype == "i64":
            first = int(types["x"].split("[")[1].split(",")[0].rstrip("]"))
            inputs[input_name] = torch.randperm(first)[:shape[0]].reshape(shape)
        elif dtype == "i8":
            inputs[input_name] = torch.randint(-128, 128, shape, dtype=torch.int8)
        else:
            inputs[input_name] = torch.randn(shape, dtype={"f32": torch.float32, "f16": torch.float16}[dtype])
    if name.startswith("places"):
        inputs["x"] = torch.relu(inputs["x"])
    return {n: t.to(device) for n, t in inputs.items()}


def captured(call):
    """The call as a graph that is replayed, where it can be one."""
    try:
        for _ in range(2):
            call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        return graph.replay
    except RuntimeError:
        torch.cuda.synchronize()
        return call


def microseconds(call, on_gpu, seconds=0.02):
    def timed(calls):
        return between_events(call, calls, times=1) if on_gpu else on_the_processor(call, calls)

    return timed(max(1, int(seconds * 1e6 / max(timed(1), 1))))


def differ(ours, theirs):
    theirs = theirs if isinstance(theirs, tuple) else (theirs,)
    a, b = ours[0].cpu().double(), theirs[0].cpu().double()  # of TopK the values: equal ones have any order there
    if a.shape != b.shape:
        return float("inf")
    return float((a - b).abs().max() / b.abs().max().clamp(min=1e-30)) if a.numel() else 0.0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--only", default="", help="cases with this in their name")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", help="a file for the figures")
    options = parser.parse_args()
    on_gpu = options.target != "host"
    rows = []
    print("| op | ours, us | PyTorch, us | ratio | difference |\n| --- | ---: | ---: | ---: | ---: |")
    for name, text, theirs in CASES:
        if options.only not in name:
            continue
        inputs = given(name, text, "cuda" if on_gpu else "cpu")
        fast = tessera.compile(tessera.parse("graph g(" + text), target=options.target)
        arguments = list(inputs.values())
        found = [torch.as_tensor(each) for each in fast.run(inputs).values()]
        difference = differ(found, theirs(*arguments))
        outputs = fast.run(inputs)
        # Of a result whose size the data decide, each run makes a new one.
        ours = (lambda: fast.run(inputs)) if name.startswith("places") else (lambda: fast.run(inputs, out=outputs))
        call = captured(lambda: theirs(*arguments)) if on_gpu else lambda: theirs(*arguments)
        ours()
        times = [(microseconds(ours, on_gpu), microseconds(call, on_gpu)) for _ in range(options.rounds)]
        mine, peer = (statistics.median(side) for side in zip(*times))
        print(f"| {name} | {mine:.1f} | {peer:.1f} | {peer / mine:.2f} | {difference:.1e} |", flush=True)
        rows.append({"op": name, "ours_us": mine, "torch_us": peer, "difference": difference})
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
