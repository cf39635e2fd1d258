#!/usr/bin/env python3
"""Runs whole quantized networks on the simulated accelerator, compares them bit by bit, and prints their cycles.

usage: bench/accelerator.py [--only resnet18,mobilenet_v1] [--size 224] [--width 1.0] [--machine FILE.json]
                            [--evaluate] [--markdown] [--layers] [--keep FOLDER]

Each network has random weights, is quantized by `tessera quantize`, and runs with --target tessel. Its outputs must equal
those of the compiled CPU code for the same integers (`tessera quantize --format integer`) in every bit. With --evaluate,
each part must also equal the reference evaluator, as `tessera compile --check` compares them. Needs a Python with NumPy and onnx."""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench" / "models"))
from image_networks import NETWORKS, images  # noqa: E402


def run(args, *words):
    done = subprocess.run([args.tessera, *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"tessera {' '.join(map(str, words))}\n{done.stderr}")
    return done.stdout


def scores(args, folder, model, *words):
    out = folder / "scores.npy"
    run(args, "run", model, "--input", f"image={folder / 'image.npy'}", "--output", f"scores={out}", *words)
    return np.load(out)


def network(args, name, folder):
    """What the command prints of one network."""
    model = folder / f"{name}.onnx"
    model.write_bytes(NETWORKS[name](args.size, args.width).SerializeToString())
    data = images(4, args.size)
    np.save(folder / "data.npy", data)
    np.save(folder / "image.npy", data[:1])
    run(args, "calibrate", model, "--data", folder / "data.npy", "-o", folder / "profile.json")
    for kind in ("qdq", "integer"):
        run(args, "quantize", model, "--profile", folder / "profile.json", "--format", kind, "-o", folder / f"{name}.{kind}.onnx")
    qdq, integer = folder / f"{name}.qdq.onnx", folder / f"{name}.integer.onnx"
    target = ["--target", "tessel", *(["--machine", args.machine] if args.machine else [])]
    want, got = scores(args, folder, integer), scores(args, folder, qdq, *target)
    same = [("CPU", np.array_equal(want, got))]
    if args.evaluate:
        image = ["--input", f"image={folder / 'image.npy'}"]
        checked = json.loads(run(args, "compile", qdq, *target, *image, "--check", "--json"))["check"]
        same.append(("evaluator", all(step["error"] == 0 for step in checked)))
    profile = json.loads(run(args, "profile", qdq, *target, "--latency-hiding", "--json"))
    return same, profile


def print_layers(profile, markdown):
    if markdown:
        print("\n| layer | cycles | matrix unit | without virtual threads | matrix unit |\n| --- | --- | --- | --- | --- |")
    for part in profile["parts"]:
        for layer in part["layers"]:
            one = layer["without_virtual_threads"]["cycles"]
            busy = [100 * layer["matrix_cycles"] / max(c, 1) for c in (layer["cycles"], one)]
            row = [layer["name"], f"{layer['cycles']:,}", f"{busy[0]:.1f} %", f"{one:,}", f"{busy[1]:.1f} %"]
            print("| " + " | ".join(row) + " |" if markdown else "  ".join(f"{c:>12}" for c in row[1:]) + "  " + row[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(NETWORKS))
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--width", type=float, default=1.0)
    parser.add_argument("--machine")
    parser.add_argument("--evaluate", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--layers", action="store_true")
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--tessera", default=ROOT / "build" / "bin" / "tessera")
    args = parser.parse_args()
    head = ["network", "MACs", "cycles", "MACs a cycle", "without virtual threads", "scalar host", "times fewer", "equal to"]
    print("| " + " | ".join(head) + " |\n|" + " --- |" * len(head) if args.markdown else "  ".join(f"{h:>14}" for h in head))
    differs = False
    for name in args.only.split(","):
        with tempfile.TemporaryDirectory() as temporary:
            folder = args.keep or pathlib.Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            same, p = network(args, name, folder)
        differs |= not all(equal for _, equal in same)
        row = [name, f"{p['macs'] / 1e6:,.0f} M", f"{p['cycles']:,}", f"{p['macs'] / p['cycles']:.0f}",
               f"{p['cycles_without_virtual_threads']:,}", f"{p['scalar_cycles']:,}", f"{p['speedup_over_scalar']:.0f}",
               ", ".join(what if equal else f"NOT {what}" for what, equal in same)]
        print("| " + " | ".join(row) + " |" if args.markdown else "  ".join(f"{c:>14}" for c in row), flush=True)
        if args.layers:
            print_layers(p, args.markdown)
    sys.exit(1 if differs else 0)


if __name__ == "__main__":
    main()
