"""tessera train: what it learns, says and leaves behind, and bad input."""

import re
import signal
import subprocess
import time
import xml.etree.ElementTree

import kill_training
import numpy as np
import pytest
from conftest import BINARY
from test_training import mlp

import tessera


@pytest.fixture
def files(tmp_path):
    """Two classes that a line separates, in 300 examples to learn from and 100 held out."""
    mlp((4, 16, 2)).save(tmp_path / "model.onnx")
    x = np.random.default_rng(0).standard_normal((400, 4)).astype(np.float32)
    y = (x @ [1, -2, 0.5, 1] > 0.2).astype(np.int64)
    for name, rows in (("", slice(0, 300)), ("held_", slice(300, 400))):
        np.save(tmp_path / f"{name}x.npy", x[rows])
        np.save(tmp_path / f"{name}y.npy", y[rows].astype(np.uint8))
    return tmp_path


COMMON = ("train", "model.onnx", "--data", "x.npy,target=y.npy", "--threads", 1)


def test_learns_and_writes_what_it_says(files, tessera_command):
    done = tessera_command(*COMMON, "--evaluate", "held_x.npy,held_y.npy", "--epochs", 8, "--lr", 0.02, "--out", "trained.onnx",
                           "--svg", "loss.svg", "--json")
    assert done.status == 0, done.err
    said = done.json
    assert said["steps"] == said["updates"] == 80 and said["skipped"] == 0 and said["parameters"] == 4 * 16 + 16 + 32 + 2
    assert len(said["epochs"]) == 8 and said["epochs"][-1]["loss"] < 0.2 < said["epochs"][0]["loss"]
    assert said["epochs"][-1]["accuracy"] > 0.93 and len(said["losses"]["points"]) == 80
    y = tessera.load(files / "trained.onnx")(np.load(files / "held_x.npy"))
    assert np.mean(y.argmax(1) == np.load(files / "held_y.npy")) == said["epochs"][-1]["accuracy"]
    picture = xml.etree.ElementTree.parse(files / "loss.svg").getroot()
    points = next(e for e in picture.iter() if e.tag.endswith("polyline")).get("points").split()
    assert len(points) == 80
    again = tessera_command(*COMMON, "--evaluate", "held_x.npy,held_y.npy", "--epochs", 8, "--lr", 0.02, "--out", "again.onnx")
    assert again.out.count("accuracy") == 8 and "█" in again.out and "written to again.onnx" in again.out
    assert (files / "again.onnx").read_bytes() == (files / "trained.onnx").read_bytes()
    other = tessera_command(*COMMON, "--epochs", 1, "--seed", 5, "--out", "other.onnx", "--json").json
    assert other["losses"]["points"][0] != said["losses"]["points"][0]


def test_goes_on_after_ctrl_c(files, tessera_command):
    options = ("--epochs", 2000, "--checkpoint", "run.safetensors", "--json")
    process = subprocess.Popen([BINARY, *map(str, COMMON), *map(str, options)], cwd=files, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (files / "run.safetensors").exists() and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode in (1, 130) and "E0410" in err, (out, err)
    short = ("--epochs", 1, "--checkpoint", "run.safetensors", "--resume", "--json")
    assert tessera_command(*COMMON, *short).status == 0
    changed = tessera_command(*COMMON, *short, "--batch", 16)
    assert changed.status == 2 and "--batch 32" in changed.err


def test_killed_runs_end_as_others():
    assert kill_training.check(kills=6, seed=1) >= 1


def test_bad_input(files, tessera_command):
    np.save(files / "short.npy", np.zeros(7, np.int64))
    np.save(files / "wrong.npy", np.full(300, 2))
    np.save(files / "floats.npy", np.zeros(300))
    cases = [(("--data", "x.npy,short.npy"), "E0405.*7 examples"), (("--data", "x.npy,wrong.npy"), "E0406"),
             (("--data", "x.npy,floats.npy"), "E0403"), (("--data", "x.npy,y.npy,y.npy"), "E0501.*no input 3"),
             (("--data", "z=x.npy"), "E0501.*\"z\""), (("--data", "x.npy"), "E0402"), (("--data", "none.npy,y.npy"), "E01"),
             (("--optimizer", "sdg"), "E0501.*no optimizer"), (("--loss", "nll"), "E0501.*no loss"), (("--resume",), "E0501.*--checkpoint"),
             (("--momentum", "0.9"), "E0501.*sgd"), (("--checkpoint", "x.npy", "--resume"), "E0110")]
    for options, message in cases:
        given = [*COMMON, "--out", "trained.onnx", *options]
        if options[0] == "--data":
            given = ["train", "model.onnx", "--out", "trained.onnx", *options]
        done = tessera_command(*given)
        assert done.status in (1, 2) and re.search(message, done.err), (options, done.err)
    done = tessera_command(*COMMON)
    assert done.status != 0 and "--out" in done.err
    assert not (files / "trained.onnx").exists()
