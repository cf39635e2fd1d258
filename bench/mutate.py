#!/usr/bin/env python3
"""What `tessera optimize --search --mutate` gains: each model is searched once, which gives what is chosen without mutants
and what is chosen with them; the two are then measured in turns.

With --target cuda all of it is timed on a GPU, by its own clock, and compared with what torch computed on export.

Models come from `bench/models/export.py mutate`. Run it with a Python that has NumPy. With --json FILE it goes on where it
was stopped."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE), str(HERE / "models")]
from groups import MUTATE, MUTATE_ONE  # noqa: E402
from peers import hash_of  # noqa: E402
from search import Stored, base_of, batch_of, finish, prepare, seconds, tolerance  # noqa: E402
from speed import aligned, geometric_mean, inputs_of, processor  # noqa: E402

MARKERS = ("<!-- mutate: begin -->", "<!-- mutate: end -->")
GPU_MARKERS = ("<!-- mutate on a GPU: begin -->", "<!-- mutate on a GPU: end -->")
EACH_AT_LEAST, MEAN_AT_LEAST, CSRNET_AT_LEAST = 0.99, 1.08, 1.4
MOST_SECONDS, MOST_GB = 60, 2
# Gains that PET's paper gives (OSDI 2021, on a V100), at batch 1 and 16, over the best that it compares with.
PET = {
    "resnet18": (1.04, 1.21),
    "csrnet": (2.21, 2.51),
    "inception_v3": (1.24, 1.44),
    "bert_s128": (1.40, 1.19),
    "resnet3d_18": (1.00, 1.28),
}


GPU = "GPU"  # in the place of threads


def tessera(args, *words):
    """What it prints as JSON with the most memory that it took, or {"failed": why}."""
    command = [str(w) for w in (args.tessera, *words, "--json")]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = subprocess.Popen(command, stdout=out, stderr=err, env=dict(os.environ, TESSERA_CACHE=str(args.cache)))
        late = threading.Timer(args.limit, child.kill)
        late.start()
        _, status, usage = os.wait4(child.pid, 0)
        if not late.is_alive():
            return {"failed": f"{words[0]} took longer than {args.limit:g} s"}
        late.cancel()
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if child.returncode != 0:
            return {"failed": next(iter(err.read().strip().splitlines()), f"{words[0]}: exit {child.returncode}")}
        return json.load(out) | {"peak_gb": usage.ru_maxrss * 1024 / 1e9}


def on_gpu(args):
    return args.target != "host"


def expected_of(path, folder):
    """What torch computed on export, as files, one for each output; none where it was not kept."""
    stored = path.with_name(path.name.split(".")[0] + ".expected.npz")
    flags = []
    for name, array in np.load(stored).items() if stored.exists() else ():
        file = folder / f"expected.{len(flags)}.npy"
        np.save(file, array)
        flags += ["--expected", f"{name}={file}"]
    return flags


def measure(files, path, threads, args):
    """The time without mutants over that with them; of one file alone only its time."""
    clock = "device" if on_gpu(args) else args.clock or ("processor" if threads == 1 else "wall")
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--threads", threads, "--runs", args.runs, "--seconds", args.seconds, "--clock", clock]
        flags += ["--against", files[1]] if len(files) > 1 else []
        flags += ["--target", args.target, *expected_of(path, pathlib.Path(folder))] if on_gpu(args) else []
        inputs = inputs_of(path, pathlib.Path(folder))
        done = tessera(args, "bench", files[0], *inputs, *flags, "--progress", "never")
    if "failed" in done:
        return done
    ours, other = [*done["measured"][0]["runners"], None][:2]
    record = {"with_s": ours["median_s"], "clock": clock}
    errors = [float(r["error"]) for r in (ours, other) if r and "error" in r]
    record |= {"error": max(errors)} if errors else {}
    if other is None:
        return record | {"without_s": ours["median_s"]}
    record |= {"without_s": other["median_s"], "ratio": other["ratio"]}
    return record | {"quartiles": other["ratio_quartiles"], "difference": float(other.get("difference", "inf"))}


def search_and_measure(path, threads, args):
    files = [args.out / f"{path.stem}.{which}.onnx" for which in ("with", "without")]
    try:
        flags = [f"--search={args.search:g}", f"--mutate={args.mutate:g}", "--threads", threads, *args.flag]
        flags += ["--target", args.target] if on_gpu(args) else []
        began = time.monotonic()
        done = tessera(args, "optimize", path, *flags, "-o", files[0], "--without-mutants", files[1], "--progress", "never")
        if "failed" in done:
            return done
        report = done["search"]
        made = report["mutate"]
        used = report["candidates"][report["chosen"]]["rules"]
        names = {rule["rule"] for rule in made["rules"]}
        record = {
            "wall_s": time.monotonic() - began,
            "made": len(made["rules"]),
            "targets": made["targets"],
            "remembered": made["remembered"],
            "make_s": made["seconds"],
            "beyond_s": made["whole_seconds"],
            "complete": made["complete"],
            "peak_gb": done["peak_gb"],
            "device": report.get("device", "cpu"),
            "search_speedup": report.get("speedup"),
            "measured": report.get("measured"),
            "search_gain": made["gain"],
            "rules": {r["rule"]: r["times"] for r in used if r["rule"] in names or "-corrected-" in r["rule"]},
            "recomputed": {r["rule"]: r["boxes"] for r in made["rules"] if r["rule"] in {u["rule"] for u in used}},
            "hashes": [hash_of(file) for file in files],
            "load": os.getloadavg()[1],
        }
        if record["hashes"][0] == record["hashes"][1]:  # what is chosen without mutants stays
            record |= {"ratio": 1.0, "same": True, "difference": 0.0}
            return record | measure(files[:1], path, threads, args) if on_gpu(args) else record
        return record | measure(files, path, threads, args)
    finally:
        for file in files:
            file.unlink(missing_ok=True)


def row_of(key, record):
    name, threads = key.split("@")
    base, batch = base_of(name), batch_of(name)
    pet = PET[base][0 if batch == 1 else 1]
    if "failed" in record:
        return [base, str(batch), threads, f"failed: {record['failed']}"] + [""] * 6 + [f"{pet:.2f}"]
    digits = 3 if threads == GPU else 1
    times = [f"{record[k] * 1e3:.{digits}f}" if k in record else "" for k in ("without_s", "with_s")]
    gain = "1, the same program" if "same" in record else "{:.2f} ({:.2f}–{:.2f})".format(record["ratio"], *record["quartiles"])
    row = [base, str(batch), threads, *times, gain, f"{record['made']} of {record['targets']}", seconds(record["make_s"])]
    return row + [seconds(record["beyond_s"]), f"{record['peak_gb']:.1f}", f"{pet:.2f}"]


def table(records):
    heads = ["model", "batch", "threads", "without ms", "with ms", "gain", "rules of products", "making s", "beyond s"]
    heads += ["peak GB", "PET's gain"]
    rows = [row_of(key, record) for key, record in records.items()]
    known = [r["ratio"] for r in records.values() if "ratio" in r]
    pet = [PET[base_of(key.split("@")[0])][0 if batch_of(key.split("@")[0]) == 1 else 1] for key in records]
    if known:
        mean = ["**geometric mean**", "", "", "", "", f"**{geometric_mean(known):.3f}**", "", "", "", ""]
        rows.append(mean + [f"{geometric_mean(pet):.2f}"])
    return aligned(heads, rows)


def broken_promises(records, gpu=False):
    broken = []
    for key, record in records.items():
        if "failed" in record:
            broken.append(f"{key}: {record['failed']}")
            continue
        if record["ratio"] < EACH_AT_LEAST:
            broken.append(f"{key}: {record['ratio']:.3f}")
        if key.startswith("csrnet") and record["ratio"] < CSRNET_AT_LEAST:
            broken.append(f"{key}: {record['ratio']:.3f}, not {CSRNET_AT_LEAST}")
        if record["beyond_s"] > MOST_SECONDS:
            broken.append(f"{key}: {record['beyond_s']:.0f} s beyond the search")
        if not gpu and record["peak_gb"] > MOST_GB:  # on a GPU weights are held for both
            broken.append(f"{key}: {record['peak_gb']:.1f} GB")
        if not record["difference"] <= tolerance(key):
            broken.append(f"{key}: differs by {record['difference']:.1e}")
        if gpu and not record.get("error", float("inf")) <= tolerance(key):
            error = f"{record['error']:.1e}" if "error" in record else "a number that is not known"
            broken.append(f"{key}: differs from torch by {error}")
    known = [r["ratio"] for r in records.values() if "ratio" in r]
    if known and geometric_mean(known) < MEAN_AT_LEAST:
        broken.append(f"geometric mean {geometric_mean(known):.3f}, not {MEAN_AT_LEAST}")
    return broken


def machine(records, gpu):
    if gpu:
        names = sorted({r["device"] for r in records.values() if "device" in r})
        errors = [r["error"] for r in records.values() if "error" in r]
        agreed = f"; outputs differ from torch's by {max(errors):.0e} at most" if errors else ""
        return f"{' and '.join(names)}, by its own clock, without copies{agreed}"
    loads = [r["load"] for r in records.values() if "load" in r]
    busy = f", under a load of {min(loads):.0f} to {max(loads):.0f}" if loads else ""
    return f"{processor()}, {len(os.sched_getaffinity(0))} cores{busy}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=pathlib.Path, required=True, metavar="DIR", help="what export.py wrote")
    parser.add_argument("--tessera", type=pathlib.Path, default=ROOT / "build/bin/tessera", metavar="PATH")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=MUTATE, help=f"of {', '.join(MUTATE_ONE)}, each also with _b16")
    parser.add_argument("--exporter", default="dynamo", help="which file of each (%(default)s)")
    parser.add_argument("--search", type=float, default=60, metavar="S", help="seconds given to each search (%(default)s)")
    parser.add_argument("--mutate", type=float, default=60, metavar="S", help="seconds beyond it, for mutants (%(default)s)")
    parser.add_argument("--target", default="host", help="or cuda, cuda:1: all is timed on that GPU (%(default)s)")
    parser.add_argument("--threads", default="1,2", help="each with a search of its own, but for a GPU (%(default)s)")
    parser.add_argument("--runs", type=int, default=5, help="at least this many of each (%(default)s)")
    parser.add_argument("--seconds", type=float, default=3, help="at least this long for each (%(default)s)")
    parser.add_argument("--clock", choices=("wall", "processor"), help="of one thread processor, of more wall")
    parser.add_argument("--limit", type=float, default=1800, metavar="S", help="of each command (%(default)s)")
    parser.add_argument("--minutes", type=float, help="begin no row after so many")
    parser.add_argument("--cache", type=pathlib.Path, metavar="DIR", help="compiled code and measured costs (OUT/cache)")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build-bench/mutate", metavar="DIR")
    parser.add_argument("--flag", action="append", default=[], help="passed on to tessera optimize")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="everything measured; what is there stays")
    parser.add_argument("--markdown", action="store_true", help="put the table into docs/corrected.md")
    args = parser.parse_args()
    names = prepare(parser, args, MUTATE, "mutate")
    settings = {k: getattr(args, k) for k in ("search", "mutate", "clock", "exporter", "flag")}
    settings |= {"target": args.target} if on_gpu(args) else {}
    try:
        stored = Stored(args.json, settings)
    except ValueError as error:
        parser.error(f"{error}; name another file")
    build, began = hash_of(args.tessera), time.monotonic()
    columns = [GPU] if on_gpu(args) else args.threads.split(",")
    for name, column in [(n, c) for n in names for c in columns]:
        key = f"{name}@{column}"
        if "ratio" in stored.records.get(key, {}):
            continue
        if args.minutes and time.monotonic() - began > 60 * args.minutes:
            print(f"{args.minutes:g} minutes are over: {key} and what follows is left", file=sys.stderr)
            break
        print(f"{(time.monotonic() - began) / 60:4.1f} min  {key}: ", end="", file=sys.stderr, flush=True)
        path = args.models / f"{name}.{args.exporter}.onnx"
        record = search_and_measure(path, 1 if on_gpu(args) else int(column), args) | {"build": build}
        print(record.get("failed") or f"{record['ratio']:.3f}, {record['beyond_s']:.1f} s beyond", file=sys.stderr, flush=True)
        stored.records[key] = record
        stored.write()
    order = [f"{n}@{c}" for n in MUTATE for c in columns]
    records = {key: stored.records[key] for key in order if key in stored.records}
    text = f"{machine(records, on_gpu(args))}; medians of alternating runs.\n\n{table(records)}"
    page = args.markdown and ROOT / "docs/corrected.md"
    return finish(text, broken_promises(records, on_gpu(args)), page, GPU_MARKERS if on_gpu(args) else MARKERS)


if __name__ == "__main__":
    sys.exit(main())
