#!/usr/bin/env python3
"""Runs whole quantized networks on the simulated accelerator, compares them bit by bit, and prints their cycles.

usage: bench/accelerator.py [--only resnet18,mobilenet_v1] [--size 224] [--width 1.0] [--machine FILE.json]
                            [--evaluate] [--markdown] [--layers] [--picture] [--keep FOLDER]

Each network has random weights, is quantized by `tessera quantize`, and runs with --target tessel. Its outputs must equal
those of the compiled CPU code for the same integers (`tessera quantize --format integer`) in every bit. With --evaluate,
each part must also equal the reference evaluator, as `tessera compile --check` compares them. --picture draws docs/pictures/latency_hiding.svg of the first network. Needs a Python with NumPy and onnx."""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench" / "models"), str(ROOT / "tools")]
from image_networks import NETWORKS, images  # noqa: E402
from pictures import LINE, OURS, QUIET, TEXT, Picture  # noqa: E402


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


def draw(name, profile):
    """The roofline of the convolutions, with and without virtual threads."""
    part = profile["parts"][0]
    rate = part["megahertz"] * 1e6
    peak, bandwidth = 2 * part["macs_per_cycle"] * rate / 1e9, part["bytes_per_cycle"] * rate / 1e9
    layers = [layer for layer in part["layers"] if layer["macs"]]
    xs, ys, (left, right, top, bottom) = (8.0, 512.0), (8.0, 64.0), (70, 740, 62, 380)
    share = lambda n, low, high: math.log(n / low) / math.log(high / low)
    at = lambda x, y: (left + share(x, *xs) * (right - left), bottom - share(y, *ys) * (bottom - top))
    p = Picture(760, 430, f"Roofline of {name} on {part['machine']}, with and without virtual threads")
    p.text(16, 26, f"{len(layers)} convolutions of {name} on {part['machine']}", size=14, weight="600")
    p.text(16, 44, "Full: two virtual threads. Open: one, nothing overlaps. The slope is one memory channel; reads and writes have one each.", QUIET, 11)
    for k in range(3, 10):
        x, _ = at(2.0 ** k, ys[0])
        p.line(x, top, x, bottom)
        p.text(x, bottom + 18, f"{2 ** k}", QUIET, 11, "middle")
    for k in range(3, 7):
        _, y = at(xs[0], 2.0 ** k)
        p.line(left, y, right, y)
        p.text(left - 6, y + 4, f"{2 ** k} Gop/s", QUIET, 11, "end")
    p.text((left + right) / 2, bottom + 38, "operations per byte moved", QUIET, 11, "middle")
    ridge = peak / bandwidth
    p.line(*at(xs[0], xs[0] * bandwidth), *at(ridge, peak), TEXT, 1.8)
    p.line(*at(ridge, peak), *at(xs[1], peak), TEXT, 1.8)
    p.text(right - 4, at(ridge, peak)[1] - 6, f"{peak:.1f} Gop/s, {bandwidth:.1f} GB/s", size=12, anchor="end")
    for layer in layers:
        one, fill = layer["without_virtual_threads"], "#ffffff"
        points = [at(2 * layer["macs"] / run["bytes"], 2 * layer["macs"] / run["cycles"] * rate / 1e9) for run in (one, layer)]
        p.line(*points[0], *points[1], LINE, 1.2)
        p.dot(*points[0], 4, fill)
        p.dot(*points[1], 6, OURS)
    p.save("latency_hiding.svg")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(NETWORKS))
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--width", type=float, default=1.0)
    parser.add_argument("--machine")
    parser.add_argument("--evaluate", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--layers", action="store_true")
    parser.add_argument("--picture", action="store_true")
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
        if args.picture and name == args.only.split(",")[0]:
            draw(name, p)
    sys.exit(1 if differs else 0)


if __name__ == "__main__":
    main()
