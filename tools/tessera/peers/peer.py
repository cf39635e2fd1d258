# What `tessera bench` runs in a Python process: one peer, one model, one line of JSON in and out at a time.
import importlib.metadata
import json
import os
import resource
import sys
import time

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what libraries print goes to the log


def answer(**values):
    values["peak_rss"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    answers.write(json.dumps(values) + "\n")
    answers.flush()


def fail(message):
    answer(failed=" ".join(str(message).split())[:400])
    sys.exit(0)


class OnnxRuntime:
    def __init__(self, spec):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = spec["threads"]
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(spec["model"], options, providers=["CPUExecutionProvider"])
        self.inputs = spec["arrays"]
        self.version = onnxruntime.__version__

    def run(self):
        return self.session.run(None, self.inputs)


class Torch:
    def __init__(self, spec):
        import torch

        torch.set_num_threads(spec["threads"])
        torch.set_grad_enabled(False)
        self.function = module_of(spec["torch"]) if spec.get("torch") else graph_as_torch(spec["model"])
        self.inputs = [torch.from_numpy(a) for a in spec["arrays"].values()]
        self.version = importlib.metadata.version("torch")

    def run(self):
        return self.function(*self.inputs)

    @staticmethod
    def arrays(outputs):
        return [t.numpy() for t in (outputs if isinstance(outputs, (tuple, list)) else [outputs])]


def module_of(place):
    """FILE.py:NAME, where FILE.build(NAME) gives the module, or something with a `model`."""
    import importlib.util

    file, _, name = place.rpartition(":")
    sys.path.insert(0, os.path.dirname(os.path.abspath(file)))
    spec = importlib.util.spec_from_file_location("peer_model", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules["peer_model"] = module
    spec.loader.exec_module(module)
    built = module.build(name)
    return getattr(built, "model", built)


PEERS = {"onnxruntime": OnnxRuntime, "torch": Torch}


def main():
    spec = json.loads(sys.stdin.readline())
    began = time.perf_counter()
    try:
        import numpy
    except ImportError:
        fail(f"{sys.executable} has no numpy")
    try:
        spec["arrays"] = {name: numpy.load(file) for name, file in spec["inputs"].items()}
        began = time.perf_counter()
        peer = PEERS[spec["peer"]](spec)
    except ModuleNotFoundError as error:
        fail(f"{sys.executable} has no {error.name}")
    except Exception as error:
        fail(error)
    answer(version=peer.version, load_s=time.perf_counter() - began)
    clock = time.process_time if spec["clock"] == "processor" else time.perf_counter
    outputs = None
    while line := sys.stdin.readline():
        question = json.loads(line)
        try:
            if "save" in question:
                arrays = getattr(peer, "arrays", list)(outputs)
                files = [os.path.join(question["save"], f"{i}.npy") for i in range(len(arrays))]
                for file, array in zip(files, arrays):
                    numpy.save(file, array)
                answer(files=files)
                continue
            if question["warm"]:
                outputs = peer.run()
            seconds, end = [], time.perf_counter() + question["seconds"]
            while not seconds or (time.perf_counter() < end and len(seconds) < question["most"]):
                start = clock()
                outputs = peer.run()
                seconds.append(clock() - start)
            answer(seconds=seconds)
        except Exception as error:
            fail(error)


main()
