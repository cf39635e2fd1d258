#!/usr/bin/env python3
"""Looks for cliffs: ops with attributes and shapes drawn at random, some sizes symbols, compiled by Tessera and run in
turns with ONNX Runtime. Prints how the ratios are distributed, and the slowest cases with their schedules.

Run it with a Python that has tessera, NumPy, onnx and onnxruntime. A case that crashes is a miss like any other: cases
run in a process beside this one. --keep FILE writes the slowest as a list, which --only FILE runs again."""
import argparse
import json
import math
import pathlib
import re
import statistics
import subprocess
import sys
import threading
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import cliff_cases  # noqa: E402
import cliff_chains  # noqa: E402
import cliff_idioms  # noqa: E402
import cliff_models  # noqa: E402
from answers import difference  # noqa: E402

GOOD, WORST, MEAN, SHARE = 0.9, 0.5, 1.3, 0.95  # what is promised
TOLERANCE = 2e-3
BURST_S = 0.002  # one of them runs for about as long before it is the other's turn
BINS = (0, 0.25, 0.5, 0.75, 0.9, 1, 1.25, 1.5, 2, 3, 5, math.inf)


# In the process beside ------------------------------------------------------------------------------------------------

def tolerance(case):
    """What is rounded to whole numbers may be rounded the other way at a half."""
    ops = {n["op"] for n in case["nodes"]}
    rounds = {"QLinearConv", "QLinearMatMul", "QuantizeLinear", "DynamicQuantizeLinear", "Cast"}
    return 3e-2 if ops & rounds else TOLERANCE


def timed(run, clock, repeats):
    start = clock()
    for _ in range(repeats):
        run()
    return (clock() - start) / repeats


def in_turns(ours, theirs, clock, seconds):
    """Medians of both, and of the ratios of neighbours."""
    firsts = [min(timed(f, clock, 1) for _ in range(2)) for f in (ours, theirs)]
    repeats = [max(1, min(2000, int(BURST_S / max(t, 1e-7)))) for t in firsts]
    a, b, end = [], [], time.monotonic() + seconds
    while len(a) < 5 or time.monotonic() < end:
        a.append(timed(ours, clock, repeats[0]))
        b.append(timed(theirs, clock, repeats[1]))
        if len(a) >= 3 and time.monotonic() > end + 20 * seconds:
            break
    return statistics.median(a), statistics.median(b), statistics.median(y / x for x, y in zip(a, b))


def work(options):
    """Reads cases, a line each, and writes what was measured."""
    import onnxruntime
    import tessera

    onnxruntime.set_default_logger_severity(4)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = options.threads
    clock = time.perf_counter if options.clock == "wall" else time.process_time
    for line in sys.stdin:
        case = json.loads(line)
        row = {}
        try:
            model, feeds = cliff_models.build(case)
            session = onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
            names = [o.name for o in session.get_outputs()]
            wanted = session.run(None, feeds)
        except Exception as error:
            print(json.dumps({"skipped": str(error).splitlines()[0][:200]}), flush=True)
            continue
        try:
            start = time.monotonic()
            fast = tessera.compile(tessera.from_onnx(model), threads=options.threads, cache="")
            row["compile_s"] = round(time.monotonic() - start, 3)
            found = fast.run(feeds)
            row["difference"] = difference(wanted, [found[n] for n in names])
            if isinstance(row["difference"], str) or row["difference"] > tolerance(case):
                row["failed"] = f"another answer: {row['difference']}"
            run = [lambda: fast.run(feeds), lambda: session.run(None, feeds)]
            ours, theirs, ratio = in_turns(*run, clock, options.seconds)
            row |= {"ours_s": ours, "onnxruntime_s": theirs, "ratio": ratio}
            if ratio < GOOD or options.only:
                row["steps"] = steps_of(fast, feeds)
            if ratio < GOOD:
                row["schedule"] = schedule_of(model, options.threads)
        except Exception as error:
            row["failed"] = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
        print(json.dumps(row), flush=True)


def steps_of(executable, feeds):
    steps = sorted(executable.profile(feeds, 5), key=lambda s: -s.seconds)
    return [f"{s.label[:60]} {s.seconds * 1e3:.3f} ms {s.flops / max(s.seconds, 1e-9) / 1e9:.2f} Gflop/s" +
            (f" ({s.kind})" if s.kind != "kernel" else "") for s in steps[:4] if s.seconds > 0]


def schedule_of(model, threads):
    """What the primitives were, stage by stage, without those that say little."""
    import tessera

    text = tessera.compile(tessera.from_onnx(model), threads=threads, cache="", keep_weights=True).emit("schedule")
    kept = []
    for line in text.splitlines():
        if line.startswith("//"):
            kept.append("[" + line[2:].strip()[:60] + "]")
            continue
        found = re.search(r"(vectorize|unroll|tensorize|parallel|split|rfactor|reindex|pad|cache_write)\((.*)\)", line)
        if found and found[1] != "split":
            kept.append(found[0])
        elif found:
            kept.append(f"split({found[2]})")
    return " ".join(kept)[:600]


# In this one ----------------------------------------------------------------------------------------------------------

class Worker:
    """The process beside, made again after a crash."""

    def __init__(self, options):
        self.command = [sys.executable, __file__, "--worker", "--threads", str(options.threads)]
        self.command += ["--clock", options.clock, "--seconds", str(options.seconds)]
        self.command += ["--only", "-"] if options.only else []
        self.process = None

    def ask(self, case, limit=120):
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=subprocess.PIPE, text=True)
        stopper = threading.Timer(limit, self.process.kill)
        stopper.start()
        try:
            self.process.stdin.write(json.dumps(case) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        stopper.cancel()
        if line:
            return json.loads(line)
        said = " ".join(self.process.stderr.read().split())[-200:]
        status = self.process.wait()
        self.process = None
        return {"failed": f"no answer in {limit} s" if status == -9 else f"crashed with status {status}: {said}"}


def cases_of(options):
    """Cases without end, or those of a list."""
    if options.only:
        for line in pathlib.Path(options.only).read_text().splitlines():
            if line.strip():
                yield json.loads(line)
        return
    random = np.random.default_rng(options.seed)
    while True:
        case = cliff_cases.draw(random, cliff_cases.FAMILIES + cliff_chains.FAMILIES + cliff_idioms.FAMILIES)
        if options.family in case["family"]:
            yield case


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def summary(rows, print_line=print):
    ratios = [r["ratio"] for r in rows if "ratio" in r]
    failed = [r for r in rows if "failed" in r]
    print_line(f"\n{len(rows)} cases, {len(failed)} failed; ONNX Runtime's time over ours:")
    for low, high in zip(BINS, BINS[1:]):
        count = sum(low <= r < high for r in ratios)
        print_line(f"  {low:5.2f} to {high:5.2f}  {count:4d}  {'#' * round(60 * count / max(1, len(ratios)))}")
    share = sum(r >= GOOD for r in ratios) / max(1, len(rows))
    print_line(f"geometric mean {geometric_mean(ratios):.3f}, at {GOOD} or better {100 * share:.1f} %, below {WORST}: "
               f"{sum(r < WORST for r in ratios)}, least {min(ratios, default=math.nan):.3f}")
    families = {}
    for r in rows:
        families.setdefault(r["case"]["family"], []).append(r.get("ratio", math.nan))
    print_line("\nfamily, cases, geometric mean, least, below 0.9")
    for name, found in sorted(families.items(), key=lambda f: geometric_mean(f[1])):
        slow = sum(r < GOOD for r in found)
        print_line(f"  {name:32s} {len(found):4d}  {geometric_mean(found):6.2f}  {min(found):6.3f}  {slow:4d}")
    return failed, share, ratios


def print_worst(rows, count):
    for r in [r for r in rows if "failed" in r][:count]:
        print(f"\nfailed: {cliff_models.describe(r['case'])}\n    {r['failed']}")
    slowest = sorted((r for r in rows if "ratio" in r), key=lambda r: r["ratio"])[:count]
    for r in slowest:
        print(f"\n{r['ratio']:.3f}  {r['ours_s'] * 1e3:.3f} / {r['onnxruntime_s'] * 1e3:.3f} ms  "
              f"{cliff_models.describe(r['case'])}")
        for step in r.get("steps", []):
            print(f"    {step}")
        if "schedule" in r:
            print(f"    {r['schedule']}")
    return slowest


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="(%(default)s)")
    parser.add_argument("--cases", type=int, default=500, help="(%(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="(%(default)s)")
    parser.add_argument("--seconds", type=float, default=0.15, help="of measuring for each case (%(default)s)")
    parser.add_argument("--clock", choices=("wall", "processor"), default="wall", help="processor: where others are busy")
    parser.add_argument("--family", default="", help="only cases whose family has this in its name")
    parser.add_argument("--only", metavar="FILE", help="the cases of a list that --keep wrote, instead of drawn ones")
    parser.add_argument("--keep", metavar="FILE", help="writes the cases that are slower than they should be, or fail")
    parser.add_argument("--worst", type=int, default=20, help="cases to print (%(default)s)")
    parser.add_argument("--json", metavar="FILE", help="writes everything that was measured")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work(options)
    worker, rows, skipped, start = Worker(options), [], 0, time.monotonic()
    for case in cases_of(options):
        if len(rows) == options.cases and not options.only:
            break
        row = worker.ask(case)
        if "skipped" in row:
            skipped += 1
            continue
        rows.append({"case": case, **row})
        if sys.stderr.isatty():
            mean = geometric_mean([r["ratio"] for r in rows if "ratio" in r])
            spent = time.monotonic() - start
            print(f"\r{len(rows)} of {options.cases}, {spent:.0f} s, geometric mean {mean:.2f} ", end="", file=sys.stderr,
                  flush=True)
        elif len(rows) % 50 == 0:
            print(f"{len(rows)} cases, {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    print_worst(rows, options.worst)
    failed, share, ratios = summary(rows)
    if skipped:
        print(f"{skipped} cases that ONNX Runtime does not run were drawn again")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=1))
    if options.keep:
        slow = sorted((r for r in rows if "failed" in r or r["ratio"] < GOOD), key=lambda r: r.get("ratio", 0))
        pathlib.Path(options.keep).write_text("".join(json.dumps(r["case"]) + "\n" for r in slow))
    promised = not failed and share >= SHARE and min(ratios) >= WORST and geometric_mean(ratios) >= MEAN
    return 0 if promised else 1


if __name__ == "__main__":
    sys.exit(main())
