"""What becomes of kernels, shown: counts by line, and pictures of layouts."""

import os
import re
import subprocess
import sys
import textwrap
from xml.etree import ElementTree

import pytest

SCRIPT = textwrap.dedent("""
    import numpy as np
    import tessera.tile as triton
    import tessera.tile.language as tl

    @triton.jit
    def half(v):
        return v * 0.5

    @triton.jit
    def smooth(x, y, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        total = tl.zeros((BLOCK,), tl.float32)
        for k in range(0, n, 2):
            total += tl.load(x + at + k)
        tl.store(y + at, half(total))

    x, y = np.ones(80, np.float32), np.zeros(64, np.float32)
    for _ in range(3):
        smooth[(4,)](x, y, 10, BLOCK=16)
    assert (y == 2.5).all()
    """)


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def counts(text):
    """The numbers before each line of the kernel, by the line."""
    found = {}
    for line in text.splitlines():
        # Five columns of nine characters, the line's number, the line.
        if len(line) > 52 and line[47:51].strip().isdigit():
            found[line[52:].strip()] = [line[9 * i:9 * i + 8].strip() for i in range(5)]
    return found


def test_counts_of_each_line(script, tessera_command):
    done = tessera_command("tile", "--python", sys.executable, "--profile", script)
    assert done.status == 0, done.err
    assert re.search(r"smooth: 3 launches of 4 instances, \d+ us each; [\d.]+ GB/s, [\d.]+ GFLOP/s", done.out)
    found = counts(done.out)
    # 3 launches of 4 instances of 16 elements, 5 times around.
    assert found["total += tl.load(x + at + k)"] == ["960", "3.8 k", "", "", "960"]
    assert found["tl.store(y + at, half(total))"] == ["", "", "192", "768", ""]
    assert found["return v * 0.5"] == ["", "", "", "", "192"]
    assert found["at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)"] == [""] * 5


def test_a_loop_of_unknown_length_is_said(script, tessera_command):
    script.write_text(SCRIPT.replace("range(0, n, 2)", "range(0, tl.load(x).to(tl.int32) * 10, 2)"))
    done = tessera_command("tile", "--python", sys.executable, "--profile", "--kernel", "smooth", script)
    assert done.status == 0, done.err
    assert "how often is not known" in done.out
    assert tessera_command("tile", "--python", sys.executable, "--profile", "--kernel", "none", script).status == 1


def elements(picture):
    """Of each element of the first tile, by its row and column: the thread that has it, and its number there."""
    found = {}
    for title in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}title"):
        row, begin, end, thread, first, last = map(int, re.findall(r"-?\d+", title.text))
        assert end - begin == last - first
        for column in range(begin, end + 1):
            if (row, column) in found:
                return found
            found[row, column] = thread, first + column - begin
    return found


def test_pictures_of_layouts(script, tmp_path):
    done = subprocess.run([sys.executable, "-m", "tessera.tile", "--emit=layouts", "--out", tmp_path, script],
                          capture_output=True, text=True, timeout=120, env={**os.environ})
    assert done.returncode == 0, done.stderr
    picture = (tmp_path / "smooth.svg").read_text()
    assert "[16]: 16 threads of 4 warps, 1 elements each" in picture
    assert elements(picture) == {(0, c): (c, 0) for c in range(16)}


def test_each_element_has_one_thread():
    import numpy as np
    import tessera.tile as triton
    import tessera.tile.language as tl

    @triton.jit
    def turn(x, y, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        v = tl.load(x + at[:, None] * BLOCK + at[None, :])
        tl.store(y + at[None, :] * BLOCK + at[:, None], v)

    x = np.zeros((32, 32), np.float32)
    picture = triton.compile(turn, x, x.copy(), BLOCK=32).emit("layouts")
    tiles = re.split(r"(?=<text [^>]*class=\"title\")", picture.replace("</svg>", ""))
    whole = next(t for t in tiles if "[32, 32]: 128 threads" in t)
    found = elements(f'<svg xmlns="http://www.w3.org/2000/svg">{whole}</svg>')
    assert len(found) == len(set(found.values())) == 32 * 32
    assert {thread for thread, _ in found.values()} == set(range(128))
