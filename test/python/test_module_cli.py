"""The command that the Python package brings: the same as the program."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
from conftest import BINARY

RELU = "graph g(x: f32[N,3]) {\n  return relu(x)\n}\n"
COMMANDS = [[sys.executable, "-m", "tessera"], [str(pathlib.Path(sys.executable).parent / "tessera")]]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "relu.tsr").write_text(RELU)
    return tmp_path


def run(command, *words, cwd, **kwargs):
    return subprocess.run([*command, *map(str, words)], cwd=cwd, capture_output=True, text=True, timeout=120, **kwargs)


@pytest.mark.parametrize("words", [
    ["--version"], ["version", "--json"], ["ops", "Relu"], ["inspect", "relu.tsr", "--json"], ["convert", "relu.tsr", "-"], ["--help"],
    ["rules", "list"], ["run", "missing.onnx"], ["rn"], [], ["run", "relu.tsr", "--threads", "-1"], ["run", "missing.onnx", "--json"],
], ids=lambda words: " ".join(words) or "nothing")
def test_it_says_what_the_program_says(folder, words):
    program = run([BINARY], *words, cwd=folder)
    for command in COMMANDS:
        done = run(command, *words, cwd=folder)
        assert (done.returncode, done.stdout, done.stderr) == (program.returncode, program.stdout, program.stderr)


def test_it_computes_and_writes_files(folder):
    done = run(COMMANDS[1], "run", "relu.tsr", "--random", "--dim", "N=2", cwd=folder)
    assert done.returncode == 0 and "f32[2,3]" in done.stdout, done.stderr
    done = run(COMMANDS[1], "convert", "relu.tsr", "m.onnx", cwd=folder)
    assert done.returncode == 0 and (folder / "m.onnx").stat().st_size > 0


def test_bench_starts_itself_again(folder):
    done = run(COMMANDS[1], "bench", "relu.tsr", "--dim", "N=2", "--threads", "1", "--seconds", "0", "--runs", "1", cwd=folder)
    assert done.returncode == 0 and "tessera" in done.stdout, done.stderr


def test_tile_uses_this_python(folder):
    (folder / "empty.py").write_text("import sys\nprint('script ran in', sys.prefix, file=sys.stderr)\n")
    done = run(COMMANDS[1], "tile", "empty.py", cwd=folder, env=dict(os.environ, PATH="/nonexistent"))
    assert f"script ran in {sys.prefix}" in done.stderr


def test_ctrl_c(folder):
    reader, writer = os.pipe()  # an input on which nothing comes
    process = subprocess.Popen([*COMMANDS[1], "inspect", "-"], cwd=folder, stdin=reader, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(3)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    os.close(reader)
    os.close(writer)
    assert process.returncode == 130 and err.startswith("error E0410: interrupted") and err.count("\n") == 1


def test_pipes_end_as_those_of_the_program(folder):
    def piped(command):
        done = subprocess.run(["bash", "-c", '"$@" | head -n 1; exit ${PIPESTATUS[0]}', "bash", *command, "ops"], cwd=folder,
                              capture_output=True, text=True, timeout=120)
        return done.stdout, done.stderr
    assert piped(COMMANDS[1]) == piped([BINARY])
