"""Models that the command line compiled, measured in turns with another: `tessera bench --serve` keeps one in a process."""
import contextlib
import io
import json
import math
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

import numpy as np


class Served:
    """A process with a compiled model in it, on a GPU or the processor."""

    def __init__(self, tessera, target, cache):
        self.target, self.cache = target, str(cache)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="served-"))
        self.log, self.files = self.folder / "log", {}
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([tessera, "bench", "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=log, text=True)

    def ask(self, question):
        try:
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            status = self.process.wait()
            how = f"signal {-status}" if status < 0 else f"status {status}"
            said = " | ".join(self.log.read_text(errors="replace").split("\n")[-4:])
            raise RuntimeError(f"tessera ended with {how}: {said[-300:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"tessera: {answer['error'].get('code', '')} {answer['error'].get('message', '')}"[:400])
        return answer

    def load(self, model, inputs, threads=0, precision="default"):
        """Seconds from the file to code on the device. `inputs` are arrays or tensors by name."""
        self.files = {}
        for i, (name, value) in enumerate(inputs.items()):
            self.files[name] = str(self.folder / f"in{i}.npy")
            np.save(self.files[name], value if isinstance(value, np.ndarray) else to_array(value))
        spec = {"model": str(model), "inputs": self.files, "threads": threads, "precision": precision, "target": self.target,
                "optimize": True, "fuse": True, "cache": self.cache,
                "clock": "wall" if self.target == "host" else "device"}
        return self.ask(spec)["load_s"]

    def outputs(self):
        self.ask({"warm": True, "seconds": 0, "most": 1})
        return [to_tensor(np.load(file)) for file in self.ask({"save": str(self.folder)})["files"]]

    def turn(self, seconds):
        """Seconds of a run, each the mean of some that ran together."""
        return self.ask({"warm": False, "seconds": seconds, "most": 1000})["seconds"]

    def close(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def to_array(tensor):
    """NumPy has no bf16: those are two raw bytes each, as the command line reads and writes them."""
    import torch

    tensor = tensor.cpu()
    return tensor.view(torch.int16).numpy().view("V2") if tensor.dtype == torch.bfloat16 else tensor.numpy()


def to_tensor(array):
    import torch

    if array.dtype == np.dtype("V2"):
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def error(found, wanted):
    """Norm of the difference by that of the result, and the largest difference by the largest element."""
    import torch

    found, wanted = (t.double().flatten() for t in (found, wanted))
    if found.shape != wanted.shape or not bool(torch.isfinite(found).all()):
        return {"norm": math.inf, "largest": math.inf}
    difference = found - wanted
    return {"norm": float(difference.norm() / wanted.norm().clamp(min=1e-30)),
            "largest": float(difference.abs().max() / wanted.abs().max().clamp(min=1e-30))}


def export(model, inputs, path):
    """Writes the model in ONNX by torch's exporter. `inputs` are tensors by name."""
    import torch

    with contextlib.redirect_stdout(io.StringIO()):
        torch.onnx.export(model, tuple(inputs.values()), str(path), dynamo=True, external_data=False,
                          input_names=list(inputs), output_names=["result"])


def in_turns(sides, seconds, rounds=9):
    """Medians of rounds in which each side is timed for its share of the seconds. A side maps seconds to times."""
    times = {name: [] for name in sides}
    for turn in range(rounds + 1):
        for name in list(sides) if turn % 2 else reversed(list(sides)):
            found = statistics.median(sides[name](seconds / rounds))
            if turn:  # the first round warms up
                times[name].append(found)
    return {name: statistics.median(found) for name, found in times.items()}


def replayed(replay):
    """A side of in_turns: a captured CUDA graph, by the GPU's clock."""
    import torch

    def timed(count):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(count):
            replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / count / 1e3

    def side(seconds):
        once = max(timed(1), 1e-6)
        together = max(1, min(100, int(3e-3 / once)))
        began, found = time.perf_counter(), []
        while not found or time.perf_counter() - began < seconds:
            found.append(timed(together))
        return found

    return side


def called(call):
    """A side of in_turns on the processor."""

    def side(seconds):
        began, found = time.perf_counter(), []
        while not found or time.perf_counter() - began < seconds:
            start = time.perf_counter()
            call()
            found.append(time.perf_counter() - start)
        return found

    return side


def capture(call):
    """The call as a CUDA graph, and what it gives."""
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()

    def replay(held=call):  # the call holds what the graph reads
        graph.replay()

    return replay, result


def one_benchmark_at_a_time(lock):
    """Has Inductor's own timings of several processes take turns, so that none chooses by another's noise."""
    import fcntl
    import threading

    from torch._inductor.runtime import benchmarking

    own, depth = threading.RLock(), [0]

    def guarded(method):
        def locked(*args, **kwargs):
            with own, open(lock, "w", encoding="utf-8") as file:
                if depth[0] == 0:  # one of these methods calls another
                    fcntl.flock(file, fcntl.LOCK_EX)
                depth[0] += 1
                try:
                    return method(*args, **kwargs)
                finally:
                    depth[0] -= 1

        return locked

    for kind in type(benchmarking.benchmarker).__mro__:
        if "benchmark_gpu" in vars(kind):
            kind.benchmark_gpu = guarded(vars(kind)["benchmark_gpu"])
