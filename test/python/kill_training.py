"""Kills training runs at random moments and resumes them: python test/python/kill_training.py [--kills N] [--seed S]

Each run must end with the checkpoint and the model of a run that nobody killed, byte by byte."""

import argparse
import os
import pathlib
import random
import signal
import subprocess
import tempfile
import time

import numpy as np
from onnx import TensorProto, helper, numpy_helper

CLI = os.environ.get("TESSERA_BINARY", str(pathlib.Path(__file__).resolve().parents[2] / "build" / "bin" / "tessera"))


def write_inputs(folder):
    """A model with dropout and two layers, and data with a last batch that is smaller."""
    draw = np.random.default_rng(0)
    w = lambda name, *shape: numpy_helper.from_array((draw.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32), name)
    nodes = [helper.make_node("MatMul", ["x", "w0"], ["m"]), helper.make_node("Add", ["m", "b0"], ["h"]), helper.make_node("Relu", ["h"], ["r"]),
             helper.make_node("Dropout", ["r", "ratio"], ["d"]), helper.make_node("MatMul", ["d", "w1"], ["n"]), helper.make_node("Add", ["n", "b1"], ["y"])]
    info = lambda name, width: helper.make_tensor_value_info(name, TensorProto.FLOAT, ("N", width))
    graph = helper.make_graph(nodes, "g", [info("x", 16)], [info("y", 4)], initializer=[
        w("w0", 16, 32), w("b0", 32), w("w1", 32, 4), w("b1", 4), numpy_helper.from_array(np.array(0.2, np.float32), "ratio")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    np.save(folder / "x.npy", draw.standard_normal((1000, 16)).astype(np.float32))
    np.save(folder / "y.npy", draw.integers(0, 4, 1000))


def command(folder, name, resume):
    return [CLI, "train", folder / "model.onnx", "--data", f"{folder}/x.npy,{folder}/y.npy", "--epochs", "6", "--batch", "24",
            "--lr", "0.01", "--schedule", "cosine", "--accumulate", "2", "--threads", "1", "--cache-dir", folder / "cache",
            "--checkpoint", folder / f"{name}.safetensors", "--save-every", "3", "--out", folder / f"{name}.onnx", "--json",
            *(["--resume"] if resume else [])]


def results(folder, name):
    return [(folder / f"{name}{suffix}").read_bytes() for suffix in (".safetensors", ".onnx")]


def run_killed(folder, draw, most_kills, longest):
    """Kills one run until it ends by itself or has been killed often enough, and then lets it end; how often it was killed."""
    for suffix in (".safetensors", ".onnx"):
        (folder / f"killed{suffix}").unlink(missing_ok=True)
    kills = 0
    while True:
        process = subprocess.Popen(command(folder, "killed", True), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if kills < most_kills:
            time.sleep(draw.uniform(0, longest))
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.communicate()
                kills += 1
                continue
        errors = process.communicate()[1].decode()
        assert process.returncode == 0, errors
        return kills


def check(kills, seed):
    """How many runs there were for so many kills."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_inputs(folder)
        subprocess.run(command(folder, "whole", False), check=True, stdout=subprocess.DEVNULL)  # compiles
        begin = time.monotonic()
        subprocess.run(command(folder, "whole", False), check=True, stdout=subprocess.DEVNULL)
        longest = time.monotonic() - begin
        runs = 0
        while kills > 0:
            kills -= max(1, run_killed(folder, draw, min(kills, 5), longest))
            runs += 1
            for killed, whole in zip(results(folder, "killed"), results(folder, "whole")):
                assert killed == whole, "a run that was killed and resumed ended with other bytes"
            left = [p.name for p in folder.iterdir() if ".safetensors." in p.name]
            for p in left:  # what a killed process was writing
                (folder / p).unlink()
    return runs


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(f"{given.kills} kills, {check(given.kills, given.seed)} runs: each ended with the bytes of a run that was not killed")
