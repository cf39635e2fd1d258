"""Products of tiles: types, shapes, batches, accumulators, scales; and floats of eight bits."""

import os
import re

import ml_dtypes
import numpy as np
import pytest
from cases import TILE, np_dtype, numbers, sample, wide

import tessera.tile as triton
import tessera.tile.language as tl

KINDS = ["float32", "float16", "bfloat16", "int8", "float64", "float8_e4m3fn", "float8_e5m2"]


@triton.jit
def product(a, b, c, z, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, HOW: tl.constexpr, OUT: tl.constexpr,
            PRECISION: tl.constexpr, TURN_A: tl.constexpr, TURN_B: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    if TURN_A:
        x = tl.trans(tl.load(a + k[:, None] * M + m[None, :]))
    else:
        x = tl.load(a + m[:, None] * K + k[None, :])
    if TURN_B:
        y = tl.load(b + n[:, None] * K + k[None, :]).T
    else:
        y = tl.load(b + k[:, None] * N + n[None, :])
    at = m[:, None] * N + n[None, :]
    if HOW == "add":
        r = tl.dot(x, y, acc=tl.load(c + at), input_precision=PRECISION, out_dtype=OUT)
    elif HOW == "softmax":
        r = tl.dot(x, y, out_dtype=OUT)
        e = tl.exp((r - tl.max(r, 1)[:, None]).to(tl.float32))
        r = (e / tl.sum(e, 1)[:, None]).to(OUT)
    elif HOW == "chain":
        r = tl.dot(x, y, out_dtype=tl.float32)
        r = tl.dot(r.to(x.dtype), tl.load(c + n[:, None] * N + n[None, :]).to(x.dtype), out_dtype=OUT)
    else:
        r = tl.dot(x, y, input_precision=PRECISION, out_dtype=OUT)
        if HOW == "rows":
            r += tl.load(c + m)[:, None].to(OUT)
        elif HOW == "columns":
            r += tl.load(c + n)[None, :].to(OUT)
    tl.store(z + at, r)


def factors(m, n, k, dtype):
    if dtype == "int8":
        return numbers((m, k), dtype, 0, -10, 10), numbers((k, n), dtype, 1, -10, 10)
    return numbers((m, k), dtype), numbers((k, n), dtype, 1)


@pytest.mark.parametrize("dtype, how, size, turn", sample(80, KINDS, ["plain", "add", "rows", "columns", "softmax", "chain"],
                         [(16, 16, 16), (32, 64, 16), (64, 32, 32), (16, 128, 64), (128, 16, 32), (8, 8, 8), (1, 4, 8), (2, 2, 2)],
                         [(False, False), (True, False), (False, True), (True, True)]))
def test_products(dtype, how, size, turn):
    m, n, k = size
    out = "int32" if dtype == "int8" else "float64" if dtype == "float64" else "float32"
    if dtype == "int8" and how in ("softmax", "chain") or dtype == "float64" and how == "chain":
        pytest.skip("of floats")
    a, b = factors(m, n, k, dtype)
    c = numbers((m, n) if how == "add" else (n, n) if how == "chain" else (max(m, n),), out, 2, *((-5, 5) if out == "int32" else ()))
    z = np.zeros((m, n), out)
    x, y = wide(a).astype(np.float64), wide(b).astype(np.float64)
    wanted = x @ y
    if how == "add":
        wanted = wanted + c
    elif how == "rows":
        wanted = wanted + c[:m, None]
    elif how == "columns":
        wanted = wanted + c[None, :n]
    elif how == "softmax":
        e = np.exp(wanted - wanted.max(1, keepdims=True))
        wanted = e / e.sum(1, keepdims=True)
    elif how == "chain":
        wanted = wide(wanted.astype(np.float32).astype(np_dtype(dtype))).astype(np.float64) @ wide(c.astype(np_dtype(dtype))).astype(np.float64)
    left, right = (a.T.copy() if turn[0] else a), (b.T.copy() if turn[1] else b)
    product[(1,)](left, right, c, z, M=m, N=n, K=k, HOW=how, OUT=TILE[out], PRECISION="ieee", TURN_A=turn[0], TURN_B=turn[1])
    tolerance = 1e-9 if dtype == "float64" and how != "softmax" else 5e-2 if how == "chain" and dtype != "float32" else 2e-3
    if dtype.startswith("float8") and how == "chain":
        tolerance = 1.0
    np.testing.assert_allclose(z, wanted, rtol=tolerance, atol=tolerance * max(1, np.abs(wanted).max()))


@pytest.mark.parametrize("precision", ["ieee", "tf32", "tf32x3", None])
@pytest.mark.parametrize("out", ["float32", "float16"])
def test_precisions(precision, out):
    a, b = factors(32, 32, 32, "float16")
    z = np.zeros((32, 32), out)
    product[(1,)](a, b, z, z, M=32, N=32, K=32, HOW="plain", OUT=TILE[out], PRECISION=precision, TURN_A=False, TURN_B=False)
    np.testing.assert_allclose(z, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-2, atol=2e-2)


def test_shapes_that_do_not_fit():
    a, b = factors(16, 16, 16, "float32")
    with pytest.raises(triton.CompilationError, match="one of"):
        product[(1,)](a, b, a, a, M=16, N=16, K=16, HOW="plain", OUT=tl.float32, PRECISION="most", TURN_A=False, TURN_B=False)


@triton.jit
def batches(a, b, z, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, ADD: tl.constexpr):
    s, m, n, k = tl.arange(0, B)[:, None, None], tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + s * M * K + m[None, :, None] * K + k[None, None, :])
    y = tl.load(b + s * K * N + k[None, :, None] * N + n[None, None, :])
    r = tl.dot(x, y, tl.full((B, M, N), 1, z.dtype.element_ty)) if ADD else tl.dot(x, y)
    tl.store(z + s * M * N + m[None, :, None] * N + n[None, None, :], r)


@pytest.mark.parametrize("dtype, size, add", sample(40, ["float32", "float16", "int8", "bfloat16"],
                         [(1, 16, 16, 16), (2, 32, 16, 64), (4, 16, 64, 32), (8, 32, 32, 16)], [False, True]))
def test_batches(dtype, size, add):
    count, m, n, k = size
    a = np.stack([factors(m, n, k, dtype)[0]] * count) if dtype == "int8" else numbers((count, m, k), dtype)
    b = np.stack([factors(m, n, k, dtype)[1]] * count) if dtype == "int8" else numbers((count, k, n), dtype, 1)
    z = np.zeros((count, m, n), np.int32 if dtype == "int8" else np.float32)
    batches[(1,)](a, b, z, B=count, M=m, N=n, K=k, ADD=add)
    np.testing.assert_allclose(z, wide(a).astype(np.float64) @ wide(b).astype(np.float64) + add, rtol=1e-3, atol=1e-3)


@triton.jit
def scaled(a, sa, b, sb, z, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, FA: tl.constexpr, FB: tl.constexpr, PA: tl.constexpr,
           PB: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    ka, kb, ks = tl.arange(0, K // PA), tl.arange(0, K // PB), tl.arange(0, K // 32)
    x = tl.load(a + m[:, None] * (K // PA) + ka[None, :])
    y = tl.load(b + kb[:, None] * N + n[None, :])
    left = None if sa is None else tl.load(sa + m[:, None] * (K // 32) + ks[None, :])
    right = None if sb is None else tl.load(sb + n[:, None] * (K // 32) + ks[None, :])
    tl.store(z + m[:, None] * N + n[None, :], tl.dot_scaled(x, left, FA, y, right, FB))


def quantized(shape, form, seed, along):
    """Elements as they are given, and their numbers."""
    rng = np.random.default_rng(seed)
    if form == "e2m1":
        bits = rng.integers(0, 16, shape).astype(np.uint8)
        low, high = (bits[:, ::2], bits[:, 1::2]) if along == 1 else (bits[::2], bits[1::2])
        return low | high << 4, bits.view(ml_dtypes.float4_e2m1fn).astype(np.float32) if False else \
            np.array([0, .5, 1, 1.5, 2, 3, 4, 6])[bits & 7] * np.where(bits & 8, -1, 1)
    if form in ("e4m3", "e5m2"):
        x = numbers(shape, "float32", seed).astype(ml_dtypes.float8_e4m3fn if form == "e4m3" else ml_dtypes.float8_e5m2)
        return x.view(np.uint8), x.astype(np.float32)
    x = numbers(shape, "bfloat16" if form == "bf16" else "float16", seed)
    return x, x.astype(np.float32)


FORMS = ["e2m1", "e4m3", "e5m2", "bf16", "fp16"]


@pytest.mark.parametrize("fa, fb, size, scales", sample(40, FORMS, FORMS, [(16, 16, 64), (32, 64, 128), (64, 16, 32)],
                                                        [(True, True), (True, False), (False, True)]))
def test_scaled_products(fa, fb, size, scales):
    m, n, k = size
    a, x = quantized((m, k), fa, 0, 1)
    b, y = quantized((k, n), fb, 1, 0)
    sa = np.random.default_rng(2).integers(122, 132, (m, k // 32)).astype(np.uint8) if scales[0] else None
    sb = np.random.default_rng(3).integers(122, 132, (n, k // 32)).astype(np.uint8) if scales[1] else None
    if sa is not None:
        x = x * np.repeat(2.0 ** (sa.astype(float) - 127), 32, 1)
    if sb is not None:
        y = y * np.repeat(2.0 ** (sb.astype(float) - 127), 32, 1).T
    z = np.zeros((m, n), np.float32)
    scaled[(1,)](a, sa, b, sb, z, M=m, N=n, K=k, FA=fa, FB=fb, PA=2 if fa == "e2m1" else 1, PB=2 if fb == "e2m1" else 1)
    np.testing.assert_allclose(z, x @ y, rtol=1e-3, atol=1e-2 * np.abs(x @ y).max())


def test_tiles_are_read_where_they_were_written():
    """What is computed in several steps, and multiplied by instructions of four warps, lies exchanged in each step."""
    m, n, k = 64, 16, 32
    a, b = quantized((m, k), "e2m1", 0, 1)[0], quantized((k, n), "e5m2", 1, 0)[0]
    made = triton.compile(scaled, a, None, b, np.full((n, 1), 127, np.uint8), np.zeros((m, n), np.float32), M=m, N=n, K=k,
                          FA="e2m1", FB="e5m2", PA=2, PB=1, target="sm_90a")
    ptx = made.emit("ptx")
    assert "wgmma.mma_async" in ptx
    written, read = (set(re.findall(rf"{op}\.shared\.v4\.f32[^\[]*\[(%rd\d+)", ptx)) for op in ("st", "ld"))
    assert read and read <= written


@triton.jit
def casts(x, z, N: tl.constexpr, TO: tl.constexpr, ROUND: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(z + at, tl.load(x + at).to(TO, fp_downcast_rounding=ROUND))


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("to", ["float16", "bfloat16", "float32", "float64"])
def test_eight_bits_become_wider(kind, to):
    x = np.arange(256, dtype=np.uint8).view(np_dtype(kind))
    z = np.zeros(256, np_dtype(to))
    casts[(1,)](x, z, N=256, TO=TILE[to], ROUND=None)
    np.testing.assert_array_equal(wide(z).astype(np.float64), x.astype(np.float64))


@pytest.mark.parametrize("kind, largest", [("float8_e4m3fn", 448), ("float8_e5m2", 57344)])
@pytest.mark.parametrize("source", ["float32", "float16", "bfloat16"])
def test_floats_become_eight_bits(kind, largest, source):
    values = np.concatenate([np.linspace(-largest, largest, 1000), 2.0 ** np.linspace(-18, 8, 1000), [0.0, -0.0] * 24])
    x = values.astype(np.float32).astype(np_dtype(source))
    x = x[np.abs(wide(x)) <= largest][:2048]
    x = np.concatenate([x, np.zeros(2048 - len(x), x.dtype)])
    z = np.zeros(2048, np_dtype(kind))
    casts[(2,)](x, z, N=1024, TO=TILE[kind], ROUND="rtne")
    np.testing.assert_array_equal(z.view(np.uint8), wide(x).astype(np_dtype(kind)).view(np.uint8))
    large = np.full(1024, np.inf, np_dtype(source))
    casts[(1,)](large, z, N=1024, TO=TILE[kind], ROUND=None)
    assert (z[:1024].astype(np.float32) == largest).all()


@pytest.mark.parametrize("to", ["float16", "bfloat16", "float8_e5m2"])
def test_rounding_toward_zero(to):
    x = (numbers(1024, "float32") * 100).astype(np.float32)
    z = np.zeros(1024, np_dtype(to))
    casts[(1,)](x, z, N=1024, TO=TILE[to], ROUND="rtz")
    made, nearest = wide(z).astype(np.float64), x.astype(np_dtype(to))
    assert (np.abs(made) <= np.abs(x)).all()
    step = np.abs(nearest.astype(np.float64)) * 2.0 ** -{"float16": 10, "bfloat16": 7, "float8_e5m2": 2}[to] + 1e-4
    assert (np.abs(made - x) <= step).all()


@triton.jit
def copies(x, z, N: tl.constexpr):
    at = tl.arange(0, N)
    v = tl.load(x + at, mask=at < N - 1, other=1.0)
    tl.store(z + at, tl.where(at % 2 == 0, v, tl.abs(v)))


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2"])
def test_eight_bits_are_moved(kind):
    x = numbers(64, kind)
    z = np.zeros_like(x)
    copies[(1,)](x, z, N=64)
    wanted = np.where(np.arange(64) % 2 == 0, wide(x), np.abs(wide(x)))
    wanted[-1] = 1
    np.testing.assert_array_equal(wide(z), wanted)


@triton.jit
def against_all(a, b, z, count, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, TWICE: tl.constexpr):
    m, k = tl.arange(0, M), tl.arange(0, K)
    x = tl.load(a + m[:, None] * K + k[None, :])
    sums = tl.zeros((M, K), tl.float32)
    for begin in range(0, count, N):
        n = begin + tl.arange(0, N)
        y = tl.load(b + n[None, :] * K + k[:, None], mask=n[None, :] < count, other=0.0)
        r = tl.dot(x, y)
        if TWICE:
            r += tl.sum(x, 1)[:, None]
        v = tl.load(b + n[:, None] * K + k[None, :], mask=n[:, None] < count, other=0.0)
        sums = tl.dot(r.to(v.dtype), v, sums * 0.5)
    tl.store(z + m[:, None] * K + k[None, :], sums)


@pytest.mark.parametrize("kind", ["float32", "float16", "float64"])
@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("shape", [(16, 16, 16), (64, 32, 64), (8, 64, 32), (32, 128, 16), (4, 32, 8), (128, 64, 64)])
def test_operands_that_stay_while_others_come(kind, twice, shape):
    m, n, k = shape
    count = 2 * n + 5
    a, b = ((numbers((rows, k), kind, seed=rows) * 0.25).astype(kind) for rows in (m, count))
    z = np.zeros((m, k), np.float32)
    against_all[(1,)](a, b, z, count, m, n, k, twice)
    wanted = np.zeros((m, k))
    for begin in range(0, count, n):
        part = b[begin:begin + n].astype(np.float64)
        r = a.astype(np.float64) @ part.T
        if twice:
            r += a.astype(np.float64).sum(1)[:, None]
        wanted = wanted * 0.5 + r @ part
    # A GPU multiplies f32 as tf32.
    near = 2e-2 if kind == "float16" else 2e-3 if kind == "float32" and os.environ.get("TESSERA_TILE_DEVICE") == "cuda" else 1e-4
    np.testing.assert_allclose(z, wanted, rtol=near, atol=near * np.abs(wanted).max())


@triton.jit
def scaled_by_floats(a, sa, b, sb, z, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PER: tl.constexpr):
    m, n, k, ks = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K // 2), tl.arange(0, K // PER)
    x = tl.load(a + m[:, None] * (K // 2) + k[None, :])
    y = tl.load(b + k[:, None] * N + n[None, :])
    left = tl.load(sa + m[:, None] * (K // PER) + ks[None, :])
    right = tl.load(sb + n[:, None] * (K // PER) + ks[None, :])
    tl.store(z + m[:, None] * N + n[None, :], tl.dot_scaled(x, left, "e2m1", y, right, "e2m1"))


@pytest.mark.parametrize("per", [16, 32])
def test_scales_that_are_floats_of_eight_bits(per):
    m, n, k = 16, 32, 64
    (a, x), (b, y) = quantized((m, k), "e2m1", 0, 1), quantized((k, n), "e2m1", 1, 0)
    rng = np.random.default_rng(5)
    sa, sb = ((rng.uniform(0.1, 3, (rows, k // per))).astype(ml_dtypes.float8_e4m3fn) for rows in (m, n))
    z = np.zeros((m, n), np.float32)
    scaled_by_floats[(1,)](a, sa, b, sb, z, M=m, N=n, K=k, PER=per)
    wanted = (x * np.repeat(sa.astype(float), per, 1)) @ (y * np.repeat(sb.astype(float), per, 1).T)
    np.testing.assert_allclose(z, wanted, rtol=1e-3, atol=1e-2 * np.abs(wanted).max())


@triton.jit
def many_products(a, b, z, B: tl.constexpr, C: tl.constexpr, N: tl.constexpr):
    at = tl.reshape(tl.arange(0, B * C * N * N), (B, C, N, N))
    tl.store(z + at, tl.dot(tl.load(a + at), tl.load(b + at), input_precision="ieee"))


def test_products_of_four_dimensions():
    a, b = (numbers((2, 4, 16, 16), "float32", seed) for seed in (1, 2))
    z = np.zeros_like(a)
    many_products[(1,)](a, b, z, B=2, C=4, N=16)
    np.testing.assert_allclose(z, a @ b, rtol=1e-4, atol=1e-4)
