#!/usr/bin/env python3
"""How fast compiled models are beside ONNX Runtime: `tessera bench` on each of the benchmark models, as a table.

Models come from `bench/models/export.py speed`. Run it with a Python that has NumPy and the peers."""
import argparse
import json
import math
import os
import pathlib
import platform
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "models"))
from groups import SPEED  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
MARKERS = ("<!-- speed: begin -->", "<!-- speed: end -->")
MEAN_AT_LEAST, EACH_AT_LEAST = 1.3, 0.95
ERROR_AT_MOST = 2  # times the peer's own


def inputs_of(path, folder):
    """The example inputs as files, one for each."""
    stored = path.with_name(path.name.split(".")[0] + ".npz")
    flags = []
    for name, array in np.load(stored).items():
        file = folder / f"{name}.npy"
        np.save(file, array)
        flags += ["--input", f"{name}={file}"]
    return flags


def measure(path, args):
    """{threads: {runner: record}}, or {"failed": why}."""
    with tempfile.TemporaryDirectory() as folder:
        command = [args.tessera, "bench", path, *inputs_of(path, pathlib.Path(folder)), "--json", "--progress", "never"]
        command += ["--against", args.against, "--threads", args.threads, "--python", sys.executable]
        command += ["--runs", args.runs, "--seconds", args.seconds, "--clock", args.clock, *args.flag]
        command += ["--accuracy"] if args.accuracy else []
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        return {"failed": done.stderr.strip().splitlines()[0] if done.stderr.strip() else f"exit {done.returncode}"}
    measured = json.loads(done.stdout)["measured"]
    return {str(m["threads"]): {r["name"]: r for r in m["runners"]} for m in measured}


def milliseconds(record):
    return "failed" if "failed" in record else f"{record['median_s'] * 1e3:.2f}"


def cells(name, threads, runners, peers):
    ours = runners["tessera"]
    row = [name, threads, milliseconds(ours)]
    for peer in peers:
        record = runners[peer]
        row.append(milliseconds(record))
        if "failed" in record:
            row.append("-")
        else:
            low, high = record["ratio_quartiles"]
            row.append(f"{record['ratio']:.2f} ({low:.2f}–{high:.2f})")
    first = runners[peers[0]]
    row.append(f"{ours['peak_rss'] / 1e6:.0f} / {first.get('peak_rss', 0) / 1e6:.0f}")
    row.append(f"{ours['load_s']:.2f}")
    if "error" in ours and "error" in first:
        row.append(f"{float(ours['error']):.1e} / {float(first['error']):.1e}")
    else:
        row.append(f"{float(first['difference']):.1e}" if "difference" in first else "-")
    return row


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def ratios(records, peer):
    """By number of threads: {model: ratio}."""
    found = {}
    for name, record in records.items():
        for threads, runners in record.items():
            if threads != "failed" and "ratio" in runners[peer]:
                found.setdefault(threads, {})[name] = runners[peer]["ratio"]
    return found


def aligned(heads, rows, left=(0,)):
    """A table in markdown; `left` are the columns of words."""
    widths = [max(len(r[i]) for r in [heads, *rows]) for i in range(len(heads))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths)) + " |" for row in [heads, *rows]]
    rule = "| " + " | ".join(("---" if i in left else "---:").ljust(w) for i, w in enumerate(widths)) + " |"
    return "\n".join([lines[0], rule, *lines[1:]])


def table(records, peers, accuracy):
    heads = ["model", "threads", "tessera ms"]
    for peer in peers:
        heads += [f"{peer} ms", "ratio"]
    heads += [f"peak MB, ours / {peers[0]}", "load s", f"error, ours / {peers[0]}" if accuracy else "difference"]
    rows = []
    for name, record in records.items():
        if "failed" in record:
            rows.append([name, "", f"failed: {record['failed']}"] + [""] * (len(heads) - 3))
            continue
        rows += [cells(name, threads, runners, peers) for threads, runners in record.items()]
    for threads in sorted({t for peer in peers for t in ratios(records, peer)}, key=int):
        row = ["**geometric mean**", threads, ""]
        for peer in peers:
            of_peer = ratios(records, peer).get(threads, {})
            row += ["", f"**{geometric_mean(of_peer.values()):.2f}**" if of_peer else ""]
        rows.append(row + [""] * (len(heads) - len(row)))
    return aligned(heads, rows)


def processor():
    try:
        described = subprocess.run(["lscpu"], capture_output=True, text=True).stdout
        return next(line.split(":", 1)[1].strip() for line in described.splitlines() if line.startswith("Model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"


def describe_run(records, args):
    versions = {}
    for record in records.values():
        for threads, runners in record.items():
            if threads != "failed":
                versions |= {n: r["version"] for n, r in runners.items() if r.get("version")}
    named = ", ".join(f"{n} {v}" for n, v in versions.items())
    clock = "processor time" if args.clock == "processor" else "wall time"
    return f"Made on {platform.machine()} ({processor()}, {len(os.sched_getaffinity(0))} cores) with {named}; {clock}, medians."


def broken_promises(records, peer, accuracy):
    broken = [f"{name}: {record['failed']}" for name, record in records.items() if "failed" in record]
    for threads, by_model in ratios(records, peer).items():
        mean = geometric_mean(by_model.values())
        if mean < MEAN_AT_LEAST:
            broken.append(f"{threads} threads: geometric mean {mean:.2f}, not {MEAN_AT_LEAST}")
        broken += [f"{n} with {threads} threads: {r:.2f}" for n, r in by_model.items() if r < EACH_AT_LEAST]
    for name, record in records.items() if accuracy else ():
        for threads, runners in record.items():
            if threads == "failed" or "error" not in runners[peer]:
                continue
            ours, theirs = float(runners["tessera"]["error"]), float(runners[peer]["error"])
            if ours > ERROR_AT_MOST * theirs:
                broken.append(f"{name} with {threads} threads: error {ours:.1e}, {peer}'s is {theirs:.1e}")
    return broken


def replace_between_markers(path, text, markers=MARKERS):
    whole = path.read_text()
    begin, end = (whole.index(m) for m in markers)
    path.write_text(whole[: begin + len(markers[0])] + "\n" + text + "\n" + whole[end:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=pathlib.Path, required=True, metavar="DIR", help="what export.py wrote")
    parser.add_argument("--tessera", type=pathlib.Path, default=ROOT / "build/bin/tessera", metavar="PATH")
    parser.add_argument("--names", nargs="+", metavar="NAME", default=SPEED, help="only these")
    parser.add_argument("--exporter", default="dynamo", help="which file of each (%(default)s)")
    parser.add_argument("--against", default="onnxruntime", help="peers, the first of them the one that counts (%(default)s)")
    parser.add_argument("--threads", default="1,all", help="(%(default)s)")
    parser.add_argument("--runs", type=int, default=10, help="at least this many of each (%(default)s)")
    parser.add_argument("--seconds", type=float, default=4, help="at least this long for each (%(default)s)")
    parser.add_argument("--clock", choices=("wall", "processor"), default="wall", help="processor: where others are busy")
    parser.add_argument("--accuracy", action="store_true", help="errors to the reference in f64, too")
    parser.add_argument("--flag", action="append", default=[], help="passed on to tessera bench")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="everything measured")
    parser.add_argument("--markdown", action="store_true", help="put the table into docs/benchmarks.md")
    args = parser.parse_args()

    files = {name: args.models / f"{name}.{args.exporter}.onnx" for name in args.names}
    missing = [str(f) for f in files.values() if not f.exists()]
    if missing:
        parser.error(f"there is no {missing[0]}: run bench/models/export.py --out {args.models} speed")
    peers, records = args.against.split(","), {}
    for number, (name, path) in enumerate(files.items(), 1):
        print(f"[{number}/{len(files)}] {name}:", end="", file=sys.stderr, flush=True)
        record = records[name] = measure(path, args)
        parts = [f"{t} threads {r[peers[0]].get('ratio', float('nan')):.2f}" for t, r in record.items() if t != "failed"]
        print(" " + (", ".join(parts) or record.get("failed", "")), file=sys.stderr, flush=True)
        if args.json:
            args.json.write_text(json.dumps(records, indent=1))
    text = f"{describe_run(records, args)}\n\n{table(records, peers, args.accuracy)}"
    print(text)
    if args.markdown:
        replace_between_markers(ROOT / "docs/benchmarks.md", text)
    broken = broken_promises(records, peers[0], args.accuracy)
    print("every promise is kept" if not broken else "\n".join(["not kept:", *broken]), file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
