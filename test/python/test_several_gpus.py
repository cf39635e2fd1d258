"""Models on several GPUs of one machine, by a driver that stands in for NVIDIA's: what belongs to one is not given to
another, and the caller's thread is left as it was."""

import json
import os
import subprocess

import pytest
from conftest import BINARY
from gpu_stand_in import BEGIN, STAND_IN, TORCH, on_stand_in

TWO = {"STAND_IN_GPUS": "2"}
BOTH = """
runs = [tessera.compile(model, target=f"cuda:{gpu}", cache="") for gpu in range(2)]
"""


def test_two_models_in_turn():
    on_stand_in(BOTH + """
kept = []
for i in range(12):
    gpu = i % 2
    x, y = In(100, gpu), In(100, gpu)
    kept += [x, y]
    runs[gpu].run(x, out=y)
    found = last()
    assert (found.first, found.second, found.device, found.replayed) == (x.at, y.at, gpu, int(i >= 2)), i
    assert driver.stand_in_current() == -1
for i in range(8):  # what is copied there and back, and memory of the run's own
    assert runs[i % 2](np.ones(1000, np.float32)).shape == (1000,)
    assert last().device == i % 2
x, y = OnGpu(100), OnGpu(100)  # that neither they nor the driver know of: it is taken to be the model's
for outputs in (None, [runs[1].outputs[0].name]):
    runs[1].run(x, out=y, outputs=outputs)
    assert (last().first, last().second, last().device) == (x.at, y.at, 1)
del runs[0]
runs[0](np.ones(10, np.float32))
assert last().device == 1
""", **TWO)


def test_threads_without_a_context():
    on_stand_in(BOTH + """
def work(gpu, failed):
    try:
        assert driver.stand_in_current() == -1
        for i in range(20):
            runs[gpu].run(In(100 + i % 3, gpu), out=In(100 + i % 3, gpu))
            runs[1 - gpu](np.ones(7, np.float32))
            assert driver.stand_in_current() == -1
    except BaseException as e:
        failed.append(e)

failed = []
for together in (False, True):
    threads = [threading.Thread(target=work, args=(i % 2, failed)) for i in range(4)]
    for thread in threads:
        thread.start()
        if not together:
            thread.join()
    for thread in threads:
        thread.join()
assert not failed, failed
""", **TWO)


def test_the_current_gpu_is_left_as_it_was():
    on_stand_in("""
for current in (0, 1, -1):
    driver.stand_in_enter(current)
    runs = [tessera.compile(model, target=f"cuda:{gpu}", cache="") for gpu in range(2)]
    assert driver.stand_in_current() == current
    for i in range(6):
        gpu = i % 2
        runs[gpu].run(In(100, gpu), out=In(100, gpu))
        assert driver.stand_in_current() == current
        runs[gpu](np.ones(100, np.float32))
        assert driver.stand_in_current() == current
        runs[gpu].profile(np.ones(100, np.float32), runs=2)
        assert driver.stand_in_current() == current
    refused("E0405", "expected shape", lambda: runs[1].run(In(100, 1), out=In(99, 1)))
    assert driver.stand_in_current() == current
    runs = None
    assert driver.stand_in_current() == current
""", **TWO)


def test_arrays_of_another_gpu_are_refused():
    on_stand_in(BOTH + """
for gpu in range(2):
    other = 1 - gpu
    e = refused("E0701", f'input "x" is on GPU {other}, but the model runs on GPU {gpu}', lambda: runs[gpu](In(100, other)))
    assert e.hint == f"copy it to GPU {gpu}, or compile for cuda:{other}", e.hint
    refused("E0701", f'is on GPU {other}, but the model runs on GPU {gpu}', lambda: runs[gpu].run(In(100, gpu), out=In(100, other)))
    refused("E0701", f'is on GPU {other}, but the model runs on GPU {gpu}',
            lambda: runs[gpu].run(np.ones(100, np.float32), out=In(100, other)))
""", **TWO)


def test_tensors_on_two_gpus():
    on_stand_in(BOTH + """
for i in range(6):
    gpu = i % 2
    x, y = Tensor(100, gpu), Tensor(100, gpu)
    assert runs[gpu](x, out=y) is y
    found = last()
    assert (found.first, found.second, found.device, found.stream) == (x.at, y.at, gpu, streams[gpu]), i
    made = runs[gpu](x)  # an output that nobody gave memory for is a tensor there
    found = last()
    assert type(made) is Tensor and made.gpu == gpu and (found.first, found.second) == (x.at, made.at)
    refused("E0701", f'input "x" is on GPU {1 - gpu}, but the model runs on GPU {gpu}', lambda: runs[gpu](Tensor(100, 1 - gpu)))
    refused("E0701", f"is on GPU {1 - gpu}, but the model runs on GPU {gpu}", lambda: runs[gpu](x, out=Tensor(100, 1 - gpu)))
""", begin=BEGIN + TORCH, **TWO)


def test_tile_kernels_run_where_their_arrays_lie(tmp_path):
    (tmp_path / "doubling.py").write_text("""
from tessera import tile
import tessera.tile.language as tl

@tile.jit
def doubled(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)
""")
    on_stand_in("""
from doubling import doubled
for i in range(6):
    gpu = i % 2
    x, y = In(100, gpu), In(100, gpu)
    doubled[(2,)](x, y, 100, BLOCK=64)
    found = last()
    assert (found.first, found.second, found.device) == (x.at, y.at, gpu), i
    assert driver.stand_in_current() == -1
    refused("E0701", "arrays on cuda:0 and cuda:1", lambda: doubled[(2,)](x, In(100, 1 - gpu), 100, BLOCK=64))
""", also=tmp_path, **TWO)


@pytest.mark.parametrize("capability", ["8.0", "8.6", "8.9", "9.0", "10.0", "12.0"])
def test_a_tile_kernel_takes_what_a_block_has(tmp_path, capability):
    """Tiles of 48 KiB, which four stages would have 192 of: the driver refuses more shared memory than there is."""
    (tmp_path / "multiplied.py").write_text("""
import tessera.tile as triton
import tessera.tile.language as tl

@triton.jit
def product(a, b, z, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    sums = tl.zeros((BM, BN), tl.float32)
    for step in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (step + k)[None, :])
        y = tl.load(b + (step + k)[:, None] * BN + n[None, :])
        sums = tl.dot(x, y, sums)
    tl.store(z + m[:, None] * BN + n[None, :], sums)
""")
    on_stand_in("""
from multiplied import product
a, b, z = In(128 * 512, 0), In(512 * 64, 0), In(128 * 64, 0)
product[(1,)](a, b, z, 512, BM=128, BN=64, BK=64, num_warps=8, num_stages=4)
assert last().device == 0
""", also=tmp_path, STAND_IN_CAPABILITIES=capability, STAND_IN_TILES="0")


def test_a_saved_model_stays_on_its_gpu(tmp_path):
    on_stand_in(f"""
tessera.compile(model, target="cuda:1", cache="").save({str(tmp_path / "m")!r})
run = tessera.Executable.load({str(tmp_path / "m")!r})
run(np.ones(5, np.float32))
assert last().device == 1
""", **TWO)


def test_code_is_kept_by_capability(tmp_path):
    code = """
for gpu, target in ((0, "sm_90a"), (1, "sm_80"), (0, "sm_90a"), (1, "sm_80")):
    run = tessera.compile(model, target=f"cuda:{gpu}", cache=%r)
    assert f".target {target}" in run.emit("ptx")
    run(np.ones(100, np.float32))
    assert last().device == gpu
    print(gpu, run.report.from_cache)
""" % str(tmp_path)
    done = on_stand_in(code, STAND_IN_CAPABILITIES="9.0 8.0", **TWO)
    assert done.stdout.split("\n")[:4] == ["0 False", "1 False", "0 True", "1 True"]


def test_targets_are_listed():
    on_stand_in("""
found = tessera.devices()
assert [d.target for d in found] == ["host", "cuda:0", "cuda:1", "cuda:2", "tessel"]
assert [d.usable for d in found] == [True, True, True, False, True], found
assert "7.5" in found[3].why and found[1].name == "stand-in" and found[1].bytes == 1 << 37
assert [d.capability for d in found] == [0, 90, 80, 75, 0] and [d.processors for d in found] == [0, 132, 132, 132, 0]
""", STAND_IN_GPUS="3", STAND_IN_CAPABILITIES="9.0 8.0 7.5")


# PyTorch's current GPU is its second.
CURRENT = TORCH + """
torch.cuda = types.SimpleNamespace(is_available=lambda: True, current_device=lambda: 1,
                                   current_stream=lambda gpu=None: types.SimpleNamespace(cuda_stream=streams[1 if gpu is None else gpu]))
torch.cpu, torch.device = types.SimpleNamespace(), str
import tessera.tile as triton
active = triton.runtime.driver.active
"""


def test_scripts_find_the_gpu_of_pytorch():
    on_stand_in(CURRENT + """
assert active.get_current_target() == triton.backends.compiler.GPUTarget("cuda", 80, 32)
assert active.get_current_device() == 1 and active.get_active_torch_device() == "cuda:1"
assert active.get_device_interface() is torch.cuda
assert active.get_current_stream() == streams[1] and active.get_current_stream(0) == streams[0]
found = active.utils.get_device_properties(0)
assert (found["multiprocessor_count"], found["max_shared_mem"], found["warpSize"]) == (132, 227 << 10, 32)
""", STAND_IN_CAPABILITIES="9.0 8.0", **TWO)


@pytest.mark.parametrize("change, environment", [
    ("", {"TESSERA_INTERPRET": "gpu"}), ("torch.cuda.is_available = lambda: False", {}),
    ("sys.modules['torch'] = None", {}), ("", {"STAND_IN_CAPABILITIES": "9.0 7.5"})])
def test_scripts_take_the_processor(change, environment):
    """Where kernels are interpreted, PyTorch sees no GPU or is not there, or its GPU is too old."""
    on_stand_in(CURRENT + change + """
assert active.get_current_target().backend == "cpu" and active.get_current_device() == 0
assert active.get_current_stream() == 0 and active.get_device_properties(0)["warpSize"] == 1
if sys.modules["torch"]:
    assert active.get_active_torch_device() == "cpu" and active.get_device_interface() is torch.cpu
""", **{**TWO, **environment})


def command(*words, **environment):
    if not (STAND_IN / "libcuda.so.1").exists():
        pytest.skip("the driver that stands in is not built")
    environment = dict(os.environ, LD_LIBRARY_PATH=str(STAND_IN), STAND_IN_QUIET="1", **environment)
    return subprocess.run([BINARY, *map(str, words)], capture_output=True, text=True, timeout=120, env=environment)


def test_the_command_line_names_them(tmp_path):
    listed = json.loads(command("devices", "--json", **TWO).stdout)["devices"]
    assert [d["target"] for d in listed] == ["host", "cuda:0", "cuda:1", "tessel"] and listed[2]["code"] == "sm_90a"
    assert "cuda:1   stand-in, 137 GB, 132 SMs, code for sm_90a" in command("devices", **TWO).stdout
    model = tmp_path / "m.tsr"
    model.write_text("graph g(x: f32[8]) {\n  return relu(x)\n}\n")
    for target, status in (("cuda", 0), ("cuda:1", 0), ("cuda:2", 1)):
        done = command("run", model, "--random", "--target", target, "--no-cache", **TWO)
        assert done.returncode == status, (target, done.stdout, done.stderr)
