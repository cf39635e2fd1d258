#!/usr/bin/env python3
"""One compilation for all sizes against one for each: a model with symbolic batch and length, compiled once, and again
with every size fixed. Both run in one process, in turn; answers are compared with the reference.

Run it with a Python that has tessera and onnx (make python). The model comes from `bench/models/export.py bert`."""
import argparse
import pathlib
import statistics
import sys
import tempfile
import time

import numpy as np
import onnx

import tessera

SIZES = [(1, n) for n in (1, 2, 7, 16, 31, 32, 64, 100, 128, 200, 256, 384, 512)]
SIZES += [(2, 16), (2, 63), (3, 50), (4, 32), (4, 128), (7, 24), (8, 64)]
SLOWEST, WORST = 1.15, 1e-4


def fixed(path, sizes, folder):
    """The file with its inputs' dimensions fixed."""
    proto = onnx.load(path)
    for value in proto.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_value = sizes[dim.dim_param]
    del proto.graph.value_info[:]
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    target = folder / "fixed.onnx"
    onnx.save(proto, target)
    return tessera.load(target)


def seconds_of(first, second, inputs, rounds, clock):
    """The medians of both, run in turn."""
    times = ([], [])
    for _ in range(rounds + 1):
        for compiled, taken in zip((first, second), times):
            start = clock()
            compiled.run(inputs)
            taken.append(clock() - start)
    return [statistics.median(t[1:]) for t in times]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path, help="with the symbols `batch` and `sequence`")
    parser.add_argument("--threads", type=int, default=1, help="(%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--sizes", type=int, default=len(SIZES), help="only the first so many (%(default)s)")
    parser.add_argument("--clock", choices=("wall", "processor"), default="wall", help="processor: where others are busy")
    parser.add_argument("--no-reference", action="store_true", help="compare the answers with each other only")
    args = parser.parse_args()
    clock = time.process_time if args.clock == "processor" else time.perf_counter

    model = tessera.load(args.model)
    symbolic = tessera.compile(model, threads=args.threads)
    rng, broken = np.random.default_rng(0), []
    print(f"{'batch':>5} {'length':>6} {'symbolic ms':>12} {'fixed ms':>10} {'ratio':>6} {'error':>8}")
    for batch, length in SIZES[: args.sizes]:
        sizes = {"batch": batch, "sequence": length}
        inputs = {"input_ids": rng.integers(0, 30000, (batch, length)), "attention_mask": np.ones((batch, length), np.int64)}
        inputs = {p.name: inputs[p.name] for p in model.inputs}
        with tempfile.TemporaryDirectory() as folder:
            special = tessera.compile(fixed(args.model, sizes, pathlib.Path(folder)), threads=args.threads, cache="")
        ours, its = seconds_of(symbolic, special, inputs, args.rounds, clock)
        expected = special.run(inputs) if args.no_reference else model.run(inputs)
        answer = symbolic.run(inputs)
        error = max(float(np.abs(answer[n] - e).max() / np.abs(e).max()) for n, e in expected.items())
        print(f"{batch:>5} {length:>6} {ours * 1e3:>12.2f} {its * 1e3:>10.2f} {ours / its:>6.2f} {error:>8.1e}", flush=True)
        if ours > SLOWEST * its or not error <= WORST:
            broken.append((batch, length))
    print("every promise is kept" if not broken else f"not kept: {broken}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
