"""The optimizers we are compared with, each with its defaults, each run in a process of its own.

`optimize` gives what one of them makes of a model, from the cache where the file and the version are the same."""
import argparse
import collections
import hashlib
import importlib.metadata
import json
import pathlib
import resource
import subprocess
import sys
import time

import onnx

NAMES = {"onnxsim": "onnxsim", "onnxoptimizer": "onnxoptimizer", "onnxslim": "onnxslim", "ort_basic": "onnxruntime"}
TIMEOUT_S = 600


def count_nodes(graph, histogram=None):
    """Nodes by op type, those of nested graphs included; Constant counts like any other."""
    histogram = collections.Counter() if histogram is None else histogram
    for node in graph.node:
        histogram[f"{node.domain}::{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type] += 1
        for attribute in node.attribute:
            for nested in [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs:
                count_nodes(nested, histogram)
    return histogram


def ops_of(path):
    return dict(count_nodes(onnx.load(path, load_external_data=False).graph).most_common())


def hash_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()[:16]


def version(peer):
    """None where it is not installed."""
    try:
        return importlib.metadata.version(NAMES[peer])
    except importlib.metadata.PackageNotFoundError:
        return None


def run_peer(peer, source, target):
    """What the child process does."""
    if peer == "onnxsim":
        import onnxsim

        model, _ = onnxsim.simplify(onnx.load(source))
        onnx.save(model, target)
    elif peer == "onnxoptimizer":
        import onnxoptimizer

        onnx.save(onnxoptimizer.optimize(onnx.load(source)), target)
    elif peer == "onnxslim":
        import onnxslim

        onnxslim.slim(str(source), str(target))
    elif peer == "ort_basic":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(target)
        onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])


def last_lines(text, count=3):
    return " | ".join([line.strip() for line in text.splitlines() if line.strip()][-count:])


def optimize(peer, source, source_hash, folder, inspect=lambda target: {}):
    """{"nodes", "ops", "seconds", "peak_mib"} and what `inspect` says of the file, or {"failed"}."""
    if version(peer) is None:
        return {"failed": "not installed"}
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{source.stem}.{source_hash}.{peer}-{version(peer)}"
    record, target = folder / f"{stem}.json", folder / f"{stem}.onnx"
    if record.exists():
        return json.loads(record.read_text())
    start = time.monotonic()
    command = [sys.executable, str(pathlib.Path(__file__).resolve()), peer, str(source), str(target)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
        if done.returncode != 0 or not target.exists():
            result = {"failed": f"exit {done.returncode}: {last_lines(done.stderr or done.stdout)}"}
        else:
            ops = ops_of(target)
            result = {"nodes": sum(ops.values()), "ops": ops, "seconds": round(time.monotonic() - start, 2)}
            result["peak_mib"] = int(done.stdout.split()[-1])
            result |= inspect(target)
    except subprocess.TimeoutExpired:
        result = {"failed": f"took more than {TIMEOUT_S} s"}
    target.unlink(missing_ok=True)
    pathlib.Path(f"{target}.data").unlink(missing_ok=True)
    record.write_text(json.dumps(result))
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Runs one optimizer on one file.")
    parser.add_argument("peer", choices=NAMES)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("target", type=pathlib.Path)
    arguments = parser.parse_args()
    run_peer(arguments.peer, arguments.source, arguments.target)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
