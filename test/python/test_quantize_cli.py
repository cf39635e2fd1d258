"""tessera calibrate and tessera quantize: files, tables and errors."""

import json

import numpy as np
import pytest
from quantized_models import cnn, images, model_of, snr

import tessera


@pytest.fixture
def files(tmp_path):
    (tmp_path / "model.onnx").write_bytes(cnn())
    data = np.concatenate(images(6))
    np.save(tmp_path / "x.npy", data)
    np.save(tmp_path / "half.npy", data[:3])
    np.save(tmp_path / "rest.npy", data[3:])
    np.save(tmp_path / "y.npy", tessera.load(tmp_path / "model.onnx")(data).argmax(1))
    return tmp_path


def test_profiles_merge_and_quantize(files, tessera_command):
    done = tessera_command("calibrate", "model.onnx", "--data", "x.npy", "-o", "all.json", "--json")
    assert done.status == 0, done.err
    assert done.json["samples"] == 6 and done.json["values"]["x"]["count"] == 6 * 3 * 256
    for part in ("half", "rest"):
        assert tessera_command("calibrate", "model.onnx", "--data", f"{part}.npy", "-o", f"{part}.json").status == 0
    assert tessera_command("calibrate", "--merge", "half.json", "--merge", "rest.json", "-o", "both.json").status == 0
    whole, merged = (json.loads((files / f"{n}.json").read_text()) for n in ("all", "both"))
    for name, value in whole["values"].items():
        assert {k: v for k, v in value.items() if k != "channel_sum"} == {k: v for k, v in merged["values"][name].items() if k != "channel_sum"}
    said = tessera_command("quantize", "model.onnx", "--profile", "both.json", "--data", "x.npy", "--labels", "y.npy", "-o", "int8.onnx", "--json").json
    assert said["quantized"] == 4 and said["accuracy"] == {"before": 1.0, "after": 1.0} and said["output_snr"]["y"] > 25
    assert [layer["node"] for layer in said["layers"]] == ["n1", "conv2", "depthwise", "classifier"] and all(layer["snr"] > 20 for layer in said["layers"])
    x = images(1, 60)[0]
    assert snr(tessera.load(files / "model.onnx")(x), tessera.load(files / "int8.onnx")(x)) > 25
    table = tessera_command("quantize", "model.onnx", "--profile", "all.json", "-o", "again.onnx", "--keep", "Gemm")
    assert "3 of 4 layers quantized" in table.out and "f32: kept by request" in table.out and "written to again.onnx" in table.out


def test_a_folder_of_runs(files, tessera_command):
    (files / "runs").mkdir()
    for i, x in enumerate(images(6)):
        np.savez(files / "runs" / f"{i}.npz", x=x)
    assert tessera_command("calibrate", "model.onnx", "--data", "runs", "-o", "runs.json").status == 0
    assert tessera_command("calibrate", "model.onnx", "--data", "x.npy", "-o", "all.json").status == 0
    assert (files / "runs.json").read_text() == (files / "all.json").read_text()
    limited = tessera_command("calibrate", "model.onnx", "--data", "runs", "--limit", 2, "-o", "few.json", "--json")
    assert limited.json["samples"] == 2
    np.savez_compressed(files / "runs" / "9.npz", x=images(1)[0])
    refused = tessera_command("calibrate", "model.onnx", "--data", "runs", "-o", "no.json")
    assert refused.status == 1 and "E0110" in refused.err and "compressed" in refused.err and not (files / "no.json").exists()
    whole = (files / "runs" / "0.npz").read_bytes()
    for cut in range(0, len(whole), 97):
        (files / "runs" / "9.npz").write_bytes(whole[:cut])
        refused = tessera_command("calibrate", "model.onnx", "--data", "runs", "-o", "no.json")
        assert refused.status == 1 and ("E0110" in refused.err or "E0102" in refused.err), cut


@pytest.mark.parametrize("words, status, code", [
    (("calibrate", "-o", "p.json"), 2, "E0501"), (("calibrate", "model.onnx", "-o", "p.json"), 2, "E0501"),
    (("calibrate", "model.onnx", "--data", "x.npy", "--random", 2, "-o", "p.json"), 2, "E0501"),
    (("calibrate", "--merge", "missing.json", "-o", "p.json"), 1, "E0101"), (("calibrate", "--merge", "model.onnx", "-o", "p.json"), 1, "E0110"),
    (("calibrate", "model.onnx", "--data", "y.npy", "-o", "p.json"), 1, "E040"),
    (("quantize", "model.onnx", "-o", "q.onnx"), 2, "E0501"), (("quantize", "model.onnx", "--data", "x.npy", "-o", "q.bin"), 2, "E0501"),
    (("quantize", "model.onnx", "--data", "x.npy", "--scheme", "best", "-o", "q.onnx"), 2, "E0501"),
    (("quantize", "plain.onnx", "--random", 1, "-o", "q.onnx"), 2, "E0501")])
def test_errors(files, tessera_command, words, status, code):
    import onnx
    (files / "plain.onnx").write_bytes(model_of([onnx.helper.make_node("Relu", ["x"], ["y"])], [("x", [4])], [("y", [4])], []))
    done = tessera_command(*words)
    assert done.status == status and code in done.err, done.err
    assert not any((files / name).exists() for name in ("p.json", "q.onnx", "q.bin"))
