"""tessera.optimize and `tessera optimize`."""

import json

import numpy as np
import onnx
import pytest
import tessera
from onnx import TensorProto, helper, numpy_helper

RULE = """// Twice the same is once.
abs-of-abs-of-abs: abs(abs(abs(x))) => abs(x)
"""
WRONG_RULE = "relu-is-nothing: relu(x) => x\n"


def model_bytes(nodes, inputs, outputs, initializers=(), opset=20):
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializer=list(initializers))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def info(name, shape, elem=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, elem, shape)


def array(name, values, dtype=np.int64):
    return numpy_helper.from_array(np.array(values, dtype), name)


@pytest.fixture
def heads():
    """Splits [B,S,12] into heads the way exporters write it, with a shape computed at run time."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], name="shape"),
        helper.make_node("Gather", ["s", "zero"], ["b"], name="batch"),
        helper.make_node("Gather", ["s", "one"], ["n"], name="length"),
        helper.make_node("Unsqueeze", ["b", "axes"], ["b1"]),
        helper.make_node("Unsqueeze", ["n", "axes"], ["n1"]),
        helper.make_node("Concat", ["b1", "n1", "four", "three"], ["to"], axis=0),
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("MatMul", ["same", "w"], ["q"], name="query"),
        helper.make_node("Reshape", ["q", "to"], ["y"], name="split"),
        helper.make_node("Sqrt", ["x"], ["nobody"]),
    ]
    weights = [array("zero", 0), array("one", 1), array("axes", [0]), array("four", [4]), array("three", [3]),
               array("w", np.arange(144).reshape(12, 12) / 144, np.float32), array("unused", [1, 2, 3])]
    return model_bytes(nodes, [info("x", ["B", "S", 12])], [info("y", ["B", "S", 4, 3])], weights)


@pytest.fixture
def heads_file(heads, tmp_path):
    path = tmp_path / "heads.onnx"
    path.write_bytes(heads)
    return path


def op_types(path):
    return [node.op_type for node in onnx.load(path).graph.node]


def test_the_same_answers_with_less(heads):
    model = tessera.from_onnx(heads)
    smaller, report = tessera.optimize(model)
    assert (report.before.nodes, report.after.nodes) == (10, 2)
    assert report.settled and report.rewrite_count > 0 and report.rewrites == []
    assert model.summary().nodes == 10  # the one given stays as it is
    x = np.random.default_rng(0).standard_normal((2, 5, 12)).astype(np.float32)
    np.testing.assert_allclose(smaller(x), model(x), rtol=1e-6)
    assert [p.name for p in smaller.outputs] == ["y"] and [p.name for p in smaller.inputs] == ["x"]
    assert smaller.peak_bytes(B=2, S=5) == 3 * 2 * 5 * 12 * 4 - 2 * 5 * 12 * 4


def test_rewrites_are_recorded(heads):
    _, report = tessera.optimize(tessera.from_onnx(heads), record=True)
    assert len(report.rewrites) == report.rewrite_count
    (fold,) = [r for r in report.rewrites if r.rule == "fold shape"]
    assert (fold.pass_name, fold.where, fold.exactness) == ("fold_shapes", "split", "exact")
    assert fold.added[0].op == "reshape" and "[0,0,4,3]" in str(fold.added[0]) and fold.why
    assert any(r.rule == "identity-is-its-input" and r.pass_name == "cleanup" for r in report.rewrites)


def test_a_second_time_changes_no_byte(heads):
    once, _ = tessera.optimize(tessera.from_onnx(heads))
    twice, report = tessera.optimize(tessera.from_onnx(once.to_onnx()))
    assert twice.to_onnx() == once.to_onnx()
    assert report.rewrite_count == 0


def test_result_is_standard_onnx(heads):
    smaller, _ = tessera.optimize(tessera.from_onnx(heads))
    model = onnx.load_from_string(smaller.to_onnx())
    onnx.checker.check_model(model, full_check=True)
    assert model.opset_import[0].version == 20


def test_outputs_that_are_inputs_or_constants():
    nodes = [helper.make_node("Identity", ["x"], ["a"]), helper.make_node("Add", ["one", "one"], ["b"]),
             helper.make_node("Identity", ["b"], ["c"])]
    bytes_ = model_bytes(nodes, [info("x", [2])], [info("a", [2]), info("b", []), info("c", [])], [array("one", 1, np.float32)])
    smaller, _ = tessera.optimize(tessera.from_onnx(bytes_))
    written = onnx.load_from_string(smaller.to_onnx())
    onnx.checker.check_model(written, full_check=True)
    assert [o.name for o in written.graph.output] == ["a", "b", "c"]
    a, b, c = tessera.from_onnx(written)(np.array([1, 2], np.float32))
    assert a.tolist() == [1, 2] and b == 2 and c == 2


def test_precision_and_pass_names_are_checked(heads):
    model = tessera.from_onnx(heads)
    with pytest.raises(tessera.Error, match="E0501.*no precision"):
        tessera.optimize(model, "sloppy")
    with pytest.raises(tessera.Error, match="did you mean fold_constants"):
        tessera.optimize(model, stop_after="fold_constant")
    first = tessera.optimizer_passes()[0].name
    stopped, report = tessera.optimize(model, stop_after=first)
    assert stopped.summary().nodes == 10 and sum(p.runs for p in report.passes) == 1


def test_user_rules(tmp_path):
    model = tessera.parse("graph g(x: f32[N]) { return abs(abs(abs(x))) }")
    path = tmp_path / "my.rules"
    path.write_text(RULE)
    _, report = tessera.optimize(model, rules=path, record=True)
    (mine,) = [r for r in report.rewrites if r.pass_name == "user_rules"]
    assert mine.rule == "abs-of-abs-of-abs" and "Twice the same" in mine.why


def test_an_unsound_rule_is_refused(tmp_path):
    model = tessera.parse("graph g(x: f32[N]) { return relu(x) }")
    path = tmp_path / "wrong.rules"
    path.write_text(WRONG_RULE)
    with pytest.raises(tessera.Error, match="E0305") as refused:
        tessera.optimize(model, rules=[path])
    assert "wrong.rules:1:1" in refused.value.where
    smaller, _ = tessera.optimize(model, rules=[path], refute_rules=False)
    assert smaller.summary().nodes == 0


# ---- the command line


def test_command_writes_a_smaller_model(tessera_command, heads_file, tmp_path):
    done = tessera_command("optimize", heads_file, "-o", "small.onnx", "--check", "--dim", "B=2")
    assert done.status == 0, done.err
    assert "nodes" in done.out and "-80 %" in done.out and "peak memory" in done.out and "checked: 1 output" in done.out
    assert op_types(tmp_path / "small.onnx") == ["MatMul", "Reshape"]
    again = tessera_command("optimize", "small.onnx", "-o", "again.onnx")
    assert again.status == 0, again.err
    assert (tmp_path / "again.onnx").read_bytes() == (tmp_path / "small.onnx").read_bytes()


def test_command_json(tessera_command, heads_file):
    done = tessera_command("optimize", heads_file, "--json", "--check", "--explain", "--precision", "strict")
    assert done.status == 0, done.err
    report = done.json
    assert (report["before"]["nodes"], report["after"]["nodes"]) == (10, 2)
    assert report["after"]["ops"] == {"MatMul": 1, "Reshape": 1}
    assert report["before"]["ops"]["Gather"] == 2
    assert report["settled"] is True and report["optimize_s"] >= 0 and report["rewrites"] == len(report["rewrite_list"])
    assert report["check"]["outputs"][0]["error"] == 0 and report["check"]["dims"] == {"B": 2, "S": 3}
    assert {"pass", "rule", "exactness", "why", "where", "removed", "added", "replaced"} == set(report["rewrite_list"][0])
    assert "fold_shapes" in [p["pass"] for p in report["passes"]]


def test_command_explains(tessera_command, heads_file):
    done = tessera_command("optimize", heads_file, "--explain", "--time-passes")
    assert done.status == 0, done.err
    assert "1 x  cleanup / identity-is-its-input  [exact]" in done.out
    assert "y = reshape(q, to)" in done.out and "y = reshape(q, [0,0,4,3])" in done.out
    assert "fold_constants" in done.out and ("ms" in done.out or "µs" in done.out)


def test_command_prints_and_stops_after_a_pass(tessera_command, heads_file):
    done = tessera_command("optimize", heads_file, "--print-after", "drop_unused", "--stop-after", "drop_unused", "-o", "x.tsr")
    assert done.status == 0, done.err
    assert done.err.startswith("// after drop_unused") and "graph g(" in done.err and "nobody" not in done.err
    assert tessera_command("optimize", "x.tsr").status == 0
    wrong = tessera_command("optimize", heads_file, "--print-after", "drop")
    assert wrong.status == 2 and "there is no such pass" in wrong.err
    assert tessera_command("optimize", heads_file, "--stop-after", "drop").status == 2
    listed = tessera_command("optimize", "--list-passes")
    assert [line.split()[0] for line in listed.out.splitlines()] == [p.name for p in tessera.optimizer_passes()]


def test_command_keeps_or_changes_the_opset(tessera_command, heads_file, tmp_path):
    assert tessera_command("optimize", heads_file, "-o", "same.onnx").status == 0
    assert tessera_command("optimize", heads_file, "-o", "older.onnx", "--opset", "13").status == 0
    assert onnx.load(tmp_path / "same.onnx").opset_import[0].version == 20
    assert onnx.load(tmp_path / "older.onnx").opset_import[0].version == 13
    onnx.checker.check_model(onnx.load(tmp_path / "older.onnx"), full_check=True)


def test_command_puts_weights_beside_the_model(tessera_command, tmp_path):
    w = array("w", np.ones((64, 64)), np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    (tmp_path / "m.onnx").write_bytes(model_bytes(nodes, [info("x", ["N", 64])], [info("y", ["N", 64])], [w]))
    assert tessera_command("optimize", "m.onnx", "-o", "out.onnx", "--external-data").status == 0
    assert (tmp_path / "out.onnx").stat().st_size < 1000
    onnx.checker.check_model(str(tmp_path / "out.onnx"), full_check=True)


def test_a_model_can_be_optimized_in_place(tessera_command, heads_file):
    done = tessera_command("optimize", heads_file, "-o", heads_file)
    assert done.status == 0, done.err
    assert op_types(heads_file) == ["MatMul", "Reshape"]
    assert [p.name for p in heads_file.parent.iterdir()] == ["heads.onnx"]


@pytest.mark.parametrize("extra", [
    ["--rules", "wrong.rules"], ["--rules", "syntax.rules"], ["--rules", "missing.rules"], ["--dim", "Z=3"],
    ["--stop-after", "nothing"], ["--opset", "900"],
], ids=lambda e: " ".join(e))
def test_a_failed_run_leaves_the_file_alone(tessera_command, heads_file, tmp_path, extra):
    (tmp_path / "wrong.rules").write_text(WRONG_RULE)
    (tmp_path / "syntax.rules").write_text("a-rule: relu(x => x\n")
    before, files = heads_file.read_bytes(), sorted(p.name for p in tmp_path.iterdir())
    done = tessera_command("optimize", heads_file, "-o", heads_file, *extra)
    assert done.status in (1, 2) and "error E0" in done.err, done.err
    assert heads_file.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == files


def test_a_bad_rule_is_shown_where_it_stands(tessera_command, heads_file, tmp_path):
    (tmp_path / "wrong.rules").write_text("// mine\n" + WRONG_RULE)
    done = tessera_command("optimize", heads_file, "--rules", "wrong.rules", "--json")
    error = json.loads(done.out)["error"]
    assert done.status == 1 and error["code"] == "E0305" and "wrong.rules:2:1" in error["where"]
    assert "relu" in error["note"]  # the counterexample
    trusted = tessera_command("optimize", heads_file, "--rules", "wrong.rules", "--trust-rules")
    assert trusted.status == 0, trusted.err


def test_check_finds_what_a_wrong_rule_does(tessera_command, tmp_path):
    (tmp_path / "wrong.rules").write_text(WRONG_RULE)
    (tmp_path / "m.tsr").write_text("graph g(x: f32[N]) { return relu(x) }")
    done = tessera_command("optimize", "m.tsr", "-o", "out.onnx", "--rules", "wrong.rules", "--trust-rules", "--check")
    assert done.status == 1 and "the outputs of the optimized model differ" in done.err
    assert not (tmp_path / "out.onnx").exists()


def test_nested_graphs_are_optimized_too(tessera_command, tmp_path):
    (tmp_path / "m.tsr").write_text("""graph g(c: bool[], x: f32[N]) -> (y) {
      %y = if(c, then_branch=graph t() { return identity(neg(neg(x))) }, else_branch=graph e() {
        return if(true, then_branch=graph tt() { return relu(x) }, else_branch=graph te() { return x }) })
      return %y }""")
    done = tessera_command("optimize", "m.tsr", "-o", "out.onnx", "--json", "--check")
    assert done.status == 0, done.err
    assert done.json["after"]["ops"] == {"If": 1, "Relu": 1}
    onnx.checker.check_model(onnx.load(tmp_path / "out.onnx"), full_check=True)


def test_usage(tessera_command, heads_file):
    for arguments in ([], [heads_file, "-o", "x.pb"], [heads_file, "--opset", "13"], [heads_file, "--precision", "some"]):
        done = tessera_command("optimize", *arguments)
        assert done.status == 2 and "error E0501" in done.err
