"""docs/api/python.md is what the sources give."""

import re
import subprocess
import sys

from conftest import ROOT

import tessera

PAGE = ROOT / "docs" / "api" / "python.md"


def test_the_page_is_up_to_date():
    done = subprocess.run([sys.executable, ROOT / "tools" / "python_reference.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_on_it():
    text = PAGE.read_text()
    for name in tessera.__all__:
        assert f"### {name}\n" in text, name
    for call in ("compile(model", "Model.run(", "Executable.save(path", "InferenceSession.run(", "Schedule.split(loop"):
        assert call in text, call


def test_code_fences_are_closed_and_lines_fit():
    text = PAGE.read_text()
    assert len(re.findall(r"^```", text, re.MULTILINE)) % 2 == 0
    assert max(map(len, text.splitlines())) <= 140
