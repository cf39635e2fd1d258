"""Python with a driver that stands in for NVIDIA's and computes nothing (test/gpu/driver.cpp)."""

import os
import pathlib
import subprocess
import sys

import pytest
from conftest import BINARY

STAND_IN = pathlib.Path(BINARY).resolve().parents[1] / "test" / "stand_in"

BEGIN = """
import ctypes
import sys
import threading
import types
import numpy as np
import tessera

class Launched(ctypes.Structure):
    _fields_ = [("first", ctypes.c_uint64), ("second", ctypes.c_uint64), ("stream", ctypes.c_uint64), ("replayed", ctypes.c_int),
                ("device", ctypes.c_int)]

driver = ctypes.CDLL("libcuda.so.1")
driver.stand_in_memory.restype = driver.stand_in_stream.restype = ctypes.c_uint64
driver.stand_in_memory.argtypes = [ctypes.c_int, ctypes.c_size_t]

def last():
    into = (Launched * 1)()
    assert driver.stand_in_launches(into, 1) > 0
    return into[0]

def refusals():
    why = ctypes.c_char_p()
    return driver.stand_in_refusals(ctypes.byref(why)), why.value

class OnGpu:
    def __init__(self, n, shift=0, **said):
        room = np.zeros(n + 64, np.float32)
        self.array = room[(-room.ctypes.data // 4) % 16 + shift:][:n]
        self.__cuda_array_interface__ = {"shape": (n,), "typestr": "<f4", "version": 3, "data": (self.at, False), **said}

    @property
    def at(self): return self.array.ctypes.data

class In:
    # In memory that the driver knows: it does not say itself on which GPU.
    def __init__(self, n, gpu, **said):
        self.at = driver.stand_in_memory(gpu, 4 * n)
        self.__cuda_array_interface__ = {"shape": (n,), "typestr": "<f4", "version": 3, "data": (self.at, False), **said}

def refused(code, text, call):
    try:
        call()
    except tessera.Error as e:
        assert code in str(e) and text in str(e), str(e)
        return e
    else:
        assert False, "it was not refused"

model = tessera.parse("graph g(x: f32[N]) {\\n  return relu(x)\\n}\\n")
"""

# What is asked of PyTorch, and no more of it: tensors on several GPUs, each with a stream of its own.
TORCH = """
class Tensor:
    def __init__(self, n, gpu=0):
        self.n, self.gpu, self.at = n, gpu, driver.stand_in_memory(gpu, 4 * n)
    def is_contiguous(self): return True
    def get_device(self): return self.gpu
    def data_ptr(self): return self.at
    def numel(self): return self.n
    shape = property(lambda self: (self.n,))
    device = property(lambda self: types.SimpleNamespace(type="cuda"))
    is_cpu, is_cuda, requires_grad, layout = False, True, False, "strided"

class DType:
    def __str__(self): return "torch.float32"

Tensor.__module__ = "torch"
torch = sys.modules["torch"] = types.ModuleType("torch")
torch.Tensor, torch.float32, torch.strided = Tensor, DType(), Tensor.layout
Tensor.dtype = torch.float32
torch.empty = lambda shape, dtype, device: Tensor(shape[0], int(device.partition(":")[2]))
torch._C = sys.modules["torch._C"] = types.ModuleType("torch._C")
streams = [driver.stand_in_stream(gpu) for gpu in range(2)]
torch._C._cuda_getCurrentRawStream = lambda gpu: streams[gpu]
"""


def on_stand_in(code, quiet=True, fails=False, begin=BEGIN, also="", **environment):
    """Runs Python with it, and with modules of the folder `also`; where `fails`, calls may have been refused."""
    if not (STAND_IN / "libcuda.so.1").exists():
        pytest.skip("the driver that stands in is not built")
    environment = dict(os.environ, LD_LIBRARY_PATH=str(STAND_IN), PYTHONPATH=os.pathsep.join([str(also), *sys.path]), **environment)
    if quiet:
        environment["STAND_IN_QUIET"] = "1"
    if not fails:
        code += "\nimport gc\nrun = runs = both = fast = None\ngc.collect()\nassert refusals()[0] == 0, refusals()\n"
    done = subprocess.run([sys.executable, "-c", begin + code], capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done
