"""Kernels that are kept: in the cache from one process to the next, and as objects for programs of C."""

import os
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest

SCRIPT = textwrap.dedent("""
    import sys
    import numpy as np
    import tessera.tile as triton
    import tessera.tile.language as tl

    @triton.jit
    def axpy(x, y, a, double, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        v = a * tl.load(x + at, mask=at < double) + tl.load(y + at, mask=at < double)
        tl.store(y + at, v, mask=at < double)

    n = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    x, y = np.arange(n, dtype=np.float32), np.ones(n, np.float32)
    axpy[(triton.cdiv(n, 128),)](x, y, 2.0, n, BLOCK=128)
    assert np.array_equal(y, 2 * x + 1)
    """)

USE = textwrap.dedent("""
    #include <stdio.h>
    #include "axpy.h"
    int main(void) {
        static float x[777], y[777];
        int i, part;
        for (i = 0; i < 777; ++i) x[i] = i, y[i] = 1;
        if (axpy(7, 1, 1, x, 777, y, 777, 2.0f, 777)) return 1;
        for (part = 0; part < 3; ++part)
            if (axpy_part(7, 1, 1, x, 777, y, 777, 3.0f, 777, part, 3)) return 2;
        if (axpy(-1, 1, 1, x, 777, y, 777, 2.0f, 777) != 1 || axpy_part(7, 1, 1, x, 777, y, 777, 2.0f, 777, 3, 3) != 1)
            return 3;
        for (i = 0; i < 777; ++i)
            if (y[i] != 5.0f * i + 1) return 4;
        puts("right");
        return 0;
    }
    """)


def run(*words, **environment):
    return subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=120, env={**os.environ, **environment})


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def test_code_is_kept_from_one_process_to_the_next(script, tmp_path):
    cache = tmp_path / "cache"
    assert run(sys.executable, script, TESSERA_CACHE=cache).returncode == 0
    kept = {p: p.stat().st_mtime_ns for p in cache.rglob("*") if p.is_file()}
    assert len(kept) == 1
    assert run(sys.executable, script, TESSERA_CACHE=cache).returncode == 0
    assert {p for p in cache.rglob("*") if p.is_file()} == kept.keys()
    damaged = next(iter(kept))
    damaged.write_bytes(damaged.read_bytes()[:100])
    assert run(sys.executable, script, TESSERA_CACHE=cache).returncode == 0
    script.write_text(SCRIPT.replace("a * tl.load", "a + a * tl.load").replace("2 * x + 1", "2 * x + 3"))
    done = run(sys.executable, script, TESSERA_CACHE=cache)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a compiler of C")
def test_objects_for_c(script, tmp_path, tessera_command):
    done = tessera_command("tile", "--python", sys.executable, "--emit=object", "--out", tmp_path / "made", script, "640")
    assert done.status == 0 and done.out.split() == [str(tmp_path / "made" / name) for name in ("axpy.o", "axpy.h")]
    (tmp_path / "use.c").write_text(USE)
    built = run("cc", "-std=c99", "-Wall", "-Werror", "-I", tmp_path / "made", tmp_path / "use.c", tmp_path / "made" / "axpy.o",
                "-lm", "-o", tmp_path / "use")
    assert built.returncode == 0, built.stderr
    assert run(tmp_path / "use").stdout == "right\n"


def test_objects_for_other_processors(script, tmp_path):
    machines = {"aarch64-neon": 183, "x86_64-avx2": 62}
    for target, machine in machines.items():
        done = run(sys.executable, "-m", "tessera.tile", "--emit=object", f"--target={target}", "--out", tmp_path / target, script)
        assert done.returncode == 0, done.stderr
        code = (tmp_path / target / "axpy.o").read_bytes()
        assert code[:4] == b"\x7fELF" and code[18] == machine


@pytest.mark.parametrize("old, new, said", [
    ("    tl.store", "    tl.device_print('v', v)\n    tl.store", "prints or asserts"),
    ("(x, y, 2.0", "(y, y, 2.0", "shares the memory"),
])
def test_what_cannot_be_kept_is_said(script, tmp_path, old, new, said):
    script.write_text(SCRIPT.replace(old, new, 1).split("assert")[0])
    done = run(sys.executable, "-m", "tessera.tile", "--emit=object", "--out", tmp_path, script)
    assert done.returncode == 1 and said in done.stderr and not (tmp_path / "axpy.o").exists()


def test_wrong_usage_of_the_command(script, tessera_command):
    for words, said in [([], "no script is given"), (["none.py"], "none.py"), (["--emit=ptxas", script], "ptxas"),
                        (["--python", "no-such-python", script], "no-such-python")]:
        done = tessera_command("tile", *words)
        assert done.status in (1, 2) and said in done.err
    silent = tessera_command("tile", "--python", sys.executable, "--kernel", "other", script)
    assert silent.status == 1 and "no kernel called other" in silent.err


@pytest.mark.skipif(os.environ.get("TESSERA_TILE_DEVICE") == "cuda", reason="a GPU has threads enough instead")
def test_rows_are_fetched_while_others_are_computed():
    """Of the next instance what it reads, of this one what it writes; and nothing of rows that are short."""
    import tessera.tile as triton
    import tessera.tile.language as tl

    @triton.jit
    def softmax(z, x, n, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        v = tl.load(x + tl.program_id(0) * n + at)
        e = tl.exp(v - tl.max(v, axis=0))
        tl.store(z + tl.program_id(0) * n + at, e / tl.sum(e, axis=0))

    x = np.random.default_rng(0).standard_normal((3, 2048)).astype(np.float32)
    z = np.empty_like(x)
    text = softmax[(3,)](z, x, 2048, BLOCK=2048).emit("kernel")
    e = np.exp(x.astype(np.float64))  # of any size: the quotient is the same
    np.testing.assert_allclose(z, e / e.sum(1, keepdims=True), rtol=1e-5)
    fetched = [line for line in text.splitlines() if "call prefetch(" in line]
    assert len(fetched) == 1 and "z[" in fetched[0].split(";")[0] and "x[" in fetched[0].split(";")[1], text
    assert "prefetch" not in softmax[(3,)](z, x, 64, BLOCK=64).emit("kernel")
