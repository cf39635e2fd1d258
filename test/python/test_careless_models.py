"""Models that declare what does not hold: inference wins, a run wins over both, and each says so."""

import warnings

import numpy as np
import pytest
from onnx import TensorProto, helper

import tessera

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64


def proto(nodes, inputs, outputs, values=(), opset=21):
    graph = helper.make_graph(nodes, "g", inputs, outputs, value_info=values)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def info(name, shape, elem=FLOAT):
    return helper.make_tensor_value_info(name, elem, shape)


def silently(function):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return function()


def forms(model):
    """The model itself, optimized and compiled."""
    return {"read": model, "optimized": tessera.optimize(model)[0], "compiled": tessera.compile(model, cache="")}


def test_inference_wins_over_a_declared_output():
    wrong = proto([helper.make_node("Neg", ["x"], ["y"])], [info("x", [2, 3])], [info("y", [7, 7, 7])])
    with pytest.warns(tessera.ModelWarning, match="W0201"):
        model = tessera.from_onnx(wrong)
    assert [w.code for w in model.warnings] == ["W0201"] and "f32[7,7,7]" in model.warnings[0].message
    assert model.outputs[0].sizes == [2, 3]
    for form in forms(model).values():
        assert silently(lambda: form(np.ones((2, 3), np.float32))).shape == (2, 3)
    with pytest.raises(tessera.Error, match="E0210"):
        tessera.from_onnx(wrong, strict=True)


def joined():
    return proto([helper.make_node("Concat", ["a", "b"], ["c"], axis=0), helper.make_node("Neg", ["c"], ["y"])],
                 [info("a", ["N", 2]), info("b", ["N", 2])], [info("y", ["2*N", 2])])


@pytest.mark.parametrize("form", ["read", "optimized", "compiled"])
def test_one_name_for_two_sizes_of_inputs(form):
    run = forms(silently(lambda: tessera.from_onnx(joined())))[form]
    for a, b in ((3, 3), (3, 5), (4, 1), (5, 3), (2, 2)):
        x, y = np.full((a, 2), 1, np.float32), np.full((b, 2), 2, np.float32)
        call = lambda: run(x, y)
        if a == b:
            got = silently(call)
        else:
            with pytest.warns(tessera.ModelWarning, match="W0203"):
                got = call()
        np.testing.assert_array_equal(got, -np.concatenate([x, y]))


@pytest.mark.parametrize("form", ["read", "optimized", "compiled"])
def test_strict_refuses_two_sizes_for_one_name(form):
    run = forms(tessera.from_onnx(joined(), strict=True))[form]
    with pytest.raises(tessera.Error, match="E0405"):
        run(np.ones((3, 2), np.float32), np.ones((5, 2), np.float32))


def test_sizes_that_do_not_fit_are_still_an_error():
    both = proto([helper.make_node("Add", ["a", "b"], ["y"])], [info("a", ["N"]), info("b", ["N"])], [info("y", ["N"])])
    for form in forms(tessera.from_onnx(both)).values():
        with pytest.raises(tessera.Error, match="E0405"):
            form(np.ones(3, np.float32), np.ones(4, np.float32))
        with pytest.warns(tessera.ModelWarning, match="W0203"):  # what broadcasts does fit
            assert form(np.ones(3, np.float32), np.ones(1, np.float32)).shape == (3,)


@pytest.mark.parametrize("form", ["read", "optimized", "compiled"])
def test_one_name_for_two_sizes_that_are_computed(form):
    nodes = [helper.make_node("NonZero", ["a"], ["i"]), helper.make_node("NonZero", ["b"], ["j"]),
             helper.make_node("Neg", ["i"], ["y"]), helper.make_node("Neg", ["j"], ["z"])]
    model = tessera.from_onnx(proto(nodes, [info("a", [6]), info("b", [6])],
                                    [info("y", [1, "K"], INT), info("z", [1, "K"], INT)],
                                    [info("i", [1, "K"], INT), info("j", [1, "K"], INT)]))
    run = forms(model)[form]
    a, b = np.float32([1, 0, 1, 0, 1, 0]), np.float32([0, 0, 0, 0, 0, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tessera.ModelWarning)
        for x, y in ((a, b), (b, a), (a, a)):
            got = run.run({"a": x, "b": y})
            np.testing.assert_array_equal(got["y"], -np.stack(x.nonzero()))
            np.testing.assert_array_equal(got["z"], -np.stack(y.nonzero()))


@pytest.mark.parametrize("form", ["read", "optimized", "compiled"])
def test_a_declared_rank_that_a_run_contradicts(form):
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["r"]), helper.make_node("Neg", ["r"], ["y"])]
    model = tessera.from_onnx(proto(nodes, [info("x", ["N"]), info("shape", ["R"], INT)], [info("y", ["A", "B"])],
                                    [info("r", ["A", "B"])]))
    run = forms(model)[form]
    x = np.arange(12, dtype=np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tessera.ModelWarning)
        for shape in ([3, 4], [2, 3, 2], [12], [4, 3]):
            np.testing.assert_array_equal(run(x, np.array(shape)), -x.reshape(shape))


def test_formulas_of_exporters():
    pooled = proto([helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2], strides=[2], ceil_mode=0, pads=[0, 1])],
                   [info("x", [1, 1, "height"])], [info("y", [1, 1, "floor(height/2 - 1/2) + 1"])])
    model = silently(lambda: tessera.from_onnx(pooled))
    for form in forms(model).values():
        for size in (7, 8, 9):
            assert silently(lambda: form(np.ones((1, 1, size), np.float32))).shape == (1, 1, (size - 1) // 2 + 1)


def test_a_signal_without_its_last_dimension():
    nodes = [helper.make_node("Constant", [], ["step"], value_int=8), helper.make_node("Constant", [], ["length"], value_int=16),
             helper.make_node("STFT", ["x", "step", "", "length"], ["y"])]
    with pytest.warns(tessera.ModelWarning, match="W0202"):
        model = tessera.from_onnx(proto(nodes, [info("x", ["B", "T"])], [info("y", None)]))
    x = np.random.default_rng(3).standard_normal((2, 40)).astype(np.float32)
    want = np.stack([np.fft.rfft(x[:, i:i + 16]) for i in range(0, 25, 8)], 1)
    for form in forms(model).values():
        np.testing.assert_allclose(form(x), np.stack([want.real, want.imag], -1), atol=1e-4)


def test_the_command_line_warns(tessera_command, tmp_path):
    wrong = proto([helper.make_node("Neg", ["x"], ["y"])], [info("x", [2, 3])], [info("y", [7])])
    (tmp_path / "m.onnx").write_bytes(wrong.SerializeToString())
    done = tessera_command("run", "m.onnx", "--random", "--json")
    assert done.status == 0 and "warning W0201" in done.err
    assert [w["code"] for w in done.json["warnings"]] == ["W0201"]
    refused = tessera_command("run", "m.onnx", "--random", "--json", "--strict")
    assert refused.status == 1 and refused.json["error"]["code"] == "E0210"


@pytest.mark.parametrize("form", ["read", "optimized", "compiled"])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_a_pool_over_less_than_its_window(form, op):
    """Its first window may be larger than the input, whose size only a run knows."""
    nodes = [helper.make_node("Relu", ["x"], ["r"]),
             helper.make_node(op, ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
             helper.make_node("Concat", ["p", "p"], ["y"], axis=1)]
    model = tessera.from_onnx(proto(nodes, [info("x", ["N", 2, "H", "W"])], [info("y", None)]))
    run = forms(model)[form]
    for height, width in ((4, 4), (1, 4), (4, 1), (1, 1), (3, 4)):
        x = np.arange(2 * height * width, dtype=np.float32).reshape(1, 2, height, width)
        reduce = np.max if op == "MaxPool" else np.mean
        want = np.array([[[[reduce(x[0, c, i:i + 2, j:j + 2]) for j in range(0, max(width // 2 * 2, 1), 2)]
                           for i in range(0, max(height // 2 * 2, 1), 2)] for c in (0, 1, 0, 1)]], np.float32)
        np.testing.assert_allclose(run(x), want, rtol=1e-6)
