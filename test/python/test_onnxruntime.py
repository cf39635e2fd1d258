"""tessera.onnxruntime: what programs written for ONNX Runtime call, and what they get."""

import json
import os
import pathlib
import subprocess
import sys
import textwrap
import threading

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tessera
import tessera.onnxruntime as ort
from tessera.onnxruntime.capi.onnxruntime_pybind11_state import (Fail, InvalidArgument, InvalidGraph, InvalidProtobuf,
                                                                 NoSuchFile, NotImplemented)

X = np.arange(6, dtype=np.float32).reshape(3, 2)


def info(name, shape, elem=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, elem, shape)


def save(path, nodes, inputs, outputs, initializers=(), **about):
    graph = helper.make_graph(nodes, "the graph", inputs, outputs, list(initializers), doc_string="what it does")
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], **about)
    onnx.save(model, path)
    return str(path)


@pytest.fixture
def sigmoid(tmp_path):
    return save(tmp_path / "sigmoid.onnx", [helper.make_node("Sigmoid", ["x"], ["y"])], [info("x", (3, 4, 5))], [info("y", (3, 4, 5))])


@pytest.fixture
def affine(tmp_path):
    """y = x w + b and z = -x, with a symbolic batch, an unnamed dimension in no place, and metadata."""
    w, b = numpy_helper.from_array(np.ones((2, 4), np.float32), "w"), numpy_helper.from_array(np.full(4, 0.5, np.float32), "b")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Add", ["m", "b"], ["y"]), helper.make_node("Neg", ["x"], ["z"])]
    path = save(tmp_path / "affine.onnx", nodes, [info("x", ("batch", 2))], [info("y", ("batch", 4)), info("z", ("batch", 2))], [w, b],
                producer_name="maker", domain="org.example", model_version=7, doc_string="an affine map")
    model = onnx.load(path)
    model.metadata_props.add(key="labels", value="a,b,c,d")
    onnx.save(model, path)
    return path


# ---- load, look, run

def test_load_and_run(sigmoid):
    session = ort.InferenceSession(sigmoid, providers=["CPUExecutionProvider"])
    (x,), (y,) = session.get_inputs(), session.get_outputs()
    assert (x.name, x.shape, x.type) == ("x", [3, 4, 5], "tensor(float)")
    assert (y.name, y.shape, y.type) == ("y", [3, 4, 5], "tensor(float)")
    data = np.random.default_rng(0).random((3, 4, 5), np.float32)
    found = session.run([y.name], {x.name: data})
    assert isinstance(found, list) and len(found) == 1 and found[0].dtype == np.float32
    np.testing.assert_allclose(found[0], 1 / (1 + np.exp(-data)), rtol=1e-5)
    assert tessera.InferenceSession is ort.InferenceSession


def test_models_from_everywhere(affine):
    data = pathlib.Path(affine).read_bytes()
    for source in (affine, pathlib.Path(affine), data, bytearray(data), onnx.load(affine)):
        y, z = ort.InferenceSession(source).run(None, {"x": X})
        np.testing.assert_allclose(y, X @ np.ones((2, 4)) + 0.5)
        np.testing.assert_array_equal(z, -X)
    with pytest.raises(TypeError, match="Unable to load from type"):
        ort.InferenceSession(3)


def test_outputs_by_name(affine):
    session = ort.InferenceSession(affine)
    assert [a.tolist() for a in session.run(["z"], {"x": X})] == [(-X).tolist()]
    z, y, again = session.run(["z", "y", "z"], {"x": X})
    assert y.shape == (3, 4) and z.tolist() == again.tolist() == (-X).tolist()
    assert len(session.run([], {"x": X})) == len(session.run(None, {"x": X})) == 2
    with pytest.raises(InvalidArgument, match="INVALID_ARGUMENT.*nope"):
        session.run(["nope"], {"x": X})


def test_shapes_and_types(tmp_path):
    elems = [("f", TensorProto.FLOAT, "tensor(float)"), ("d", TensorProto.DOUBLE, "tensor(double)"), ("h", TensorProto.FLOAT16, "tensor(float16)"),
             ("bf", TensorProto.BFLOAT16, "tensor(bfloat16)"), ("i", TensorProto.INT64, "tensor(int64)"), ("b", TensorProto.UINT8, "tensor(uint8)"),
             ("t", TensorProto.BOOL, "tensor(bool)"), ("s", TensorProto.STRING, "tensor(string)")]
    nodes = [helper.make_node("Identity", [n], [n + "_out"]) for n, _, _ in elems]
    path = save(tmp_path / "m.onnx", nodes, [info(n, ("N", None, 3), e) for n, e, _ in elems], [info(n + "_out", None, e) for n, e, _ in elems])
    session = ort.InferenceSession(path)
    assert [(a.name, a.type) for a in session.get_inputs()] == [(n, t) for n, _, t in elems]
    assert all(a.shape == ["N", None, 3] for a in session.get_inputs())
    scalar = save(tmp_path / "s.onnx", [helper.make_node("SequenceConstruct", ["x", "x"], ["y"])], [info("x", ())],
                  [helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)])
    session = ort.InferenceSession(scalar)
    assert session.get_inputs()[0].shape == [] and session.get_outputs()[0].type == "seq(tensor(float))"
    found, = session.run(None, {"x": np.float32(2)})
    assert [float(v) for v in found] == [2, 2]


def test_lists_and_strings(tmp_path):
    path = save(tmp_path / "m.onnx", [helper.make_node("Identity", ["s"], ["t"]), helper.make_node("Neg", ["i"], ["j"])],
                [info("s", ("N",), TensorProto.STRING), info("i", ("N", 2), TensorProto.INT32)],
                [info("t", None, TensorProto.STRING), info("j", None, TensorProto.INT32)])
    t, j = ort.InferenceSession(path).run(None, {"s": ["one", "two"], "i": [[1, 2], [3, 4]]})
    assert t.tolist() == ["one", "two"] and j.dtype == np.int32 and j.tolist() == [[-1, -2], [-3, -4]]


def test_initializers_that_can_be_overridden(tmp_path):
    w = numpy_helper.from_array(np.full(2, 3, np.float32), "w")
    path = save(tmp_path / "m.onnx", [helper.make_node("Mul", ["x", "w"], ["y"])], [info("x", (2,)), info("w", (2,))], [info("y", (2,))], [w])
    session = ort.InferenceSession(path)
    assert [a.name for a in session.get_inputs()] == ["x"] and [a.name for a in session.get_overridable_initializers()] == ["w"]
    x = np.array([1, 2], np.float32)
    assert session.run(None, {"x": x})[0].tolist() == [3, 6]
    assert session.run(None, {"x": x, "w": -x})[0].tolist() == [-1, -4]


def test_metadata(affine):
    meta = ort.InferenceSession(affine).get_modelmeta()
    assert (meta.producer_name, meta.graph_name, meta.domain, meta.version) == ("maker", "the graph", "org.example", 7)
    assert (meta.description, meta.graph_description) == ("an affine map", "what it does")
    assert meta.custom_metadata_map == {"labels": "a,b,c,d"}


# ---- what is wrong

def test_common_errors(affine, tmp_path):
    session = ort.InferenceSession(affine)
    with pytest.raises(ValueError, match=r"Required inputs \(\['x'\]\) are missing from input feed \(\['X'\]\)"):
        session.run(None, {"X": X})
    for feed, words in (({"x": X, "w2": X}, "w2"), ({"x": X.astype(np.float64)}, "f64"), ({"x": X[0]}, "rank"), ({"x": X[:, :1]}, "2"),
                        ({"x": "text"}, "x"), ({"x": [[1], [2, 3]]}, "x")):
        with pytest.raises(InvalidArgument, match=r"\[ONNXRuntimeError\] : 2 : INVALID_ARGUMENT : (.|\n)*" + words):
            session.run(None, feed)
    with pytest.raises(NoSuchFile, match="NO_SUCHFILE"):
        ort.InferenceSession(str(tmp_path / "missing.onnx"))
    with pytest.raises(InvalidProtobuf):
        ort.InferenceSession(b"not a model")
    unknown = save(tmp_path / "u.onnx", [helper.make_node("Konvolve", ["x"], ["y"])], [info("x", (2,))], [info("y", (2,))])
    with pytest.raises((InvalidGraph, NotImplemented)) as caught:
        ort.InferenceSession(unknown)
    assert isinstance(caught.value.__cause__, tessera.Error)
    assert session.run(None, {"x": X})[1].shape == (3, 2)  # as before


def test_arguments_of_other_types(affine):
    session = ort.InferenceSession(affine)
    for call, words in ((lambda: session.run(None, X), "input_feed: expected a dict"), (lambda: session.run(None, None), "input_feed"),
                        (lambda: session.run("z", {"x": X}), "output_names: expected a list"),
                        (lambda: ort.InferenceSession(affine, {"threads": 1}), "sess_options: expected SessionOptions")):
        with pytest.raises(TypeError, match=words):
            call()
    assert repr(session).startswith("<tessera.InferenceSession for host (x: f32[batch,2])")


def test_providers(affine):
    assert "CPUExecutionProvider" in ort.get_available_providers() and ort.get_device() in ("CPU", "GPU")
    session = ort.InferenceSession(affine, providers=[("CPUExecutionProvider", {"arena_extend_strategy": "kSameAsRequested"})])
    assert session.get_providers() == ["CPUExecutionProvider"] and session.get_provider_options() == {"CPUExecutionProvider": {}}
    with pytest.warns(UserWarning, match="'NoSuchProvider' is not in available provider names"):
        session = ort.InferenceSession(affine, providers=["NoSuchProvider", "CPUExecutionProvider"])
    assert session.get_providers() == ["CPUExecutionProvider"]
    session.set_providers(["CPUExecutionProvider"])
    assert session.run(None, {"x": X})[0].shape == (3, 4)
    with pytest.raises(ValueError, match="same length"):
        ort.InferenceSession(affine, providers=["CPUExecutionProvider"], provider_options=[{}, {}])


# ---- options

def test_session_options(affine, tmp_path):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 2
    options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.enable_cpu_mem_arena = False
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.use_deterministic_compute = True
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_free_dimension_override_by_name("batch", 3)
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    with pytest.raises(InvalidArgument):
        options.get_session_config_entry("nothing")
    with pytest.raises(AttributeError):
        options.intra_op_threads = 1  # misspelt
    session = ort.InferenceSession(affine, options)
    assert session.get_session_options() is options and session.get_inputs()[0].shape == [3, 2]
    assert session.run(None, {"x": X})[0].shape == (3, 4)
    with pytest.raises(InvalidArgument, match="Got: 2 Expected: 3"):
        session.run(None, {"x": X[:2]})
    np.testing.assert_allclose(ort.InferenceSession(options.optimized_model_filepath).run(None, {"x": X})[1], -X)


def test_run_options(affine):
    session = ort.InferenceSession(affine)
    options = ort.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    assert options.get_run_config_entry("memory.enable_memory_arena_shrinkage") == "cpu:0"
    assert len(session.run(None, {"x": X}, options)) == 2
    options.terminate = True
    with pytest.raises(Fail, match="terminate"):
        session.run(None, {"x": X}, options)
    options.terminate = False
    assert len(session.run(None, {"x": X}, run_options=options)) == 2


def test_terminate_while_it_runs(tmp_path):
    names = ["x", *(f"v{i}" for i in range(200))]
    nodes = [helper.make_node("MatMul", [a, a], [b]) for a, b in zip(names, names[1:])]
    path = save(tmp_path / "m.onnx", nodes, [info("x", (1200, 1200))], [info(names[-1], (1200, 1200))])
    session, options = ort.InferenceSession(path), ort.RunOptions()
    timer = threading.Timer(0.5, lambda: setattr(options, "terminate", True))
    timer.start()
    with pytest.raises(Fail, match="terminate"):
        session.run(None, {"x": np.zeros((1200, 1200), np.float32)}, options)


def test_profiling(affine, tmp_path):
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    session = ort.InferenceSession(affine, options)
    session.run(None, {"x": X})
    path = session.end_profiling()
    events = json.loads(pathlib.Path(path).read_text())
    assert path.startswith(str(tmp_path / "profile_")) and session.get_profiling_start_time_ns() > 0
    assert {"model_loading", "session_initialization", "model_run"} <= {e["name"] for e in events}
    assert any(e["cat"] == "Node" and e["dur"] > 0 for e in events)
    assert all({"ts", "dur", "pid", "tid", "ph"} <= set(e) for e in events)


# ---- values and bindings

def test_ort_values(affine):
    session = ort.InferenceSession(affine)
    value = ort.OrtValue.ortvalue_from_numpy(X)
    assert (value.device_name(), value.shape(), value.data_type(), value.element_type()) == ("cpu", [3, 2], "tensor(float)", 1)
    assert value.is_tensor() and value.has_value() and not value.is_tensor_sequence() and not value.is_sparse_tensor()
    np.testing.assert_array_equal(value.numpy(), X)
    np.testing.assert_array_equal(np.from_dlpack(value), X)
    y, z = session.run_with_ort_values(["y", "z"], {"x": value})
    assert isinstance(z, ort.OrtValue) and z.numpy().tolist() == (-X).tolist() and y.shape() == [3, 4]
    np.testing.assert_array_equal(session.run(["z"], {"x": value})[0], -X)
    made = ort.OrtValue.ortvalue_from_shape_and_type([3, 2], np.float32)
    made.update_inplace(X)
    np.testing.assert_array_equal(made.numpy(), X)
    with pytest.raises(InvalidArgument):
        made.update_inplace(X[:1])
    assert ort.OrtValue.ortvalue_from_shape_and_type([2], TensorProto.INT64).data_type() == "tensor(int64)"
    with pytest.raises(NotImplemented):
        ort.OrtValue.ortvalue_from_numpy(X, "cuda", 0)


def test_io_binding(affine):
    session = ort.InferenceSession(affine)
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    np.testing.assert_allclose(binding.copy_outputs_to_cpu()[0], X @ np.ones((2, 4)) + 0.5)
    # In memory of the caller's, by address and as an OrtValue.
    x, y = X.copy(), np.zeros((3, 4), np.float32)
    z = ort.OrtValue.ortvalue_from_shape_and_type([3, 2], np.float32)
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, x.shape, x.ctypes.data)
    binding.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
    binding.bind_ortvalue_output("z", z)
    for factor in (1, 2):
        x[:] = X * factor
        session.run_with_iobinding(binding, ort.RunOptions())
        np.testing.assert_allclose(y, x @ np.ones((2, 4)) + 0.5)
        np.testing.assert_array_equal(z.numpy(), -x)
    assert [v.data_ptr() for v in binding.get_outputs()] == [y.ctypes.data, z.data_ptr()]
    for name in ("bind_cpu_input", "bind_ortvalue_output"):
        with pytest.raises(InvalidArgument, match="nope"):
            getattr(binding, name)("nope", z)
    binding.clear_binding_outputs()
    with pytest.raises(InvalidArgument, match="no output is bound"):
        session.run_with_iobinding(binding)


def test_run_async(affine):
    session, done, seen = ort.InferenceSession(affine), threading.Event(), []

    def callback(results, user_data, error):
        seen.append((results, user_data, error))
        done.set()

    session.run_async(["z"], {"x": X}, callback, "mine")
    assert done.wait(60)
    (results, user_data, error), = seen
    assert user_data == "mine" and error == "" and results[0].tolist() == (-X).tolist()


def test_many_threads(affine):
    session, wrong = ort.InferenceSession(affine), []

    def work(n):
        for _ in range(50):
            if session.run(["z"], {"x": X * n})[0].tolist() != (-X * n).tolist():
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


def test_the_backend_interface(affine):
    from tessera.onnxruntime import backend
    rep = backend.prepare(onnx.load(affine), "CPU")
    for inputs in (X, [X], {"x": X}):
        np.testing.assert_array_equal(rep.run(inputs)[1], -X)
    np.testing.assert_array_equal(backend.run_model(affine, [X])[1], -X)
    assert backend.supports_device("CPU") and not backend.supports_device("abacus") and backend.is_compatible(affine)


# ---- in place of the package

PROGRAM = """
    import sys
    import numpy as np
    import onnxruntime
    from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions
    from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument
    from onnxruntime.capi import _pybind_state
    options = SessionOptions()
    options.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
    session = InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
    try:
        session.run(None, {"x": np.zeros(3)})
    except InvalidArgument:
        print(session.run(["z"], {"x": np.ones((1, 2), np.float32)})[0].tolist(), onnxruntime.__name__)
"""


def test_a_program_runs_unchanged(affine, tmp_path):
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    command = [sys.executable, "-m", "tessera.onnxruntime", str(tmp_path / "program.py"), affine]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
    assert done.stdout == "[[-1.0, -1.0]] tessera.onnxruntime\n", done.stderr
    assert subprocess.run(command[:3], capture_output=True).returncode != 0
