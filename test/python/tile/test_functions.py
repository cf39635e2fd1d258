"""Functions of elements, beside NumPy's in doubles."""

import math

import numpy as np
import pytest
from cases import close, kernel, np_dtype, numbers, sample, wide

import tessera.tile.language as tl
from tessera.tile.language.extra import libdevice

N = 256
SIMPLE = {"exp": np.exp, "log": np.log, "cos": np.cos, "sin": np.sin, "exp2": np.exp2, "log2": np.log2, "sqrt": np.sqrt,
          "rsqrt": lambda x: 1 / np.sqrt(x), "floor": np.floor, "ceil": np.ceil, "abs": np.abs, "sqrt_rn": np.sqrt,
          "erf": np.vectorize(math.erf), "sigmoid": lambda x: 1 / (1 + np.exp(-x))}


def function(text):
    return kernel("""
        def function(x, y, w, z, N: tl.constexpr):
            at = tl.arange(0, N)
            a = tl.load(x + at)
            b = tl.load(y + at)
            c = tl.load(w + at)
            tl.store(z + at, TEXT)
        """, TEXT=text)


def run(text, *arrays, dtype=None):
    arrays = (*arrays, *[arrays[0]] * (3 - len(arrays)))
    z = np.zeros(N, np_dtype(dtype) if dtype else arrays[0].dtype)
    function(text)[(1,)](*arrays, z, N=N)
    return z


@pytest.mark.parametrize("where", ["tl.", "tl.math.", "a."])
@pytest.mark.parametrize("name, dtype", sample(24, list(SIMPLE), ["float16", "float32", "float64", "bfloat16"]))
def test_functions(where, name, dtype):
    if where == "tl.math." and name == "sigmoid" or where == "a." and name == "sqrt_rn":
        pytest.skip("not there")
    x = (np.abs(wide(numbers(N, dtype))) + 0.1).astype(np_dtype(dtype))
    wanted = SIMPLE[name](x.astype(np.float64))
    close(run(f"a.{name}()" if where == "a." else f"{where}{name}(a)", x), wanted.astype(np_dtype(dtype)), dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_functions_of_several(dtype):
    x, y, w = (numbers(N, dtype, seed) for seed in range(3))
    y[y == 0] = 1
    close(run("tl.fma(a, b, c)", x, y, w), x * y + w, dtype)
    close(run("tl.fdiv(a, b)", x, y), x / y, dtype)
    close(run("tl.fdiv(a, b, ieee_rounding=True)", x, y), x / y, dtype)
    if dtype == "float32":
        np.testing.assert_array_equal(run("tl.div_rn(a, b)", x, y), x / y)
        np.testing.assert_array_equal(run("tl.math.sqrt_rn(a)", np.abs(x)), np.sqrt(np.abs(x)))


@pytest.mark.parametrize("text, wanted", [
    ("libdevice.tanh(a)", np.tanh), ("libdevice.rint(a)", np.rint), ("libdevice.trunc(a)", np.trunc),
    ("libdevice.log1p(tl.abs(a))", lambda a: np.log1p(np.abs(a))), ("libdevice.expm1(a)", np.expm1),
    ("libdevice.pow(tl.abs(a), 2.5)", lambda a: np.abs(a) ** 2.5), ("libdevice.pow(a, 3)", lambda a: a**3),
    ("libdevice.atan2(a, b)", np.arctan2), ("libdevice.hypot(a, b)", np.hypot), ("libdevice.fmod(a, b)", np.fmod),
    ("libdevice.cbrt(a)", np.cbrt), ("libdevice.erfc(a)", np.vectorize(math.erfc)), ("libdevice.exp10(a)", lambda a: 10**a),
    ("libdevice.log10(tl.abs(a))", lambda a: np.log10(np.abs(a))), ("libdevice.tan(a)", np.tan), ("libdevice.atan(a)", np.arctan),
    ("libdevice.sinh(a)", np.sinh), ("libdevice.cosh(a)", np.cosh), ("libdevice.asinh(a)", np.arcsinh),
    ("libdevice.round(a)", lambda a: np.sign(a) * np.floor(np.abs(a) + 0.5)), ("libdevice.fdim(a, b)", lambda a, b: np.maximum(a - b, 0)),
])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_libdevice(text, wanted, dtype):
    x, y = numbers(N, dtype), numbers(N, dtype, 1)
    made = kernel("""
        def function(x, y, z, N: tl.constexpr):
            at = tl.arange(0, N)
            a = tl.load(x + at)
            b = tl.load(y + at)
            tl.store(z + at, TEXT)
        """, TEXT=text.replace("libdevice", "tl.extra.libdevice"))
    z = np.zeros_like(x)
    made[(1,)](x, y, z, N=N)
    arguments = [v.astype(np.float64) for v in (x, y)][:2 if ", b)" in text else 1]
    np.testing.assert_allclose(z, wanted(*arguments), rtol=2e-5, atol=2e-6)
    assert libdevice.tanh is tl.extra.libdevice.tanh


@pytest.mark.parametrize("text, wanted", [("copysign(a, b)", np.copysign), ("signbit(a)", lambda a, b: np.signbit(a))])
def test_signs(text, wanted):
    x, y = numbers(N, "float32"), numbers(N, "float32", 1)
    x[:4], y[:4] = [0.0, -0.0, np.inf, -np.inf], [-1, 1, -0.0, 0.0]
    np.testing.assert_array_equal(run(f"tl.extra.libdevice.{text}", x, y), wanted(x, y).astype(np.float32))
