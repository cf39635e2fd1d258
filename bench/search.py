#!/usr/bin/env python3
"""What `tessera optimize --search` gains: each model searched, then measured in turns with what the same compiler makes of
it without search.

Models come from `bench/models/export.py search`. Run it with a Python that has NumPy and onnx, and ONNX Runtime for a second
opinion on equality. With --json FILE it goes on where it was stopped."""
import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE), str(HERE / "models")]
from groups import SEARCH, SEARCH_ONE  # noqa: E402
from peers import hash_of  # noqa: E402
from speed import aligned, geometric_mean, inputs_of, processor, replace_between_markers  # noqa: E402

MARKERS = ("<!-- search: begin -->", "<!-- search: end -->")
EACH_AT_LEAST, MEAN_AT_LEAST, BEST_AT_LEAST = 0.99, 1.10, 1.3
# Seconds that TENSAT's search takes, by its paper; ours may take three times as long.
TENSAT_S = {
    "bert_s128": 1.4,
    "resnext50": 0.7,
    "nasnet_a": 10.6,
    "nasrnn": 0.5,
    "inception_v3": 5.1,
    "squeezenet1_1": 0.3,
    "vgg19": 0.4,
}
TIMES_TENSAT = 3
ABLATIONS = {
    "rules of 1 op": ["--max-rule-ops", "1"],
    "2 ops": ["--max-rule-ops", "2"],
    "3 ops": ["--max-rule-ops", "3"],
    "4 ops": ["--max-rule-ops", "4"],
    "backtracking": ["--strategy", "backtrack"],
    "summed cost": ["--cost", "sum"],
}


def base_of(name):
    return name.removesuffix("_b16")


def batch_of(name):
    return 16 if name.endswith("_b16") else 1


def limit_of(name):
    seconds = TENSAT_S.get(base_of(name))
    return None if seconds is None else TIMES_TENSAT * seconds


def tolerance(name):
    """As bench/optimize.py has it: attention takes more."""
    return 1e-3 if name.startswith("bert") else 1e-4


def tessera(args, *words):
    """What it prints as JSON, or {"failed": why}."""
    command = [str(w) for w in (args.tessera, *words, "--json")]
    environment = dict(os.environ, TESSERA_CACHE=str(args.cache))
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=args.limit, env=environment)
    except subprocess.TimeoutExpired:
        return {"failed": f"{words[0]} took longer than {args.limit:.0f} s"}
    if done.returncode != 0:
        return {"failed": next(iter(done.stderr.strip().splitlines()), f"{words[0]}: exit {done.returncode}")}
    return json.loads(done.stdout)


def search_record(report, clock):
    """What counts of the search's own report, whatever the version called it."""

    def first(*names):
        return next((report[n] for n in names if n in report), None)

    candidates, chosen = report.get("candidates", []), report.get("chosen", 0)
    used = candidates[chosen].get("rules", []) if chosen < len(candidates) else []
    return {
        "search_s": first(*(["search_processor_seconds"] if clock == "processor" else []), "search_seconds", "search_s"),
        "search_wall_s": first("search_seconds", "search_s"),
        "measure_s": first("measure_seconds", "measure_s"),
        "time_s": first("timing_seconds", "time_s"),
        "nodes": report.get("nodes"),
        "stopped_by": report.get("stopped_by", ""),
        "chosen": chosen,
        "rules": {r["rule"]: r.get("times", 1) for r in used},
    }


def search(path, target, given_s, flags, args):
    began = time.monotonic()
    done = tessera(args, "optimize", path, f"--search={given_s:g}", "-o", target, *flags, *args.flag)
    if "failed" in done:
        return done
    record = search_record(done.get("search", {}), args.clock)
    if record["search_s"] is None:
        return {"failed": "there is nothing of the search in what optimize printed"}
    return record | {"wall_s": time.monotonic() - began, "hash": hash_of(target)}


def compare(searched, path, runs, args):
    """By number of threads, the input's time over that of what was found for it; or {"failed": why}."""
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--threads", args.threads, "--runs", runs, "--seconds", args.seconds, "--clock", args.clock]
        inputs = inputs_of(path, pathlib.Path(folder))
        done = tessera(args, "bench", searched, "--against", path, *inputs, *flags, "--progress", "never")
    if "failed" in done:
        return done
    by_threads = {}
    for measured in done["measured"]:
        ours, other = measured["runners"]
        by_threads[str(measured["threads"])] = {
            "searched_s": ours["median_s"],
            "input_s": other["median_s"],
            "ratio": other["ratio"],
            "quartiles": other["ratio_quartiles"],
            "runs": other["runs"],
            "difference": float(other.get("difference", "inf")),
        }
    return by_threads


def measure(searched, path, args):
    """Once more, three times as long, where it seems to be slower than the input."""
    found = compare(searched, path, args.runs, args)
    if "failed" not in found and any(t["ratio"] < EACH_AT_LEAST for t in found.values()):
        again = compare(searched, path, 3 * args.runs, args)
        if "failed" not in again:
            return again
    return found


def onnxruntime_difference(searched, path, seed=0):
    """Between its answers to both files, on the stored inputs in another order; None where it is not installed."""
    try:
        from optimize import relative_error, session_of
    except ImportError:
        return None
    rng = np.random.default_rng(seed)
    stored = np.load(path.with_name(path.name.split(".")[0] + ".npz")).items()
    inputs = {name: rng.permuted(array.reshape(-1)).reshape(array.shape) for name, array in stored}
    answers = [session_of(p, os.cpu_count()).run(None, inputs) for p in (path, searched)]
    return relative_error(*answers)


def search_and_measure(path, args):
    target = args.out / path.name
    try:
        record = search(path, target, args.search, [], args)
        if "failed" in record:
            return record
        record["measured"] = measure(target, path, args)
        if "failed" in record["measured"]:
            return record["measured"]
        differences = [t["difference"] for t in record["measured"].values()]
        if not args.no_onnxruntime:
            differences.append(onnxruntime_difference(target, path))
        record["difference"] = max(d for d in differences if d is not None)
        return record
    finally:
        target.unlink(missing_ok=True)


def ablate(path, flags, known, args):
    """`known` has what was measured of files by their hash: a file that came out before is not measured again."""
    target = args.out / path.name
    try:
        record = search(path, target, args.ablation_search, flags, args)
        if "failed" in record:
            return record
        if record["chosen"] == 0:
            return record | {"ratio": 1.0}  # the input itself
        if record["hash"] not in known:
            found = measure(target, path, args)
            if "failed" in found:
                return found
            known[record["hash"]] = next(iter(found.values()))["ratio"]
        return record | {"ratio": known[record["hash"]]}
    finally:
        target.unlink(missing_ok=True)


def known_files(record):
    """Ratios by the hash of the file."""
    known = {r["hash"]: r["ratio"] for r in record.get("ablations", {}).values() if "ratio" in r}
    if "measured" in record:
        known[record["hash"]] = next(iter(record["measured"].values()))["ratio"]
    return known


# ---- what is printed


def seconds(value):
    return "-" if value is None else f"{value:.1f}"


def rules_text(rules, most=4):
    ordered = sorted(rules.items(), key=lambda r: -r[1])
    text = ", ".join(f"{name} ×{times}" if times > 1 else name for name, times in ordered[:most])
    return text + (f" and {len(ordered) - most} more" if len(ordered) > most else "")


def rows_of(name, record):
    if "failed" in record:
        return [[base_of(name), str(batch_of(name)), "", f"failed: {record['failed']}"] + [""] * 9]
    rows = []
    for threads, t in record["measured"].items():
        row = [base_of(name), str(batch_of(name)), threads, f"{t['input_s'] * 1e3:.2f}", f"{t['searched_s'] * 1e3:.2f}"]
        row.append("{:.3f} ({:.3f}–{:.3f})".format(t["ratio"], *t["quartiles"]))
        row += [seconds(record["search_s"]), seconds(limit_of(name)), seconds(record["measure_s"]), seconds(record["time_s"])]
        row += ["-" if record["nodes"] is None else str(record["nodes"])]
        rows.append(row + [f"{record['difference']:.0e}", rules_text(record["rules"])])
    return rows


def ratios(records):
    """By number of threads: {model: ratio}."""
    found = {}
    for name, record in records.items():
        for threads, t in record.get("measured", {}).items():
            found.setdefault(threads, {})[name] = t["ratio"]
    return found


def table(records):
    heads = ["model", "batch", "threads", "input ms", "searched ms", "speed-up", "search s", f"{TIMES_TENSAT} × TENSAT"]
    heads += ["measuring s", "timing s", "nodes", "difference", "rules"]
    rows = [row for name, record in records.items() for row in rows_of(name, record)]
    for threads, by_model in ratios(records).items():
        groups = [(str(b), [r for n, r in by_model.items() if batch_of(n) == b]) for b in (1, 16)]
        sums = [("**geometric mean**", b, geometric_mean(values)) for b, values in groups if values]
        every = list(by_model.values())
        sums.append(("**geometric mean**", "all", geometric_mean(every)))
        sums += [("**least**", "all", min(every)), ("**most**", "all", max(every))]
        rows += [[name, batch, threads, "", "", f"**{value:.3f}**"] + [""] * 7 for name, batch, value in sums]
    return aligned(heads, rows, left=(0, len(heads) - 1))


def ablation_table(records):
    """Speed-up and seconds of search, by variant; the first is the search as it is."""
    heads = ["model", "batch", "e-graph, all rules, measured cost", *ABLATIONS]
    rows, by_column = [], {}
    for name, record in records.items():
        if "ablations" not in record or "measured" not in record:
            continue
        whole = {"ratio": next(iter(record["measured"].values()))["ratio"], "search_s": record["search_s"]}
        row = [base_of(name), str(batch_of(name))]
        for column, cell in enumerate([whole, *(record["ablations"].get(v) for v in ABLATIONS)]):
            if cell is None or "failed" in cell:
                row.append("-" if cell is None else f"failed: {cell['failed']}")
                continue
            row.append(f"{cell['ratio']:.2f}, {seconds(cell['search_s'])} s")
            by_column.setdefault(column, []).append(cell)
        rows.append(row)
    if not rows:
        return ""
    means = ["**geometric mean, sum**", ""]
    for column in range(len(ABLATIONS) + 1):
        cells = by_column.get(column, [])
        total = sum(c["search_s"] for c in cells)
        means.append(f"**{geometric_mean([c['ratio'] for c in cells]):.2f}**, {seconds(total)} s" if cells else "-")
    return aligned(heads, rows + [means])


def broken_promises(records):
    broken = []
    for name, record in records.items():
        if "failed" in record:
            broken.append(f"{name}: {record['failed']}")
            continue
        limit = limit_of(name)
        if limit is not None and record["search_s"] > limit:
            broken.append(f"{name}: searched for {record['search_s']:.1f} s, not {limit:.1f} s")
        if not record["difference"] <= tolerance(name):
            broken.append(f"{name}: differs by {record['difference']:.1e}")
        broken += [f"{name}: {variant}: {r['failed']}" for variant, r in record.get("ablations", {}).items() if "failed" in r]
    for threads, by_model in ratios(records).items():
        broken += [f"{n} with {threads} threads: {r:.3f}" for n, r in by_model.items() if r < EACH_AT_LEAST]
        mean, best = geometric_mean(by_model.values()), max(by_model.values())
        if mean < MEAN_AT_LEAST:
            broken.append(f"{threads} threads: geometric mean {mean:.3f}, not {MEAN_AT_LEAST:.2f}")
        if best < BEST_AT_LEAST:
            broken.append(f"{threads} threads: best {best:.3f}, not {BEST_AT_LEAST}")
    missing = [name for name in SEARCH if name not in records]
    return broken + ([f"not measured: {', '.join(missing)}"] if missing else [])


def describe_run(records, args):
    clock = "processor time" if args.clock == "processor" else "wall time"
    text = f"Made on {platform.machine()} ({processor()}, {len(os.sched_getaffinity(0))} cores); {clock}, medians"
    every = [*records.values(), *(a for r in records.values() for a in r.get("ablations", {}).values())]
    builds = {r["build"] for r in every if "build" in r}
    return text + (f"; by {len(builds)} builds of Tessera." if len(builds) > 1 else ".")


def progress_of(record):
    if "failed" in record:
        return record["failed"]
    text = f"search {seconds(record['search_s'])} s, measuring {seconds(record['measure_s'])} s, "
    text += f"timing {seconds(record['time_s'])} s; "
    if "measured" in record:
        return text + ", ".join("{:.3f} ({:.3f}–{:.3f})".format(t["ratio"], *t["quartiles"]) for t in record["measured"].values())
    return text + f"{record['ratio']:.3f}"


# ---- what is run


class Stored:
    """What was measured, in the file that --json names, written after each part."""

    def __init__(self, path, settings):
        self.path, self.settings, self.records = path, settings, {}
        if path is None or not path.exists():
            return
        before = json.loads(path.read_text())
        if before["settings"] != settings:
            raise ValueError(f"{path} was made with {before['settings']}, not with {settings}")
        self.records = before["models"]

    def write(self):
        if self.path is None:
            return
        temporary = self.path.with_name(self.path.name + ".tmp")
        temporary.write_text(json.dumps({"settings": self.settings, "models": self.records}, indent=1))
        temporary.replace(self.path)

    def in_order(self):
        return {name: self.records[name] for name in SEARCH if name in self.records}


def parts_to_run(names, records, args):
    """(model, variant) of all that is missing; the variant of the search as it is is None."""
    parts = [(n, None) for n in names if args.again or n not in records or "failed" in records[n]]
    for name in names:
        done = {} if args.again else records.get(name, {}).get("ablations", {})
        if args.ablations is not None and batch_of(name) in (args.ablations or [1]):
            parts += [(name, variant) for variant in ABLATIONS if "ratio" not in done.get(variant, {})]
    return parts


def run_parts(parts, stored, build, args):
    began = time.monotonic()
    for number, (name, variant) in enumerate(parts, 1):
        minutes = (time.monotonic() - began) / 60
        if args.minutes and minutes > args.minutes:
            print(f"{args.minutes:g} minutes are over; {len(parts) - number + 1} of {len(parts)} are left", file=sys.stderr)
            return
        what = name if variant is None else f"{name}, {variant}"
        print(f"[{number}/{len(parts)}] {minutes:4.1f} min  {what}: ", end="", file=sys.stderr, flush=True)
        path = args.models / f"{name}.{args.exporter}.onnx"
        if variant is None:
            record = search_and_measure(path, args) | {"build": build}
            if "ablations" in stored.records.get(name, {}) and not args.again:
                record["ablations"] = stored.records[name]["ablations"]
            stored.records[name] = record
        else:
            whole = stored.records.setdefault(name, {})
            record = ablate(path, ABLATIONS[variant], known_files(whole), args) | {"build": build}
            whole.setdefault("ablations", {})[variant] = record
        print(progress_of(record), file=sys.stderr, flush=True)
        stored.write()


def prepare(parser, args, known, part):
    """The models that were asked for, in the order of the list; makes the folders."""
    unknown = [n for n in args.only if n not in known]
    if unknown:
        parser.error(f"no model {unknown[0]}; there are {', '.join(known)}")
    names = [n for n in known if n in args.only]
    missing = [n for n in names if not (args.models / f"{n}.{args.exporter}.onnx").exists()]
    if missing:
        parser.error(f"there is no {missing[0]}: run bench/models/export.py --out {args.models} {part}")
    args.cache = args.cache or args.out / "cache"
    args.out.mkdir(parents=True, exist_ok=True)
    return names


def finish(text, broken, page, markers):
    """Prints what was measured, into a page too where there is one, and says which promises are not kept."""
    print(text)
    if page:
        replace_between_markers(page, text, markers)
    print("every promise is kept" if not broken else "\n".join(["not kept:", *broken]), file=sys.stderr)
    return 1 if broken else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=pathlib.Path, required=True, metavar="DIR", help="what export.py wrote")
    parser.add_argument("--tessera", type=pathlib.Path, default=ROOT / "build/bin/tessera", metavar="PATH")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=SEARCH, help=f"of {', '.join(SEARCH_ONE)}, each also with _b16")
    parser.add_argument("--exporter", default="dynamo", help="which file of each (%(default)s)")
    parser.add_argument("--search", type=float, default=60, metavar="S", help="seconds given to each search (%(default)s)")
    parser.add_argument("--ablations", nargs="*", type=int, metavar="BATCH", help="rules by size, backtracking, summed cost (batch 1)")
    parser.add_argument("--ablation-search", type=float, default=20, metavar="S", help="the same, of each variant (%(default)s)")
    parser.add_argument("--threads", default="1", help="of the compiled models, as 1,all (%(default)s)")
    parser.add_argument("--runs", type=int, default=5, help="at least this many of each (%(default)s)")
    parser.add_argument("--seconds", type=float, default=3, help="at least this long for each (%(default)s)")
    parser.add_argument("--clock", choices=("wall", "processor"), default="processor", help="(%(default)s)")
    parser.add_argument("--limit", type=float, default=600, metavar="S", help="of each command (%(default)s)")
    parser.add_argument("--minutes", type=float, help="begin nothing more after so many")
    parser.add_argument("--cache", type=pathlib.Path, metavar="DIR", help="compiled code and measured costs (OUT/cache)")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build-bench/search", metavar="DIR")
    parser.add_argument("--flag", action="append", default=[], help="passed on to tessera optimize")
    parser.add_argument("--no-onnxruntime", action="store_true", help="do not compare its answers, too")
    parser.add_argument("--again", action="store_true", help="also what is in the --json file")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="everything measured; what is there stays")
    parser.add_argument("--markdown", action="store_true", help="put the tables into docs/benchmarks.md")
    args = parser.parse_args()

    names = prepare(parser, args, SEARCH, "search")
    settings = {k: getattr(args, k) for k in ("search", "ablation_search", "threads", "clock", "exporter", "flag")}
    try:
        stored = Stored(args.json, settings)
    except ValueError as error:
        parser.error(f"{error}; name another file")
    run_parts(parts_to_run(names, stored.records, args), stored, hash_of(args.tessera), args)

    records = {n: r for n, r in stored.in_order().items() if "failed" in r or "measured" in r}
    parts = [describe_run(records, args), table(records) if records else "", ablation_table(records)]
    text = "\n\n".join(p for p in parts if p)
    return finish(text, broken_promises(records), args.markdown and ROOT / "docs/benchmarks.md", MARKERS)


if __name__ == "__main__":
    sys.exit(main())
