"""The Python package: arrays in and out, symbolic shapes, errors, threads."""

import pickle
import threading

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tessera


def model_of(nodes, inputs, outputs, **kwargs):
    graph = helper.make_graph(nodes, "g", inputs, outputs, **kwargs)
    return tessera.from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]))


def info(name, elem=TensorProto.FLOAT, shape=("N", 3)):
    return helper.make_tensor_value_info(name, elem, shape)


def add_model(elem=TensorProto.FLOAT, shape=("N", 3)):
    return model_of([helper.make_node("Add", ["x", "y"], ["z"])], [info("x", elem, shape), info("y", elem, shape)],
                    [info("z", elem, shape)])


def identity_model(elem, shape=None):
    return model_of([helper.make_node("Identity", ["x"], ["y"])], [info("x", elem, shape)], [info("y", elem, shape)])


def test_run_by_name_in_order_and_called():
    model = add_model()
    x, y = np.ones((2, 3), np.float32), np.full((2, 3), 2, np.float32)
    np.testing.assert_array_equal(model.run({"x": x, "y": y})["z"], x + y)
    np.testing.assert_array_equal(model.run([x, y])["z"], x + y)
    np.testing.assert_array_equal(model(x, y=y), x + y)


def test_symbolic_shapes_are_visible():
    port = add_model().inputs[0]
    assert (port.name, port.dtype, port.dims, port.sizes) == ("x", "f32", ["N", "3"], [-1, 3])
    assert port.type == "f32[N,3]"


def test_one_model_serves_every_size():
    model = add_model()
    for n in (0, 1, 7):
        x = np.arange(3 * n, dtype=np.float32).reshape(n, 3)
        np.testing.assert_array_equal(model(x, x), 2 * x)


@pytest.mark.parametrize("array", [
    np.arange(12, dtype=np.float32).reshape(3, 4)[:, ::2][:, :1].repeat(3, 1),
    np.arange(9, dtype=np.float32).reshape(3, 3).T,
    np.arange(18, dtype=np.float32).reshape(6, 3)[::2],
    np.arange(9, dtype=">f4").reshape(3, 3),
], ids=["sliced", "transposed", "strided", "big-endian"])
def test_layouts_that_need_a_copy(array):
    np.testing.assert_array_equal(add_model()(array, array), 2 * array)


def test_no_copy_in_or_out():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    tensor = tessera.tensor_from(x)
    assert tessera.array_from(tensor).ctypes.data == x.ctypes.data


def test_an_input_lives_as_long_as_its_result():
    model = identity_model(TensorProto.FLOAT)
    y = model(np.full(1000, 3, np.float32))
    assert (y == 3).all()


@pytest.mark.parametrize("dtype, elem", [
    (np.float64, TensorProto.DOUBLE), (np.float16, TensorProto.FLOAT16), (ml_dtypes.bfloat16, TensorProto.BFLOAT16),
    (ml_dtypes.float8_e4m3fn, TensorProto.FLOAT8E4M3FN), (ml_dtypes.int4, TensorProto.INT4), (np.int8, TensorProto.INT8),
    (np.uint64, TensorProto.UINT64), (np.bool_, TensorProto.BOOL), (np.complex64, TensorProto.COMPLEX64),
])
def test_element_types_pass_through(dtype, elem):
    x = np.array([0, 1, 1, 0]).astype(dtype)
    y = identity_model(elem)(x)
    assert y.dtype == x.dtype and (y == x).all()


def test_strings():
    x = np.array([["a", "é"], ["", "long enough to be on the heap"]], dtype=object)
    y = identity_model(TensorProto.STRING)(x)
    assert y.shape == (2, 2) and (y == x).all()


def test_sequences_and_optionals():
    seq = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
    model = model_of([helper.make_node("SequenceLength", ["s"], ["n"])], [seq], [info("n", TensorProto.INT64, ())])
    assert model([np.zeros(2, np.float32), np.zeros(3, np.float32)]) == 2


@pytest.mark.parametrize("inputs, code", [
    ({"q": np.ones((2, 3), np.float32)}, "E0401"),
    ({"x": np.ones((2, 3), np.float32)}, "E0402"),
    ({"x": np.ones((2, 3)), "y": np.ones((2, 3))}, "E0403"),
    ({"x": np.ones(3, np.float32), "y": np.ones(3, np.float32)}, "E0404"),
    ({"x": np.ones((2, 4), np.float32), "y": np.ones((2, 4), np.float32)}, "E0405"),
    ({"x": np.ones((2, 3), np.float32), "y": np.ones((3, 3), np.float32)}, "E0405"),
])
def test_wrong_inputs_are_errors_with_a_code(inputs, code):
    with pytest.raises(tessera.Error) as caught:
        add_model().run(inputs)
    assert caught.value.code == code and caught.value.message
    assert pickle.loads(pickle.dumps(caught.value)).code == code


def test_a_bad_file_says_so(tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"this is no model")
    with pytest.raises(tessera.Error) as caught:
        tessera.load(tmp_path / "bad.onnx")
    assert caught.value.code.startswith("E01")


def test_save_and_load(tmp_path):
    x = np.ones((2, 3), np.float32)
    for name in ("m.onnx", "m.tsr"):
        add_model().save(tmp_path / name)
        np.testing.assert_array_equal(tessera.load(tmp_path / name)(x, x), 2 * x)
    with pytest.raises(tessera.Error, match="neither .onnx nor .tsr"):
        add_model().save(tmp_path / "m.pt")
    assert not (tmp_path / "m.pt").exists()
    onnx.checker.check_model(str(tmp_path / "m.onnx"), full_check=True)
    assert tessera.parse(add_model().to_text()).to_text() == add_model().to_text()


def test_many_threads_run_one_model():
    model, failures = add_model(), []

    def work(k):
        x = np.full((64, 3), k, np.float32)
        for _ in range(20):
            if not (model(x, x) == 2 * k).all():
                failures.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_progress_is_told_and_can_stop_a_run():
    x = np.ones((2, 3), np.float32)
    seen = []
    add_model().run([x, x], progress=lambda node, done, total: seen.append((done, total)))
    assert seen == [(1, 1)]

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        add_model().run([x, x], progress=stop)


def test_demo_and_summary():
    summary = tessera.demo("resnet50").summary()
    assert summary.parameters == pytest.approx(25.6e6, rel=0.01)
    assert "N" in summary.symbols
