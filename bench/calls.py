"""What a call of a small compiled model takes of the processor, in microseconds:

    python bench/calls.py [--driver FOLDER] [--rounds 7] [FOLDER ...]

Each FOLDER holds a build of the package `tessera`; those of several are run in turns, each time in a process of its own, and
medians are printed. With --driver, the folder of the driver that stands in for NVIDIA's (build/test/stand_in), models run on
its GPU too, where nothing is computed: what is left is the call. Where PyTorch is installed, its tensors are among the
arrays."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

MODEL = "graph g(x: f32[N,64]) {\n  y = softmax(x, axis=1)\n  return softmax(transpose(y, [1,0]), axis=1)\n}\n"
CALLS, WARM = 1000, 100


def timed(call):
    for _ in range(WARM):
        call()
    begin = time.thread_time()
    for _ in range(CALLS):
        call()
    return (time.thread_time() - begin) / CALLS * 1e6


def on_the_processor(found):
    import numpy as np
    import tessera
    fast = tessera.compile(tessera.parse(MODEL), cache="", threads=1)
    x, y = np.ones((4, 64), np.float32), np.zeros((64, 4), np.float32)
    name = fast.outputs[0].name
    found["NumPy, by name"] = timed(lambda: fast.run({"x": x}))
    found["NumPy, called"] = timed(lambda: fast(x))
    found["NumPy, out"] = timed(lambda: fast.run({"x": x}, out={name: y}))
    found["NumPy, called with out"] = timed(lambda: fast(x, out=y))
    try:
        import torch
    except ImportError:
        return
    t, u = torch.from_numpy(x), torch.from_numpy(y)
    found["PyTorch, called"] = timed(lambda: fast(t))
    found["PyTorch, called with out"] = timed(lambda: fast(t, out=u))


class OnGpu:
    def __init__(self, array):
        self.array = array
        self.__cuda_array_interface__ = {"shape": array.shape, "typestr": "<f4", "version": 3, "data": (array.ctypes.data, False)}


def aligned(shape):
    import numpy as np
    count = int(np.prod(shape))
    room = np.zeros(count + 64, np.float32)
    return room[(-room.ctypes.data // 4) % 16:][:count].reshape(shape)


def on_the_stand_in(found):
    import tessera
    fast = tessera.compile(tessera.parse(MODEL), target="cuda", cache="")
    x, other, y = OnGpu(aligned((4, 64))), OnGpu(aligned((4, 64))), OnGpu(aligned((64, 4)))
    turn = iter(range(10**9))
    name = fast.outputs[0].name
    found["GPU, out"] = timed(lambda: fast.run({"x": x}, out={name: y}))
    found["GPU, called with out"] = timed(lambda: fast(x, out=y))
    found["GPU, another input each time"] = timed(lambda: fast(x if next(turn) % 2 else other, out=y))


def one_round(folder, driver):
    environment = dict(os.environ, STAND_IN_QUIET="1", PYTHONDONTWRITEBYTECODE="1")
    if folder:
        environment["PYTHONPATH"] = folder
    if driver:
        environment["LD_LIBRARY_PATH"] = driver
    command = [sys.executable, __file__, "--child", *(["--driver", driver] if driver else [])]
    return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*")
    parser.add_argument("--driver")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        found = {}
        on_the_processor(found)
        if given.driver:
            on_the_stand_in(found)
        print(json.dumps(found))
        return
    folders = given.folders or [""]
    rounds = [[] for _ in folders]
    for _ in range(given.rounds):
        for i, folder in enumerate(folders):
            rounds[i].append(one_round(folder, given.driver))
    for case in rounds[0][0]:
        medians = [statistics.median(found[case] for found in each) for each in rounds]
        print(f"{case:32}" + "".join(f"{m:10.2f}" for m in medians))


if __name__ == "__main__":
    main()
