"""Launching: arguments of every kind, tensors of PyTorch, what is compiled and not launched, and what kernels say."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from cases import kernel, numbers

import tessera
import tessera.tile as triton
import tessera.tile.language as tl
from tessera.tile.runtime.jit import TensorWrapper, reinterpret


@triton.jit
def scales(x, z, n, factor, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(z + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)


def torch():
    return pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16",
                                   "uint32", "uint64"])
def test_tensors_of_pytorch(dtype):
    t = torch()
    x = t.arange(100).to(getattr(t, dtype))
    z = t.zeros(100, dtype=getattr(t, dtype))
    for _ in range(2):
        z.zero_()
        scales[(2,)](x, z, 100, 1, N=64)
        assert t.equal(x.to(t.float64), z.to(t.float64))


def test_bools_views_and_strides_of_pytorch():
    t = torch()
    x, z = t.arange(100) % 2 == 0, t.zeros(100, dtype=t.bool)
    scales[(2,)](x, z, 100, 1, N=64)
    assert t.equal(x, z)
    x = t.arange(400, dtype=t.float32).reshape(20, 20)
    scales[(1,)](x[3], x[7], 20, 2.0, N=32)
    assert t.equal(x[7], t.arange(60, 80, dtype=t.float32) * 2)
    x, z = t.arange(32, dtype=t.float32), t.zeros(32)
    scales[(1,)](x, z, 20, 2.0, N=32)  # like the launch before, but for where they lie
    assert t.equal(z[:20], x[:20] * 2) and not z[20:].any()
    scales[(1,)](x[:20], x, 20, 2.0, N=32)
    assert t.equal(x[:20], z[:20])


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2"])
def test_eight_bits_of_pytorch(kind):
    t = torch()
    x = t.randn(64).to(getattr(t, kind))
    z = t.zeros(64, dtype=t.float32)
    scales[(1,)](x.to(t.float32), z, 64, 1, N=64)
    other = t.zeros(64, dtype=getattr(t, kind))
    copies[(1,)](x, other, N=64)
    assert t.equal(other.view(t.uint8), x.view(t.uint8))
    bits = t.zeros(64, dtype=t.int8)
    copies[(1,)](x, reinterpret(bits, tl.float8e4nv if "e4" in kind else tl.float8e5), N=64)
    assert t.equal(bits.view(t.uint8), x.view(t.uint8))


@triton.jit
def copies(x, z, N: tl.constexpr):
    tl.store(z + tl.arange(0, N), tl.load(x + tl.arange(0, N)))


def test_arrays_as_other_elements():
    x, z = numbers(64, "float32"), np.zeros(64, np.int32)
    seen = reinterpret(z, tl.float32)
    assert isinstance(seen, TensorWrapper)
    copies[(1,)](x, seen, N=64)
    np.testing.assert_array_equal(z.view(np.float32), x)


def test_compiling_without_launching():
    made = scales.warmup(tl.float32, tl.float32, 100, 2.0, N=64, grid=(1,))
    assert "load" in made.asm["ttir"] and "define" in made.asm["llir"] and "kernel" in made.asm["kernel"]
    source = triton.compiler.ASTSource(fn=scales, signature={"x": "*fp16", "z": "*fp16", "n": "i32", "factor": "fp32"}, constexprs={"N": 32})
    assert "ptr<f16>" in triton.compile(source).asm["ttir"]


def test_what_a_kernel_knows_of_itself():
    assert scales.arg_names == ["x", "z", "n", "factor", "N"] and scales.src.startswith("def scales(")
    assert [p.is_constexpr for p in scales.params] == [False] * 4 + [True] and scales.__name__ == "scales"
    changed = triton.JITFunction(scales.fn)
    changed._unsafe_update_src(changed.src.replace("* factor", "+ factor"))
    x, z = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    changed[(1,)](x, z, 32, 2.0, N=32)
    np.testing.assert_array_equal(z, x + 2)


def test_options_of_a_launch():
    x, z = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    scales[(1,)](x, z, 32, 2.0, N=32, num_warps=4, num_stages=2, num_ctas=1, enable_fp_fusion=False)
    with pytest.raises(AssertionError, match="must be a power of 2"):
        scales[(1,)](x, z, 32, 2.0, N=32, num_warps=3)
    with pytest.raises(KeyError, match="unrecognised"):
        scales[(1,)](x, z, 32, 2.0, N=32, warps=4)
    with pytest.raises(TypeError):
        scales[(1,)](x, z, 32)
    seen = []
    hooked = triton.jit(scales.fn)
    hooked.add_pre_run_hook(lambda *args, **kwargs: seen.append(len(args)))
    hooked[lambda meta: (triton.cdiv(32, meta["N"]),)](x, z, 32, 2.0, N=32)
    assert seen == [4] and z[3] == 6
    scales[(0,)](x, z, 32, 5.0, N=32)
    assert z[3] == 6


@triton.jit
def scale(x, out, n, factor=2, BLOCK: tl.constexpr = 8):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)


@pytest.mark.parametrize("times", [1, 4])  # from the second on, Python is not asked
def test_arguments_of_later_launches(times):
    x = np.arange(20, dtype=np.float32)

    def launched(grid, *args, **kwargs):
        for _ in range(times):
            out = np.zeros_like(x)
            scale[grid](x, out, *args, **kwargs)
        return out

    assert (launched((3,), 20) == 2 * x).all()
    assert (launched(3, 20, 5) == 5 * x).all()
    assert (launched([3, 1], 20, factor=5) == 5 * x).all()
    assert (launched((2, 1, 1), BLOCK=16, factor=3, n=20) == 3 * x).all()
    assert (launched((2,), 20, -1, 16, num_warps=8, num_stages=2) == -x).all()
    assert (launched((3,), 20, 0.5) == 0.5 * x).all()
    assert (launched((0,), 20) == 0).all()
    assert (launched((3,), 13) == np.where(x < 13, 2 * x, 0)).all()
    asked = []

    def grid(meta):
        asked.append((meta["n"], meta["factor"], meta["BLOCK"]))
        return (triton.cdiv(meta["n"], meta["BLOCK"]),)

    assert (launched(grid, 20, BLOCK=4) == 2 * x).all()
    assert asked == times * [(20, 2, 4)]


def test_later_launches_that_are_wrong():
    x, out = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    for _ in range(2):
        scale[(1,)](x, out, 8)
        with pytest.raises(TypeError, match="missing a required argument"):
            scale[(1,)](x, out)
        with pytest.raises(TypeError, match="multiple values"):
            scale[(1,)](x, out, 8, n=8)
        with pytest.raises(TypeError, match="too many"):
            scale[(1,)](x, out, 8, 2, 8, 1)
        with pytest.raises(KeyError, match="unrecognised"):
            scale[(1,)](x, out, 8, colour=1)
        with pytest.raises(AssertionError, match="power of 2"):
            scale[(1,)](x, out, 8, num_warps=3)
        with pytest.raises(ZeroDivisionError):
            scale[lambda meta: (1 // 0,)](x, out, 8)


def test_launches_of_many_kinds_in_turn():
    seed = int.from_bytes(os.urandom(4), "little")
    print("seed", seed)
    rng = np.random.default_rng(seed)
    for _ in range(300):
        dtype = rng.choice([np.float32, np.float64, np.int32])
        x = rng.integers(-50, 50, 64).astype(dtype)
        out, n, block = np.zeros(64, dtype), int(rng.integers(1, 65)), int(rng.choice([8, 16, 64]))
        factor = rng.choice([-3, 1, 2, 16, 2**40] if dtype != np.int32 else [-3, 1, 2, 16]).item()
        grid = (-(-n // block), 1, 1)[:rng.integers(1, 4)]
        scale[grid](x, out, n, factor, BLOCK=block)
        np.testing.assert_array_equal(out, np.where(np.arange(64) < n, x * dtype(factor), 0))


@triton.jit
def length_of(z, TEXT: tl.constexpr):
    tl.store(z, len(TEXT))


def test_many_arguments_and_long_constants():
    names = [f"n{i}" for i in range(140)]
    add = kernel("""
        def add(z, NAMES):
            tl.store(z, SUM)""", NAMES=", ".join(names), SUM=" + ".join(names))
    z = np.zeros(1, np.int32)
    for first in (0, 5, 5):
        add[(1,)](z, *range(first, first + 140))
        assert z[0] == sum(range(first, first + 140))
    for letter in "aab":
        length_of[(1,)](z, letter * 3000 + "b")
        assert z[0] == 3001


def test_arguments_that_are_none_of_these():
    with pytest.raises(tessera.Error, match="kernels take arrays"):
        scales[(1,)](object(), np.zeros(1, np.float32), 1, 1.0, N=16)


@triton.jit
def not_whole(z, n, m):
    tl.store(z, n)
    tl.static_assert(not isinstance(n, tl.constexpr))
    tl.store(z + 1, m)


def test_numbers_that_are_not_specialised():
    z = np.zeros(2, np.int32)
    triton.jit(not_whole.fn, do_not_specialize=["n"])[(1,)](z, 1, 1)
    assert z.tolist() == [1, 1]


@triton.jit
def asserts(x, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.device_assert(tl.load(x + at) < 5, "too large", mask=at < N - 1)


def test_assertions_on_the_device():
    x = np.zeros(16, np.int32)
    checked = triton.jit(asserts.fn, debug=True)
    checked[(1,)](x, N=16)
    x[-1] = 9
    checked[(1,)](x, N=16)
    x[3] = 9
    asserts[(1,)](x, N=16)  # nothing is checked
    with pytest.raises(tessera.Error, match="too large"):
        checked[(2,)](x, N=16)
    with pytest.raises(tessera.Error, match="too large"):
        asserts[(1,)](x, N=16, debug=True)


def test_prints_on_the_device(tmp_path):
    path = tmp_path / "prints.py"
    path.write_text(textwrap.dedent("""
        import numpy as np
        import tessera.tile as triton
        import tessera.tile.language as tl

        @triton.jit
        def prints(x, N: tl.constexpr):
            at = tl.arange(0, N)
            v = tl.load(x + at)
            tl.device_print("x", v)
            tl.device_print("two", at, v * 2)
            print("pid ", tl.program_id(0))
            tl.device_print("h", v.to(tl.int32), hex=True)
            tl.device_print("nothing")

        prints[(1,)](np.arange(4, dtype=np.float32), N=4)
        """))
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "pid (0, 0, 0) idx (2) x: 2.000000" in lines and "pid (0, 0, 0) idx (3) two: (operand 1) 6.000000" in lines
    assert "pid (0, 0, 0) idx () pid: 0" in lines and "pid (0, 0, 0) idx (3) h: 0x00000003" in lines
    assert sum("nothing" in line for line in lines) == 1 and sum(" x: " in line for line in lines) == 4


def test_kernels_of_text():
    made = kernel("""
        def made(x):
            tl.store(x, VALUE)
        """, VALUE=7)
    x = np.zeros(1, np.int32)
    made[(1,)](x)
    assert x[0] == 7


@pytest.mark.parametrize("stage, text", [("tile", "tile scale("), ("kernel", "kernel scale("), ("llvm", "define"), ("asm", ".text")])
def test_stages_of_a_script(tmp_path, stage, text):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent("""
        import numpy as np
        import tessera.tile as triton
        import tessera.tile.language as tl

        @triton.jit
        def scale(x):
            tl.store(x, tl.load(x) * 2)

        print("of the script")
        scale[(1,)](np.ones(1, np.float32))
        """))
    words = [sys.executable, "-m", "tessera.tile", f"--emit={stage}", str(path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and text in done.stdout, done.stderr
    assert "of the script" in done.stderr and "of the script" not in done.stdout  # which a file or a pager takes
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=120)
    os.close(writer)
    assert done.returncode == 0 and done.stderr == "of the script\n"
