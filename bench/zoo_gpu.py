"""Architectures of torchvision and transformers in f16 on a GPU, beside Inductor: python bench/zoo_gpu.py --jobs 12

Each is built with random weights, exported by torch's exporter, and timed as a CUDA graph on both sides, in turns. Errors
are those to PyTorch in f32 without tf32, the norm of the difference by that of the result. Cases are prepared in waves of
--jobs processes and timed one by one (bench/in_waves.py). With --target host both sides run on the processor, with small
inputs, to see that everything works."""
import argparse
import json
import logging
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "models")]
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "2")

import in_waves  # noqa: E402


def export(example, path):
    """Writes the model, with eager attention where it cannot be exported as it is; gives what was needed."""
    import served

    failed = None
    for attempt in ("as is", "eager attention"):
        try:
            inner = getattr(example.model, "model", None)
            if attempt == "eager attention":
                if not hasattr(inner, "set_attn_implementation"):
                    raise failed
                inner.set_attn_implementation("eager")
            served.export(example.model, example.inputs, path)
            if attempt == "eager attention":
                inner.set_attn_implementation("sdpa")  # as the peer runs it
            return attempt
        except Exception as found:  # noqa: BLE001  the next attempt may do
            if failed is not None:
                raise
            failed = found
    return None


def prepare(case):
    """Everything but our own compile: that is timed, and so needs the machine to itself."""
    import torch

    import architectures
    import served

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    gpu = case["target"] != "host"
    device = "cuda" if gpu else "cpu"
    torch.set_grad_enabled(False)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    if gpu:
        served.one_benchmark_at_a_time(case["lock"])
    else:
        torch.set_num_threads(1)
    example = architectures.build(case["model"], case["batch"], device, small=case["small"])
    reference = example.model(*example.inputs.values()).float().cpu()
    dtype = torch.float16 if gpu or case["half"] else torch.float32
    example.model.to(device="cpu", dtype=dtype)
    example.inputs = {n: t.cpu().to(dtype) if t.is_floating_point() else t.cpu() for n, t in example.inputs.items()}
    path = pathlib.Path(case["folder"]) / f"{case['name']}.onnx"
    began = time.perf_counter()
    facts = {"exported": export(example, path), "export_s": time.perf_counter() - began, "onnx": str(path)}
    if case["only_export"]:
        return facts, dict
    given = example.inputs
    model, inputs = example.model.to(device), [t.to(device) for t in example.inputs.values()]
    began = time.perf_counter()
    peers, errors = {}, {}
    for peer in case["peers"] if gpu else ["eager"]:
        torch._dynamo.reset()
        modes = {"inductor": {}, "max-autotune": {"mode": "max-autotune-no-cudagraphs"}}
        fast = torch.compile(model, **modes[peer]) if gpu else model
        if gpu:
            replay, result = served.capture(lambda fast=fast: fast(*inputs))
            replay()
            torch.cuda.synchronize()
            peers[peer] = served.replayed(replay)
        else:
            result = fast(*inputs)
            peers[peer] = served.called(lambda: model(*inputs))
        errors[peer] = served.error(result.cpu(), reference)
    facts["peer_compile_s"] = time.perf_counter() - began
    return facts, lambda: measure(case, path, given, reference, peers, errors)


def measure(case, path, given, reference, peers, errors):
    import served

    cache = tempfile.mkdtemp(prefix="cache-")
    ours = served.Served(case["tessera"], case["target"], cache)
    row = {}
    try:
        row["compile_s"] = ours.load(path, given)
        row["error"] = {"ours": served.error(ours.outputs()[0], reference), **errors}
        row["seconds"] = served.in_turns({"ours": ours.turn, **peers}, case["timed_s"])
        if case["steps"]:
            row["steps"] = steps(case, path, cache, ours.files)
    finally:
        ours.close()
    if not case["keep"]:
        path.unlink()
    return row


def steps(case, path, cache, inputs, most=16):
    """The steps that take longest, each launched alone."""
    command = [case["tessera"], "profile", str(path), "--target", case["target"], "--json", "--cache-dir", cache,
               "--runs", "5", *(word for name, file in inputs.items() for word in ("--input", f"{name}={file}"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        return [{"label": f"profile failed: {done.stderr.strip()[:200]}", "us": 0, "gflops": 0, "gbs": 0}]
    found = sorted(json.loads(done.stdout)["steps"], key=lambda s: -s["seconds"])[:most]
    return [{"label": s["label"], "us": s["seconds"] * 1e6, "gflops": s["flops"] / s["seconds"] / 1e9,
             "gbs": s["bytes"] / s["seconds"] / 1e9, "of_peak": s.get("of_peak", 0), "host": s["kind"] == "host"} for s in found]


def ratio(row):
    seconds = row["seconds"]
    return min(t for name, t in seconds.items() if name != "ours") / seconds["ours"]


def wrong(row):
    """Whether our error is more than 1.5 times the best peer's, and more than f32 rounds."""
    theirs = min(e["norm"] for name, e in row["error"].items() if name != "ours")
    return row["error"]["ours"]["norm"] > max(1.5 * theirs, 1e-5)


def print_row(row):
    if "seconds" not in row:
        print(f"| {row['name']} | {row.get('failed', 'exported')} |", flush=True)
        return
    seconds, found = row["seconds"], row["error"]
    theirs = " / ".join(f"{1e3 * t:.3f}" for name, t in seconds.items() if name != "ours")
    their_error = " / ".join(f"{e['norm']:.1e}" for name, e in found.items() if name != "ours")
    print(f"| {row['name']} | {1e3 * seconds['ours']:.3f} | {theirs} | {ratio(row):.2f} | "
          f"{found['ours']['norm']:.1e} / {their_error}{' WRONG' if wrong(row) else ''} | {row['compile_s']:.1f} |", flush=True)


def print_summary(rows):
    done = [row for row in rows if "seconds" in row]
    print(f"\n{len(done)} of {len(rows)} measured")
    if not done:
        return
    ratios = sorted((ratio(row), row["name"]) for row in done)
    mean = math.exp(sum(math.log(r) for r, _ in ratios) / len(ratios))
    print(f"geometric mean {mean:.2f}, least {ratios[0][0]:.2f} ({ratios[0][1]}), "
          f"{sum(r < 0.9 for r, _ in ratios)} below 0.9, {sum(wrong(row) for row in done)} wrong, "
          f"longest compile {max(row['compile_s'] for row in done):.1f} s")
    print("\nThe longest steps of each, launched alone, the slowest model first:")
    for row in sorted(done, key=ratio):
        for step in row.get("steps", [])[:3]:
            where = " (host)" if step.get("host") else ""
            print(f"{ratio(row):5.2f} {row['name']:24} {step['us']:9.1f} us {step['gflops']:10.1f} GFLOP/s "
                  f"{step['gbs']:8.1f} GB/s {100 * step.get('of_peak', 0):4.0f} %  {step['label'][:110]}{where}")


def chosen_cases(options, folder):
    import architectures as known

    names = [n for name in options.models.split(",") if name for n in known.SETS.get(name, [name])]
    for name in names:
        if name not in known.KNOWN:
            sys.exit(f"no architecture {name}; there are {', '.join(known.KNOWN)}")
    tuned = {n for name in options.max_autotune.split(",") if name for n in known.SETS.get(name, [name])}
    cases = []
    for batch in [int(b) for b in options.batches.split(",")]:
        for name in names:
            cases.append({"name": f"{name}_b{batch}", "model": name, "batch": batch, "folder": str(folder),
                          "lock": str(folder / "lock"), "target": options.target, "tessera": options.tessera,
                          "timed_s": options.seconds, "small": options.small or options.target == "host",
                          "half": options.half, "steps": not options.no_steps, "keep": options.keep,
                          "only_export": options.only_export,
                          "peers": ["inductor"] + (["max-autotune"] if name in tuned else [])})
    index, count = (int(n) for n in options.shard.split("/"))
    return cases[index::count]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--models", default="all", help="names, or all, torchvision, transformers, more, with commas")
    parser.add_argument("--batches", default="1,8")
    parser.add_argument("--shard", default="0/1", metavar="I/N", help="every N-th case, from the I-th on")
    parser.add_argument("--max-autotune", default="", metavar="NAMES", help="for these beside max-autotune, too")
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--tessera", default="tessera", help="the command line")
    parser.add_argument("--seconds", type=float, default=0.4, help="of timing, for each side")
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--prepare-seconds", type=float, default=240, help="most of a wave's preparation")
    parser.add_argument("--time-seconds", type=float, default=60, help="most of one case's timing")
    parser.add_argument("--minutes", type=float, help="no wave begins after these")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--folder", type=pathlib.Path, help="for exported models and logs")
    parser.add_argument("--keep", action="store_true", help="keep the exported models")
    parser.add_argument("--only-export", action="store_true")
    parser.add_argument("--small", action="store_true", help="small inputs, as on the processor")
    parser.add_argument("--half", action="store_true", help="f16 on the processor, too")
    parser.add_argument("--no-steps", action="store_true")
    options = parser.parse_args()
    if options.worker:
        return in_waves.serve_worker(json.loads(options.worker), prepare)
    folder = options.folder or pathlib.Path(tempfile.mkdtemp(prefix="zoo-"))
    folder.mkdir(parents=True, exist_ok=True)
    cases = chosen_cases(options, folder)
    until = time.monotonic() + 60 * options.minutes if options.minutes else None
    rows = []

    def done(row):
        rows.append(row)
        print_row(row)
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1))

    print("| model | ours, ms | Inductor, ms | ratio | error, ours / Inductor | compile, s |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |", flush=True)
    in_waves.run(str(pathlib.Path(__file__).resolve()), cases, folder, options.jobs, options.prepare_seconds,
                 options.time_seconds, until, done)
    print_summary(rows)
    return None


if __name__ == "__main__":
    sys.exit(main())
