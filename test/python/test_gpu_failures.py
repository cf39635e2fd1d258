"""What is said where a GPU cannot be used, has no room, or fails, by a driver that stands in for NVIDIA's."""

import os
import subprocess

from conftest import BINARY
from gpu_stand_in import on_stand_in

MIDDLE = """
model = tessera.parse("graph g(x: f32[N,64]) {\\n  a = softmax(x, axis=1)\\n  b = matmul(a, transpose(a, [1,0]))\\n"
                      "  c = softmax(b, axis=1)\\n  return reduce_sum(c, [1], keepdims=0)\\n}\\n")
"""


def test_there_is_no_driver(tmp_path):
    (tmp_path / "m.tsr").write_text("graph g(x: f32[8]) {\n  return relu(x)\n}\n")
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    done = subprocess.run([BINARY, "run", tmp_path / "m.tsr", "--random", "--target", "cuda:77"], capture_output=True, text=True,
                          timeout=120, env=environment)
    assert done.returncode == 1 and "E0701" in done.stderr
    if "there is no GPU 77" not in done.stderr:  # on a machine that has a driver
        assert "no usable GPU: NVIDIA's driver (libcuda.so.1) is not installed" in done.stderr
        assert "target host runs on the CPU" in done.stderr


def test_the_driver_is_too_old():
    on_stand_in("""
e = refused("E0701", "no usable GPU: the driver has CUDA 11.4, and 12.0 is needed", lambda: tessera.compile(model, target="cuda"))
assert e.hint.startswith("target host runs on the CPU")
assert [d.target for d in tessera.devices()] == ["host", "tessel"]
""", fails=True, STAND_IN_VERSION="11040")


def test_the_driver_has_not_all_that_is_needed():
    on_stand_in("""
refused("E0701", "no usable GPU: the driver is older than CUDA 12: it has no cuGraphExecKernelNodeSetParams",
        lambda: tessera.compile(model, target="cuda"))
""", fails=True, STAND_IN_LACKS="cuGraphExecKernelNodeSetParams")


def test_there_is_no_such_gpu():
    on_stand_in("""
e = refused("E0701", "there is no GPU 2: this machine has 2", lambda: tessera.compile(model, target="cuda:2"))
assert e.hint == "they are cuda:0 to cuda:1" and not e.note, e
refused("E0701", "there is no GPU -1", lambda: tessera.compile(model, target="cuda:-1"))
""", fails=True, STAND_IN_GPUS="2")
    on_stand_in("""
e = refused("E0701", "there is no GPU 1: this machine has 1", lambda: tessera.compile(model, target="cuda:1"))
assert e.hint == "the only one is cuda:0" and "CUDA_VISIBLE_DEVICES=3" in e.note, e
""", fails=True, CUDA_VISIBLE_DEVICES="3")
    on_stand_in("""
e = refused("E0701", "there is no GPU 0: this machine has none", lambda: tessera.compile(model, target="cuda"))
assert e.hint == "target host runs on the CPU"
""", fails=True, STAND_IN_GPUS="0")


def test_a_gpu_is_too_old():
    on_stand_in("""
refused("E0701", "GPU 0 (stand-in) has compute capability 7.5, but 8.0 is required", lambda: tessera.compile(model, target="cuda"))
tessera.compile(model, target="cuda:1")
""", fails=True, STAND_IN_GPUS="2", STAND_IN_CAPABILITIES="7.5 8.0")


def test_there_is_no_room_for_a_run():
    on_stand_in(MIDDLE + """
import re
run = tessera.compile(model, target="cuda", cache="")
x = np.ones((2000, 64), np.float32)
run(x[:10])
e = refused("E0408", "GPU 0 (stand-in) cannot allocate", lambda: run(x))
assert "are free" in e.message and e.note == "the memory is for the intermediate results of a run", e
fits = int(re.search("a run needs .* MB; N = ([0-9]+) would fit", e.hint).group(1))
assert 100 < fits < 2000, e
run(x[:fits])  # it does
run(x[:10])
refused("E0408", "cannot allocate", lambda: run(x))
""", STAND_IN_MEMORY=str(4 << 20))


def test_there_is_no_room_for_weights():
    on_stand_in("""
from onnx import TensorProto, helper, numpy_helper
weights = [numpy_helper.from_array(np.full((512, 512), value, np.float32), name) for name, value in (("v", 1), ("w", 2))]
ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 512]) for name in "xy"]
nodes = [helper.make_node("MatMul", ["x", "v"], ["g"]), helper.make_node("Relu", ["g"], ["h"]), helper.make_node("MatMul", ["h", "w"], ["y"])]
model = helper.make_model(helper.make_graph(nodes, "g", ports[:1], ports[1:], weights))
e = refused("E0408", "GPU 0 (stand-in) cannot allocate 1.05 MB", lambda: tessera.compile(tessera.load(model), target="cuda", cache=""))
assert e.note == "the memory is for the model's weights, of which 1.05 MB are already allocated" and "fewer bits" in e.hint, e
""", fails=True, STAND_IN_MEMORY=str(3 << 19))


def test_there_is_no_room_for_an_input():
    on_stand_in("""
run = tessera.compile(model, target="cuda", cache="")
e = refused("E0408", "cannot allocate 4 MB", lambda: run(np.ones(1000000, np.float32)))
assert 'for a copy of "x"' in e.note, e
assert "would fit" in e.hint, e
""", STAND_IN_MEMORY=str(1 << 20))


def test_a_kernel_that_faults_is_named():
    code = MIDDLE + """
run = tessera.compile(model, target="cuda", cache="")
x = np.ones((32, 64), np.float32)
e = refused("E0702", "an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS)", lambda: run(x))
assert e.where.startswith("kernel ") and "gemm b" in e.where and e.note == 'the kernel computes gemm "b"', e
"""
    on_stand_in(code, fails=True, STAND_IN_FAULTS="gemm")


def test_a_kernel_that_is_not_launched_is_named():
    on_stand_in("""
run = tessera.compile(model, target="cuda", cache="")
e = refused("E0702", "the GPU failed while launching a kernel: refused by the stand-in", lambda: run(np.ones(8, np.float32)))
assert "relu" in e.where and "relu" in e.note, e
""", fails=True, STAND_IN_FAILS="once")


def test_kernels_that_are_not_waited_for_are_listed():
    on_stand_in(MIDDLE + """
run = tessera.compile(model, target="cuda", cache="")
x = np.ones((32, 64), np.float32)
run(x)
ctypes.CDLL(None).setenv(b"STAND_IN_FAULTS", b"gemm", 1)
e = refused("E0702", "illegal memory access", lambda: run(x))
assert "one of these 3 kernels failed" in e.note and "gemm b" in e.note and "progress" in e.hint, e
""", fails=True)
    on_stand_in(MIDDLE + """
run = tessera.compile(model, target="cuda", cache="")
x = np.ones((32, 64), np.float32)
run(x)
ctypes.CDLL(None).setenv(b"STAND_IN_FAULTS", b"gemm", 1)
e = refused("E0702", "illegal memory access", lambda: run.run(x, progress=lambda *_: None))
assert "gemm" in e.where, e
""", fails=True)


def test_a_fault_of_narrow_floats_is_found():
    on_stand_in("""
model = tessera.parse("graph g(x: bf16[4,64]) {\\n  return softmax(x, axis=1)\\n}\\n")
run = tessera.compile(model, target="cuda", cache="", keep_weights=True)
found = run.check(model.random_inputs(0))
assert len(found) == 1 and found[0][1] > 0.9, found  # the driver computes nothing
""")
