"""Arguments that are of a wrong type, and where warnings and errors say that something is wrong."""

import inspect
import pickle
import warnings

import numpy as np
import pytest
from onnx import TensorProto, helper

import tessera

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


def relu():
    return tessera.parse("graph g(x: f32[N,3]) { return relu(x) }")


def total():
    return tessera.parse("graph g(x: f32[N,3], y: f32[N,3]) { return add(x, y) }")


@pytest.mark.parametrize("call, expected", [
    (lambda m: tessera.compile(m, target=3), "target: expected a string, got 3"),
    (lambda m: tessera.compile(m, tier=None), "tier: expected a string, got None"),
    (lambda m: tessera.compile(m, optimize="yes"), "optimize: expected True or False, got 'yes'"),
    (lambda m: tessera.compile(m, cache=3), "cache: expected a path or None, got 3"),
    (lambda m: tessera.compile(m, progress=3), "progress: expected a function or None, got 3"),
    (lambda m: tessera.compile(m, threads="two"), "threads: expected a whole number, got 'two'"),
    (lambda m: tessera.optimize(m, 3), "precision: expected a string, got 3"),
    (lambda m: tessera.optimize(m, rules=3), "rules: expected a path or a list of paths, got 3"),
    (lambda m: tessera.optimize(m, fold_limit="a"), "fold_limit: expected a whole number, got 'a'"),
    (lambda m: tessera.search(m, "a"), "seconds: expected a number, got 'a'"),
    (lambda m: tessera.search(m, sizes=[1]), r"sizes: expected sizes by name or None, got \[1\]"),
    (lambda m: tessera.discover("add", max_ops="3"), "max_ops: expected a whole number, got '3'"),
    (lambda m: tessera.discover(3), "ops: expected a path or a list of strings, got 3"),
    (lambda m: tessera.custom_op(3, "Op"), "domain: expected a string, got 3"),
    (lambda m: tessera.parse(3), "text: expected a string, got 3"),
    (lambda m: tessera.demo(3), "name: expected a string, got 3"),
    (lambda m: tessera.load("m.onnx", strict="yes"), "strict: expected True or False, got 'yes'"),
    (lambda m: tessera.warmup_cosine("a", 3), "peak: expected a number, got 'a'"),
    (lambda m: tessera.Executable(m), "a tessera.Executable is not made of"),
    (lambda m: tessera.Model("m.onnx"), "a tessera.Model is not made of 'm.onnx'"),
    (lambda m: m.save(3), "path: expected a path, got 3"),
    (lambda m: tessera.compile(m).emit(3), "what: expected a string, got 3"),
    (lambda m: tessera.Executable.load(None), "path: expected a path, got None"),
    (lambda m: tessera.training(m, 3), "loss: expected a string, a tessera.Loss or None, got 3"),
    (lambda m: tessera.training(m, "mse", clip_norm="a"), "clip_norm: expected a number, got 'a'"),
    (lambda m: tessera.training(m, tessera.Loss("mse", class_axis="a")), "Loss: class_axis: expected a whole number, got 'a'"),
    (lambda m: tessera.training(m, tessera.Loss("mse", class_weights=2)), "class_weights: expected a list of numbers, got 2"),
    (lambda m: tessera.quantize(m, samples=[X], scheme=3), "scheme: expected a string, got 3"),
    (lambda m: tessera.quantize(m, samples=[X], percentile="a"), "percentile: expected a number, got 'a'"),
    (lambda m: tessera.numpy_dtype("f99"), 'there is no element type "f99"'),
    (lambda m: tessera.set_memory_limit(None), "memory limit: expected a whole number, got None"),
])
def test_a_wrong_argument_is_named(call, expected):
    with pytest.raises(tessera.InputError, match=expected) as caught:
        call(relu())
    assert caught.value.code in ("E0501", "E0403") and "incompatible function" not in str(caught.value)


def test_an_input_that_a_training_step_does_not_have_is_named():
    model = tessera.parse("graph g(x: f32[N,3]) { return matmul(x, [[1.0], [2.0], [3.0]]:f32[3,1]) }")
    step = tessera.training(model, "mse", parameters="*")
    with pytest.raises(tessera.Error, match='E0401: a training step has no input "labels"') as caught:
        step(x=X, labels=np.zeros((2, 1), np.float32))
    assert caught.value.hint == "there are: x, target"


def test_numbers_of_numpy_are_numbers():
    model = relu()
    assert tessera.optimize(model, fold_limit=np.int64(100))[1].before.nodes == 1
    step = tessera.training(tessera.parse("graph g(x: f32[N,3]) { w = constant(1.0:f32) return mul(x, [1.0, 2.0, 3.0]:f32[3]) }".replace(
        " w = constant(1.0:f32)", "")), "mse", parameters="*", clip_norm=np.float32(2), seed=np.int32(1))
    assert step.updates == 0


def test_a_profile_that_is_samples_gets_the_word_for_them():
    with pytest.raises(tessera.Error, match=r"profile: expected a tessera.Profile, a path or None, got \[") as caught:
        tessera.quantize(relu(), [1])
    assert "samples=" in caught.value.hint


def test_one_array_is_not_taken_for_a_list_of_samples():
    """Its rows would be, which the model does not take."""
    for call in (tessera.calibrate, lambda m, x: tessera.quantize(m, samples=x)):
        with pytest.raises(tessera.Error, match="samples: expected a sequence with the inputs of each run, got one array") as caught:
            call(relu(), X)
        assert "[x]" in caught.value.hint
        with pytest.raises(tessera.Error, match="samples: expected a sequence with the inputs of each run, got a dict") as caught:
            call(relu(), {"x": X})
    assert tessera.calibrate(relu(), np.stack([X, X])).samples == 2


@pytest.mark.parametrize("make", [lambda m: m, tessera.compile], ids=["model", "executable"])
def test_several_inputs_are_taken_in_order(make):
    run = make(total())
    for found in (run.run(X, X), run.run([X, X]), run.run_async(X, X).result()):
        np.testing.assert_array_equal(next(iter(found.values())), 2 * X)
    with pytest.raises(tessera.Error, match="2 inputs were given, the model takes 1"):
        make(relu()).run_async(X, X)
    with pytest.raises(tessera.Error, match="both as a dict and in order"):
        run.run({"x": X}, X)


@pytest.mark.parametrize("make", [lambda m: m, tessera.compile], ids=["model", "executable"])
def test_masked_elements_are_not_dropped(make):
    run = make(relu())
    masked = np.ma.masked_array(X, mask=X > 1)
    for call in (lambda: run(masked), lambda: run.run({"x": masked}), lambda: run.run_async({"x": masked}),
                 lambda: run(X, out=np.ma.masked_array(np.empty_like(X), mask=X > 1))):
        with pytest.raises(tessera.Error, match="masked") as caught:
            call()
        assert "filled" in caught.value.hint
    np.testing.assert_array_equal(run(np.ma.masked_array(X, mask=False)), np.maximum(X, 0))


# ---- errors and warnings

def test_errors_keep_their_kind_when_pickled(tmp_path):
    with pytest.raises(tessera.MissingFileError) as caught:
        tessera.load(tmp_path / "missing.onnx")
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is tessera.MissingFileError and isinstance(again, FileNotFoundError)
    assert str(again) == str(caught.value) and again.code == "E0101"
    assert "MissingFileError" in tessera.__all__


def misdeclared():
    """A model whose runs may contradict its declarations."""
    info = lambda name, dims: helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
    graph = helper.make_graph([helper.make_node("Concat", ["a", "b"], ["y"], axis=0)], "g", [info("a", ["N", 2]), info("b", ["N", 2])],
                              [info("y", ["2*N", 2])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("make", [lambda m: m, tessera.compile], ids=["model", "executable"])
@pytest.mark.parametrize("call", [lambda r, a, b: r(a, b), lambda r, a, b: r(a=a, b=b), lambda r, a, b: r.run({"a": a, "b": b}),
                                  lambda r, a, b: r.run([a, b], seed=1), lambda r, a, b: r.run_async(a, b).result()],
                         ids=["call", "by_name", "run", "seed", "async"])
def test_a_warning_points_at_the_line_that_ran_the_model(make, call):
    run = make(tessera.load(misdeclared()))
    with pytest.warns(tessera.ModelWarning, match="W0203") as caught:
        call(run, np.ones((3, 2), np.float32), np.ones((5, 2), np.float32))
    assert [w.filename for w in caught] == [__file__]
    first = call.__code__.co_firstlineno
    assert caught[0].lineno == first


def test_a_warning_of_reading_points_at_the_line_that_read(tmp_path):
    relus = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [7, 7])])
    model = helper.make_model(relus, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    for read in (tessera.load, tessera.compile, tessera.from_onnx, tessera.optimize, tessera.InferenceSession):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            line = inspect.currentframe().f_lineno + 1
            read(str(tmp_path / "m.onnx"))
        assert [(w.filename, w.lineno) for w in caught] == [(__file__, line)], read


# ---- what is shown

def test_names_that_complete_are_the_public_ones():
    shown = dir(tessera)
    assert set(tessera.__all__) <= set(shown) and "__version__" in shown
    assert not [name for name in shown if name.startswith("_") and not name.startswith("__")]
    assert not {"Any", "os", "cast", "annotations", "check_symbols", "Callable"} & set(shown)


def test_training_and_executables_say_what_they_are():
    model = tessera.parse("graph g(x: f32[N,3]) { return matmul(x, [[1.0], [2.0], [3.0]]:f32[3,1]) }")
    step = tessera.training(model, "mse", tessera.SGD(0.1), parameters=["*"])
    assert repr(step).startswith("<tessera.Training (x: f32[N,3], target: f32[N,1])") and "0 updates" in repr(step)
    step(X, np.zeros((2, 1), np.float32))
    assert "1 update" in repr(step) and "1 updates" not in repr(step)
    assert repr(tessera.compile(relu())) == "<tessera.Executable for host (x: f32[N,3]) -> (v0: f32[N,3])>"
    assert tessera.compile(relu(), target="host").target == "host"


def test_an_executable_that_was_saved_knows_its_target(tmp_path):
    tessera.compile(relu()).save(tmp_path / "x.tessera")
    assert tessera.Executable.load(tmp_path / "x.tessera").target == "host"


def test_notebooks_show_reports_of_quantization_profiles_and_devices():
    rng = np.random.default_rng(0)
    w = ", ".join(f"{v:.3f}" for v in rng.normal(size=32))
    model = tessera.parse(f"graph g(x: f32[N,8]) {{ return matmul(x, reshape([{w}]:f32[32], [8,4]:i64[2])) }}")
    small, report = tessera.quantize(model, samples=[rng.normal(size=(16, 8)).astype(np.float32)])
    fast = tessera.compile(model)
    for html, words in ((report._repr_html_(), ("QuantizeReport", "MatMul", "dB")),
                        (tessera.calibrate(model, [np.ones((2, 8), np.float32)])._repr_html_(), ("Profile", "1 sample")),
                        (tessera.devices()[0]._repr_html_(), ("host",)), (tessera.devices()._repr_html_(), ("host", "tessel")),
                        (fast.profile([np.ones((2, 8), np.float32)])._repr_html_(), ("ms", "matmul"))):
        assert html.count("<table") == html.count("</table>") >= 1
        for word in words:
            assert word.lower() in html.lower(), (word, html)
