"""The command line around compiled models: compile, run, profile, bench."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import onnx
import pytest
from conftest import BINARY
from onnx import TensorProto, helper, numpy_helper


def info(name, shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


@pytest.fixture
def network(tmp_path):
    """relu(x @ w + b), then softmax: f32[N,8] to f32[N,4]."""
    rng = np.random.default_rng(0)
    w = numpy_helper.from_array(rng.standard_normal((8, 4), np.float32), "w")
    b = numpy_helper.from_array(rng.standard_normal(4, np.float32), "b")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="product"),
        helper.make_node("Add", ["m", "b"], ["a"], name="bias"),
        helper.make_node("Relu", ["a"], ["r"], name="relu"),
        helper.make_node("Softmax", ["r"], ["y"], name="softmax"),
    ]
    graph = helper.make_graph(nodes, "g", [info("x", ("N", 8))], [info("y", ("N", 4))], initializer=[w, b])
    path = tmp_path / "network.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), path)
    return path


def noise_model(path):
    """Random numbers come one after the other, so that no kernel draws them."""
    nodes = [helper.make_node("RandomUniformLike", ["x"], ["i"], name="noise"), helper.make_node("Relu", ["i"], ["y"])]
    graph = helper.make_graph(nodes, "g", [info("x", (4, 8))], [info("y", (4, 8))])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), path)
    return path


def test_run_compiles_by_default_and_agrees_with_the_reference(tessera_command, network, tmp_path):
    for backend in ("compiled", "evaluate"):
        done = tessera_command("run", network, "--random", "--dim", "N=5", "--backend", backend, "--output", f"y={backend}.npy",
                               "--json")
        assert done.status == 0, done.err
        assert done.json["backend"] == backend
        assert ("compile" in done.json["seconds"]) == (backend == "compiled")
    np.testing.assert_allclose(np.load(tmp_path / "compiled.npy"), np.load(tmp_path / "evaluate.npy"), rtol=1e-5)
    assert tessera_command("run", network, "--random", "--json").json["backend"] == "compiled"


def test_compile_reports(tessera_command, network):
    done = tessera_command("compile", network, "--no-cache", "--explain", "--time-passes", "--json")
    assert done.status == 0, done.err
    report = done.json
    assert report["kernels"] >= 1 and report["steps"] >= 1 and report["host_steps"] == 0 and not report["host_reasons"]
    assert report["phases"] and all(p["seconds"] >= 0 for p in report["phases"])
    assert report["weight_bytes"] > 0 and report["arena_bytes"] >= 0 and not report["from_cache"]
    text = tessera_command("compile", network, "--explain", "--time-passes").out
    for word in ("kernels", "weights", "arena", "compiled in", "phases", "decisions"):
        assert word in text


def test_compile_says_what_no_kernel_computes(tessera_command, tmp_path):
    done = tessera_command("compile", noise_model(tmp_path / "noise.onnx"), "--no-cache", "--json")
    assert done.status == 0, done.err
    assert done.json["host_steps"] == 1 and "noise" in done.json["host_reasons"][0]["node"]


def test_compile_check(tessera_command, network):
    done = tessera_command("compile", network, "--check", "--dim", "N=3", "--json")
    assert done.status == 0, done.err
    assert done.json["check"] and all(step["error"] < 1e-4 for step in done.json["check"])
    assert "checked" in tessera_command("compile", network, "--check").out


@pytest.mark.parametrize("stage, word", [("graph", "graph"), ("compute", "compute"), ("schedule", "vectorize("),
                                         ("kernel", "for"), ("llvm", "define"), ("asm", "ret")])
def test_compile_emits_each_stage(tessera_command, network, tmp_path, stage, word):
    printed = tessera_command("compile", network, f"--emit={stage}")
    assert printed.status == 0, printed.err
    assert word in printed.out
    written = tessera_command("compile", network, f"--emit={stage}", "-o", "stage.txt")
    assert written.status == 0 and (tmp_path / "stage.txt").read_text().strip() == printed.out.strip()


def test_compile_dumps_every_stage(tessera_command, network, tmp_path):
    assert tessera_command("compile", network, "--dump-dir", "stages").status == 0
    names = sorted(p.name for p in (tmp_path / "stages").iterdir())
    assert names == ["network.ll", "network.s", "network.schedule", "network.tsc", "network.tsk", "network.tsr"]
    assert all((tmp_path / "stages" / name).read_text().strip() for name in names)


def emitted(tessera_command, *arguments):
    done = tessera_command("compile", *arguments)
    assert done.status == 0, done.err
    return done.out


def without_metadata(llvm):
    """Metadata is numbered in the order of buffers, which text does not keep."""
    return [re.sub(r"!\d+", "!", line) for line in llvm.splitlines() if not line.startswith("!")]


def test_compile_goes_on_from_each_stage(tessera_command, network, tmp_path):
    for target in ("host", "x86_64-avx512"):
        flags = ("--target", target, "--threads", 2)
        assert tessera_command("compile", network, "--dump-dir", "stages", *flags).status == 0
        kernels = tmp_path / "stages" / "network.tsk"
        for path in (kernels, tmp_path / "stages" / "network.tsc"):
            assert emitted(tessera_command, path, "--emit=kernel", *flags) == kernels.read_text(), path
            assert emitted(tessera_command, path, "--emit=asm", *flags) == kernels.with_suffix(".s").read_text(), path
            llvm = emitted(tessera_command, path, "--emit=llvm", *flags)
            assert without_metadata(llvm) == without_metadata(kernels.with_suffix(".ll").read_text()), path
        for stage, suffix in (("compute", "tsc"), ("schedule", "schedule")):
            wanted = kernels.with_suffix("." + suffix).read_text()
            assert emitted(tessera_command, kernels.with_suffix(".tsc"), f"--emit={stage}", *flags) == wanted


def test_compile_kernels_by_hand(tessera_command, tmp_path):
    (tmp_path / "k.tsk").write_text("kernel twice(N) (x: f32[N], y: f32[N]) {\n  for i < N {\n    y[i] = x[i] * 2.0\n  }\n}\n")
    assert "  kernels      1" in emitted(tessera_command, "k.tsk")
    report = json.loads(emitted(tessera_command, "k.tsk", "--emit=asm", "-o", "k.s", "--json"))
    assert report["kernels"] == 1 and report["to"] == "k.s" and "twice" in (tmp_path / "k.s").read_text()
    emitted(tessera_command, "k.tsk", "--dump-dir", "stages")
    assert sorted(p.name for p in (tmp_path / "stages").iterdir()) == ["k.ll", "k.s", "k.tsk"]


def test_compile_text_errors(tessera_command, tmp_path):
    kernel = "kernel twice(N) (x: f32[N], y: f32[N]) { for i < N { y[i] = x[i] * 2.0 } }"
    (tmp_path / "k.tsk").write_text(kernel)
    (tmp_path / "c.tsc").write_text("compute c() (x: f32[4], y: f32[4]) { s for i < 4: y[i] = x[i + 1] }")
    (tmp_path / "cut.tsk").write_text(kernel[:-4])
    (tmp_path / "wrong.tsk").write_text(kernel.replace("for i", "vector i"))
    for arguments, status, words in (
            (["k.tsk", "--emit=graph"], 2, ["E0501", "--emit=graph", "holds kernels", "kernel, llvm, asm"]),
            (["k.tsk", "--emit=compute"], 2, ["E0501", "holds kernels"]),
            (["c.tsc", "--emit=graph"], 2, ["E0501", "holds computes", "compute, schedule, kernel"]),
            (["k.tsk", "--emit=bundle", "-o", "b"], 2, ["E0501", "bundle"]),
            (["k.tsk", "--check"], 2, ["E0501", "not a model"]),
            (["k.tsk", "--dim", "N=2"], 2, ["E0501", "not a model"]),
            (["none.tsk"], 1, ["E0101", "none.tsk"]),
            (["cut.tsk"], 1, ["E0301", "cut.tsk:1:"]),
            (["wrong.tsk"], 1, ["E0601", "twice"]),
            (["c.tsc"], 1, ["E0406", "x is accessed out of bounds"])):
        done = tessera_command("compile", *arguments)
        assert done.status == status and all(word in done.err for word in words), (arguments, done.err)


def test_compile_for_other_processors(tessera_command, network):
    done = tessera_command("compile", network, "--emit=asm", "--target", "x86_64-avx512")
    assert done.status == 0, done.err
    assert "zmm" in done.out
    unknown = tessera_command("compile", network, "--target", "pdp11")
    assert unknown.status == 2 and "E0603" in unknown.err and "host" in unknown.err


def test_compile_cache(tessera_command, network, tmp_path):
    first = tessera_command("compile", network, "--cache-dir", tmp_path / "cache", "--json").json
    second = tessera_command("compile", network, "--cache-dir", tmp_path / "cache", "--json").json
    assert not first["from_cache"] and second["from_cache"]
    assert first["kernels"] == second["kernels"]


def test_compile_bundle(tessera_command, network, tmp_path):
    done = tessera_command("compile", network, "--emit=bundle", "-o", "folder", "--dim", "N=2", "--name", "net", "--json")
    assert done.status == 0, done.err
    assert sorted(done.json["files"]) == sorted(p.name for p in (tmp_path / "folder").iterdir())
    assert done.json["weight_bytes"] > 0 and done.json["arena_bytes"] > 0 and done.json["calls"] >= 1
    assert "int net_run(" in (tmp_path / "folder" / "net.h").read_text()
    text = tessera_command("compile", network, "--emit=bundle", "-o", "folder", "--dim", "N=2", "--name", "net")
    assert text.status == 0 and "make -C folder" in text.out
    before = sorted(tmp_path.iterdir())
    missing = tessera_command("compile", network, "--emit=bundle", "-o", "other")
    assert missing.status == 1 and "E0605" in missing.err and "set the size of N" in missing.err
    nowhere = tessera_command("compile", network, "--emit=bundle", "-o", "no/where", "--dim", "N=2")
    assert nowhere.status == 1 and "E0105" in nowhere.err
    host = tessera_command("compile", noise_model(tmp_path / "noise.onnx"), "--emit=bundle", "-o", "other")
    assert host.status == 1 and "E0605" in host.err
    assert [p for p in sorted(tmp_path.iterdir()) if p.name != "noise.onnx"] == before


def test_compile_wrong_usage(tessera_command, network):
    for flags in (["-o", "x"], ["--emit=kernel", "--json"], ["--emit=bytes"], ["--precision", "some"],
                  ["--emit=bundle"], ["--emit=bundle", "-o", "x", "--check"], ["--shared"], ["--name", "x"]):
        done = tessera_command("compile", network, *flags)
        assert done.status == 2 and "E0501" in done.err, flags
    done = tessera_command("compile", network, "--dump-dir", "/proc/nowhere")
    assert done.status == 1 and "E0105" in done.err


def test_profile(tessera_command, network, tmp_path):
    done = tessera_command("profile", network, "--dim", "N=64", "--runs", 5, "--threads", 1, "--trace", "trace.json", "--json")
    assert done.status == 0, done.err
    steps = done.json["steps"]
    assert done.json["threads"] == 1 and done.json["peak"]["flops_per_second"] > 1e8
    assert abs(sum(s["share"] for s in steps) - 1) < 1e-6 and all(s["seconds"] >= 0 for s in steps)
    assert "bias" in {n for s in steps for n in s["nodes"]}
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert len(events) == len(steps) and all(e["ph"] == "X" for e in events)
    text = tessera_command("profile", network, "--runs", 2, "--nodes").out
    for word in ("FLOP/s", "of peak", "all", "bias"):
        assert word in text


def test_steps_are_named_after_what_computes_most(tessera_command, tmp_path):
    """Not after what is absorbed into its loops."""
    info = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    nodes = [helper.make_node("Mul", ["x", "s"], ["a"], name="scale"), helper.make_node("ReduceMean", ["a"], ["y"], name="mean")]
    graph = helper.make_graph(nodes, "g", [info("x", [64, 64]), info("s", [64, 64])], [info("y", [1, 1])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), tmp_path / "mean.onnx")
    labels = [s["label"] for s in tessera_command("profile", "mean.onnx", "--runs", "1", "--json").json["steps"]]
    assert any("mul" in label and label.endswith(" mean") for label in labels), labels


def test_inspect_compiled(tessera_command, network):
    j = tessera_command("inspect", network, "--compiled", "--json").json
    assert j["compiled"]["kernels"] >= 1 and j["compiled"]["arena_bytes"] >= 0 and j["peak_bytes_at_dims"] > 0
    text = tessera_command("inspect", network, "--compiled").out
    assert "arena" in text and "peak" in text


def test_ops_say_what_is_left_to_the_reference(tessera_command):
    ops = {op["onnx"]["name"]: op["compiled"] for op in tessera_command("ops", "--json").json["ops"] if "onnx" in op}
    assert ops["Conv"] == ops["Softmax"] == ops["LSTM"] == "kernel"
    assert ops["StringConcat"] == ops["SequenceAt"] == "reference"
    assert ops["ScatterND"] == ops["TopK"] == ops["CumSum"] == ops["NonZero"] == ops["Unique"] == "kernel"
    assert "left to the reference: strings" in tessera_command("ops", "StringConcat").out


FAKE_PEER = """
    import sys
    import numpy as np

    class SessionOptions:
        pass

    class InferenceSession:
        def __init__(self, path, options, providers):
            assert options.intra_op_num_threads >= 1

        def run(self, names, inputs):
            print("noise")
            x = inputs["x"]
            return [np.zeros((x.shape[0], 4), np.float32)]

    __version__ = "9.9"
"""


@pytest.fixture
def fake_peer(tmp_path):
    """A Python whose onnxruntime answers zeros."""
    (tmp_path / "onnxruntime.py").write_text(textwrap.dedent(FAKE_PEER))
    return {"PYTHONPATH": str(tmp_path), "TESSERA_BENCH_PYTHON": sys.executable}


def test_bench_alone(tessera_command, network):
    done = tessera_command("bench", network, "--threads", "1,2,1", "--runs", 3, "--seconds", 0, "--json")
    assert done.status == 0, done.err
    assert [m["threads"] for m in done.json["measured"]] == [1, 2]
    for m in done.json["measured"]:
        (ours,) = m["runners"]
        assert ours["name"] == "tessera" and ours["runs"] >= 3 and ours["peak_rss"] > 1e6
        assert ours["quartiles_s"][0] <= ours["median_s"] <= ours["quartiles_s"][1]


def test_bench_against_a_peer(tessera_command, network, fake_peer):
    flags = ["--against", "onnxruntime", "--threads", 1, "--runs", 3, "--seconds", 0, "--accuracy"]
    done = tessera_command("bench", network, *flags, "--json", env=fake_peer)
    assert done.status == 0, done.err
    ours, theirs = done.json["measured"][0]["runners"]
    assert theirs["name"] == "onnxruntime" and theirs["version"] == "9.9" and theirs["ratio"] > 0
    assert theirs["difference"] == "inf" or theirs["difference"] > 0.1, "zeros are not our answer"
    assert ours["error"] < 1e-5 < 0.1 < theirs["error"]
    text = tessera_command("bench", network, *flags, env=fake_peer).out
    assert "onnxruntime 9.9" in text and "ratio" in text


def test_bench_goes_on_without_a_peer_that_fails(tessera_command, network, tmp_path, fake_peer):
    (tmp_path / "onnxruntime.py").write_text("raise RuntimeError('no such luck')")
    done = tessera_command("bench", network, "--against", "onnxruntime", "--threads", 1, "--runs", 1, "--seconds", 0, "--json",
                           env=fake_peer)
    assert done.status == 1 and "no such luck" in done.err
    ours, theirs = done.json["measured"][0]["runners"]
    assert ours["runs"] >= 1 and "no such luck" in theirs["failed"]
    (tmp_path / "onnxruntime.py").write_text("import os; os.kill(os.getpid(), 9)")
    done = tessera_command("bench", network, "--against", "onnxruntime", "--threads", 1, "--runs", 1, "--seconds", 0, env=fake_peer)
    assert done.status == 1 and "signal 9" in done.out and "signal 9" in done.err


def test_bench_against_another_model(tessera_command, network, tmp_path):
    other, wrong = tmp_path / "other.onnx", tmp_path / "wrong.onnx"
    model = onnx.load(network)
    onnx.save(model, other)
    for tensor in model.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * 2, tensor.name))
    onnx.save(model, wrong)
    flags = ["--threads", 1, "--runs", 3, "--seconds", 0]
    done = tessera_command("bench", network, "--against", f"{other},{wrong}", *flags, "--json")
    assert done.status == 0, done.err
    ours, same, doubled = done.json["measured"][0]["runners"]
    assert ours["name"] == "tessera" and same["name"] == str(other) and doubled["name"] == str(wrong)
    assert same["runs"] >= 3 and same["ratio"] > 0 and same["difference"] == 0
    assert doubled["difference"] > 0.01
    text = tessera_command("bench", network, "--against", other, *flags)
    assert text.status == 0 and str(other) in text.out


def test_bench_against_values_that_are_expected(tessera_command, network, tmp_path):
    model = onnx.load(network)
    name = model.graph.output[0].name
    flags = ["--threads", 1, "--runs", 1, "--seconds", 0, "--seed", 3]
    done = tessera_command("run", network, "--random", "--seed", 3, "--output-dir", tmp_path / "out", "--backend", "evaluate")
    assert done.status == 0, done.err
    (file,) = (tmp_path / "out").iterdir()
    errors = []
    for factor in (1, 3):
        np.save(tmp_path / "expected.npy", np.load(file) * np.float32(factor))
        done = tessera_command("bench", network, *flags, "--expected", f"{name}={tmp_path / 'expected.npy'}", "--json")
        assert done.status == 0, done.err
        errors.append(done.json["measured"][0]["runners"][0]["error"])
    assert errors[0] < 1e-5 and errors[1] > 0.1
    done = tessera_command("bench", network, *flags, "--expected", "nothing=expected.npy")
    assert done.status != 0 and "nothing" in done.err


def test_bench_against_another_model_that_is_of_no_use(tessera_command, network, tmp_path):
    renamed, broken = tmp_path / "renamed.onnx", tmp_path / "broken.onnx"
    model = onnx.load(network)
    for node in model.graph.node:
        node.input[:] = ["other" if name == model.graph.input[0].name else name for name in node.input]
    model.graph.input[0].name = "other"
    onnx.save(model, renamed)
    broken.write_bytes(b"no model")
    for other, code, word in ((renamed, "E0402", "renamed.onnx"), (broken, "E01", "broken.onnx")):
        done = tessera_command("bench", network, "--against", other, "--threads", 1, "--runs", 1, "--seconds", 0)
        assert done.status == 1 and code in done.err and word in done.err, done.err


def test_bench_wrong_usage(tessera_command, network):
    for flags, word in ((["--against", "tensorrt"], "onnxruntime, torch"), (["--threads", "many"], "1,all"),
                        (["--against", "none.onnx"], "no such file"),
                        (["--against", "torch", "--clock", "device"], "--clock device"),
                        (["--against", "onnxruntime", "--python", "/nowhere"], "--python")):
        done = tessera_command("bench", network, *flags)
        assert done.status == 2 and "E0501" in done.err and word in done.err


def test_bench_stops_on_interrupt_and_leaves_nothing(network, tmp_path):
    (tmp_path / "tmp").mkdir()
    command = [BINARY, "bench", str(network), "--seconds", "60", "--threads", "1"]
    process = subprocess.Popen(command, env=dict(os.environ, TMPDIR=str(tmp_path / "tmp")), stderr=subprocess.PIPE)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 130
    assert not list((tmp_path / "tmp").iterdir())
