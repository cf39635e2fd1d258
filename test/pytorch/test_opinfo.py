"""A part of PyTorch's own samples of core ATen ops, forward and backward (opinfo.py runs all of them)."""

import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent


def opinfo(*words):
    return subprocess.run([sys.executable, HERE / "opinfo.py", *words], capture_output=True, text=True)


def test_some_samples():
    done = opinfo("--every", "18", "--begin", "4", "--limit", "2", "--dtypes", "f32", "--expect", str(HERE / "opinfo_expected.txt"))
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert "0 wrong" in done.stdout and "new: none" in done.stdout


def test_sees_what_is_not_expected(tmp_path):
    expected = tmp_path / "expected.txt"
    expected.write_text("abs - f32: wrong: it is not\n")
    done = opinfo("--only", "abs", "--limit", "1", "--dtypes", "f32", "--evaluate", "--expect", str(expected))
    assert "fixed: {'abs - f32': 'wrong'}" in done.stdout
    done = opinfo("--only", "fft.fft", "--all", "--limit", "1", "--dtypes", "f32", "--evaluate", "--expect", str(expected))
    assert done.returncode == 1 and "fft.fft - f32: falls back" in done.stdout
