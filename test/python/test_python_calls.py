"""What people try in Python in their first hour: every natural call, and a clear answer to nonsense."""

import asyncio
import copy
import os
import pathlib
import pickle
import subprocess
import sys

import ml_dtypes
import numpy as np
import onnx
import pytest
from conftest import ROOT
from onnx import TensorProto, helper

import tessera

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


def proto(nodes, inputs=("x",), outputs=("y",), elem=TensorProto.FLOAT, shape=("N", 3)):
    info = lambda name: helper.make_tensor_value_info(name, elem, shape)
    graph = helper.make_graph(nodes, "g", [info(n) for n in inputs], [info(n) for n in outputs])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


RELU = proto([helper.make_node("Relu", ["x"], ["y"])])
BOTH = proto([helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Neg", ["x"], ["z"])], outputs=("y", "z"))


def runnables(model=RELU):
    loaded = tessera.load(model)
    return [loaded, tessera.compile(loaded), tessera.compile(loaded, cache="", threads=1)]


@pytest.mark.parametrize("elem, dtype", [(TensorProto.FLOAT, np.float32), (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
                                         (TensorProto.INT4, ml_dtypes.int4), (TensorProto.BOOL, np.bool_)])
def test_outputs_can_be_written_to(elem, dtype):
    x = np.ones((2, 3), dtype)
    for run in runnables(proto([helper.make_node("Identity", ["x"], ["y"])], elem=elem)):
        y = run(x)
        assert y.flags.writeable
        y[:] = 0
        assert x.all(), "the input changed with it"
    constant = tessera.parse("graph g(x: f32[2]) {\n  const c: f32[2] = [1,2]\n  return c\n}\n")
    constant(np.zeros(2, np.float32))[:] = 7
    np.testing.assert_array_equal(constant(np.zeros(2, np.float32)), [1, 2])


@pytest.mark.parametrize("make", [
    lambda x: x, np.asfortranarray, lambda x: np.repeat(x, 2, axis=1)[:, ::2], lambda x: x[::-1][::-1],
    lambda x: x.astype(">f4"), lambda x: np.frombuffer(x.tobytes(), np.float32).reshape(x.shape),  # cannot be written
    lambda x: x.view(type("Own", (np.ndarray,), {})), lambda x: tessera.load(RELU).run({"x": x})["y"] + np.minimum(x, 0),
], ids=["plain", "columns", "strided", "turned twice", "other bytes", "read only", "subclass", "of a run"])
def test_arrays_of_every_layout(make):
    for runnable in runnables():
        for shape in ((2, 3), (1, 3), (0, 3)):
            x = make(np.resize(X, shape))
            before = x.copy()
            y = runnable.run({"x": x})["y"]
            np.testing.assert_array_equal(y, np.maximum(before, 0).astype(np.float32))
            y[:] = -1
            np.testing.assert_array_equal(x, before)
        for wrong in ({"x": X.astype(np.float64)}, {"x": X[0]}, {"z": X}, {}, {"x": X, "z": X}):
            with pytest.raises(tessera.Error):
                runnable.run(wrong)
        assert list(runnable.run({"x": X.tolist()})["y"][0]) == [0, 0, 0]


@pytest.mark.parametrize("call", [tessera.load, tessera.from_onnx, tessera.compile, lambda m: tessera.optimize(m)[0],
                                  lambda m: tessera.search(m, 1, cost="estimate", time_candidates=False)[0]],
                         ids=["load", "from_onnx", "compile", "optimize", "search"])
def test_models_come_in_every_form(call, tmp_path):
    onnx.save(RELU, tmp_path / "m.onnx")
    data = RELU.SerializeToString()
    for model in (tmp_path / "m.onnx", str(tmp_path / "m.onnx"), data, bytearray(data), RELU, tessera.load(RELU)):
        np.testing.assert_array_equal(call(model)(X), np.maximum(X, 0))
    with pytest.raises(tessera.Error, match="E0501.*got int"):
        call(3)


def test_one_array_for_one_input():
    for run in runnables():
        for x in (X, [X], (X,), {"x": X}):
            np.testing.assert_array_equal(run.run(x)["y"], np.maximum(X, 0))
    assert tessera.compile(RELU).profile(X, runs=1) and tessera.compile(RELU, keep_weights=True).check(X)
    with pytest.raises(tessera.Error, match="E0402"):
        tessera.load(proto([helper.make_node("Add", ["x", "b"], ["y"])], inputs=("x", "b"))).run(X)


def test_outputs_by_name_and_into_arrays():
    for run in runnables(BOTH):
        assert list(run.run(X, outputs=["z"])) == ["z"] and list(run.run(X, outputs="z")) == ["z"]
        assert list(run.run(X, outputs=["z", "y"])) == ["z", "y"]
        into = np.zeros_like(X)
        assert run.run(X, outputs="z", out=into)["z"] is into
        np.testing.assert_array_equal(into, -X)
        both = {"y": np.zeros_like(X), "z": np.zeros((3, 2), np.float32).T}
        assert run.run(X, out=both)["z"] is both["z"]
        np.testing.assert_array_equal(both["z"], -X)
        for wrong, code in ((np.zeros((3, 3), np.float32), "E0405"), (np.zeros((2, 3)), "E0403"), ([1], "E0501")):
            with pytest.raises(tessera.Error, match=code):
                run.run(X, outputs="z", out=wrong)
        with pytest.raises(tessera.Error, match="E0501"):
            run.run(X, out=into)
        with pytest.raises(tessera.Error, match="E0401"):
            run.run(X, outputs=["q"])


def test_reprs_say_what_things_are():
    model, executable = tessera.load(BOTH), tessera.compile(BOTH)
    smaller, report = tessera.optimize(BOTH, record=True)
    _, found = tessera.search(BOTH, 1, cost="estimate", time_candidates=False)
    things = [model, executable, model.inputs[0], model.summary(), model.summary().ops[0], report, report.passes[0], executable.report,
              found, found.candidates[0], executable.profile(X, runs=1)[0], tessera.tensor_from(X),
              tessera.discover("relu", 1, prove=False), tessera.discover("relu", 1, prove=False).counts]
    for thing in things:
        text = repr(thing)
        assert text.startswith("<") and " at 0x" not in text and "object" not in text and len(text) < 300, text
    assert repr(model.inputs[0]) == "<tessera.Port x: f32[N,3]>" and "2 nodes" in repr(model.summary())


def test_pickle_and_copies(tmp_path):
    strings = tessera.compile(proto([helper.make_node("StringNormalizer", ["x"], ["y"], case_change_action="UPPER")],
                                    elem=TensorProto.STRING, shape=("N",)))
    assert strings.report.host_steps == 1  # of which there is no machine code: the file holds the model
    for run in [*runnables(BOTH), strings]:
        x = X if len(run.outputs) == 2 else np.array(["a", "b"], object)
        again = pickle.loads(pickle.dumps(run))
        assert type(again) is type(run) and repr(again) == repr(run)
        for name, value in run.run(x).items():
            np.testing.assert_array_equal(again.run(x)[name], value)
        assert copy.deepcopy(run)(x) is not None and copy.copy(run).inputs[0].name == "x"


def test_an_executable_is_one_file(tmp_path):
    rng = np.random.default_rng(1)
    w = onnx.numpy_helper.from_array(rng.standard_normal((3, 3), np.float32), "w")
    model = proto([helper.make_node("MatMul", ["x", "w"], ["y"])])
    model.graph.initializer.append(w)
    for options in ({}, {"cache": ""}, {"keep_weights": True}, {"threads": 1, "precision": "strict"}):
        compiled = tessera.compile(model, **options)
        compiled.save(tmp_path / "m.tessera")
        assert [p.name for p in tmp_path.iterdir()] == ["m.tessera"]
        loaded = tessera.Executable.load(tmp_path / "m.tessera")
        for n in (1, 4):
            x = rng.standard_normal((n, 3), np.float32)
            np.testing.assert_array_equal(loaded(x), compiled(x))
        assert loaded.report.kernels == compiled.report.kernels and loaded.inputs[0].dims == ["N", "3"]
    saved = (tmp_path / "m.tessera").read_bytes()
    (tmp_path / "cut.tessera").write_bytes(saved[: len(saved) // 2])
    (tmp_path / "flipped.tessera").write_bytes(saved[:200] + bytes([saved[200] ^ 1]) + saved[201:])
    (tmp_path / "none.tessera").write_bytes(b"not one")
    for name in ("cut", "flipped", "none"):
        with pytest.raises(tessera.Error, match="E0605"):
            tessera.Executable.load(tmp_path / f"{name}.tessera")
    with pytest.raises(tessera.Error, match="E0101"):
        tessera.Executable.load(tmp_path / "missing.tessera")
    with pytest.raises(tessera.Error, match="E0105"):
        compiled.save(tmp_path / "no" / "folder")


def test_runs_in_the_background():
    for run in runnables(BOTH):
        futures = [run.run_async(X + i, outputs="z") for i in range(20)]
        for i, future in enumerate(futures):
            np.testing.assert_array_equal(future.result()["z"], -(X + i))
        assert run.run_async(np.ones((2, 4), np.float32)).exception().code == "E0405"

        async def wait():
            return await asyncio.wrap_future(run.run_async(X))

        assert set(asyncio.run(wait())) == {"y", "z"}


def test_memory_has_a_limit():
    model = tessera.parse("graph g(x: f32[N]) {\n  return mul(x, x)\n}\n")
    before = tessera.memory_limit()
    try:
        tessera.set_memory_limit("1M")
        assert tessera.memory_limit() == 1_000_000
        with pytest.raises(tessera.Error, match="E0408"):
            model(np.ones(10**6, np.float32))
        tessera.set_memory_limit(10**9)
        assert model(np.ones(10**6, np.float32)).size == 10**6 and tessera.memory_in_use() >= 0
    finally:
        tessera.set_memory_limit(before)
    for wrong in ("much", "-4G", 0, -1, True):
        with pytest.raises(tessera.Error, match="E0501"):
            tessera.set_memory_limit(wrong)


@pytest.mark.parametrize("call, words", [
    (lambda: tessera.compile(RELU, threads=-1), "threads: expected a number from 0 to 4096, got -1"),
    (lambda: tessera.compile(RELU, threads=1.5), "expected a whole number"),
    (lambda: tessera.compile(RELU, threads=True), "expected a whole number"),
    (lambda: tessera.load(RELU).random_inputs(Q=3), 'no symbolic dimension "Q".*\n.*N'),
    (lambda: tessera.load(RELU).peak_bytes(M=3), "E0401"),
    (lambda: tessera.compile(RELU).arena_bytes(M=3), "E0401"),
    (lambda: tessera.load(RELU).random_inputs(N=-3), "at least 0"),
    (lambda: tessera.load(RELU)(X, x=X), "given twice"),
    (lambda: tessera.load(RELU)(X, X), "2 inputs were given"),
    (lambda: tessera.load(tessera.load(RELU), strict=True), "strict applies when a model is read"),
    (lambda: tessera.search(RELU, 1, alpha=2.0), "alpha and budget are for"),
    (lambda: tessera.search(RELU, 1, cost="estimate", cache="x"), "uses no cache"),
    (lambda: tessera.discover("relu", 1, prove=False, out="r.rules"), "prove=False"),
    (lambda: tessera.discover("relu", 1, threads=-2), "from 0 to 4096"),
    (lambda: tessera.compile(RELU).profile(X, runs=0), "at least 1"),
    (lambda: tessera.load(RELU).run(X, max_work=0), "at least 1"),
    (lambda: tessera.compile(RELU).run(X, seed=-1), "seed: expected a number from 0 to"),
    (lambda: tessera.load(RELU).run(X, seed="a"), "seed: expected a whole number"),
    (lambda: tessera.compile(RELU).run(None), "expected arrays by name or in order, got NoneType"),
    (lambda: tessera.compile(RELU).run({1: X}), "there is no input 1"),
])
def test_nonsense_is_refused(call, words):
    with pytest.raises(tessera.Error, match=words):
        call()


def test_types_hold_under_mypy(tmp_path):
    """The package with its stubs, and the examples, by mypy --strict."""
    pytest.importorskip("mypy", reason="tools/venv.sh installs mypy")
    package = pathlib.Path(tessera.__file__).parent
    assert (package / "py.typed").exists() and (package / "_tessera.pyi").exists()
    copied = tmp_path / "src" / "tessera"  # as sources: what is installed is not reported
    copied.mkdir(parents=True)
    for file in (*package.rglob("*.py"), package / "_tessera.pyi", package / "py.typed"):
        target = copied / file.relative_to(package)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\nstrict = True\n[mypy-onnx.*]\nfollow_imports = skip\nignore_missing_imports = True\n"
                      "[mypy-tessera.onnx_backend]\ndisallow_subclassing_any = False\n"
                      "[mypy-torch.*]\nfollow_imports = skip\nignore_missing_imports = True\n[mypy-sympy.*]\nignore_missing_imports = True\n"
                      "[mypy-tessera.torch.*]\ndisallow_subclassing_any = False\nwarn_return_any = False\n")
    typed = tmp_path / "typed.py"
    typed.write_text("import numpy as np\nimport tessera\n\nmodel = tessera.load('m.onnx')\nfast = tessera.compile(model)\n"
                     "outputs: dict[str, object] = fast.run(np.zeros(3), outputs=['y'])\nfast.run_async({'x': 1}).result()\n"
                     "size: int | None = fast.arena_bytes(N=4)\nname: str = model.inputs[0].name\n"
                     "smaller, report = tessera.optimize('m.onnx')\nnodes: int = report.after.nodes\n")
    wrong = tmp_path / "wrong.py"
    wrong.write_text("import tessera\ntessera.compile('m.onnx', threads='many')\nx: int = tessera.load('m.onnx').to_text()\n")

    def mypy(*words):
        command = [sys.executable, "-m", "mypy", "--config-file", str(config), "--cache-dir", str(tmp_path / "cache"), *map(str, words)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=dict(os.environ, MYPYPATH=str(tmp_path / "src")))

    done = mypy("-p", "tessera")
    assert done.returncode == 0, done.stdout
    done = mypy(typed, *sorted((ROOT / "tutorial").glob("*.py")))
    assert done.returncode == 0, done.stdout
    done = mypy(wrong)
    assert done.returncode == 1 and done.stdout.count("error:") == 2, done.stdout


@pytest.mark.parametrize("shape", [[], [0], [3], [2, 3]])
def test_outputs_of_strings(shape):
    labels = helper.make_tensor("labels", TensorProto.STRING, [3], ["no", "yes", "für"])
    graph = helper.make_graph([helper.make_node("Gather", ["labels", "i"], ["s"]), helper.make_node("Neg", ["i"], ["n"])],
                              "g", [helper.make_tensor_value_info("i", TensorProto.INT64, shape)],
                              [helper.make_tensor_value_info("s", TensorProto.STRING, shape),
                               helper.make_tensor_value_info("n", TensorProto.INT64, shape)], [labels])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    run = tessera.compile(tessera.from_onnx(model), cache="")
    i = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape) % 3
    got = run.run({"i": i})
    want = np.array(["no", "yes", "für"], dtype=object)[i]
    assert got["s"].dtype == object and got["s"].shape == tuple(shape)
    assert got["s"].tolist() == (want if shape == [] else want.tolist())
    np.testing.assert_array_equal(got["n"], -i)
