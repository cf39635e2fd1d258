#!/usr/bin/env python3
"""Exports the benchmark models to ONNX, by torch's current exporter and by its old one.

Writes DIR/<name>.<dynamo|script>.onnx with the weights inside, DIR/<name>.npz with example inputs, and
DIR/<name>.expected.npz with what torch computes from them.
Run it with the Python of the environment that bench/venv.sh makes."""
import argparse
import contextlib
import io
import logging
import pathlib
import sys
import time
import warnings

import numpy as np
import onnx
import onnxruntime
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import zoo  # noqa: E402

EXPORTERS = ("dynamo", "script")


def export(example, exporter, path, dynamic):
    args = tuple(example.inputs.values())
    axes = [example.dynamic.get(n, {}) for n in example.inputs] if dynamic else []
    options = {"input_names": list(example.inputs), "output_names": example.outputs}
    if exporter == "dynamo":
        options |= {"dynamo": True, "external_data": False}
        if any(axes):
            # A model that takes *args takes one tuple, so its shapes come as one too.
            starred = isinstance(example.model, zoo.OneOutput)
            options["dynamic_shapes"] = (tuple(axes),) if starred else tuple(axes)
    else:
        options["dynamo"] = False
        if any(axes):
            options["dynamic_axes"] = {n: a for n, a in zip(example.inputs, axes) if a}
    torch.onnx.export(example.model, args, str(path), **options)


def error_against_torch(example, expected, path):
    """Largest difference to torch's answer, relative to its largest element; both run on the example inputs."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    actual = session.run(None, {n: t.numpy() for n, t in example.inputs.items()})[0]
    return float(np.abs(actual - expected).max() / np.abs(expected).max())


def cause(error):
    """The first line of what went wrong first."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {next((line.strip() for line in str(error).splitlines() if line.strip()), '')}"


def export_one(name, exporter, out, verbose):
    """Returns one line for the table, or raises what the exporter raised."""
    path = out / f".{name}.{exporter}.onnx"  # takes its name when it is whole
    example = zoo.build(name)
    np.savez(out / f"{name}.npz", **{n: t.numpy() for n, t in example.inputs.items()})
    with torch.no_grad():
        expected = example.model(*example.inputs.values()).numpy()
    np.savez(out / f"{name}.expected.npz", **{example.outputs[0]: expected})
    start, notes = time.monotonic(), []
    attempts = ["as is"]
    if isinstance(example.model, zoo.OneOutput):
        attempts.append("eager attention")
    if example.dynamic:
        attempts.append("static shapes")
    for attempt in attempts:
        try:
            if attempt == "eager attention":
                example.model.model.set_attn_implementation("eager")
            with contextlib.nullcontext() if verbose else contextlib.redirect_stdout(io.StringIO()):
                export(example, exporter, path, dynamic=attempt != "static shapes")
            notes += [] if attempt == "as is" else [f"  WITH {attempt}: {notes.pop()}"]
            break
        except Exception as error:
            path.unlink(missing_ok=True)
            if attempt is attempts[-1]:
                raise
            notes = [f"without, {cause(error)}"]
    seconds = time.monotonic() - start
    model = onnx.load(path)
    onnx.checker.check_model(model)
    opset = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    symbols = {d.dim_param for i in model.graph.input for d in i.type.tensor_type.shape.dim if d.dim_param}
    megabytes, error = path.stat().st_size / 2**20, error_against_torch(example, expected, path)
    path.rename(out / f"{name}.{exporter}.onnx")
    return (
        f"opset {opset}  {len(model.graph.node):5d} top-level nodes  {megabytes:6.1f} MiB  "
        f"symbols: {', '.join(sorted(symbols)) or '-':16s}  error to torch {error:.1e}  "
        f"{seconds:.0f} s{''.join(notes)}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="name", help=f"or a group of them ({', '.join(zoo.GROUPS)}); by default all")
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument("--exporter", choices=EXPORTERS, action="append", help="only this one")
    parser.add_argument("--force", action="store_true", help="also what is there already")
    parser.add_argument("--verbose", action="store_true", help="what the exporters print, too")
    args = parser.parse_args()
    names = [n for name in args.names or ["all"] for n in zoo.GROUPS.get(name, [name])]
    unknown = [n for n in names if zoo.parts(n) is None]
    if unknown:
        parser.error(f"no model {unknown[0]}; there are {', '.join(zoo.ALL)}, and those of fixed sizes with _b<batch>")
    args.out.mkdir(parents=True, exist_ok=True)
    if not args.verbose:
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)

    exporters = args.exporter or EXPORTERS
    failed, done, total = [], 0, len(names) * len(exporters)
    for name in names:
        for exporter in exporters:
            done += 1
            line = f"[{done}/{total}] {name + '.' + exporter:26s}"
            if not args.force and (args.out / f"{name}.{exporter}.onnx").exists():
                print(f"{line} is there already", flush=True)
                continue
            try:
                print(line, export_one(name, exporter, args.out, args.verbose), flush=True)
            except Exception as error:
                print(f"{line} FAILED: {cause(error)}", flush=True)
                failed.append(f"{name}.{exporter}")
    print(f"{total - len(failed)} of {total} exported" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return 1 if len(failed) == total else 0


if __name__ == "__main__":
    sys.exit(main())
