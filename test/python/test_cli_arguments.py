"""Values of options, and files, that the command line refuses: what it says, and with which status."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

RELU = "graph g(x: f32[N,3]) {\n  return relu(x)\n}\n"


@pytest.fixture
def relu(tmp_path):
    (tmp_path / "relu.tsr").write_text(RELU)
    return "relu.tsr"


@pytest.fixture
def quantized(tmp_path, tessera_command):
    rng = np.random.default_rng(0)
    w = numpy_helper.from_array(rng.normal(size=(32, 32)).astype(np.float32), "w")
    info = lambda name: helper.make_tensor_value_info(name, 1, [4, 32])
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["b"]),
                               helper.make_node("MatMul", ["b", "w"], ["y"])], "g", [info("x")], [info("y")], initializer=[w])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "f.onnx")
    np.save(tmp_path / "x.npy", rng.normal(size=(4, 32)).astype(np.float32))
    done = tessera_command("quantize", "f.onnx", "--data", "x.npy", "-o", "q.onnx")
    assert done.status == 0, done.err
    return "q.onnx"


# ---- tessera explore

@pytest.mark.parametrize("words, expected", [
    (["--array", "8,8,8"], "--array 8,8,8: 8 is given twice"), (["--array", "8,,16"], "--array 8,,16: a size is missing beside a comma"),
    (["--array", "8,"], "a size is missing"), (["--array", "8", "--memory", "8,,16"], "--memory 8,,16: a size is missing"),
    (["--array", "8", "--memory", "a"], "--memory a: expected a number above 0"), (["--array", "8x"], "expected a number above 0, or two as in 32x8"),
    (["--array", "999999999999"], "--array 999999999999: expected a number above 0"), (["--array", "8x-8"], "8x-8: expected a number above 0"),
    (["--array", "8", "--machine", "f.onnx"], "--machine f.onnx: the description of a machine ends in .json"),
    (["--array", "8", "--plot", "x.png"], "--plot x.png writes SVG: end it in .svg"),
    (["--array", "12"], "array.inputs is 12, expected a power of two"), (["--array", "8", "--memory", "3"], "expected a power of two"),
])
def test_explore_refuses_what_it_cannot_do(tessera_command, quantized, tmp_path, words, expected):
    done = tessera_command("explore", quantized, "--target", "tessel", *words)
    assert done.status == 2 and "E0501" in done.err and expected in done.err
    assert not (tmp_path / "x.png").exists()


def test_explore_counts_in_units(tessera_command, quantized):
    done = tessera_command("explore", quantized, "--target", "tessel", "--array", "8")
    assert done.status == 0 and "2 layers of 8.19 k multiply-accumulates" in done.out


def test_help_marks_options_that_are_required(tessera_command):
    lines = tessera_command("explore", "--help", env={"COLUMNS": "110"}).out.splitlines()
    marked = [line.split()[0] for line in lines if line.endswith("(required)")]
    assert marked == ["--target", "--array"]


# ---- targets

@pytest.mark.parametrize("target, hint", [
    ("tesel", "did you mean tessel?"), ("cudda", "did you mean cuda?"), ("x86_64-avx12", "did you mean x86_64-avx2?"),
    ("tessel:q.onnx", "with tessel, the targets are tessel, tessel:FILE.json"), ("cuda:first", "cuda:N for GPU N"),
])
def test_a_target_that_is_none_gets_a_suggestion(tessera_command, quantized, target, hint):
    for words in (("run", quantized, "--random"), ("explore", quantized, "--array", "8"), ("compile", quantized)):
        done = tessera_command(*words, "--target", target)
        assert done.status == 2 and f'E0603: there is no target "{target}"' in done.err and hint in done.err, words


def test_compiled_models_are_saved_by_the_interfaces(tessera_command, quantized):
    done = tessera_command("compile", quantized, "-o", "q.tessera")
    assert done.status == 2 and "needs --emit" in done.err and "Executable.save" in done.err


# ---- rules

def test_rules_files_that_cannot_be_read(tessera_command, relu, tmp_path):
    (tmp_path / "binary.rules").write_bytes(bytes(range(256)))
    for words in (("optimize", relu, "--rules"), ("rules", "check"), ("rules", "prove")):
        missing = tessera_command(*words, "nope.rules")
        assert missing.status == 1 and 'E0101: cannot open "nope.rules": No such file or directory' in missing.err, words
        binary = tessera_command(*words, "binary.rules")
        assert binary.status == 1 and 'E0301: "binary.rules" is a binary file, expected text' in binary.err, words
        assert "\\x" not in binary.err


def test_one_rule_is_not_several(tessera_command, tmp_path):
    (tmp_path / "wrong.rules").write_text("wrong: relu(x) => x\n")
    done = tessera_command("rules", "check", "wrong.rules")
    assert done.status == 1 and "\n1 rule, 1 refuted" in done.out and "of 1 graph:" not in done.out
    assert "1 of 1 rule does not hold: wrong" in done.err and "graphs\n" not in done.out.splitlines()[0]


def test_a_wrong_rule_of_the_users_is_not_a_bug_to_report(tessera_command, tmp_path, relu):
    (tmp_path / "wrong.rules").write_text("wrong: relu(x) => neg(x)\n")
    (tmp_path / "fixed.tsr").write_text("graph g(x: f32[2,3]) {\n  return relu(x)\n}\n")
    for model, note in (("fixed.tsr", "note: nothing was written\n"), (relu, "note: nothing was written; the difference is at N=2\n")):
        done = tessera_command("optimize", model, "--rules", "wrong.rules", "--trust-rules", "--check", "-o", "out.tsr")
        assert done.status == 1 and "E0407" in done.err and note in done.err, done.err
        assert "report it" not in done.err and "tessera rules check wrong.rules" in done.err
        assert not (tmp_path / "out.tsr").exists()


def test_a_word_for_progress_is_one_of_three(tessera_command, relu):
    done = tessera_command("run", relu, "--random", "--progress", "sometimes")
    assert done.status == 2 and '--progress: expected always, auto or never, got "sometimes"' in done.err


def test_losses_that_grow_are_short(tessera_command, tmp_path):
    (tmp_path / "lin.tsr").write_text("graph g(x: f32[N,2]) {\n  const w: f32[2,2] = [0.1,0.2,0.3,0.4]\n  return matmul(x, w)\n}\n")
    np.save(tmp_path / "x.npy", np.ones((8, 2), np.float32))
    np.save(tmp_path / "y.npy", np.full((8, 2), 1e12, np.float32))
    done = tessera_command("train", "lin.tsr", "--data", "x.npy,y.npy", "--loss", "mse", "--epochs", "1", "--out", "t.onnx")
    assert done.status == 0 and "epoch 1/1  loss 1e+24\n" in done.out, done.out


# ---- sizes, and what is quantized

def test_a_size_that_is_given_twice_is_an_error(tessera_command, relu):
    done = tessera_command("run", relu, "--random", "--dim", "N=1", "--dim", "N=2")
    assert done.status == 2 and "E0501: --dim N is given twice: 1 and 2" in done.err


def test_a_quantized_model_is_not_quantized_again(tessera_command, quantized):
    done = tessera_command("quantize", quantized, "--data", "x.npy", "-o", "again.onnx")
    assert done.status == 2 and "E0501: the model is quantized already" in done.err and "floating point" in done.err
    assert tessera_command("quantize", "f.onnx", "--data", "x.npy", "-o", "i.onnx", "--format", "integer").status == 0
    integer = tessera_command("quantize", "i.onnx", "--data", "x.npy", "-o", "again.onnx")
    assert integer.status == 2 and "quantized already" in integer.err


@pytest.mark.parametrize("backend", ["compiled", "evaluate"])
def test_a_negative_k_is_said_so(tessera_command, tmp_path, backend):
    (tmp_path / "top.tsr").write_text("graph g(x: f32[5], k: i64[1]) {\n  v, i = top_k(x, k)\n  return v, i\n}\n")
    np.save(tmp_path / "k.npy", np.array([-1]))
    done = tessera_command("run", "top.tsr", "--random", "--input", "k=k.npy", "--backend", backend)
    assert done.status == 1 and "k is -1" in done.err and "at least 0" in done.err, done.err
    (tmp_path / "fixed.tsr").write_text("graph g(x: f32[5]) {\n  v, i = top_k(x, [-1]:i64[1])\n  return v, i\n}\n")
    done = tessera_command("run", "fixed.tsr", "--random", "--backend", backend)
    assert done.status == 1 and "k is -1" in done.err and "at least 0" in done.err, done.err


@pytest.mark.parametrize("op", ["Reshape", "Expand"])
def test_sizes_that_overflow_say_so(tessera_command, tmp_path, op):
    graph = helper.make_graph([helper.make_node(op, ["x", "s"], ["y"]), helper.make_node("Relu", ["y"], ["z"])], "g",
                              [helper.make_tensor_value_info("x", 1, [None]), helper.make_tensor_value_info("s", 7, [2])],
                              [helper.make_tensor_value_info("z", 1, None)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.ones(1, np.float32))
    np.save(tmp_path / "none.npy", np.ones(0, np.float32))
    np.save(tmp_path / "most.npy", np.array([2**62, 2**62]))
    np.save(tmp_path / "empty.npy", np.array([0, 4 * 10**18]))
    for backend in ("compiled", "evaluate"):
        most = tessera_command("run", "m.onnx", "-i", "x=x.npy", "-i", "s=most.npy", "--backend", backend)
        assert most.status == 1 and "E0108" in most.err and ("too large" in most.err or "more than 2^48" in most.err)
        assert "4611686018427387904" in most.err and "iteration range" not in most.err
        x = "none.npy" if op == "Reshape" else "x.npy"
        empty = tessera_command("run", "m.onnx", "-i", f"x={x}", "-i", "s=empty.npy", "--backend", backend)
        assert empty.status == 1 and "E0108" in empty.err and "more than 2^48 elements" not in empty.err, empty.err
        assert "the product of the sizes other than 0 is above 2^48" in empty.err


def test_progress_is_whole_lines_where_there_is_no_terminal(tessera_command, quantized):
    done = tessera_command("quantize", "f.onnx", "--data", "x.npy", "-o", "q.onnx", "--progress", "always")
    assert done.status == 0 and "\r" not in done.err and "\x1b" not in done.err
    assert "quantize: 0 of 1, calibrate\n" in done.err
    assert tessera_command("quantize", "f.onnx", "--data", "x.npy", "-o", "q.onnx", "--progress", "never").err == ""
