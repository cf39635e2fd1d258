#!/usr/bin/env python3
"""What `tessera optimize --search --mutate` gains: each model is searched once, which gives what is chosen without mutants
and what is chosen with them; the two are then measured in turns.

Models come from `bench/models/export.py mutate`. Run it with a Python that has NumPy. With --json FILE it goes on where it
was stopped."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE), str(HERE / "models")]
from groups import MUTATE, MUTATE_ONE  # noqa: E402
from peers import hash_of  # noqa: E402
from search import Stored, base_of, batch_of, finish, prepare, seconds, tolerance  # noqa: E402
from speed import aligned, geometric_mean, inputs_of, processor  # noqa: E402

MARKERS = ("<!-- mutate: begin -->", "<!-- mutate: end -->")
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


def tessera(args, *words):
    """What it prints as JSON with the most memory that it took, or {"failed": why}."""
    command = [str(w) for w in (args.tessera, *words, "--json")]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = subprocess.Popen(command, stdout=out, stderr=err, env=dict(os.environ, TESSERA_CACHE=str(args.cache)))
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if child.returncode != 0:
            return {"failed": next(iter(err.read().strip().splitlines()), f"{words[0]}: exit {child.returncode}")}
        return json.load(out) | {"peak_gb": usage.ru_maxrss * 1024 / 1e9}


def measure(files, path, threads, args):
    """The time without mutants over that with them."""
    clock = args.clock or ("processor" if threads == 1 else "wall")
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--threads", threads, "--runs", args.runs, "--seconds", args.seconds, "--clock", clock]
        inputs = inputs_of(path, pathlib.Path(folder))
        done = tessera(args, "bench", files[0], "--against", files[1], *inputs, *flags, "--progress", "never")
    if "failed" in done:
        return done
    ours, other = done["measured"][0]["runners"]
    record = {"with_s": ours["median_s"], "without_s": other["median_s"], "ratio": other["ratio"], "clock": clock}
    return record | {"quartiles": other["ratio_quartiles"], "difference": float(other.get("difference", "inf"))}


def search_and_measure(path, threads, args):
    files = [args.out / f"{path.stem}.{which}.onnx" for which in ("with", "without")]
    try:
        flags = [f"--search={args.search:g}", f"--mutate={args.mutate:g}", "--threads", threads, *args.flag]
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
            "search_gain": made["gain"],
            "rules": {r["rule"]: r["times"] for r in used if r["rule"] in names or "-corrected-" in r["rule"]},
            "recomputed": {r["rule"]: r["boxes"] for r in made["rules"] if r["rule"] in {u["rule"] for u in used}},
            "hashes": [hash_of(file) for file in files],
            "load": os.getloadavg()[1],
        }
        if record["hashes"][0] == record["hashes"][1]:  # what is chosen without mutants stays
            return record | {"ratio": 1.0, "same": True, "difference": 0.0}
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
    times = ["", ""] if "same" in record else [f"{record[k] * 1e3:.1f}" for k in ("without_s", "with_s")]
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


def broken_promises(records):
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
        if record["peak_gb"] > MOST_GB:
            broken.append(f"{key}: {record['peak_gb']:.1f} GB")
        if not record["difference"] <= tolerance(key):
            broken.append(f"{key}: differs by {record['difference']:.1e}")
    known = [r["ratio"] for r in records.values() if "ratio" in r]
    if known and geometric_mean(known) < MEAN_AT_LEAST:
        broken.append(f"geometric mean {geometric_mean(known):.3f}, not {MEAN_AT_LEAST}")
    return broken


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=pathlib.Path, required=True, metavar="DIR", help="what export.py wrote")
    parser.add_argument("--tessera", type=pathlib.Path, default=ROOT / "build/bin/tessera", metavar="PATH")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=MUTATE, help=f"of {', '.join(MUTATE_ONE)}, each also with _b16")
    parser.add_argument("--exporter", default="dynamo", help="which file of each (%(default)s)")
    parser.add_argument("--search", type=float, default=60, metavar="S", help="seconds given to each search (%(default)s)")
    parser.add_argument("--mutate", type=float, default=60, metavar="S", help="seconds beyond it, for mutants (%(default)s)")
    parser.add_argument("--threads", default="1,2", help="each with a search of its own (%(default)s)")
    parser.add_argument("--runs", type=int, default=5, help="at least this many of each (%(default)s)")
    parser.add_argument("--seconds", type=float, default=3, help="at least this long for each (%(default)s)")
    parser.add_argument("--clock", choices=("wall", "processor"), help="of one thread processor, of more wall")
    parser.add_argument("--cache", type=pathlib.Path, metavar="DIR", help="compiled code and measured costs (OUT/cache)")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build-bench/mutate", metavar="DIR")
    parser.add_argument("--flag", action="append", default=[], help="passed on to tessera optimize")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="everything measured; what is there stays")
    parser.add_argument("--markdown", action="store_true", help="put the table into docs/corrected.md")
    args = parser.parse_args()
    names = prepare(parser, args, MUTATE, "mutate")
    settings = {k: getattr(args, k) for k in ("search", "mutate", "clock", "exporter", "flag")}
    try:
        stored = Stored(args.json, settings)
    except ValueError as error:
        parser.error(f"{error}; name another file")
    build = hash_of(args.tessera)
    for name in names:
        for threads in map(int, args.threads.split(",")):
            key = f"{name}@{threads}"
            if "ratio" in stored.records.get(key, {}):
                continue
            print(f"{key}: ", end="", file=sys.stderr, flush=True)
            record = search_and_measure(args.models / f"{name}.{args.exporter}.onnx", threads, args) | {"build": build}
            print(record.get("failed") or f"{record['ratio']:.3f}, {record['beyond_s']:.1f} s beyond", file=sys.stderr, flush=True)
            stored.records[key] = record
            stored.write()
    order = [f"{n}@{t}" for n in MUTATE for t in map(int, args.threads.split(","))]
    records = {key: stored.records[key] for key in order if key in stored.records}
    loads = [r["load"] for r in records.values() if "load" in r]
    busy = f", under a load of {min(loads):.0f} to {max(loads):.0f}" if loads else ""
    text = f"{processor()}, {len(os.sched_getaffinity(0))} cores{busy}; medians of alternating runs.\n\n{table(records)}"
    return finish(text, broken_promises(records), args.markdown and ROOT / "docs/corrected.md", MARKERS)


if __name__ == "__main__":
    sys.exit(main())
