"""Where the tensors of a training step lie on a GPU, by a driver that stands in for NVIDIA's and computes nothing."""

from gpu_stand_in import BEGIN, on_stand_in

STEP = BEGIN + """
driver.stand_in_bytes_across.restype = ctypes.c_size_t
SIZE = 4 * 256 * 256
w = np.arange(256 * 256, dtype=np.float32).reshape(256, 256)
from onnx import TensorProto, helper, numpy_helper
ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 256]) for name in "xy"]
model = tessera.load(helper.make_model(helper.make_graph(
    [helper.make_node("MatMul", ["x", "w"], ["y"])], "g", ports[:1], ports[1:], [numpy_helper.from_array(w, "w")])))
step = tessera.training(model, "mse", tessera.AdamW(0.01), target="cuda")
x = np.ones((2, 256), np.float32)

def across():
    before = driver.stand_in_bytes_across()
    try:
        step(x, x)  # the kernels do nothing: the loss is not finite
    except tessera.Error as e:
        assert "E0407" in str(e), str(e)
    return driver.stand_in_bytes_across() - before
"""


def test_tensors_stay_on_the_gpu():
    on_stand_in(begin=STEP, code="""
assert across() < SIZE / 10
assert across() < SIZE / 10
step = None
""")


def test_copies_that_are_held_stay_in_step():
    on_stand_in(begin=STEP, code="""
held = step.parameters()["w"]
np.testing.assert_array_equal(held, w)
held[3] = 7
np.testing.assert_array_equal(step.parameters()["w"], np.where(np.arange(256)[:, None] == 3, 7, w))
assert 2 * SIZE <= across() < 2.2 * SIZE
assert 2 * SIZE <= across() < 2.2 * SIZE
del held
assert across() < SIZE / 10
step.parameters()["w"][:] = 6
assert SIZE <= across() < 1.1 * SIZE  # it may have been written to
assert across() < SIZE / 10
step = None
""")


def test_states_are_saved_and_loaded(tmp_path):
    on_stand_in(begin=STEP, code=f"""
across()
step.parameters()["w"][:] = 5
step.save("{tmp_path}/run.safetensors")
step.parameters()["w"][:] = 6
assert SIZE <= across() < 1.1 * SIZE
step.load("{tmp_path}/run.safetensors")
np.testing.assert_array_equal(step.parameters()["w"], np.full((256, 256), 5, np.float32))
step = None
""")
