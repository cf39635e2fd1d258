"""Tile kernels as a GPU runs them, without one: thread by thread in the interpreter, and as PTX.

Runs a sample of the language's tests. All of them: TESSERA_INTERPRET=gpu pytest test/python/tile
"""

import os
import re
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
from cases import np_dtype, numbers, wide

import tessera.tile as triton
import tessera.tile.language as tl
from tessera.tile import _runtime
from tessera.tile.backends.compiler import GPUTarget

HERE = pathlib.Path(__file__).parent
GROUPS = ["test_reductions.py::test_scans", "test_shapes.py::test_sort", "test_products.py::test_batches"]


@pytest.mark.skipif(os.environ.get("TESSERA_INTERPRET") == "gpu" or os.environ.get("TESSERA_TILE_DEVICE") == "cuda",
                    reason="all tests run so")
@pytest.mark.parametrize("group", GROUPS)
def test_language_in_threads(group):
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / group)], text=True,
                          capture_output=True, env={**os.environ, "TESSERA_INTERPRET": "gpu"}, check=False)
    assert done.returncode in (0, 5), done.stdout[-3000:]  # 5: there is no such test


@triton.jit
def softmax(z, x, stride, n, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + columns, mask=columns < n, other=float("-inf"))
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(z + row * stride + columns, e / tl.sum(e, axis=0), mask=columns < n)


@pytest.mark.parametrize("warps", [1, 4, 8])
def test_ptx(warps):
    x = np.zeros((4, 512), np.float32)
    made = triton.compile(softmax, x, x.copy(), 512, 512, BLOCK=512, num_warps=warps)
    text = made.emit("ptx")
    assert ".entry" in text and f".maxntid 4, 8, {warps}" in text
    assert "shfl.sync.bfly" in text
    assert "on thread.z" in made.emit("blocks")


@triton.jit
def product(a, b, c, z, M, N, K, am, ak, bk, bn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, HOW: tl.constexpr):
    m, n, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(0, tl.cdiv(K, BK)):
        at = step * BK + k
        x = tl.load(a + m[:, None] * am + at[None, :] * ak, mask=(m[:, None] < M) & (at[None, :] < K), other=0.0)
        if HOW == "turned":
            y = tl.trans(tl.load(b + n[:, None] * bn + at[None, :] * bk, mask=(n[:, None] < N) & (at[None, :] < K), other=0.0))
        else:
            y = tl.load(b + at[:, None] * bk + n[None, :] * bn, mask=(at[:, None] < K) & (n[None, :] < N), other=0.0)
        sums = tl.dot(x, y, sums)
        if HOW == "used":
            sums += tl.sum(x.to(tl.float32), 1)[:, None]
    if HOW == "again":
        w = tl.load(c + tl.arange(0, BN)[:, None] * BN + tl.arange(0, BN)[None, :])
        e = tl.exp(sums - tl.max(sums, 1)[:, None])
        sums = tl.dot((e / tl.sum(e, 1)[:, None]).to(w.dtype), w)
    tl.store(z + m[:, None] * N + n[None, :], sums.to(z.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


# By instructions of four warps: rows along k or across, panels of 128, 64 and 32 bytes, tiles that hang over.
@pytest.mark.parametrize("size, tile, warps, turn, how, dtype, out", [
    ((64, 64, 64), (64, 64, 64), 4, (0, 0), "plain", "float16", "float16"),
    ((100, 96, 130), (64, 64, 64), 4, (0, 0), "plain", "float16", "float32"),
    ((128, 64, 70), (128, 64, 64), 4, (0, 1), "plain", "float16", "float16"),
    ((96, 80, 96), (64, 64, 32), 4, (0, 1), "plain", "float16", "float16"),
    ((64, 64, 48), (64, 64, 16), 4, (0, 0), "plain", "bfloat16", "float32"),
    ((72, 128, 100), (128, 128, 32), 8, (1, 0), "plain", "float16", "float16"),
    ((64, 128, 128), (64, 128, 64), 8, (1, 1), "plain", "float16", "float32"),
    ((64, 128, 70), (64, 128, 64), 8, (0, 0), "plain", "bfloat16", "float32"),
    ((128, 64, 128), (128, 64, 128), 8, (0, 1), "turned", "bfloat16", "bfloat16"),
    ((64, 64, 100), (64, 64, 64), 4, (0, 0), "used", "float16", "float32"),
    ((64, 64, 128), (64, 64, 64), 4, (0, 0), "again", "float16", "float32"),
    ((128, 128, 64), (128, 128, 64), 8, (0, 1), "again", "float16", "float16"),
])
@pytest.mark.parametrize("stages", [1, 3])
def test_products_of_four_warps(size, tile, warps, turn, how, dtype, out, stages, monkeypatch):
    if os.environ.get("TESSERA_TILE_DEVICE") != "cuda":
        monkeypatch.setenv("TESSERA_INTERPRET", "gpu")
    (m, n, k), (bm, bn, bk) = size, tile
    a, b = numbers((m, k), dtype), numbers((k, n), dtype, 1)
    c = numbers((bn, bn), dtype, 2)
    z = np.zeros((m, n), np_dtype(out))
    left, right = (a.T.copy() if turn[0] else a), (b.T.copy() if turn[1] else b)
    grid = (-(-m // bm), -(-n // bn))
    given = (left, right, c, z, m, n, k, *((1, m) if turn[0] else (k, 1)), *((1, k) if turn[1] else (n, 1)))
    named = {"BM": bm, "BN": bn, "BK": bk, "HOW": how, "num_warps": warps, "num_stages": stages}
    blocks = triton.compile(product, *given, grid=grid, **named).emit("blocks")
    assert "call wide_" in blocks and ("wide_own_" in blocks) == (how == "again")
    assert ("with brings=1" in blocks) == (stages > 1 and how != "used") or how == "used"
    product[grid](*given, **named)
    x, y = wide(a).astype(np.float64), wide(b).astype(np.float64)
    wanted = x @ y
    if how == "used":
        wanted += x.sum(1, keepdims=True)
    if how == "again":
        e = np.exp(wanted - wanted.max(1, keepdims=True))
        wanted = wide((e / e.sum(1, keepdims=True)).astype(np_dtype(dtype))).astype(np.float64) @ wide(c)
    close = 2e-2 if "bfloat16" in (dtype, out) else 4e-3
    np.testing.assert_allclose(wide(z).astype(np.float64), wanted, rtol=close, atol=close * np.abs(wanted).max())


@pytest.mark.parametrize("tile, warps", [((64, 64, 64), 8), ((64, 32, 64), 8), ((64, 128, 32), 16), ((128, 64, 16), 16)])
def test_warps_that_would_share_a_panel(tile, warps, monkeypatch):
    """Columns of a row of 128 bytes are not given to different groups of warps: each warp multiplies for itself then."""
    if os.environ.get("TESSERA_TILE_DEVICE") != "cuda":
        monkeypatch.setenv("TESSERA_INTERPRET", "gpu")
    bm, bn, bk = tile
    a, b = numbers((bm, 100), "float16"), numbers((100, bn), "float16", 1)
    z = np.zeros((bm, bn), np.float32)
    given = (a, b, b.copy(), z, bm, bn, 100, 100, 1, bn, 1)
    named = {"BM": bm, "BN": bn, "BK": bk, "HOW": "plain", "num_warps": warps}
    made = triton.compile(product, *given, target="sm_90a", **named)
    assert "call warps_" in made.emit("blocks") and "mma.sync" in made.emit("ptx")
    product[1,](*given, **named)
    wanted = wide(a).astype(np.float64) @ wide(b).astype(np.float64)
    np.testing.assert_allclose(z, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.parametrize("tile, warps, turn", [((128, 256, 64), 8, 0), ((128, 128, 64), 8, 0), ((128, 128, 64), 4, 1),
                                               ((64, 64, 32), 4, 0), ((256, 128, 64), 8, 1)])
def test_products_are_assembled(tile, warps, turn, tmp_path, monkeypatch):
    """No product waits for another."""
    monkeypatch.setenv("TESSERA_INTERPRET", "gpu")
    ptxas = shutil.which("ptxas", path=os.environ.get("PATH", "") + ":/usr/local/cuda/bin")
    if not ptxas:
        pytest.skip("NVIDIA's assembler is not installed")
    bm, bn, bk = tile
    a, b = np.zeros((512, 512), np.float16), np.zeros((512, 512), np.float16)
    made = triton.compile(product, a, b, a.copy(), b.copy(), 512, 512, 512, 512, 1, *((1, 512) if turn else (512, 1)),
                          BM=bm, BN=bn, BK=bk, HOW="plain", num_warps=warps, grid=(2, 2))
    (tmp_path / "made.ptx").write_text(made.emit("ptx"))
    done = subprocess.run([ptxas, "-arch=sm_90a", "-v", str(tmp_path / "made.ptx"), "-o", str(tmp_path / "made.cubin")],
                          text=True, capture_output=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0 and "wgmma.mma_async" in made.emit("ptx"), said
    assert "serialized" not in said, said


@triton.jit
def product_of_bytes(a, b, z, K, bk, bn, BK: tl.constexpr, SUM: tl.constexpr, TURN: tl.constexpr):
    m, n, k = tl.arange(0, 64), tl.arange(0, 64), tl.arange(0, BK)
    sums = tl.zeros((64, 64), dtype=SUM)
    for step in range(0, tl.cdiv(K, BK)):
        at = step * BK + k
        x = tl.load(a + m[:, None] * K + at[None, :])
        if TURN:
            y = tl.trans(tl.load(b + n[:, None] * bn + at[None, :] * bk))
        else:
            y = tl.load(b + at[:, None] * bk + n[None, :] * bn)
        sums += tl.dot(x, y)
    tl.store(z + m[:, None] * 64 + n[None, :], sums)


CORE = {"float8_e4m3fn": "f8e4m3fn", "float8_e5m2": "f8e5m2", "int8": "i8", "uint8": "u8"}


def close_sums():
    """A GPU keeps about 14 bits of sums of products of floats of 8 bits."""
    return 0.03 if os.environ.get("TESSERA_TILE_DEVICE") == "cuda" else 1e-4


@pytest.mark.parametrize("dtype, depth", [("float8_e4m3fn", 64), ("float8_e5m2", 128), ("int8", 64), ("int8", 256),
                                          ("uint8", 32)])
@pytest.mark.parametrize("turn", [False, True])
def test_products_of_bytes_are_matrix_instructions(dtype, depth, turn, monkeypatch):
    """All values of 8 bits are values of f16, and sums of their products are exact: also of the largest there are."""
    if os.environ.get("TESSERA_TILE_DEVICE") != "cuda":
        monkeypatch.setenv("TESSERA_INTERPRET", "gpu")
    rng, floats, k = np.random.default_rng(depth), dtype.startswith("float8"), 2 * depth
    if floats:
        a, b = (rng.standard_normal(s).astype(np_dtype(dtype)) for s in ((64, k), (k, 64)))
    else:
        low, high = (-128, 127) if dtype == "int8" else (0, 255)
        a, b = (rng.integers(low, high + 1, s).astype(dtype) for s in ((64, k), (k, 64)))
        a[:8], b[:, :8] = low or high, low or high
    z = np.zeros((64, 64), np.float32 if floats else np.int32)
    given = (a, np.ascontiguousarray(b.T) if turn else b, z, k, *((1, k) if turn else (64, 1)))
    named = {"BK": depth, "SUM": tl.float32 if floats else tl.int32, "TURN": turn, "num_warps": 4}
    made = triton.compile(product_of_bytes, *given, grid=(1,), **named)
    assert "call wide_" in made.emit("blocks") or "call warps_" in made.emit("blocks")
    assert "mma" in made.emit("ptx")
    assert (f"call wide_{CORE[dtype]}_" in made.emit("blocks")) == turn  # as they are, where they lie along k
    product_of_bytes[1,](*given, **named)
    wanted = wide(a).astype(np.float64) @ wide(b).astype(np.float64)
    np.testing.assert_allclose(z, wanted, rtol=1e-5 if floats else 0, atol=close_sums() if floats else 0)


@triton.jit
def product_in_parts(a, b, z, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, EVERY: tl.constexpr):
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    sums = tl.zeros((BM, BN), tl.float32)
    for step in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (step + k)[None, :])
        y = tl.load(b + n[None, :] * K + (step + k)[:, None], mask=(step + k)[:, None] < K, other=0.0)
        sums = tl.dot(x, y, sums, max_num_imprecise_acc=EVERY)
    tl.store(z + m[:, None] * BN + n[None, :], sums)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("every, shape, warps", [(None, (64, 64, 128), 4), (64, (64, 128, 128), 4), (32, (128, 128, 64), 8),
                                                 (0, (64, 32, 32), 4)])
def test_floats_of_8_bits_are_added_up_in_parts(dtype, every, shape, warps, tmp_path, monkeypatch):
    """Few digits of a sum are kept by the instructions: after so many products it is added to one of f32."""
    if os.environ.get("TESSERA_TILE_DEVICE") != "cuda":
        monkeypatch.setenv("TESSERA_INTERPRET", "gpu")
    (m, n, depth), rng = shape, np.random.default_rng(1)
    k = 2 * depth
    a, b = (rng.standard_normal(s).astype(np_dtype(dtype)) for s in ((m, k), (n, k)))
    z = np.zeros((m, n), np.float32)
    named = {"BM": m, "BN": n, "BK": depth, "EVERY": every, "num_warps": warps}
    made = triton.compile(product_in_parts, a, b, z, k, grid=(1,), target="sm_90a", **named)
    ptx = made.emit("ptx")
    assert f"call wide_{CORE[dtype]}_" in made.emit("blocks") and "cp.async.cg.shared.global" in ptx
    assert ptx.count("wgmma.commit_group") == (1 if every is None else depth // max(every, 32) * (m // 16 // warps or 1))
    product_in_parts[1,](a, b, z, k, **named)
    np.testing.assert_allclose(z, wide(a).astype(np.float64) @ wide(b).astype(np.float64).T, rtol=1e-5, atol=close_sums())
    ptxas = shutil.which("ptxas", path=os.environ.get("PATH", "") + ":/usr/local/cuda/bin")
    if ptxas:
        (tmp_path / "made.ptx").write_text(ptx)
        said = subprocess.run([ptxas, "-v", "-arch=sm_90a", str(tmp_path / "made.ptx"), "-o", str(tmp_path / "made.cubin")],
                              check=True, capture_output=True, text=True).stderr
        assert " 0 bytes spill stores" in said and "C75" not in said and "warning" not in said, said


@triton.jit
def product_of_words(a, b, z, K, bk, bn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, HOW: tl.constexpr):
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    sums = tl.zeros((BM, BN), tl.float32)
    for step in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (step + k)[None, :])
        y = tl.load(b + (step + k)[:, None] * bk + n[None, :] * bn)
        sums = tl.dot(x, y, sums, input_precision=HOW)
    tl.store(z + m[:, None] * BN + n[None, :], sums)


@pytest.mark.parametrize("how, along, shape, warps", [
    (None, True, (64, 64, 32), 4), (None, False, (64, 64, 32), 4), ("tf32", True, (128, 64, 64), 8),
    ("tf32", False, (32, 32, 16), 4), ("tf32x3", True, (64, 64, 32), 4), ("tf32x3", False, (64, 32, 16), 2),
    ("ieee", True, (64, 64, 32), 4)])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_products_of_words_are_matrix_instructions(how, along, shape, warps, target, tmp_path, monkeypatch):
    """Of f32, as Triton has it: by numbers of 19 bits, three products of them, or not at all."""
    monkeypatch.setenv("TESSERA_INTERPRET", "gpu")
    compile_tile, made = _runtime._tessera.compile_tile, []

    def for_target(program, arguments, rank, threads, _, num_warps, stages):
        made.append(compile_tile(program, arguments, rank, threads, target, num_warps, stages))
        return made[-1]

    monkeypatch.setattr(_runtime._tessera, "compile_tile", for_target)
    (m, n, depth), rng = shape, np.random.default_rng(2)
    k = 2 * depth
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (n, k) if along else (k, n)))
    z = np.zeros((m, n), np.float32)
    given, named = (a, b, z, k, *((1, k) if along else (n, 1))), {"BM": m, "BN": n, "BK": depth, "HOW": how}
    product_of_words._compiled.clear()
    product_of_words[1,](*given, **named, num_warps=warps)
    np.testing.assert_allclose(z, a.astype(np.float64) @ (b.T if along else b).astype(np.float64), rtol=1e-4, atol=1e-4)
    blocks, ptx = made[0].emit("blocks"), made[0].emit("ptx")
    wide = target == "sm_90a" and along and how in (None, "tf32")
    wanted = None if how == "ieee" else "wide_f32_" if wide else "warps_thrice_f32_" if how == "tf32x3" else "warps_f32_"
    assert ("mma" in ptx) == (wanted is not None) and (wanted is None or f"call {wanted}" in blocks)
    ptxas = shutil.which("ptxas", path=os.environ.get("PATH", "") + ":/usr/local/cuda/bin")
    if ptxas:
        (tmp_path / "made.ptx").write_text(ptx)
        said = subprocess.run([ptxas, "-v", f"-arch={target}", str(tmp_path / "made.ptx"), "-o", str(tmp_path / "made.cubin")],
                              check=True, capture_output=True, text=True).stderr
        assert how == "ieee" or int(re.search(r"(\d+) bytes spill stores", said)[1]) <= 64, said
        assert "C75" not in said and "warning" not in said, said


def test_more_imprecise_products_than_there_are():
    with pytest.raises(Exception, match="must be <= K"):
        x = np.zeros((64, 64), np_dtype("float8_e5m2"))
        product_in_parts[1,](x, x.copy(), np.zeros((64, 64), np.float32), 64, BM=64, BN=64, BK=64, EVERY=128)


def test_products_on_older_gpus(tmp_path):
    """Tiles are brought ahead there too, for instructions of one warp."""
    a, b = np.zeros((512, 512), np.float16), np.zeros((512, 512), np.float16)
    made = triton.compile(product, a, b, a.copy(), b.copy(), 512, 512, 512, 512, 1, 512, 1, BM=64, BN=64, BK=64, HOW="plain",
                          num_warps=4, num_stages=4, grid=(2, 2), target="sm_80")
    text = made.emit("ptx")
    assert all(part in text for part in ("mma.sync", "cp.async.cg", "cp.async.wait_group 2"))
    assert not any(part in text for part in ("wgmma", "fence.proxy", "griddepcontrol"))
    ptxas = shutil.which("ptxas", path=os.environ.get("PATH", "") + ":/usr/local/cuda/bin")
    if ptxas:
        (tmp_path / "made.ptx").write_text(text)
        subprocess.run([ptxas, "-arch=sm_80", str(tmp_path / "made.ptx"), "-o", str(tmp_path / "made.cubin")], check=True)


@pytest.mark.parametrize("target, code, part", [("sm_80", "sm_80", "mma.sync"), ("sm_90a", "sm_90a", "wgmma"),
                                                (GPUTarget("cuda", 86, 32), "sm_86", "mma.sync"),
                                                (GPUTarget("cuda", 87, 32), "sm_80", "mma.sync"),
                                                (GPUTarget("cuda", 89, 32), "sm_89", "mma.sync"),
                                                (GPUTarget("cuda", 90, 32), "sm_90a", "wgmma"),
                                                (GPUTarget("cuda", 100, 32), "sm_90", "mma.sync"),
                                                (GPUTarget("cuda", 120, 32), "sm_89", "mma.sync")])
def test_the_target_that_is_asked_for(target, code, part):
    """By its name, or by Triton's description; from types alone too, and with options."""
    a, b = np.zeros((64, 64), np.float16), np.zeros((64, 64), np.float16)
    sizes, named = (64, 64, 64, 64, 1, 64, 1), {"BM": 64, "BN": 64, "BK": 64, "HOW": "plain"}
    text = triton.compile(product, a, b, a, b.copy(), *sizes, **named, target=target, options={"num_warps": 4}).emit("ptx")
    assert f".target {code}\n" in text and part in text and ".maxntid 4, 8, 4" in text
    signature = {n: "*fp16" for n in "abcz"} | {n: "i32" for n in product.arg_names[4:11]}
    source = triton.compiler.ASTSource(product, signature, named)
    text = triton.compile(source, target=target, options={"num_warps": 8}).emit("ptx")
    assert f".target {code}\n" in text and ".maxntid 4, 8, 8" in text


@pytest.mark.parametrize("target, most", [("sm_80", 163), ("sm_86", 99), ("sm_89", 99), ("sm_90", 227), ("sm_90a", 227)])
@pytest.mark.parametrize("tile", [(256, 128, 64), (128, 128, 128), (256, 64, 128), (64, 64, 64)])
def test_tiles_find_room(tile, target, most):
    """Of tiles that are brought ahead there are as many as a block of that GPU has room for, or one."""
    a = np.zeros((512, 512), np.float16)
    bm, bn, bk = tile
    made = triton.compile(product, a, a.copy(), a.copy(), np.zeros((512, 512), np.float32), 512, 512, 512, 512, 1, 512, 1,
                          BM=bm, BN=bn, BK=bk, HOW="plain", num_warps=8, num_stages=4, grid=(2, 2), target=target)
    taken = int(re.search(r"(\d+) bytes of shared memory with the launch", made.emit("ptx"))[1])
    one = 2 * (bm + bn) * bk
    assert one <= taken <= most << 10 and (taken > (most << 10) - one - 4096 or taken >= 4 * one)


@pytest.mark.parametrize("target, says", [("sm_70", "sm_70"), ("vulkan", "vulkan"), (GPUTarget("cuda", 75, 32), "sm_75"),
                                          (GPUTarget("hip", "gfx942", 64), "GPUTarget of CUDA"), (7, "not 7")])
def test_targets_that_there_are_not(target, says):
    x = np.zeros((4, 512), np.float32)
    with pytest.raises(Exception, match=says):
        triton.compile(softmax, x, x.copy(), 512, 512, BLOCK=512, target=target)


@pytest.mark.skipif(os.environ.get("TESSERA_TILE_DEVICE") == "cuda", reason="all arrays are there")
def test_two_devices_at_once():
    class OnGpu:
        __cuda_array_interface__ = {"shape": (4,), "typestr": "<f4", "data": (4096, False), "version": 3}

    with pytest.raises(Exception, match="E0701"):
        softmax[(1,)](OnGpu(), np.zeros(4, np.float32), 4, 4, BLOCK=4)
