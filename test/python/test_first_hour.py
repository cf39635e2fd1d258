"""What people try on the command line in their first hour, and what they get."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import numpy as np
import onnx
import pytest
from conftest import BINARY, ROOT
from onnx import TensorProto, helper, numpy_helper

RELU = "graph g(x: f32[N,3]) {\n  return relu(x)\n}\n"
SUM = "graph g(x: f32[A,3], y: f32[A,B]) {\n  a = relu(x)\n  b = relu(y)\n  return a, b\n}\n"


@pytest.fixture
def relu(tmp_path):
    (tmp_path / "relu.tsr").write_text(RELU)
    return tmp_path / "relu.tsr"


# ---- words that are not known

@pytest.mark.parametrize("words, meant", [
    (["rn"], "tessera run"), (["optimise", "x.onnx"], "tessera optimize"), (["rules", "chekc"], "tessera rules check"),
    (["run", "--thread", "2"], "--threads"), (["bench", "--agianst", "x"], "--against"), (["ops", "Conw"], "Conv"),
])
def test_a_misspelt_word_gets_a_suggestion(tessera_command, words, meant):
    done = tessera_command(*words)
    assert done.status in (1, 2) and "did you mean" in done.err and meant in done.err


def test_a_word_that_is_like_nothing_gets_a_list(tessera_command):
    done = tessera_command("rules", "frobnicate")
    assert done.status == 2 and '"frobnicate" is not a command of tessera rules' in done.err and "verify" in done.err
    assert "needs a command" in tessera_command("rules").err


def test_a_word_that_is_an_option_gets_its_commands(tessera_command):
    for words in (["search"], ["search", "--help"], ["help", "search"]):
        done = tessera_command(*words)
        assert done.status == 2 and '"search" is not a command of tessera' in done.err, words
        assert "--search is an option of" in done.err and "tessera optimize" in done.err and not done.out, words


def test_help_of_a_command(tessera_command):
    assert tessera_command("help").out == tessera_command("--help").out
    assert tessera_command("help", "rules", "check").out == tessera_command("rules", "check", "--help").out != ""
    assert '"${fpath[1]}/_tessera"' in tessera_command("help", "completion").out
    assert "|ptx|" in tessera_command("help", "compile").out


def test_help_follows_the_width(tessera_command):
    narrow, wide = (tessera_command("help", "run", env={"COLUMNS": n}).out.splitlines() for n in ("60", "110"))
    options = [line for line in narrow if line.startswith("  ") and not line.startswith("  tessera")]
    assert max(map(len, options)) <= 60 < max(map(len, wide)) <= 110 and len(narrow) > len(wide)


def test_the_cache_is_shown_and_cleared(tessera_command, relu, tmp_path):
    here = {"TESSERA_CACHE": str(tmp_path / "cache")}
    assert tessera_command("cache", "--json", env=here).json["bytes"] == 0
    tessera_command("run", relu, "--random", env=here)
    size, listed = (tessera_command("cache", what, "--json", env=here).json for what in ("size", "list"))
    assert size["models"] == 1 and size["folder"] == here["TESSERA_CACHE"] and 0 < size["bytes"] <= size["limit_bytes"]
    assert sum(e["bytes"] for e in listed["entries"]) == size["bytes"] and "model" in {e["kind"] for e in listed["entries"]}
    assert "just now" in tessera_command("cache", "list", env=here).out
    assert "TESSERA_CACHE_SIZE" in tessera_command("cache", env=here).out
    (tmp_path / "cache" / "mine.txt").write_text("kept")
    assert tessera_command("cache", "clear", "--json", "--cache-dir", tmp_path / "cache").json["removed_bytes"] == size["bytes"]
    assert tessera_command("cache", "size", "--json", env=here).json["bytes"] == 0 and (tmp_path / "cache" / "mine.txt").exists()


def test_version_and_completion(tessera_command, tmp_path):
    version = tessera_command("--version").out
    assert tessera_command("version").out == version and version.startswith("tessera ")
    assert tessera_command("version", "--json").json["version"] in version
    for shell in ("bash", "zsh", "fish"):
        done = tessera_command("completion", shell)
        assert done.status == 0 and "profile" in done.out and "threads" in done.out and "verify" in done.out
        if shutil.which(shell):
            (tmp_path / "script").write_text(done.out)
            assert subprocess.run([shell, "-n", "script"], cwd=tmp_path).returncode == 0
    assert tessera_command("completion", "csh").status == 2


@pytest.mark.parametrize("words, offered, not_offered", [
    (["tessera", ""], ["run", "rules", "profile"], ["check"]),
    (["tessera", "rules", ""], ["check", "verify"], ["run"]),
    (["tessera", "run", "--th"], ["--threads"], ["--against"]),
    (["tessera", "run", "--backend", ""], ["compiled", "evaluate"], ["--threads"]),
])
def test_bash_completes(tessera_command, tmp_path, words, offered, not_offered):
    (tmp_path / "script").write_text(tessera_command("completion", "bash").out)
    quoted = " ".join(f"'{w}'" for w in words)
    ask = f"source ./script; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _tessera; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    found = subprocess.run(["bash", "-c", ask], cwd=tmp_path, capture_output=True, text=True, check=True).stdout.split()
    assert set(offered) <= set(found) and not set(not_offered) & set(found)


def commands(tessera_command):
    listed = re.findall(r"^  (\w+) {2,}", tessera_command("--help").out.split("Subcommands:")[1], re.MULTILINE)
    nested = re.findall(r"^  (\w+) {2,}", tessera_command("rules", "--help").out.split("Subcommands:")[1], re.MULTILINE)
    assert len(listed) >= 12 and len(nested) >= 5
    return [[], *([name] for name in listed), *(["rules", name] for name in nested)]


def test_help_fits_a_hundred_columns(tessera_command):
    for words in commands(tessera_command):
        help_text = tessera_command(*words, "--help").out
        assert help_text and max(map(len, help_text.splitlines())) <= 100, words
        assert "{60}" not in help_text and not re.search(r" Of (?!the)", help_text), words
        options = help_text.split("Options:")[-1].split("\n\n")[0]
        for line in options.splitlines():  # a description that goes on does so in its own column
            assert not line.strip() or re.match(r"  -| {30}\S", line), line


@pytest.mark.parametrize("words, after", [
    (["run", ""], '"run"'), (["inspect", ""], '"inspect"'), (["optimize", "relu.tsr", "-o", ""], '"-o"'),
    (["run", "relu.tsr", "--random", "--output", ""], '"--output"'), (["convert", "relu.tsr", ""], '"relu.tsr"'),
])
def test_an_empty_argument_is_an_error(tessera_command, relu, words, after):
    """A variable of the shell that is not set: another model, or none of the output, is not what was meant."""
    done = tessera_command(*words)
    assert done.status == 2 and "E0501" in done.err and f"the argument after {after} is empty" in done.err


def test_an_empty_cache_folder_is_no_cache(tessera_command, relu):
    assert tessera_command("run", "relu.tsr", "--random", "--cache-dir", "").status == 0


@pytest.mark.parametrize("words, expected", [
    (["run", "--backend", "foo"], '--backend: expected compiled or evaluate, got "foo"'),
    (["completion", "tcsh"], 'shell: expected bash, zsh or fish, got "tcsh"'),
    (["run", "-o"], "--output needs a value"),
    (["run", "--threads"], "--threads needs a value"),
])
def test_values_of_options_are_said_plainly(tessera_command, words, expected):
    done = tessera_command(*words)
    assert done.status == 2 and f"error E0501: {expected}\n" in done.err


# ---- numbers and sizes

@pytest.mark.parametrize("words, expected", [
    (["run", "--threads", "-1"], "a number from 0 to 4096"), (["run", "--seed", "-1"], "at least 0"),
    (["discover", "--max-ops", "9"], "a number from 1 to 4"), (["rules", "check", "--instances", "0"], "from 1 to 1000000"),
    (["optimize", "x.onnx", "--search=-1"], "a number above 0"), (["optimize", "x.onnx", "--max-nodes", "abc"], "at least 1"),
    (["discover", "--threads", "-4"], "from 0 to 4096"), (["bench", "--seconds", "-2"], "from 0 to 1000000"),
    (["profile", "--rows", "-1"], "at least 0"),
])
def test_a_number_out_of_range_says_the_range_in_few_digits(tessera_command, words, expected):
    done = tessera_command(*words)
    assert done.status == 2 and expected in done.err and not re.search(r"\d{9}", done.err)
    assert len(done.err) < 200


def test_sizes_one_after_the_other(tessera_command, tmp_path):
    (tmp_path / "m.tsr").write_text(SUM)
    for words in (["--dim", "A=2", "B=5"], ["--dim", "A=2", "--dim", "B=5"], ["--dim=A=2", "B=5"]):
        done = tessera_command("run", *words, "m.tsr", "--random", "--json")
        assert done.status == 0, done.err
        assert done.json["dims"] == {"A": 2, "B": 5}


def test_a_size_that_contradicts_an_input_is_an_error(tessera_command, relu, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((4, 3), np.float32))
    done = tessera_command("run", relu, "--input", "x.npy", "--random", "--dim", "N=7")
    assert done.status == 1 and "E0405" in done.err and "N=7" in done.err and "4" in done.err
    assert tessera_command("run", relu, "--input", "x.npy", "--random", "--dim", "N=4").status == 0


def test_environment_variables_that_make_no_sense_are_said(tessera_command, relu):
    for name, value in (("TESSERA_THREADS", "many"), ("TESSERA_THREADS", "-3"), ("TESSERA_CACHE_SIZE", "plenty")):
        done = tessera_command("run", relu, "--random", env={name: value})
        assert done.status == 0 and name in done.err and value in done.err and "expected" in done.err
    assert tessera_command("run", relu, "--random", "--dim", "N=1", env={"TESSERA_THREADS": "2", "TESSERA_CACHE_SIZE": "1G"}).err == ""


# ---- ends

def interrupted(words, cwd, after=1.5, **kwargs):
    process = subprocess.Popen([BINARY, *map(str, words)], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs)
    time.sleep(after)
    assert process.poll() is None, f"{words} was too quick: {process.communicate()}"
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    return process.returncode, err, time.monotonic() - began


@pytest.fixture
def endless(tmp_path):
    """A loop that takes for ever, in one node that looks at no flag for long."""
    info = lambda name, elem=TensorProto.FLOAT, shape=(600, 600): helper.make_tensor_value_info(name, elem, shape)
    body = helper.make_graph([helper.make_node("Identity", ["cond"], ["more"]), helper.make_node("MatMul", ["a", "a"], ["b"])], "body",
                             [info("i", TensorProto.INT64, []), info("cond", TensorProto.BOOL, []), info("a")],
                             [info("more", TensorProto.BOOL, []), info("b")])
    count = numpy_helper.from_array(np.int64(10**9), "count")
    graph = helper.make_graph([helper.make_node("Loop", ["count", "", "x"], ["y"], body=body)], "g", [info("x")], [info("y")], initializer=[count])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), tmp_path / "endless.onnx")
    return tmp_path / "endless.onnx"


@pytest.mark.parametrize("words", [
    ["run", "endless.onnx", "--random", "-o", "y=y.npy"], ["run", "endless.onnx", "--random", "--backend=evaluate"],
    ["profile", "endless.onnx", "--report", "page.html"], ["compile", "endless.onnx", "--check"],
    ["bench", "endless.onnx", "--threads", "1"], ["discover", "--ops", "taso", "--max-ops", "4", "--out", "r.rules"],
    ["rules", "check"], ["inspect", "-"],
], ids=lambda words: " ".join(words[:2]))
def test_interrupts_end_every_command_within_a_second(endless, tmp_path, words):
    reader, writer = os.pipe()  # an input on which nothing comes
    status, err, took = interrupted(words, tmp_path, stdin=reader)
    os.close(reader)
    os.close(writer)
    assert status == 130 and err.startswith("error E0410: interrupted") and err.count("\n") == 1
    assert took < 1 + 0.5 * max(os.getloadavg()[0] / (os.cpu_count() or 1) - 1, 0.2)  # more where the machine is busy
    assert sorted(p.name for p in tmp_path.iterdir()) == ["endless.onnx"]


@pytest.mark.parametrize("words", [["--help"], ["ops"], ["rules", "list"], ["convert", "relu.tsr", "-"], ["inspect", "relu.tsr", "--json"],
                                   ["run", "relu.tsr", "--random"], ["completion", "bash"]], ids=lambda words: words[0])
def test_output_that_cannot_be_written_is_an_error(relu, tmp_path, words):
    with open("/dev/full", "w") as full:
        done = subprocess.run([BINARY, *words], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "E0105" in done.stderr and "standard output" in done.stderr and "bug in Tessera" not in done.stderr
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([BINARY, *words], cwd=tmp_path, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert done.returncode == 0 and "error" not in done.stderr  # such as head, which has seen enough


def test_errors_go_nowhere_where_nobody_listens(tmp_path):
    with open("/dev/full", "w") as full:
        assert subprocess.run([BINARY, "run", "missing.onnx"], cwd=tmp_path, stderr=full).returncode == 1


def test_a_peer_that_fails_makes_bench_fail(tessera_command, relu, tmp_path):
    (tmp_path / "python").write_text("#!/bin/sh\necho 'ModuleNotFoundError: No module named onnxruntime' >&2\nexit 1\n")
    (tmp_path / "python").chmod(0o755)
    words = ["bench", relu, "--against", "onnxruntime", "--python", "./python", "--threads", "1", "--seconds", "0", "--runs", "1"]
    done = tessera_command(*words)
    assert done.status == 1 and "tessera" in done.out and "failed" in done.out
    assert "onnxruntime failed" in done.err and "--python" in done.err and "pip install onnxruntime" in done.err
    as_json = tessera_command(*words, "--json")
    assert as_json.status == 1 and as_json.json["measured"][0]["runners"][1]["failed"]


def test_explanations_begin_with_what_saves_work(tessera_command, tmp_path):
    (tmp_path / "m.tsr").write_text("graph g(x: f32[2,3]) {\n  a = softmax(x, axis=1)\n  b = add(a, 0.0:f32)\n  return b\n}\n")
    done = tessera_command("optimize", "m.tsr", "--explain")
    rules = [line for line in done.out[done.out.index("\nrules"):].splitlines() if " / " in line]
    assert "canonicalise" in done.out and "canonicalise" not in rules[0], done.out


# ---- what is in a model

def test_passes_as_json(tessera_command):
    for command in ("optimize", "compile"):
        passes = tessera_command(command, "--list-passes", "--json").json["passes"]
        assert len(passes) > 5 and all(p["pass"] and p["purpose"] for p in passes)


@pytest.fixture
def unknown(tmp_path):
    info = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ("N", 3))
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Konvolve", ["a"], ["b"], name="first", domain="acme"),
             helper.make_node("Konvolve", ["b"], ["y"], domain="acme")]
    model = helper.make_model(helper.make_graph(nodes, "g", [info("x")], [info("y")]),
                              opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("acme", 1)])
    onnx.save(model, tmp_path / "unknown.onnx")
    return tmp_path / "unknown.onnx"


def test_inspect_shows_models_with_unknown_operators(tessera_command, unknown):
    done = tessera_command("inspect", unknown)
    assert done.status == 0 and "acme.Konvolve" in done.out and "not known here" in done.out and "f32[N,3]" in done.out
    assert "warning E020" in done.err
    ops = {op["op"]: op for op in tessera_command("inspect", unknown, "--json").json["ops"]}
    assert ops["Konvolve"] == {"op": "Konvolve", "domain": "acme", "nodes": 2, "known": False} and ops["Relu"]["known"]
    assert tessera_command("run", unknown, "--random").status == 1


def test_a_model_from_standard_input(tessera_command, relu, unknown, tmp_path):
    assert tessera_command("convert", relu, "m.onnx").status == 0
    for file in ("relu.tsr", "m.onnx"):
        with open(tmp_path / file, "rb") as model:
            done = subprocess.run([BINARY, "run", "-", "--random", "--dim", "N=2"], stdin=model, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("standard input") and "f32[2,3]" in done.stdout
    with open(unknown, "rb") as model:
        assert subprocess.run([BINARY, "inspect", "-"], stdin=model, capture_output=True).returncode == 0
    empty = subprocess.run([BINARY, "run", "-"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert empty.returncode == 1 and "standard input is empty" in empty.stderr


@pytest.mark.parametrize("words", [
    ["run", "missing.onnx", "--output", "y=y.txt"], ["profile", "missing.onnx", "--trace", "t.txt"],
    ["profile", "missing.onnx", "--report", "r.txt"], ["compile", "missing.onnx", "--emit=graph", "-o", "g.onnx"],
    ["compile", "missing.onnx", "--emit=asm", "-o", "g.tsr"], ["compile", "missing.onnx", "--emit=bundle", "-o", "m.so"],
    ["discover", "--out", "rules.txt"], ["optimize", "missing.onnx", "-o", "x.pt"], ["convert", "missing.onnx", "x.zip"],
    ["optimize", "missing.onnx", "-o", "x.txt"], ["convert", "missing.onnx", "x.txt"],
    ["quantize", "missing.onnx", "--random", "1", "-o", "x.txt"],
    ["train", "missing.onnx", "--data", "x.npy,y.npy", "--out", "x.pt"],
])
def test_unsuitable_endings_are_refused_before_work_starts(tessera_command, words):
    done = tessera_command(*words)
    assert done.status == 2 and "E0501" in done.err and "E0101" not in done.err
    assert words[-1].split("=")[-1] in done.err


@pytest.mark.parametrize("where", ["../w.bin", "{}/w.bin"])
def test_weights_are_not_written_where_they_cannot_be_read(tessera_command, tmp_path, where):
    weights = [[i + j for i in range(64)] for j in range(64)]
    (tmp_path / "big.tsr").write_text(f"graph g(x: f32[N,64]) {{\n  const w: f32[64,64] = {weights}\n  y = matmul(x, w)\n  return y\n}}\n")
    (tmp_path / "out").mkdir()
    done = tessera_command("convert", "big.tsr", "out/m.tsr", "--weights", where.format(tmp_path))
    assert done.status == 1 and "E0106" in done.err and "beside the text" in done.err
    assert not (tmp_path / "w.bin").exists() and not list((tmp_path / "out").iterdir())


def test_an_input_that_is_no_array_file_is_refused_first(tessera_command):
    done = tessera_command("run", "missing.onnx", "--input", "x=x.csv")
    assert done.status == 1 and "E0110" in done.err and ".npy" in done.err


@pytest.mark.parametrize("command", ["help", "version", "cache list", "rules check", "completion"])
def test_help_shows_examples_of_its_own_command(tessera_command, command):
    shown = tessera_command(*command.split(), "--help").out
    assert "Exit status" in shown and "built-in ResNet-50 on" not in shown


def test_options_without_effect_are_refused(tessera_command, relu):
    for words in (["run", relu, "--random", "--backend=evaluate", "--threads", "2"], ["optimize", relu, "--strategy", "backtrack"],
                  ["discover", "--no-proofs", "--out", "r.rules"]):
        assert tessera_command(*words).status == 2


# ---- what is printed

def test_no_time_is_nothing_and_one_is_singular(tessera_command, relu):
    texts = [tessera_command(*words).out for words in (
        ["run", relu, "--random"], ["profile", relu, "--threads", "1", "--runs", "3"], ["compile", relu], ["inspect", relu, "--compiled"],
        ["optimize", relu], ["bench", relu, "--threads", "1", "--seconds", "0"])]
    for text in texts:
        assert text and not re.search(r"\b0\.0+ ms", text), text
        assert not re.search(r"(?<![\d.])1 (threads|rounds|steps|nodes|kernels|rewrites|iterations|calls|rules)\b", text), text
    assert "1 thread," in texts[1]


def test_counts_that_overflow_are_numbers(tessera_command, tmp_path):
    (tmp_path / "m.tsr").write_text("graph g(x: f32[A,B], y: f32[B,C]) {\n  return matmul(x, y)\n}\n")
    words = ["inspect", "m.tsr", "--dim", "A=2000000000", "B=2000000000", "C=2000000000"]
    done = tessera_command(*words)
    assert done.status == 0, done.err
    assert re.search(r"bytes +48\.0 EB", done.out) and re.search(r"FLOPs +16000\d* Y|FLOPs +16\.0 \w|FLOPs +16000 Y", done.out.replace("16.0 kY", "16000 Y")), done.out
    j = tessera_command(*words, "--json").json
    assert j["bytes_at_dims"] == pytest.approx(3 * 4 * 4e18) and j["flops_at_dims"] == pytest.approx(1.6e28)


def test_graphs_are_printed_without_the_weights_unless_asked(tessera_command, tmp_path):
    w = numpy_helper.from_array(np.random.default_rng(0).standard_normal((100, 100), np.float32), "w")
    info = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ("N", 100))
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [info("x")], [info("y")], initializer=[w])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), tmp_path / "m.onnx")
    short = tessera_command("compile", "m.onnx", "--emit=graph")
    assert short.status == 0 and "matmul" in short.out and len(short.out) < 2000
    for words in (["compile", "m.onnx", "--stop-after", "fold_constants"], ["compile", "m.onnx", "--print-after", "all"]):
        done = tessera_command(*words)
        assert done.status == 0 and len(done.out + done.err) < 20000
    assert tessera_command("compile", "m.onnx", "--emit=graph", "--with-weights", "-o", "whole.tsr").status == 0
    assert (tmp_path / "whole.tsr").stat().st_size > 40000
    assert tessera_command("run", "whole.tsr", "--random").status == 0


def test_bundles_for_others_say_how_to_run_them(tessera_command, relu):
    here = os.uname().machine
    other = "aarch64-neon" if here == "x86_64" else "x86_64-avx2"
    done = tessera_command("compile", relu, "--emit=bundle", "-o", "there", "--target", other, "--dim", "N=2")
    assert done.status == 0, done.err
    assert "copy there to such a machine" in done.out and "CC=" in done.out and "cd there &&" not in done.out
    assert "make -C here && cd here && ./example" in tessera_command("compile", relu, "--emit=bundle", "-o", "here", "--dim", "N=2").out


def test_bundles_are_for_processors(tessera_command, relu):
    for target in ("sm_90", "cuda"):
        done = tessera_command("compile", relu, "--emit=bundle", "-o", "there", "--target", target, "--dim", "N=2")
        assert done.status == 1 and "E0605" in done.err and "is not a CPU" in done.err


def test_ranks_and_types_are_said_plainly(tessera_command, tmp_path):
    (tmp_path / "m.tsr").write_text("graph g(x: f32[N,64]) {\n  return relu(x)\n}\n")
    np.save(tmp_path / "x.npy", np.ones(64, np.float32))
    assert "expected rank 2 (f32[N,64]), got [64]" in tessera_command("run", "m.tsr", "--input", "x.npy").err
    np.save(tmp_path / "x.npy", np.ones((2, 64)))
    assert "expected f32, got f64" in tessera_command("run", "m.tsr", "--input", "x.npy").err


def test_rules_that_were_proved_are_believed(tessera_command, tmp_path):
    found = tessera_command("discover", "--ops", "add,mul,relu", "--max-ops", "2", "--out", "my.rules", "--progress", "never", timeout=300)
    assert found.status == 0, found.err
    (tmp_path / "m.tsr").write_text("graph g(x: f32[4,4], y: f32[4,4]) {\n  return add(relu(x), y)\n}\n")
    done = tessera_command("optimize", "m.tsr", "--rules", "my.rules")
    assert done.status == 0, done.err
    # Without its certificate, or with a false one, a rule is tried as any other is.
    certificates = (tmp_path / "my.cert").read_text()
    (tmp_path / "my.cert").write_text(certificates.replace("root 0\n", "root 0\ndrop 1\n", 1))
    done = tessera_command("optimize", "m.tsr", "--rules", "my.rules")
    assert done.status == 1 and "E0305" in done.err


# ---- the scripts

def test_shellcheck_finds_nothing():
    if not shutil.which("shellcheck"):
        pytest.skip("there is no shellcheck here (tools/setup.sh check installs it)")
    scripts = sorted(p for folder in ("tools", "bench") for p in (ROOT / folder).glob("*.sh"))
    assert len(scripts) > 8
    done = subprocess.run(["shellcheck", *map(str, scripts)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_every_code_has_an_example():
    text = (ROOT / "docs" / "errors.md").read_text()
    for section in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        assert "```" in section, f"{section.splitlines()[0]} has no example"
