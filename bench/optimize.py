#!/usr/bin/env python3
"""What `tessera optimize` makes of the benchmark models, beside onnxsim, onnxoptimizer, onnxslim and ONNX
Runtime's basic level: node counts, correctness, ONNX Runtime's speed, time to optimize, idempotence.

Models come from bench/models/export.py. Run it with the Python of the environment that bench/venv.sh makes."""
import argparse
import filecmp
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time

import numpy as np
import onnx
import onnxruntime

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import peers  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
ATTENTION_MODELS = {"vit_b_16", "swin_t", "bert", "distilbert", "gpt2", "t5_encoder", "whisper_encoder"}
SLOWEST_RATIO = 0.98
TIMED_MODELS, LONGEST_S = {"bert", "resnet50"}, 2.0
DEEPEST_RATIO = 12  # of the times to optimize, for a graph ten times as deep
MARKERS = ("<!-- optimize: begin -->", "<!-- optimize: end -->")


def tolerance(name):
    return 1e-3 if name in ATTENTION_MODELS else 1e-4


def session_of(path, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def input_sets(path, session):
    """The stored example and, where axes are symbolic, a smaller one of odd sizes cut out of it."""
    stored = dict(np.load(path))
    sets = [stored]
    if any(isinstance(d, str) for i in session.get_inputs() for d in i.shape):
        sizes = {"batch": 1, "sequence": 17}
        cut = {}
        for i in session.get_inputs():
            picks = tuple(slice(0, sizes.get(d)) if isinstance(d, str) else slice(None) for d in i.shape)
            cut[i.name] = np.ascontiguousarray(stored[i.name][picks])
        sets.append(cut)
    return sets


def relative_error(expected, actual):
    """max|a-b| / max|a| over each output, the worst of them."""
    worst = 0.0
    for a, b in zip(expected, actual, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return float("inf")
        a, b = a.astype(np.float64), b.astype(np.float64)
        error = np.abs(a - b).max() / max(np.abs(a).max(), np.finfo(np.float32).tiny) if a.size else 0.0
        worst = max(worst, float(error) if np.isfinite(error) else float("inf"))
    return worst


class Original:
    """An exported model, its inputs and ONNX Runtime's answers to them."""

    def __init__(self, path, threads):
        self.path, self.threads = path, threads
        self.name = path.name.split(".")[0]
        self.hash = peers.hash_of(path)
        self.ops = peers.ops_of(path)
        self.session = session_of(path, threads)
        self.inputs = input_sets(path.with_name(f"{self.name}.npz"), self.session)
        self.answers = [self.session.run(None, i) for i in self.inputs]

    def error_of(self, session):
        return max(relative_error(a, session.run(None, i)) for i, a in zip(self.inputs, self.answers))

    def inspect(self, target):
        try:
            return {"error": self.error_of(session_of(target, self.threads))}
        except Exception as error:
            return {"error": None, "broken": str(error).splitlines()[0]}


def interface(model):
    """What a caller sees: opsets of the default domain, and inputs and outputs with types and shapes."""
    opset = [o.version for o in model.opset_import if o.domain in ("", "ai.onnx")]
    initial = {t.name for t in model.graph.initializer}
    values = [[v for v in model.graph.input if v.name not in initial], list(model.graph.output)]
    described = [[(v.name, v.type.tensor_type.elem_type) for v in side] for side in values]
    shapes = [[d.dim_value or d.dim_param for d in v.type.tensor_type.shape.dim] for v in values[0]]
    return opset, described, shapes


def check(original, target):
    """What is wrong with the file as ONNX, or None."""
    model = onnx.load(target)
    try:
        onnx.checker.check_model(model, full_check=True)
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except Exception as error:
        return str(error).splitlines()[0]
    if interface(onnx.load(original, load_external_data=False)) != interface(model):
        return "inputs, outputs or opset differ from the original's"
    return None


def quartiles(values):
    return [float(q) for q in np.percentile(values, [25, 50, 75])]


def compare_speed(original, optimized, inputs, args):
    """Runs both in turn, the one that goes first changing too. The ratio is above 1 where the second is faster."""
    sessions = (original, optimized)
    for session in sessions:
        session.run(None, inputs)
    times = ([], [])
    clock = time.process_time if args.processor_time else time.perf_counter
    start = time.monotonic()
    while len(times[0]) < args.runs or (time.monotonic() - start < args.seconds and len(times[0]) < 50 * args.runs):
        order = (0, 1) if len(times[0]) % 2 == 0 else (1, 0)
        for which in order:
            begin = clock()
            sessions[which].run(None, inputs)
            times[which].append(clock() - begin)
    pairs = quartiles([a / b for a, b in zip(*times)])
    return {
        "runs": len(times[0]),
        "original_ms": [1e3 * t for t in quartiles(times[0])],
        "ours_ms": [1e3 * t for t in quartiles(times[1])],
        "ratio": statistics.median(times[0]) / statistics.median(times[1]),
        "ratio_quartiles": [pairs[0], pairs[2]],
    }


def run_tessera(tessera, source, target, flags):
    """Wall time and what --json says, or the error."""
    start = time.monotonic()
    command = [str(tessera), "optimize", str(source), "-o", str(target), "--json", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=peers.TIMEOUT_S)
    if done.returncode != 0:
        return {"failed": f"exit {done.returncode}: {peers.last_lines(done.stderr or done.stdout)}"}
    try:
        report = json.loads(done.stdout)
    except json.JSONDecodeError as error:
        return {"failed": f"--json is not JSON: {error}"}
    return {"wall_s": time.monotonic() - start, "report": report}


def optimize_ours(original, args):
    target = args.out / "ours" / original.path.name
    target.parent.mkdir(parents=True, exist_ok=True)
    result = run_tessera(args.tessera, original.path, target, args.flag)
    if "failed" in result:
        return result
    result |= {"ops": peers.ops_of(target), "bytes": target.stat().st_size}
    result["nodes"] = sum(result["ops"].values())
    result["invalid"] = check(original.path, target)
    try:
        session = session_of(target, args.threads)
        result["error"] = original.error_of(session)
    except Exception as error:
        return result | {"failed": f"ONNX Runtime: {str(error).splitlines()[0]}"}
    again = target.with_suffix(".again.onnx")
    second = run_tessera(args.tessera, target, again, args.flag)
    result["idempotent"] = "failed" not in second and filecmp.cmp(target, again, shallow=False)
    again.unlink(missing_ok=True)
    if not args.no_speed:
        result["speed"] = compare_speed(original.session, session, original.inputs[0], args)
    if not args.keep:
        target.unlink()
    return result


def optimize_seconds(ours):
    """The time of the passes alone, where the report has it."""
    return ours.get("report", {}).get("optimize_s")


def failures(name, record):
    """The promises this model breaks."""
    ours, lowest = record.get("ours"), record["lowest"]
    if ours is None:
        return []
    if "failed" in ours:
        return [ours["failed"]]
    broken = []
    if lowest is not None and ours["nodes"] > lowest:
        broken.append(f"{ours['nodes']} nodes, {'/'.join(record['lowest_by'])} has {lowest}")
    if ours["invalid"]:
        broken.append(f"invalid: {ours['invalid']}")
    if not ours["error"] <= tolerance(name):
        broken.append(f"error {ours['error']:.1e} above {tolerance(name):.0e}")
    if not ours["idempotent"]:
        broken.append("not idempotent")
    if "speed" in ours and ours["speed"]["ratio"] < SLOWEST_RATIO:
        broken.append(f"speed ratio {ours['speed']['ratio']:.3f} below {SLOWEST_RATIO}")
    if name in TIMED_MODELS and (optimize_seconds(ours) or 0) > LONGEST_S:
        broken.append(f"took {optimize_seconds(ours):.2f} s to optimize, more than {LONGEST_S} s")
    return broken


def processor_seconds(command, runs=7):
    """The least of several runs, so that what else the machine does hardly counts."""
    least = float("inf")
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([str(c) for c in command], stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        least = min(least, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return least


def measure_depths(args):
    """Processor seconds to optimize a graph and one ten times as deep, beyond loading and saving; by exporter."""
    result, target = {}, args.out / "depth.onnx"
    for shallow in sorted(args.depths.glob("bert_narrow_12.*.onnx")):
        seconds = []
        for path in (shallow, shallow.with_name(shallow.name.replace("_12.", "_120."))):
            optimize = processor_seconds([args.tessera, "optimize", path, "-o", target, "--json", *args.flag])
            seconds.append(optimize - processor_seconds([args.tessera, "convert", path, target]))
        result[shallow.stem.split(".")[1]] = seconds
    target.unlink(missing_ok=True)
    return result


def measure(path, args):
    original = Original(path, args.threads)
    record = {"hash": original.hash, "nodes": sum(original.ops.values()), "ops": original.ops, "peers": {}}
    for peer in peers.NAMES:
        print(f" {peer}", end="", flush=True)
        record["peers"][peer] = peers.optimize(peer, path, original.hash, args.out / "peers", original.inspect)
    counts = {p: r["nodes"] for p, r in record["peers"].items() if "nodes" in r}
    record["lowest"] = min(counts.values(), default=None)
    record["lowest_by"] = [p for p, n in counts.items() if n == record["lowest"]]
    if args.tessera:
        print(" ours", end="", flush=True)
        record["ours"] = optimize_ours(original, args)
    record["broken"] = failures(original.name, record)
    return record


def row(name, record):
    def nodes(result):
        return "failed" if "nodes" not in result else str(result["nodes"]) + ("†" if result.get("broken") else "")

    cells = [name, str(record["nodes"])] + [nodes(record["peers"][p]) for p in peers.NAMES]
    ours = record.get("ours")
    if ours is None or "failed" in ours:
        return cells + ["-" if ours is None else "failed"] + ["-"] * 5
    speed, seconds = ours.get("speed"), optimize_seconds(ours)
    return cells + [
        f"**{ours['nodes']}**",
        "no" if ours["invalid"] else "yes",
        f"{ours['error']:.1e}",
        "{:.3f} ({:.3f}–{:.3f})".format(speed["ratio"], *speed["ratio_quartiles"]) if speed else "-",
        f"{seconds:.2f}" if seconds is not None else f"≤ {ours['wall_s']:.2f}",
        "yes" if ours["idempotent"] else "no",
    ]


HEADER = ["model", "original", "onnxsim", "onnxoptimizer", "onnxslim", "ORT basic", "ours"]
HEADER += ["valid", "error", "speed ratio", "optimize s", "idempotent"]


def table(records):
    rows = [HEADER, ["---"] + ["---:"] * (len(HEADER) - 1)] + [row(n, r) for n, r in records.items()]
    widths = [max(len(r[i]) for r in rows) for i in range(len(HEADER))]
    return "\n".join("| " + " | ".join(c.ljust(w) for c, w in zip(r, widths)) + " |" for r in rows)


def replace_between_markers(path, text):
    begin, end = MARKERS
    before, rest = path.read_text().split(begin)
    after = rest.split(end)[1]
    temporary = path.with_suffix(".tmp")
    temporary.write_text(f"{before}{begin}\n{text}\n{end}{after}")
    os.replace(temporary, path)


def describe_run(args):
    threads = f"{args.threads} intra-op thread{'s' if args.threads > 1 else ''}"
    versions = ", ".join(f"{package} {peers.version(p)}" for p, package in peers.NAMES.items())
    clock = ", speed in processor time" if args.processor_time else ""
    return f"Made on {os.uname().machine} with {versions}, onnx {onnx.__version__}; {threads}{clock}."


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=pathlib.Path, required=True, metavar="DIR", help="what export.py wrote")
    parser.add_argument("--names", nargs="+", metavar="NAME", help="only these, as bert or bert.script")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build-bench/optimize", metavar="DIR")
    parser.add_argument("--tessera", type=pathlib.Path, metavar="PATH", help="the command; without it, only the peers")
    parser.add_argument("--flag", action="append", default=[], help="passed on to tessera optimize")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="everything measured")
    parser.add_argument("--markdown", action="store_true", help="put the table into docs/benchmarks.md")
    parser.add_argument("--no-speed", action="store_true")
    parser.add_argument("--runs", type=int, default=21, help="at least this many of each (%(default)s)")
    parser.add_argument("--seconds", type=float, default=3, help="at least this long for each pair (%(default)s)")
    parser.add_argument("--processor-time", action="store_true", help="not wall time: for a machine that is busy")
    parser.add_argument("--threads", type=int, default=1, help="ONNX Runtime's intra-op threads (%(default)s)")
    parser.add_argument("--depths", type=pathlib.Path, metavar="DIR", help="has bert_narrow_12 and bert_narrow_120")
    parser.add_argument("--keep", action="store_true", help="leave our files in OUT/ours")
    args = parser.parse_args()

    files = sorted(args.models.glob("*.onnx"))
    if args.names:
        files = [f for f in files if f.stem in args.names or f.stem.split(".")[0] in args.names]
    if not files:
        parser.error(f"no such models in {args.models}")
    records = {}
    for number, path in enumerate(files, 1):
        print(f"[{number}/{len(files)}] {path.stem}:", end="", flush=True)
        record = records[path.stem] = measure(path, args)
        print(" -> " + " ".join(c for c in row(path.stem, record)[1:] if c != "-"), *record["broken"], sep="\n    ")
        if args.json:
            args.json.write_text(json.dumps(records, indent=1))
    text = f"{describe_run(args)}\n\n{table(records)}"
    deep_enough = True
    if args.depths and args.tessera:
        for exporter, (shallow, deep) in measure_depths(args).items():
            text += f"\n\nA narrow BERT of 12 layers ({exporter}) takes {shallow:.3f} s of processor time to optimize, "
            text += f"one of 120 layers {deep:.3f} s: {deep / shallow:.1f} times as much."
            deep_enough &= deep / shallow <= DEEPEST_RATIO
    print(text)
    if args.markdown:
        replace_between_markers(ROOT / "docs/benchmarks.md", text)
    broken = [n for n, r in records.items() if r["broken"]]
    if args.tessera:
        print(f"{len(records) - len(broken)} of {len(records)} keep every promise")
    if not deep_enough:
        print(f"a graph ten times as deep takes more than {DEEPEST_RATIO} times as long")
    return 0 if not broken and deep_enough else 1


if __name__ == "__main__":
    sys.exit(main())
