"""Arrays on a GPU, up to the launch: by a driver that stands in for NVIDIA's and computes nothing (test/gpu/driver.cpp)."""

from gpu_stand_in import BEGIN, on_stand_in

BEGIN += """
run = tessera.compile(model, target="cuda", cache="")
name = run.outputs[0].name
"""


def test_arrays_are_used_where_they_lie():
    on_stand_in(begin=BEGIN, code="""
kept = []
for i in range(5):
    x, y = OnGpu(100, stream=0x1234), OnGpu(100)
    kept += [x, y]
    assert run.run(x, out=y)[name] is y
    found = last()
    assert (found.first, found.second) == (x.at, y.at), i
    assert found.stream == 0x1234 and found.replayed == (i > 0), i
""")


def test_graphs_are_kept_by_shape():
    on_stand_in(begin=BEGIN, code="""
kept = []
for i in range(6):
    n = (100, 300, 7)[i % 3]
    x, y = OnGpu(n), OnGpu(n)
    kept += [x, y]
    run.run(x, out=y)
    found = last()
    assert (found.first, found.second, found.replayed) == (x.at, y.at, int(i >= 3)), i
""")


def test_what_cannot_be_used_in_place_is_copied():
    on_stand_in(begin=BEGIN, code="""
x, y = OnGpu(100, shift=1), OnGpu(100, shift=1)
x.array[:] = 7
for i in range(3):
    run.run(x, out=y)
    assert last().first not in (x.at, y.at) and last().second not in (x.at, y.at)
same = OnGpu(100)
for i in range(3):
    run.run(same, out=same)
    assert last().first == same.at and last().second != same.at
for i in range(3):  # NumPy arrays are copied, and so are outputs that nobody gave memory for
    assert type(run(np.ones(100, np.float32))) is np.ndarray
    assert type(run(same)) is np.ndarray
    assert last().first == same.at
""")


def test_wrong_devices_are_refused():
    on_stand_in(begin=BEGIN, code="""
class Other(OnGpu):
    class device: id = 1

refused("E0701", 'input "x" is on GPU 1, but the model runs on GPU 0', lambda: run(Other(100)))
refused("E0701", "is on GPU 1, but the model runs on GPU 0", lambda: run.run(OnGpu(100), out=Other(100)))
refused("E0405", "expected shape (100,), got (99,)", lambda: run.run(OnGpu(100), out=OnGpu(99)))
refused("E0501", "cannot be written to", lambda: run.run(OnGpu(100), out=OnGpu(100, data=(256, True))))
refused("E0501", "several streams", lambda: run.run(OnGpu(100, stream=5), out=OnGpu(100, stream=6)))
refused("E0701", "there is no GPU 7", lambda: tessera.compile(model, target="cuda:7", cache=""))
""")


def test_independent_steps_do_not_wait_for_each_other():
    code = """
both = tessera.compile(tessera.parse("graph g(x: f32[64,64]) {\\n  a = softmax(x, axis=1)\\n  b = softmax(x, axis=0)\\n"
                                     "  return matmul(a, b)\\n}\\n"), target="cuda", cache="")
for i in range(2):
    both(np.ones((64, 64), np.float32))
"""
    done = on_stand_in(code, quiet=False, begin=BEGIN)
    followed = [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("after ")]
    assert followed[0] == 0 and followed[1:].count(0) >= 1 and 2 in followed and followed[-1] == 1, followed
