"""What people try in Python in their first hour: interrupts, forks, natural calls, notebooks, and what errors can be caught as."""

import asyncio
import copy
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from onnx import TensorProto, helper

import tessera

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
RELU = "graph g(x: f32[N,3]) {\n  return relu(x)\n}\n"


def relu():
    return tessera.parse(RELU)


def script(text, **kwargs):
    return subprocess.run([sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, timeout=120, **kwargs)


# ---- forks and interrupts

def test_everything_runs_in_a_forked_child():
    done = script("""
        import os, numpy as np, tessera
        model = tessera.parse("graph g(x: f32[N,64]) { return softmax(matmul(x, transpose(x)), axis=-1) }")
        fast = tessera.compile(model)
        x = np.ones((512, 64), np.float32)
        expected = list(fast.run_async({"x": x}).result().values())[0]
        child = os.fork()
        if child == 0:
            for runnable in (fast, model, tessera.compile(model)):
                for y in (list(runnable.run_async({"x": x}).result(timeout=60).values())[0], runnable(x)):
                    np.testing.assert_allclose(y, expected, rtol=1e-4)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        np.testing.assert_array_equal(list(fast.run_async({"x": x}).result().values())[0], expected)
    """)
    assert done.returncode == 0, done.stderr


def test_a_pool_of_forked_workers():
    done = script("""
        import multiprocessing, numpy as np, tessera
        fast = tessera.compile(tessera.parse("graph g(x: f32[N,3]) { return relu(x) }"))
        x = np.ones((2, 3), np.float32)
        fast.run_async({"x": x}).result()
        def work(n):
            return float(list(fast.run_async({"x": x * n}).result(timeout=60).values())[0].sum())
        with multiprocessing.get_context("fork").Pool(3) as pool:
            assert pool.map(work, range(6)) == [6.0 * n for n in range(6)]
    """)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("after", [0.2, 0.5])
def test_ctrl_c_ends_compile(after):
    """A model of many different kernels, which takes several seconds to compile: it is interrupted before it is done."""
    model = tessera.demo("resnet50")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(after, lambda: os.kill(os.getpid(), signal.SIGINT))
    done = False
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            tessera.compile(model, cache="")
            done = True
            time.sleep(10)  # so that what is late is not raised elsewhere
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)
    assert not done


def long_loop(trips):
    """x -> x + 1, `trips` times."""
    state = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])
    flag = lambda name: helper.make_tensor_value_info(name, TensorProto.BOOL, [])
    count = helper.make_tensor_value_info("i", TensorProto.INT64, [])
    one = helper.make_tensor("one", TensorProto.FLOAT, [], [1.0])
    body = helper.make_graph([helper.make_node("Add", ["before", "one"], ["after"]), helper.make_node("Identity", ["go"], ["on"])],
                             "body", [count, flag("go"), state("before")], [flag("on"), state("after")], initializer=[one])
    graph = helper.make_graph([helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body)], "g", [state("x")], [state("y")],
                              initializer=[helper.make_tensor("trips", TensorProto.INT64, [], [trips])])
    return tessera.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())


@pytest.mark.parametrize("make", [lambda m: m, tessera.compile], ids=["model", "executable"])
def test_ctrl_c_ends_a_loop_that_runs(make):
    model = make(long_loop(20_000_000))
    started = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt():
        started.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.3, interrupt)
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            model(np.zeros(2, np.float32))
        assert time.monotonic() - started[0] < 2
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("make", [lambda m: m, tessera.compile], ids=["model", "executable"])
def test_progress_counts_a_loop_once(make):
    seen = []
    [y] = make(long_loop(1000)).run({"x": np.zeros(2, np.float32)}, progress=lambda *step: seen.append(step[1:])).values()
    assert y.tolist() == [1000, 1000] and seen == [(n + 1, len(seen)) for n in range(len(seen))]


def test_what_progress_raises_ends_compile():
    seen = []

    def progress(what, done, total):
        seen.append(what)
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        tessera.compile(relu(), cache="", progress=progress)
    assert len(seen) == 1


# ---- natural calls

@pytest.mark.parametrize("make", [lambda m: m, lambda m: tessera.compile(m)], ids=["model", "executable"])
def test_a_dict_is_inputs_by_name(make):
    run = make(relu())
    np.testing.assert_array_equal(run({"x": X}), np.maximum(X, 0))
    out = np.empty_like(X)
    assert run({"x": X}, out=out) is out
    with pytest.raises(tessera.Error, match='no input "z"'):
        run({"z": X})
    with pytest.raises(tessera.Error, match="both as a dict and by name"):
        run({"x": X}, x=X)
    with pytest.raises(tessera.Error, match=r'input "x" is None, but takes f32\[N,3\]'):
        run(None)
    with pytest.raises(tessera.Error, match='input "x" is None'):
        run.run({"x": None})


def test_a_list_is_inputs_in_order_where_there_are_several():
    model = tessera.parse("graph g(x: f32[N,3], y: f32[N,3]) {\n  return add(x, y)\n}\n")
    for run in (model, tessera.compile(model)):
        np.testing.assert_array_equal(run([X, X]), 2 * X)
        np.testing.assert_array_equal(run((X, X), out=np.empty_like(X)), 2 * X)
        with pytest.raises(tessera.Error, match='input "y".* is not given'):
            run([X])
    np.testing.assert_array_equal(relu()([[1, -1, 0]]), [[1, 0, 0]])  # one input: its elements


@pytest.mark.parametrize("array, words", [
    (np.array(["a", None], object), "expected strings, got an element of type NoneType"),
    (np.array([object()]), "expected strings, got an element of type object"),
])
@pytest.mark.parametrize("make", [lambda m: m, tessera.compile], ids=["model", "executable"])
def test_objects_are_not_made_strings(make, array, words):
    call = make(tessera.parse("graph g(x: str[N]) { return string_normalizer(x) }"))
    assert list(call(np.array(["a", b"b", 3], object))) == ["a", "b", "3"]
    with pytest.raises(tessera.Error, match=f'E0403: input "x": {words}'):
        call(array)


@pytest.mark.parametrize("make", [lambda m: m, tessera.compile], ids=["model", "executable"])
def test_objects_are_not_called_strings(make):
    with pytest.raises(tessera.Error, match='input "x": expected f32, got an array of Python objects'):
        make(relu())(np.array([[1.0, 2.0, 3.0]], object))


def test_load_says_what_a_compiled_file_is(tmp_path):
    path = tmp_path / "x.tessera"
    tessera.compile(relu()).save(path)
    with pytest.raises(tessera.Error, match="compiled model") as caught:
        tessera.load(path)
    assert "Executable" in caught.value.hint
    np.testing.assert_array_equal(tessera.Executable.load(path)(X), np.maximum(X, 0))


def test_ports_have_shapes():
    model = tessera.parse("graph g(x: f32[N,3], y: f32[2*N + 1], z: f32[]) {\n  return relu(x), relu(y), relu(z)\n}\n")
    assert [port.shape for port in model.inputs] == [("N", 3), ("2*N + 1",), ()]
    assert [port.shape for port in tessera.compile(model).outputs] == [("N", 3), ("2*N + 1",), ()]
    unranked = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g",
                                 [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)],
                                 [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    assert tessera.load(helper.make_model(unranked)).inputs[0].shape is None


def test_errors_are_pythons_too(tmp_path):
    with pytest.raises(FileNotFoundError, match="missing.onnx") as caught:
        tessera.load(tmp_path / "missing.onnx")
    assert isinstance(caught.value, tessera.Error) and caught.value.code == "E0101" and "missing.onnx" in str(caught.value)
    with pytest.raises(OSError):
        relu().save(tmp_path / "no folder" / "x.onnx")
    with pytest.raises(ValueError) as caught:
        relu().run({"x": X.astype(np.float64)})
    assert isinstance(caught.value, tessera.Error) and not isinstance(caught.value, OSError)
    with pytest.raises(ValueError):
        tessera.load(b"no model")
    for code, kind in (("E0101", tessera.FileError), ("E0405", tessera.InputError), ("E0410", tessera.Error), ("E0801", tessera.Error)):
        error = tessera.Error(code, "text", "there", "note", "hint")
        assert type(error) is kind and str(error) == f"{code}: text\n  at: there\n  note: note\n  hint: hint"
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is kind and str(again) == str(error) and again.hint == "hint"


class GivesOneCapsule:
    """__dlpack__ that gives the same capsule each time, which its first consumer has taken."""

    def __init__(self, array):
        self.capsule, self.device = array.__dlpack__(), array.__dlpack_device__()

    def __dlpack__(self, **kwargs):
        return self.capsule

    def __dlpack_device__(self):
        return self.device


@pytest.mark.parametrize("make", [lambda m: m, lambda m: tessera.compile(m)], ids=["model", "executable"])
def test_a_capsule_given_twice_is_an_error(make):
    run = make(relu())
    for _ in range(3):
        given = GivesOneCapsule(X.copy())
        np.testing.assert_array_equal(run(given), np.maximum(X, 0))
        for _ in range(2):
            with pytest.raises(tessera.Error, match="DLPack") as caught:
                run(given)
            assert "taken" in str(caught.value)
    capsule = X.copy().__dlpack__()
    try:
        np.testing.assert_array_equal(run(capsule), np.maximum(X, 0))
    except (tessera.Error, TypeError):
        pass  # a bare capsule need not be taken; nothing may crash
    with pytest.raises((tessera.Error, TypeError)):
        run(capsule)
        run(capsule)


def test_a_model_says_what_its_file_says():
    model = helper.make_model(
        helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "body", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
                          [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])], doc_string="of the graph"),
        producer_name="maker", producer_version="7.1", domain="org.example", model_version=12, doc_string="of the model")
    model.metadata_props.add(key="labels", value="cat,dog")
    said = tessera.load(model).metadata()
    assert (said.producer_name, said.producer_version, said.domain, said.model_version) == ("maker", "7.1", "org.example", 12)
    assert (said.graph_name, said.graph_description, said.description) == ("body", "of the graph", "of the model")
    assert said.custom == {"labels": "cat,dog"} and said.ir_version == model.ir_version


def test_mypy_refuses_what_is_no_model(tmp_path):
    pytest.importorskip("mypy", reason="tools/venv.sh installs mypy")
    (tmp_path / "wrong.py").write_text("import tessera\ntessera.compile(3)\ntessera.load([1])\ntessera.optimize(None)\n")
    (tmp_path / "right.py").write_text(
        "import pathlib\nimport tessera\ntessera.compile('m.onnx')\ntessera.compile(pathlib.Path('m.onnx'))\ntessera.compile(b'')\n"
        "tessera.compile(tessera.load('m.onnx'))\nshape: tuple[int | str, ...] | None = tessera.load('m').inputs[0].shape\n"
        "class Proto:\n    def SerializeToString(self, deterministic: bool = False) -> bytes:\n        return b''\n"
        "tessera.compile(Proto())\n")
    def run(name):
        return subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), name],
                              cwd=tmp_path, capture_output=True, text=True)
    assert run("right.py").returncode == 0, run("right.py").stdout
    assert run("wrong.py").stdout.count("[arg-type]") == 3, run("wrong.py").stdout


# ---- notebooks

def test_notebooks_show_tables():
    model = tessera.parse("graph g(x: f32[N,3], y: f32[3,<A>]) {\n  return matmul(x, y)\n}\n".replace("<A>", "4"))
    fast = tessera.compile(model, cache="")
    smaller, report = tessera.optimize(model, record=True)
    html = {"model": model._repr_html_(), "executable": fast._repr_html_(), "optimized": report._repr_html_(),
            "compiled": fast.report._repr_html_(), "summary": model.summary()._repr_html_()}
    for name, text in html.items():
        assert text.startswith("<") and text.count("<table") == text.count("</table>") >= 1, name
        assert text.count("<tr>") == text.count("</tr>") and text.count("<td>") == text.count("</td>"), name
    assert "f32[N,3]" in html["model"] and "MatMul" in html["model"]
    assert "f32[N,3]" in html["executable"] and "kernel" in html["compiled"]


def test_names_from_files_are_escaped_in_notebooks():
    graph = helper.make_graph([helper.make_node("Relu", ["<script>x"], ["<b>"])], "<i>",
                              [helper.make_tensor_value_info("<script>x", TensorProto.FLOAT, ["<u>"])],
                              [helper.make_tensor_value_info("<b>", TensorProto.FLOAT, None)])
    model = tessera.load(helper.make_model(graph))
    for text in (model._repr_html_(), tessera.compile(model, cache="")._repr_html_()):
        assert "&lt;script&gt;" in text and "<script" not in text and "<b>" not in text and "<u>" not in text and "<i>" not in text


def test_asyncio():
    fast = tessera.compile(relu())

    async def main():
        found = await asyncio.gather(*(asyncio.wrap_future(fast.run_async({"x": X * n})) for n in range(4)))
        return [next(iter(f.values())) for f in found]

    for n, y in enumerate(asyncio.run(main())):
        np.testing.assert_array_equal(y, np.maximum(X * n, 0))


def test_ports_can_be_copied_and_pickled():
    for port in (*relu().inputs, tessera.compile(relu()).outputs[0]):
        for again in (copy.copy(port), copy.deepcopy(port), pickle.loads(pickle.dumps(port))):
            assert repr(again) == repr(port) and again.shape == port.shape and again.dtype == port.dtype
            assert (again.dims, again.sizes, again.ranked, again.has_default) == (port.dims, port.sizes, port.ranked, port.has_default)


@pytest.mark.parametrize("path", ["m.onnx\0x", "\udcff.onnx"])
def test_paths_that_no_file_has_are_errors(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    relu().save("m.onnx")
    executable = tessera.compile(relu())
    for call in (lambda: tessera.load(path), lambda: relu().save(path), lambda: executable.save(path),
                 lambda: tessera.Executable.load(path), lambda: tessera.compile(relu(), cache=path)):
        with pytest.raises(tessera.Error, match="E0501: the path"):
            call()


def test_a_model_is_not_loaded_as_an_executable(tmp_path):
    relu().save(tmp_path / "m.onnx")
    with pytest.raises(tessera.Error, match="E0605.*is not a saved executable\n.*tessera.load"):
        tessera.Executable.load(tmp_path / "m.onnx")
