"""The command line: what each subcommand does when all is well."""

import importlib.util
import os
import pathlib
import pty
import signal
import subprocess
import time

import ml_dtypes
import numpy as np
import onnx
import pytest
from conftest import BINARY, ROOT
from onnx import TensorProto, helper, numpy_helper


def info(name, elem=TensorProto.FLOAT, shape=("N", 3)):
    return helper.make_tensor_value_info(name, elem, shape)


def save(path, nodes, inputs, outputs, initializers=(), opset=21, **kwargs):
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializer=list(initializers))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], producer_name="test", **kwargs)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


@pytest.fixture
def linear(tmp_path):
    """y = x @ w, z = y + 1: f32[N,3] to f32[N,2] twice."""
    w = numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(3, 2), "w")
    one = numpy_helper.from_array(np.float32(1), "one")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="product"), helper.make_node("Add", ["y", "one"], ["z"])]
    return save(tmp_path / "linear.onnx", nodes, [info("x")], [info("y", shape=("N", 2)), info("z", shape=("N", 2))], [w, one])


def identity(path, elem, shape):
    return save(path, [helper.make_node("Identity", ["x"], ["y"])], [info("x", elem, shape)], [info("y", elem, shape)], opset=25)


def test_run_reads_and_writes_npy(tessera_command, linear, tmp_path):
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.save(tmp_path / "x.npy", x)
    done = tessera_command("run", linear, "--input", "x=x.npy", "--output", "z=z.npy", "--output-dir", "all")
    assert done.status == 0, done.err
    w = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(np.load(tmp_path / "z.npy"), x @ w + 1)
    np.testing.assert_array_equal(np.load(tmp_path / "all" / "y.npy"), x @ w)
    assert "f32[4,2]" in done.out and "min" in done.out and "mean" in done.out
    assert sorted(p.name for p in tmp_path.iterdir()) == ["all", "linear.onnx", "x.npy", "z.npy"]


def test_run_json(tessera_command, linear, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((2, 3), np.float32))
    done = tessera_command("run", linear, "-i", "x.npy", "--json")
    assert done.status == 0, done.err
    y, z = done.json["outputs"]
    assert (y["name"], y["dtype"], y["shape"], y["first"][:2]) == ("y", "f32", [2, 2], [6.0, 9.0])
    assert (z["min"], z["max"]) == (7.0, 10.0)
    assert done.json["dims"] == {"N": 2} and done.json["flops"] == 2 * 2 * 3 * 2 + 4
    assert set(done.json["seconds"]) == {"load", "inputs", "compile", "run"}


def test_random_inputs_follow_seed_and_dims(tessera_command, linear):
    runs = [tessera_command("run", linear, "--random", "--seed", s, "--dim", "N=5", "--json").json for s in (1, 1, 2)]
    assert runs[0]["outputs"][0]["shape"] == [5, 2]
    assert runs[0]["outputs"] == runs[1]["outputs"] != runs[2]["outputs"]


def test_random_fills_in_what_is_not_given(tessera_command, tmp_path):
    model = save(tmp_path / "m.onnx", [helper.make_node("Add", ["x", "y"], ["z"])], [info("x"), info("y")], [info("z")])
    np.save(tmp_path / "x.npy", np.zeros((7, 3), np.float32))
    done = tessera_command("run", model, "-i", "x=x.npy", "--random", "--json")
    assert done.status == 0, done.err
    assert done.json["outputs"][0]["shape"] == [7, 3]


TYPES = {
    TensorProto.FLOAT: np.float32, TensorProto.DOUBLE: np.float64, TensorProto.FLOAT16: np.float16,
    TensorProto.INT8: np.int8, TensorProto.UINT64: np.uint64, TensorProto.BOOL: np.bool_, TensorProto.STRING: np.str_,
    TensorProto.COMPLEX64: np.complex64, TensorProto.BFLOAT16: ml_dtypes.bfloat16,
    TensorProto.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn, TensorProto.INT4: ml_dtypes.int4, TensorProto.UINT4: ml_dtypes.uint4,
}


@pytest.mark.parametrize("elem", TYPES, ids=TensorProto.DataType.Name)
def test_npy_of_every_kind(tessera_command, tmp_path, elem):
    model = identity(tmp_path / "m.onnx", elem, ["A", "B"])
    x = np.array([[0, 1, 2], [3, 4, 5]]).astype(TYPES[elem])
    for layout in ("C", "F"):
        np.save(tmp_path / "x.npy", np.asarray(x, order=layout))
        done = tessera_command("run", model, "-i", "x=x.npy", "-o", "y=y.npy")
        assert done.status == 0, done.err
        y = np.load(tmp_path / "y.npy")
        if y.dtype.kind == "V":
            y = y.view(x.dtype)
        assert (y == x).all()


def test_big_endian_npy(tessera_command, tmp_path):
    model = identity(tmp_path / "m.onnx", TensorProto.INT32, ["A"])
    np.save(tmp_path / "x.npy", np.array([1, -2, 300000], ">i4"))
    done = tessera_command("run", model, "-i", "x=x.npy", "--json")
    assert done.json["outputs"][0]["first"] == [1, -2, 300000]


def test_pb_values(tessera_command, tmp_path):
    model = identity(tmp_path / "m.onnx", TensorProto.FLOAT, ["A"])
    (tmp_path / "x.pb").write_bytes(numpy_helper.from_array(np.float32([1, 2])).SerializeToString())
    done = tessera_command("run", model, "-i", "x=x.pb", "-o", "y=y.pb")
    assert done.status == 0, done.err
    tensor = onnx.load_tensor(tmp_path / "y.pb")
    np.testing.assert_array_equal(numpy_helper.to_array(tensor), np.float32([1, 2]))


def test_sequences_go_to_pb(tessera_command, tmp_path):
    sequence = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
    model = save(tmp_path / "m.onnx", [helper.make_node("SequenceConstruct", ["x", "x"], ["s"])], [info("x", shape=("A",))],
                 [sequence])
    np.save(tmp_path / "x.npy", np.float32([1, 2]))
    done = tessera_command("run", model, "-i", "x=x.npy", "--output-dir", "out")
    assert done.status == 0, done.err
    read = onnx.SequenceProto()
    read.ParseFromString((tmp_path / "out" / "s.pb").read_bytes())
    assert len(read.tensor_values) == 2
    refused = tessera_command("run", model, "-i", "x=x.npy", "-o", "s=s.npy")
    assert refused.status == 1 and "E0105" in refused.err and not (tmp_path / "s.npy").exists()


def test_inspect(tessera_command, linear):
    done = tessera_command("inspect", linear, "--json", "--nodes")
    assert done.status == 0, done.err
    j = done.json
    assert j["opset"] == 21 and j["producer"] == "test" and j["symbols"] == ["N"]
    assert j["inputs"][0]["type"] == "f32[N,3]" and j["outputs"][1]["dims"] == ["N", "2"]
    assert j["parameters"] == 7 and j["nodes"] == 2 and len(j["node_list"]) == 2
    assert j["flops_at_dims"] == 12 + 2 and j["counts_complete"]
    assert {op["op"]: op["nodes"] for op in j["ops"]} == {"MatMul": 1, "Add": 1}
    assert j["largest_weights"][0]["name"] == "w"
    assert tessera_command("inspect", linear, "--json", "--dim", "N=10").json["flops_at_dims"] == 140
    text = tessera_command("inspect", linear, "--nodes").out
    for word in ("producer", "opset", "parameters", "FLOPs", "symbolic dimensions", "MatMul", "product"):
        assert word in text


def test_inspect_nested_graphs(tessera_command, tmp_path):
    branch = lambda op: helper.make_graph([helper.make_node(op, ["x"], [op])], op, [], [info(op, shape=("N", 3))])
    node = helper.make_node("If", ["c"], ["y"], name="choice", then_branch=branch("Abs"), else_branch=branch("Neg"))
    model = save(tmp_path / "m.onnx", [node], [info("c", TensorProto.BOOL, []), info("x")], [info("y")])
    j = tessera_command("inspect", model, "--json").json
    assert [(n["node"], n["attribute"]) for n in j["nested_graphs"]] == [("choice", "else_branch"), ("choice", "then_branch")]
    assert j["nodes"] == 3 and not j["counts_complete"]


def test_convert_there_and_back(tessera_command, linear, tmp_path):
    for arguments in (["m.tsr"], ["m.tsr", "--weights", "m.weights"]):
        assert tessera_command("convert", linear, *arguments).status == 0
        done = tessera_command("convert", "m.tsr", "back.onnx", "--opset", "18")
        assert done.status == 0, done.err
        back = onnx.load(tmp_path / "back.onnx")
        onnx.checker.check_model(back, full_check=True)
        assert back.opset_import[0].version == 18
        assert [n.op_type for n in back.graph.node] == ["MatMul", "Add"]
        assert [i.name for i in back.graph.initializer] == ["w", "one"]
    text = tessera_command("convert", linear, "-").out
    assert "matmul(" in text and "f32[N,3]" in text


def test_convert_with_external_data(tessera_command, tmp_path):
    w = numpy_helper.from_array(np.arange(1000, dtype=np.float32), "w")
    model = save(tmp_path / "m.onnx", [helper.make_node("Add", ["x", "w"], ["y"])], [info("x", shape=(1000,))],
                 [info("y", shape=(1000,))], [w])
    assert tessera_command("convert", model, "split.onnx", "--external-data").status == 0
    assert (tmp_path / "split.onnx").stat().st_size < 1000
    onnx.checker.check_model(str(tmp_path / "split.onnx"))
    loaded = onnx.load(tmp_path / "split.onnx")
    np.testing.assert_array_equal(numpy_helper.to_array(loaded.graph.initializer[0]), np.arange(1000, dtype=np.float32))
    assert tessera_command("run", "split.onnx", "--random").status == 0


def test_ops_lists_every_operator_of_onnx(tessera_command):
    listed = {(op["onnx"]["domain"], op["onnx"]["name"]): op for op in tessera_command("ops", "--json").json["ops"] if "onnx" in op}
    for schema in onnx.defs.get_all_schemas():
        assert (schema.domain, schema.name) in listed, f"{schema.name}: run tools/list_onnx_ops.py"
    missing = [name for (domain, name), op in listed.items() if domain == "" and op["defined_by"] == "missing"]
    assert not missing, f"not defined: {missing}"


def test_the_list_of_operators_is_the_installed_one():
    spec = importlib.util.spec_from_file_location("list_onnx_ops", ROOT / "tools" / "list_onnx_ops.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.FILE.read_text() == module.text(), "run tools/list_onnx_ops.py"


def test_ops_of_one_name(tessera_command):
    text = tessera_command("ops", "Conv").out
    assert "body" in text and "strides: ints" in text and "x: T" in text
    assert tessera_command("ops", "Conv", "--json").json["ops"][0]["op"] == "conv"
    assert tessera_command("ops", "--markdown").out.startswith("| ONNX |")
    unknown = tessera_command("ops", "Konv")
    assert unknown.status == 1 and "E0201" in unknown.err


def test_help_and_version(tessera_command):
    assert tessera_command("--version").out.startswith("tessera ")
    for command in ("run", "inspect", "convert", "ops"):
        done = tessera_command(command, "--help")
        assert done.status == 0 and "Example" in done.out and "Exit status" in done.out and "--json" in done.out


@pytest.mark.parametrize("arguments", [
    [], ["frobnicate"], ["run", "--frobnicate"], ["convert", "a.onnx"], ["run", "m.onnx", "--seed", "x"],
    ["run", "--dim", "N"], ["run", "--dim", "N=-1"], ["run", "--memory-limit", "much"], ["run", "--max-work", "0"],
    ["convert", "a.onnx", "b.zip"], ["convert", "a.onnx", "b.tsr", "--opset", "18"], ["run", "--progress", "maybe"],
    ["inspect", "--dim", "=3"],
])
def test_wrong_usage_is_status_2(tessera_command, arguments):
    done = tessera_command(*arguments)
    assert done.status == 2, (done.out, done.err)
    assert "E0501" in done.err


def test_output_has_no_escapes_unless_on_a_terminal(tessera_command, linear):
    for arguments in (["run", linear, "--random"], ["inspect", linear], ["ops"], ["run", "missing.onnx"]):
        done = tessera_command(*arguments)
        assert "\x1b" not in done.out + done.err


def test_the_built_in_model(tessera_command):
    done = tessera_command("run", "--json", timeout=300)
    assert done.status == 0, done.err
    j = done.json
    assert 25.5e6 < j["parameters"] < 25.7e6 and 8.1e9 < j["flops"] < 8.3e9
    assert j["outputs"][0]["shape"] == [1, 1000] and len(j["top5"]) == 5
    assert j["outputs"][0]["not_finite"] == 0


def test_interrupt_stops_cleanly(tmp_path):
    # A loop of many slow steps, which Ctrl-C has to stop in the middle.
    body = helper.make_graph(
        [helper.make_node("Identity", ["cond"], ["more"]), helper.make_node("MatMul", ["a", "a"], ["b"])], "body",
        [info("i", TensorProto.INT64, []), info("cond", TensorProto.BOOL, []), info("a", shape=(200, 200))],
        [info("more", TensorProto.BOOL, []), info("b", shape=(200, 200))])
    count = numpy_helper.from_array(np.int64(10**9), "count")
    model = save(tmp_path / "m.onnx", [helper.make_node("Loop", ["count", "", "x"], ["y"], body=body)],
                 [info("x", shape=(200, 200))], [info("y", shape=(200, 200))], [count])
    process = subprocess.Popen([BINARY, "run", model, "--random", "--output", "y.npy"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130 and "E0410" in err
    assert [p.name for p in pathlib.Path(tmp_path).iterdir()] == ["m.onnx"]


def test_progress_is_for_terminals(tessera_command, linear):
    assert tessera_command("run", linear, "--random", "--dim", "N=2").err == ""
    shown = tessera_command("run", linear, "--random", "--progress", "always").err
    assert "run: 1 of 2" in shown and "\x1b" not in shown and shown.endswith("\n")


def on_a_terminal(*arguments, **environment):
    """What the command shows on a terminal of its own."""
    try:
        ours, theirs = pty.openpty()
    except OSError as error:
        pytest.skip(f"this machine gives no pseudo-terminal: {error}")
    process = subprocess.Popen([BINARY, *map(str, arguments)], stdout=theirs, stderr=theirs, env=dict(os.environ, **environment))
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 4096):
            shown += chunk
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    process.wait()
    return shown.decode()


def test_colors_are_for_terminals(linear):
    environment = {"NO_COLOR": ""}
    assert "\x1b[1m" in on_a_terminal("inspect", linear, **environment)
    assert "\x1b[1;31merror" in on_a_terminal("run", "missing.onnx", **environment)
    assert "\x1b" not in on_a_terminal("inspect", linear, NO_COLOR="1")
