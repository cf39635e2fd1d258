#!/usr/bin/env python3
"""Cold compile time and memory of `tessera compile` over the size of the graph, for nine families of made graphs.

Each size is compiled in a process of its own with no cache. Seconds are CPU seconds of that process, memory is its peak
resident set. The ratio is the time of a size over that of half of it: 2 is linear. With --limit, exit status 1 if a
ratio of two sizes, of which the larger takes at least a second, is above it.

Run it with a Python that has onnx (make python):
    .venv/bin/python bench/compile_time.py build/bin/tessera --sizes 1000 2000 4000 8000 16000
    .venv/bin/python bench/compile_time.py build/bin/tessera --families sines cells --json
"""
import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZES = (250, 500, 1000, 2000, 4000, 8000, 16000)
SHORTEST = 1.0  # seconds: below this, starting the process counts for too much


class Builder:
    """A graph that is built node by node; `nodes` counts those of nested graphs too."""

    def __init__(self, seed=0):
        self.body, self.initializers, self.nodes, self.names = [], [], 0, 0
        self.random = np.random.default_rng(seed)

    def name(self):
        self.names += 1
        return f"v{self.names}"

    def add(self, op, *inputs, outputs=1, **attributes):
        made = [self.name() for _ in range(outputs)]
        self.body.append(helper.make_node(op, list(inputs), made, **attributes))
        self.nodes += 1
        return made[0] if outputs == 1 else made

    def constant(self, array):
        made = self.name()
        self.initializers.append(numpy_helper.from_array(np.asarray(array), made))
        return made

    def weights(self, *shape):
        return self.constant((self.random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32))

    def nested(self, inputs, outputs, build):
        """The graph that build(self) makes, giving the names of its outputs; its nodes are counted here."""
        outer, self.body = self.body, []
        results = build()
        values = [helper.make_tensor_value_info(n, t, s) for n, (t, s) in zip(results, outputs)]
        graph = helper.make_graph(self.body, self.name(), inputs, values)
        self.body = outer
        return graph

    def save(self, path, inputs, outputs):
        graph = helper.make_graph(
            self.body, "made",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs], self.initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        onnx.save(model, path)


def sines(b, size):
    x = "x"
    for i in range(size):
        x = b.add("Sin" if i % 2 == 0 else "Cos", x)
    return [("x", [64, 64])], [(x, [64, 64])]


def residuals(b, size):
    x = "x"
    while b.nodes < size:
        x = b.add("Add", x, b.add("MatMul", x, b.weights(16, 16)))
    return [("x", [32, 16])], [(x, [32, 16])]


def neighbours(b, size):
    """Slices of one tensor, matrix products and elementwise products of neighbours, and a Concat of them all."""
    parts = [b.add("Slice", "x", b.constant(np.array([8 * i])), b.constant(np.array([8 * i + 8])),
                   b.constant(np.array([1]))) for i in range(size // 2)]
    products = [b.add("Mul" if i % 2 else "MatMul", *pair) for i, pair in enumerate(zip(parts, parts[1:]))]
    return [("x", [8, 8 * len(parts)])], [(b.add("Concat", *products, axis=1), [8, 8 * len(products)])]


def side_by_side(b, size):
    products = [b.add("MatMul", "x", b.weights(16, 16)) for _ in range(size - 1)]
    return [("x", [32, 16])], [(b.add("Concat", *products, axis=1), [32, 16 * len(products)])]


def cells(b, size):
    """LSTM cells by hand, two layers, with weights that all steps share."""
    width = 16
    gates = [[b.weights(width, 4 * width), b.weights(width, 4 * width), b.weights(4 * width)] for _ in range(2)]
    state = [(b.constant(np.zeros((2, width), np.float32)),) * 2 for _ in range(2)]
    split = b.constant(np.array([width] * 4))
    steps = max(1, (size - 1) // 28)
    collected = []
    for t in range(steps):
        x = b.add("Gather", "x", b.constant(np.array(t)), axis=0)
        for layer in range(2):
            w, r, bias = gates[layer]
            h, c = state[layer]
            z = b.add("Add", b.add("Add", b.add("MatMul", x, w), b.add("MatMul", h, r)), bias)
            i, f, o, g = b.add("Split", z, split, outputs=4, axis=-1)
            kept = b.add("Mul", b.add("Sigmoid", f), c)
            c = b.add("Add", kept, b.add("Mul", b.add("Sigmoid", i), b.add("Tanh", g)))
            x = b.add("Mul", b.add("Sigmoid", o), b.add("Tanh", c))
            state[layer] = (x, c)
        collected.append(x)
    return [("x", [steps, 2, width])], [(b.add("Concat", *collected, axis=-1), [2, width * steps])]


def nests(b, size):
    """Ten levels of If and Loop in turn, as many such nests one after the other as there is room for."""
    trip, true = b.constant(np.array(2)), b.constant(np.array(True))
    value = (TensorProto.FLOAT, [4, 8])

    def nest(x, level):
        if level == 0:
            return b.add("Tanh", b.add("MatMul", x, b.weights(8, 8)))
        if level % 2:
            condition = b.add("Greater", b.add("ReduceSum", x, keepdims=0), b.constant(np.float32(level)))
            return b.add("If", condition, then_branch=b.nested([], [value], lambda: [nest(b.add("Relu", x), level - 1)]),
                         else_branch=b.nested([], [value], lambda: [b.add("Neg", x)]))
        i, c, s = b.name(), b.name(), b.name()
        inputs = [helper.make_tensor_value_info(i, TensorProto.INT64, []),
                  helper.make_tensor_value_info(c, TensorProto.BOOL, []),
                  helper.make_tensor_value_info(s, *value)]

        def body():
            inner = nest(b.add("Sigmoid", s), level - 1)
            return [b.add("Identity", c), inner]
        return b.add("Loop", trip, true, x, body=b.nested(inputs, [(TensorProto.BOOL, []), value], body))

    x = "x"
    while b.nodes < size:
        x = nest(x, 10)
    return [("x", [4, 8])], [(x, [4, 8])]


def fans(b, size):
    """One value with many readers, whose results are added up at once and one after the other."""
    readers = [b.add("Mul", "x", b.weights(16)) for _ in range(size // 2)]
    x = b.add("Sum", *readers)
    for r in readers[:size - size // 2 - 2]:
        x = b.add("Add", x, r)
    return [("x", [32, 16])], [(x, [32, 16])]


def shapes(b, size):
    """Reshapes to sizes that are computed from dynamic ones, as exporters write them."""
    zero, one = b.constant(np.array([0])), b.constant(np.array([1]))
    rest, two = b.constant(np.array([-1])), b.constant(np.array([2]))
    x = "x"
    while b.nodes < size:
        shape = b.add("Shape", x)
        rows, columns = b.add("Gather", shape, zero), b.add("Gather", shape, one)
        half = b.add("Div", b.add("Mul", columns, two), two)
        y = b.add("Reshape", x, b.add("Concat", b.add("Mul", rows, half), rest, axis=0))
        x = b.add("Reshape", b.add("Relu", y), b.add("Concat", rows, half, axis=0))
        x = b.add("Add", x, b.weights(1))
    return [("x", ["rows", "columns"])], [(x, ["rows", "columns"])]


def moves(b, size):
    """Transposes of reshapes, padded and sliced: each round divides the indices of the one before."""
    x = "x"
    halves, rows = b.constant(np.array([8, 4, 16])), b.constant(np.array([32, 16]))
    pads, zero, end = b.constant(np.array([1, 0, 0, 0])), b.constant(np.array([0])), b.constant(np.array([32]))
    while b.nodes < size:
        x = b.add("Reshape", b.add("Transpose", b.add("Reshape", x, halves), perm=[1, 0, 2]), rows)
        x = b.add("Slice", b.add("Pad", x, pads), zero, end, zero)
    return [("x", [32, 16])], [(x, [32, 16])]


FAMILIES = {f.__name__: f for f in (sines, residuals, neighbours, side_by_side, cells, nests, fans, shapes, moves)}


def make(family, size, path):
    builder = Builder()
    inputs, outputs = FAMILIES[family](builder, size)
    builder.save(path, inputs, outputs)
    return builder.nodes


def measure(tessera, path, cores, timeout):
    """CPU seconds, wall-clock seconds, peak megabytes and kernels of one cold compilation."""
    command = [tessera, "compile", str(path), "--no-cache", "--json", "--threads", str(cores)]

    def on_cores():
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
        resource.setrlimit(resource.RLIMIT_CPU, (timeout, timeout))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=on_cores)
    out, err = process.stdout.read(), process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    found = {"seconds": used.ru_utime + used.ru_stime, "megabytes": used.ru_maxrss / 1024}
    if process.returncode == 0:
        report = json.loads(out)
        found["kernels"] = report.get("kernels")
    else:
        found["error"] = err.decode().strip().splitlines()[:1] or [f"exit status {process.returncode}"]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tessera", help="the program, as build/bin/tessera")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES), metavar="NAME",
                        help=f"of {', '.join(FAMILIES)} (all)")
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, metavar="NODES", help="(%(default)s)")
    parser.add_argument("--cores", type=int, default=1, help="(%(default)s)")
    parser.add_argument("--timeout", type=int, default=120, help="CPU seconds for one size (%(default)s)")
    parser.add_argument("--limit", type=float, help="largest ratio for a doubling")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the graphs")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()

    rows, worst = [], 0.0
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for family in args.families:
            before = {}
            for size in sorted(args.sizes):
                path = folder / f"{family}_{size}.onnx"
                row = {"family": family, "size": size, "nodes": make(family, size, path)}
                row |= measure(args.tessera, path, args.cores, args.timeout)
                if size // 2 in before and "error" not in row:
                    row["ratio"] = row["seconds"] / before[size // 2]
                    if row["seconds"] >= SHORTEST:
                        worst = max(worst, row["ratio"])
                rows.append(row)
                if not args.json:
                    print(f"{family:13} {row['nodes']:6} nodes {row['seconds']:8.2f} s {row.get('ratio', 0):6.2f}x "
                          f"{row['megabytes']:7.0f} MB  {row.get('kernels', '-')} kernels {row.get('error', [''])[0]}",
                          flush=True)
                if "error" in row:
                    break
                before[size] = row["seconds"]
    failed = any("error" in r for r in rows) or (args.limit is not None and worst > args.limit)
    if args.json:
        json.dump({"worst_ratio": worst, "rows": rows}, sys.stdout, indent=1)
        print()
    else:
        print(f"worst ratio of a doubling: {worst:.2f}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
