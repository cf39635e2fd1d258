"""Reductions and scans, by the language's functions and by the user's."""

import numpy as np
import pytest
from cases import INTEGERS, NUMBERS, close, is_float, np_dtype, numbers, sample, wide
from test_shapes import run

import tessera.tile as triton
import tessera.tile.language as tl

OPS = ["sum", "max", "min", "argmax", "argmin", "xor_sum", "max-with-indices", "min-with-indices"]
SHAPES = [((32,), 0), ((8, 16), 0), ((8, 16), 1), ((4, 8, 4), 1), ((2, 4, 32), -1), ((128, 2), 0), ((1, 64), 1), ((64, 1), 1)]


def small(shape, dtype, seed=0):
    return numbers(shape, dtype, seed) if is_float(dtype) else numbers(shape, dtype, seed, 0 if dtype[0] == "u" else -50, 50)


@pytest.mark.parametrize("op, dtype, shape", sample(90, OPS, NUMBERS, SHAPES))
@pytest.mark.parametrize("keep", [False, True])
def test_reductions(op, dtype, shape, keep):
    sizes, axis = shape
    if op == "xor_sum" and is_float(dtype):
        with pytest.raises(triton.CompilationError):
            run(f"tl.xor_sum(x, {axis})", small(sizes, dtype), shape=(1,))
        return
    x = small(sizes, dtype)
    kind = op.partition("-")[0]
    of = wide(x).astype(np.float64) if is_float(dtype) else x
    how = {"sum": np.sum, "max": np.max, "min": np.min, "xor_sum": np.bitwise_xor.reduce, "argmax": np.argmax, "argmin": np.argmin}[kind]
    wanted = how(of, axis=axis)
    if keep:
        wanted = np.expand_dims(wanted, axis)
    out = "int32" if kind.startswith("arg") else "int64" if not is_float(dtype) else "float64"
    if op.endswith("indices"):
        text = f"v, i = tl.{kind}(x, {axis}, return_indices=True, keep_dims={keep})\nz = v.to(tl.float64) * 1000 + i"
        at = (np.argmax if kind == "max" else np.argmin)(of, axis=axis)
        wanted = wanted * 1000.0 + (np.expand_dims(at, axis) if keep else at)
        out = "float64"
    else:
        text = f"tl.{kind}(x, {axis}, keep_dims={keep})"
    made = run(text, x, shape=np.shape(wanted), dtype=out)
    tolerance = {"float16": 2e-2, "bfloat16": 6e-2}.get(dtype, 1e-5)
    np.testing.assert_allclose(made.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("op", ["sum", "max", "min"])
@pytest.mark.parametrize("dtype", ["int32", "float32", "bfloat16"])
@pytest.mark.parametrize("keep", [False, True])
def test_reductions_of_everything(op, dtype, keep):
    x = small((4, 8, 2), dtype)
    wanted = getattr(np, op)(wide(x).astype(np.float64))
    made = run(f"tl.{op}(x, keep_dims={keep})", x, shape=(1, 1, 1) if keep else (), dtype="float64")
    np.testing.assert_allclose(made.ravel()[0], wanted, rtol=5e-2 if dtype == "bfloat16" else 1e-5)


def test_nan_is_passed_over():
    x = np.array([np.nan, 1, -3, np.nan, 7, 2, np.nan, 0], np.float32)
    assert run("tl.max(x, 0)", x, shape=())[()] == 7 and run("tl.min(x, 0)", x, shape=())[()] == -3


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_ties(op, left):
    x = np.array([5, 2, 9, 9, 2, 2, 9, 4], np.int32)
    made = run(f"tl.{op}(x, 0, tie_break_left={left})", x, shape=())[()]
    assert x[made] == (9 if op == "argmax" else 2) and (not left or made == (2 if op == "argmax" else 1))


@pytest.mark.parametrize("dtype, to", [("int8", "int32"), ("uint8", "uint32"), ("int16", "int64"), ("int32", "float32"), ("float16", "float32")])
def test_sums_in_another_type(dtype, to):
    x = small((64,), dtype)
    np.testing.assert_allclose(run(f"tl.sum(x, 0, dtype=tl.{to})", x, shape=(), dtype=to), x.astype(to).sum(), rtol=1e-3)


@triton.jit
def moments(mean_a, m2_a, weight_a, mean_b, m2_b, weight_b):
    delta = mean_b - mean_a
    weight = weight_a + weight_b
    part = weight_b / weight
    return mean_a + delta * part, m2_a + m2_b + delta * delta * weight_a * part, weight


@triton.jit
def welford(x, z, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    v = tl.load(x + at)
    mean, m2, weight = tl.reduce((v, tl.zeros_like(v), tl.full((M, N), 1.0, tl.float32)), AXIS, moments)
    size: tl.constexpr = N if AXIS == 0 else M
    out = z + tl.arange(0, size)
    tl.store(out, mean)
    tl.store(out + size, m2 / weight)


@pytest.mark.parametrize("axis", [0, 1])
def test_functions_of_several_values(axis):
    x = numbers((16, 32), "float32")
    z = np.zeros((2, x.shape[1 - axis]), np.float32)
    welford[(1,)](x, z, M=16, N=32, AXIS=axis)
    np.testing.assert_allclose(z, [x.mean(axis), x.var(axis)], rtol=1e-4, atol=1e-5)


@triton.jit
def larger(a, b): return tl.where(a > b, a, b)


@triton.jit
def first_last(a, b, c, d):
    return a, d


@triton.jit
def line(a1, b1, a2, b2): return a1 * a2, b1 * a2 + b2


@triton.jit
def scans(x, y, z, w, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr, REVERSE: tl.constexpr, HOW: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    a = tl.load(x + at)
    if HOW == "cumsum":
        tl.store(z + at, tl.cumsum(a, AXIS, reverse=REVERSE))
    elif HOW == "cumprod":
        tl.store(z + at, tl.cumprod(a, axis=AXIS, reverse=REVERSE))
    elif HOW == "max":
        tl.store(z + at, tl.associative_scan(a, AXIS, larger, reverse=REVERSE))
    else:
        p, q = tl.associative_scan((a, tl.load(y + at)), AXIS, line, reverse=REVERSE)
        tl.store(z + at, p)
        tl.store(w + at, q)


@pytest.mark.parametrize("how, dtype, axis, reverse, shape",
                         sample(60, ["cumsum", "cumprod", "max", "line"], NUMBERS, [0, 1], [False, True], [(8, 32), (16, 1), (2, 1024), (512, 2)]))
def test_scans(how, dtype, axis, reverse, shape):
    x, y = (numbers(shape, dtype, s) if is_float(dtype) else numbers(shape, dtype, s, 0, 3) for s in (0, 1))
    if is_float(dtype) and how in ("cumprod", "line"):
        x = (1 + wide(x) / 100).astype(x.dtype)
    out = ("float64" if is_float(dtype) else "int64") if how == "cumsum" else dtype
    z, w = np.zeros(shape, np_dtype(out)), np.zeros(shape, np_dtype(out))
    scans[(1,)](x, y, z, w, M=shape[0], N=shape[1], AXIS=axis, REVERSE=reverse, HOW=how)
    a, b = (v.astype(np.float64) if is_float(dtype) else v.astype(np.int64) for v in (x, y))
    if reverse:
        a, b = np.flip(a, axis), np.flip(b, axis)
    with np.errstate(all="ignore"):
        if how == "line":
            p, q = np.moveaxis(a, axis, 0).copy(), np.moveaxis(b, axis, 0).copy()
            for i in range(1, len(p)):
                p[i], q[i] = p[i - 1] * p[i], q[i - 1] * p[i] + q[i]
                if not is_float(dtype):
                    p[i], q[i] = p[i].astype(dtype), q[i].astype(dtype)
            wanted = [np.moveaxis(p, 0, axis), np.moveaxis(q, 0, axis)]
        else:
            wanted = [{"cumsum": np.cumsum, "cumprod": np.cumprod, "max": np.maximum.accumulate}[how](a, axis)]
    if reverse:
        wanted = [np.flip(v, axis) for v in wanted]
    if how == "line" and is_float(dtype):
        return  # the factors of a step were rounded on the way
    for made, right in zip([z, w], wanted):
        if is_float(dtype):
            tolerance = {"float16": 3e-2, "bfloat16": 2e-1, "float32": 1e-3, "float64": 1e-9}[dtype]
            np.testing.assert_allclose(wide(made).astype(np.float64), right, rtol=tolerance, atol=tolerance * 20)
        else:
            np.testing.assert_array_equal(made, right.astype(np_dtype(out)))


def test_reductions_of_or():
    x = numbers((16,), "int32")
    assert run("tl.reduce_or(x, 0)", x, shape=())[()] == np.bitwise_or.reduce(x)
    assert all(d in NUMBERS for d in INTEGERS) and close is not None


@triton.jit
def exp_of_differences(x, z, N: tl.constexpr, AXIS: tl.constexpr, ALONG: tl.constexpr, MORE: tl.constexpr):
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    v = tl.load(x + i * N + j)
    m = tl.max(v, AXIS)
    if MORE == "larger":
        m = tl.maximum(m, 0.5)
    elif MORE == "smaller":
        m = tl.minimum(m, 0.5)
    m = m[:, None] if ALONG == 1 else m[None, :]
    tl.store(z + i * N + j, tl.exp(v - m))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("along", [0, 1])
@pytest.mark.parametrize("more", ["", "larger", "smaller"])
def test_exponents_of_either_sign(axis, along, more):
    x = numbers((32, 32), "float32") * 3
    x[5, 7], x[9, 9], x[11, 3] = np.nan, -np.inf, -200
    z = np.zeros_like(x)
    exp_of_differences[(1,)](x, z, 32, axis, along, more)
    m = np.nanmax(x, axis)
    m = np.maximum(m, 0.5) if more == "larger" else np.minimum(m, 0.5) if more == "smaller" else m
    wanted = np.exp((x - (m[:, None] if along == 1 else m[None, :])).astype(np.float64))
    np.testing.assert_allclose(z, wanted, rtol=1e-5, atol=1e-37)
