"""Models on the simulated accelerator: from Python and the command line, against the CPU's integers, and its profile."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from conftest import BINARY
from quantized_models import block, cnn, images, tokens
from test_report import in_browser, page_data

import tessera

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "models"))
import image_networks  # noqa: E402

# Layers that the accelerator computes: convolutions (additions are parts of them), pools and the classifier.
LAYERS = {"resnet18": 20 + 1 + 1, "mobilenet_v1": 27 + 1}


@pytest.fixture(scope="module", params=sorted(image_networks.NETWORKS))
def network(request, tmp_path_factory):
    """A whole network of small images and few channels: its name, its folder with int8.onnx, integer.onnx and x.npy."""
    folder = tmp_path_factory.mktemp(request.param)
    model = tessera.load(image_networks.NETWORKS[request.param](size=64, width=0.25, classes=10).SerializeToString())
    data = image_networks.images(3, 64)
    samples = [{"image": x[None]} for x in data]
    for name, form in (("int8", "qdq"), ("integer", "integer")):
        tessera.quantize(model, samples=samples, format=form)[0].save(folder / f"{name}.onnx")
    np.save(folder / "x.npy", data[:1])
    return request.param, folder


@pytest.fixture
def small(tmp_path):
    """The small network of the tests of quantization, of one image."""
    made = tessera.quantize(cnn(), samples=[{"x": x} for x in images(4)])[0].to_text().replace("[N,", "[1,")
    (tmp_path / "int8.tsr").write_text(made)
    np.save(tmp_path / "x.npy", images(1, 50)[0])
    return tmp_path / "int8.tsr"


def test_whole_networks_equal_the_cpu_in_every_bit(network):
    name, folder = network
    x = np.load(folder / "x.npy")
    integer = tessera.load(folder / "integer.onnx")
    want = integer(x)
    np.testing.assert_array_equal(tessera.compile(integer, cache="")(x), want)
    accelerated = tessera.compile(folder / "int8.onnx", target="tessel", keep_weights=True)
    np.testing.assert_array_equal(accelerated(x), want)
    np.testing.assert_array_equal(accelerated(x), want)  # nothing is left of the run before
    np.testing.assert_array_equal(tessera.compile(folder / "int8.onnx", target="tessel", virtual_threads=1)(x), want)
    assert len(np.unique(want)) > 5  # scores that tell images apart
    checked = dict(accelerated.check({"image": x}))
    last = "layer4.2.add" if name == "resnet18" else "block13.pointwise"
    assert checked[f"stem to {last}"] == 0 and checked["classifier"] == 0 and max(checked.values()) < 1e-6, checked


def test_cycles_of_whole_networks(network, tessera_command):
    name, folder = network
    done = tessera_command("profile", folder / "int8.onnx", "--target", "tessel", "--latency-hiding", "--json")
    assert done.status == 0, done.err
    found = done.json
    layers = [layer for part in found["parts"] for layer in part["layers"]]
    assert len(layers) == LAYERS[name]
    assert found["speedup_over_scalar"] >= 20 and found["cycles"] < found["cycles_without_virtual_threads"]
    assert found["cycles"] == sum(part["cycles"] for part in found["parts"])
    for part in found["parts"]:
        assert sum(layer["cycles"] for layer in part["layers"]) <= part["cycles"]
        assert sum(layer["matrix_cycles"] for layer in part["layers"]) == part["matrix_cycles"]
        assert set(part["units"]) == {"load", "compute", "store"}
        for unit in part["units"].values():
            assert 0 < unit["busy"] <= part["cycles"]
    macs = {layer["name"].split(" + ")[0]: layer["macs"] for layer in layers}
    assert macs["stem"] == 32 * 32 * (7 * 7 * 3 * 16 if name == "resnet18" else 3 * 3 * 3 * 8)
    assert macs["classifier"] == (128 if name == "resnet18" else 256) * 10


def test_the_command_line_runs_and_explains(small, tessera_command, tmp_path):
    run = tessera_command("run", small, "--input", "x=x.npy", "--output", "y=y.npy", "--target", "tessel")
    assert run.status == 0, run.err
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), tessera.compile(small, target="tessel")(np.load(tmp_path / "x.npy")))
    told = tessera_command("compile", small, "--target", "tessel", "--explain", "--json")
    why = {d["what"]: d["why"] for d in told.json["decisions"] if " on tessel" in d["what"]}
    assert sum(reason.startswith("yes: in part") for reason in why.values()) >= 4
    assert any(what.startswith("global_average_pool") and reason.startswith("no: ") for what, reason in why.items()), why
    checked = tessera_command("compile", small, "--target", "tessel", "--check")
    assert checked.status == 0 and "largest relative error" in checked.out, checked.err


def test_instructions_as_text(small, tessera_command, tmp_path):
    shown = tessera_command("compile", small, "--target", "tessel", "--emit", "device")
    assert shown.status == 0, shown.err
    lines = [line for line in shown.out.splitlines() if not line.startswith("//")]
    assert {line.split()[0] for line in lines} == {"load", "gemm", "alu", "store", "finish"}
    assert sum(line == "finish" for line in lines) == 2  # a program before the pooling, and one after it
    assert tessera_command("compile", small, "--target", "tessel", "--emit", "device", "-o", "i.txt").status == 0
    assert (tmp_path / "i.txt").read_text() == shown.out
    none = tessera_command("compile", small, "--emit", "device")
    assert none.status == 2 and "E0501" in none.err
    graph = tessera_command("compile", small, "--target", "tessel", "--stop-after", "offload")
    assert graph.status == 0 and graph.out.count("offload(") == 2


def described(folder, **changes):
    machine = json.loads((ROOT / "machines" / "tessel.json").read_text())
    for field, value in changes.items():
        if isinstance(value, dict):
            machine[field].update(value)
        else:
            machine[field] = value
    path = folder / "other.json"
    path.write_text(json.dumps(machine))
    return path


@pytest.mark.parametrize("changes", [{"array": {"inputs": 8, "outputs": 32}}, {"alu": False}], ids=["wide", "without-alu"])
def test_another_machine(small, tmp_path, tessera_command, changes):
    machine, x = described(tmp_path, name="other", **changes), np.load(tmp_path / "x.npy")
    want = tessera.compile(small, target="tessel")(x)
    np.testing.assert_array_equal(tessera.compile(small, target=f"tessel:{machine}")(x), want)
    done = tessera_command("profile", small, "--target", "tessel", "--machine", machine, "--json")
    assert done.status == 0 and done.json["parts"][0]["machine"] == "other", done.err


def test_a_layer_that_does_not_fit_stays_on_the_host(small, tmp_path, tessera_command):
    machine, x = described(tmp_path, name="tiny", scratchpads={"inp_rows": 4096, "wgt_tiles": 2, "acc_rows": 256, "uops": 64}), np.load(tmp_path / "x.npy")
    told = tessera_command("compile", small, "--target", "tessel", "--machine", machine, "--explain", "--json")
    assert told.status == 0, told.err
    why = [d["why"] for d in told.json["decisions"] if " on tiny" in d["what"]]
    assert any("fits tiny" in reason for reason in why) and any(reason.startswith("yes") for reason in why), why
    np.testing.assert_allclose(tessera.compile(small, target=f"tessel:{machine}")(x), tessera.compile(small, target="tessel")(x), rtol=1e-6)


def test_wrong_use_is_told(small, tmp_path, tessera_command):
    for words, code in ((["--target", "tessel", "--machine", "missing.json"], "E0101"), (["--machine", described(tmp_path)], "E0501"),
                        (["--target", "tessel", "--machine", "machine.txt"], "E0501"), (["--target", "tessel:x"], "E0603"),
                        (["--target", "tessel", "--machine", described(tmp_path, array={"inputs": 12})], "E0212")):
        done = tessera_command("compile", small, *words)
        assert done.status in (1, 2) and code in done.err, (words, done.err)
    with pytest.raises(ValueError, match="virtual_threads"):
        tessera.compile(small, target="tessel", virtual_threads=3)


def test_what_is_not_quantized_runs_on_the_host(tmp_path, tessera_command):
    x = images(1)[0]
    model = tessera.load(cnn())
    np.testing.assert_array_equal(tessera.compile(model, target="tessel", cache="")(x), tessera.compile(model, cache="")(x))
    dynamic = tessera.quantize(cnn(), samples=[{"x": x}])[0]  # the batch is N, known at the first run
    compiled = tessera.compile(dynamic, target="tessel")
    assert any("sizes are not constants" in why for _, why in compiled.report.decisions)
    assert np.abs(compiled(x) - dynamic(x)).max() < 0.1 * np.abs(dynamic(x)).max()
    dynamic.save(tmp_path / "dynamic.onnx")
    done = tessera_command("profile", "dynamic.onnx", "--target", "tessel", "--dim", "N=2")
    assert done.status == 0 and "matrix" in done.out, done.err
    (tmp_path / "m.onnx").write_bytes(cnn())
    done = tessera_command("profile", "m.onnx", "--target", "tessel", "--dim", "N=1", "--runs", "2")
    assert done.status == 0 and "all " in done.out, done.err  # of the host


def test_saved_and_loaded(small, tmp_path):
    x = np.load(tmp_path / "x.npy")
    compiled = tessera.compile(small, target="tessel")
    compiled.save(tmp_path / "m.tessera")
    np.testing.assert_array_equal(tessera.Executable.load(tmp_path / "m.tessera")(x), compiled(x))


def test_devices_name_it(tessera_command):
    assert "tessel" in tessera.compile_targets()
    listed = {d["target"]: d for d in tessera_command("devices", "--json").json["devices"]}
    assert "16x16" in listed["tessel"]["name"]


def test_the_table_of_a_profile(small, tessera_command):
    done = tessera_command("profile", small, "--target", "tessel", "--latency-hiding")
    assert done.status == 0, done.err
    assert "256 multiply-accumulates and 16 bytes a cycle, 100 MHz" in done.out and "one thread" in done.out
    assert done.out.count("matrix unit,") == 2 and done.out.count("\n  load ") == 2
    short = tessera_command("profile", small, "--target", "tessel", "--rows", "1")
    assert "more (--rows)" in short.out and "one thread" not in short.out
    refused = tessera_command("profile", small, "--target", "tessel", "--trace", "t.json")
    assert refused.status == 2 and "E0501" in refused.err


def test_the_page_of_a_profile(small, tessera_command, tmp_path):
    done = tessera_command("profile", small, "--target", "tessel", "--latency-hiding", "--report", "p.html", "--json")
    assert done.status == 0, done.err
    data = page_data(tmp_path / "p.html")
    assert data["cycles"] == done.json["cycles"] and len(data["steps"]) == sum(len(p["layers"]) for p in done.json["parts"])
    last = [0, 0, 0]
    for unit, begin, end, layer, text in data["spans"]:
        assert 0 <= begin < end <= data["cycles"] and 0 <= layer < len(data["steps"])
        assert data["instructions"][text].split()[0] in (("load",), ("gemm", "alu"), ("store",))[unit]
        assert begin >= last[unit]
        last[unit] = begin
    assert len(data["tokens"]) > 10
    for taker, (a, b) in ((t, (data["spans"][t[0]], data["spans"][t[1]])) for t in data["tokens"]):
        assert a[2] <= b[1] and abs(a[0] - b[0]) == 1, taker  # added before it is taken, by a neighbor
    verdict = in_browser(tmp_path / "p.html", tmp_path)
    assert verdict["steps"] == len(data["steps"]) and verdict["roof"] == 1 and verdict["hollow"] >= 1


def test_cycles_from_python(small, tessera_command):
    parts = tessera.compile(small, target="tessel").profile_devices()
    told = tessera_command("profile", small, "--target", "tessel", "--json").json["parts"]
    assert [(p.name, p.machine, p.cycles, p.matrix_cycles) for p in parts] == [(p["name"], p["machine"], p["cycles"], p["matrix_cycles"]) for p in told]
    assert [u.name for u in parts[0].units] == ["load", "compute", "store"]
    for part in parts:
        assert part.layers[0].begin == 0 and all(a.end == b.begin for a, b in zip(part.layers, part.layers[1:]))
        assert sum(layer.matrix_cycles for layer in part.layers) == part.matrix_cycles <= part.units[1].busy
    assert tessera.compile(small).profile_devices() == []


def test_whole_networks_of_whole_images():
    """What docs/accelerator.md says of ResNet-18 and MobileNet-v1 at 224x224, with all channels."""
    done = subprocess.run([sys.executable, ROOT / "bench" / "accelerator.py", "--tessera", BINARY, "--evaluate", "--markdown"],
                          capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in done.stdout.splitlines()[2:]]
    assert [row[0] for row in rows] == ["resnet18", "mobilenet_v1"]
    for name, macs, cycles, rate, one, scalar, fewer, equal in rows:
        assert equal == "CPU, evaluator" and float(fewer) >= 20
        assert int(cycles.replace(",", "")) < int(one.replace(",", ""))


def test_products_of_a_transformer(tmp_path):
    """Of matrices in a batch; the normalizations and the attention between them stay on the host."""
    quantized = {form: tessera.quantize(block(), samples=[{"x": x} for x in tokens(3)], format=form)[0].to_text().replace("[N,", "[2,")
                 for form in ("qdq", "integer")}
    x = np.concatenate(tokens(2, 30))
    accelerated = tessera.compile(tessera.parse(quantized["qdq"]), target="tessel")
    assert sorted(layer.name for part in accelerated.profile_devices() for layer in part.layers) == ["down", "key", "query", "up"]
    np.testing.assert_array_equal(accelerated(x), tessera.compile(tessera.parse(quantized["integer"]), cache="")(x))
