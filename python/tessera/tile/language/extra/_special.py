"""Exponents, norms, and special functions, by their names in libdevice. Those that are sums are computed in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .. import _types as types
from .._core import builder, builtin, tensor, to_tensor, where
from .._standard import _unary, abs, cos, erf, exp, exp2, floor, log, log2, sin, sqrt

_rint, _trunc = _unary("rint"), _unary("trunc")


def _wide(fn: Callable[..., tensor]) -> Any:
    """A function that is computed in float64, of floats of any type."""
    def apply(*args: Any) -> tensor:
        xs = [to_tensor(a) for a in args]
        kind = next((x.dtype for x in xs if x.dtype.is_floating()), types.float32)
        return fn(*(x.to(types.float64) if x.dtype.is_floating() else x for x in xs)).to(kind)
    apply.__name__ = fn.__name__
    return builtin(apply)


def _float_word(x: tensor) -> tuple[tensor, int, int]:
    """The bits of a float, how many are behind its exponent, and the bias of that."""
    kind = x.dtype
    return x.to(types.of_core(f"i{kind.primitive_bitwidth}"), bitcast=True), kind.fp_mantissa_width, kind.exponent_bias


@builtin
def ilogb(x: Any) -> tensor:
    x = to_tensor(x).to(types.float64)
    scaled = where(abs(x) < 2.2250738585072014e-308, x * 2.0**60, x)
    word, width, bias = _float_word(abs(scaled))
    exponent = ((word >> width) - bias).to(types.int32)
    exponent = where(scaled != x, exponent - 60, exponent)
    lost = where(abs(x) == float("inf"), 2**31 - 1, -2**31)
    return where((x == 0) | (x != x) | (abs(x) == float("inf")), lost, exponent)  # type: ignore[no-any-return]  # noqa: PLR0124


@builtin
def logb(x: Any) -> tensor:
    x = to_tensor(x)
    made = where(x == 0, float("-inf"), where(abs(x) == float("inf"), float("inf"), ilogb(x).to(x.dtype)))
    return where(x != x, x, made)  # type: ignore[no-any-return]  # noqa: PLR0124


@_wide
def ldexp(x: tensor, n: tensor) -> tensor:
    n = to_tensor(n).to(types.int64)
    n = where(n > 2200, 2200, where(n < -2200, -2200, n))
    for part in (n >> 2, n >> 2, n >> 2, n - 3 * (n >> 2)):  # powers that float64 holds
        x = x * ((part + 1023) << 52).to(types.float64, bitcast=True)
    return x


scalbn = ldexp


@builtin
def remainder(x: Any, y: Any) -> tensor:
    x, y = to_tensor(x), to_tensor(y)
    magnitude = abs(y)
    r = abs(x) % magnitude
    odd = ((abs(x) - r) / magnitude).to(types.float64) % 2 == 1
    more = (r > magnitude - r) | ((r == magnitude - r) & odd)
    r = where(more, r - magnitude, r)
    return where(x < 0, -r, r)  # type: ignore[no-any-return]


@builtin
def llrint(x: Any) -> tensor: return _rint(to_tensor(x)).to(types.int64)  # type: ignore[no-any-return]
@builtin
def llround(x: Any) -> tensor:
    x = to_tensor(x)
    whole = _trunc(x)
    away = where(abs(x - whole) >= 0.5, where(x < 0, -1.0, 1.0), 0.0)
    return (whole.to(types.float64) + away).to(types.int64)  # type: ignore[no-any-return]


def _norm(*xs: tensor) -> tensor:
    total = xs[0] * xs[0]
    for x in xs[1:]:
        total = total + x * x
    return sqrt(total)  # type: ignore[no-any-return]


@_wide
def norm3d(x: tensor, y: tensor, z: tensor) -> tensor: return _norm(x, y, z)
@_wide
def norm4d(x: tensor, y: tensor, z: tensor, w: tensor) -> tensor: return _norm(x, y, z, w)
@_wide
def rnorm3d(x: tensor, y: tensor, z: tensor) -> tensor: return 1 / _norm(x, y, z)
@_wide
def rnorm4d(x: tensor, y: tensor, z: tensor, w: tensor) -> tensor: return 1 / _norm(x, y, z, w)
@_wide
def rhypot(x: tensor, y: tensor) -> tensor: return 1 / _norm(x, y)
@builtin
def fast_exp10f(x: Any) -> tensor: return exp2(to_tensor(x) * math.log2(10))  # type: ignore[no-any-return]
@builtin
def fast_log10f(x: Any) -> tensor: return log2(x) * math.log10(2)  # type: ignore[no-any-return]
@builtin
def fast_powf(x: Any, y: Any) -> tensor: return exp2(to_tensor(y) * log2(x))  # type: ignore[no-any-return]
@builtin
def fast_tanf(x: Any) -> tensor: return sin(x) / cos(x)  # type: ignore[no-any-return]


def _repeat(count: int, start: tensor, step: Callable[[tensor, tensor], tensor]) -> tensor:
    """A loop of the kernel: of the number of an iteration, as float64, and what the one before gave."""
    number, now = (tensor(v) for v in builder().begin_for(0, count, 1, [start.handle]))
    return tensor(builder().end_for([step(number.to(types.float64), now).handle])[0])


# The error function's relatives.
def _erfcx(x: tensor) -> tensor:
    """exp(x^2) erfc(x): by the continued fraction from 2 on, else by the error function."""
    far = where(x < 2, 2.0, x)
    tail = _repeat(60, far, lambda i, tail: far + (30 - i * 0.5) / tail)
    return where(x < 2, exp(x * x) * (1 - erf(x)), 1 / (tail * math.sqrt(math.pi)))  # type: ignore[no-any-return]


def _erfc(x: tensor) -> tensor: return where(x < 2, 1 - erf(x), exp(-x * x) * _erfcx(x))  # type: ignore[no-any-return]


@_wide
def erfcx(x: tensor) -> tensor: return _erfcx(x)
@_wide
def erfc(x: tensor) -> tensor: return _erfc(x)
@_wide
def normcdf(x: tensor) -> tensor: return _erfc(-x * math.sqrt(0.5)) * 0.5


def _erfcinv(x: tensor) -> tensor:
    """By Newton's steps on the logarithm, from the tail's leading term or the slope at 1."""
    near = where(x > 1, 2 - x, x)  # of the other side it is the same
    l = log(where(near > 0, near, 1.0))
    y = where(near > 0.5, (1 - near) * (math.sqrt(math.pi) / 2), sqrt(abs(-l - 0.5 * log(math.pi * abs(-l) + 0.1))))
    y = _repeat(8, y, lambda _, y: y + (log(_erfc(y)) - l) * _erfcx(y) * (math.sqrt(math.pi) / 2))
    y = where(near == 0, float("inf"), y)
    y = where(x > 1, -y, y)
    return where((x < 0) | (x > 2), float("nan"), y)  # type: ignore[no-any-return]


@_wide
def erfcinv(x: tensor) -> tensor: return _erfcinv(x)
@_wide
def erfinv(x: tensor) -> tensor:
    small = x * (math.sqrt(math.pi) / 2) * (1 + x * x * (math.pi / 12))
    return where(abs(x) < 1e-4, small, _erfcinv(1 - x))  # type: ignore[no-any-return]
@_wide
def normcdfinv(x: tensor) -> tensor: return _erfcinv(2 * x) * -math.sqrt(2)


# The gamma function, by Lanczos' sum.
_LANCZOS = (0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059, 12.507343278686905,
            -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7)


def _log_gamma(x: tensor) -> tensor:
    """Of what is at least a half."""
    z = x - 1
    total = z * 0 + _LANCZOS[0]
    for n, factor in enumerate(_LANCZOS[1:], 1):
        total = total + factor / (z + n)
    t = z + 7.5
    return 0.5 * math.log(2 * math.pi) + (z + 0.5) * log(t) - t + log(total)  # type: ignore[no-any-return]


@_wide
def lgamma(x: tensor) -> tensor:
    other = abs(sin((x - floor(x)) * math.pi))
    made = _log_gamma(where(x < 0.5, 1 - x, x))
    return where(x < 0.5, math.log(math.pi) - log(other) - made, made)  # type: ignore[no-any-return]


@_wide
def tgamma(x: tensor) -> tensor:
    size = exp(_log_gamma(where(x < 0.5, 1 - x, x)))
    fraction = x - floor(x)
    sine = sin(fraction * math.pi) * where(floor(x) % 2 == 0, 1.0, -1.0)
    return where(x < 0.5, where((fraction == 0) & (x != 0), float("nan"), math.pi / (sine * size)), size)  # type: ignore[no-any-return]


# Bessel's functions: integrals over a period, which sums of equal steps give to all digits, and far away their expansion.
_STEPS, _FAR = 128, 25.0


def _hankel(x: tensor, n: Any) -> tuple[tensor, tensor]:
    """Both sums of the expansion for large arguments."""
    p, q, term = x * 0 + 1, x * 0, x * 0 + 1
    for k in range(1, 25):
        term = term * ((4 * n * n - (2 * k - 1) ** 2) / (8.0 * k)) / x
        signed = term if k % 4 in (0, 1) else -term
        p, q = (p + signed, q) if k % 2 == 0 else (p, q + signed)
    return p, q


def _far_bessel(x: tensor, n: Any, second: bool) -> tensor:
    p, q = _hankel(x, n)
    phase = x - (2 * n + 1) * (math.pi / 4)
    turned = p * sin(phase) + q * cos(phase) if second else p * cos(phase) - q * sin(phase)
    return sqrt(2 / (math.pi * x)) * turned  # type: ignore[no-any-return]


def _bessel_j(x: tensor, n: Any, limit: float = _FAR) -> tensor:
    size = abs(x)
    near, far = where(size < limit, size, 1.0), where(size < limit, limit, size)
    step = math.pi / _STEPS
    total = _repeat(_STEPS, (near + n) * 0, lambda i, t: t + cos(n * ((i + 0.5) * step) - near * sin((i + 0.5) * step)))
    return where(size < limit, total / _STEPS, _far_bessel(far, n, False))  # type: ignore[no-any-return]


def _weight(theta: tensor) -> tensor:
    """Of one angle in Neumann's series, which is 4 / pi of J_2, -J_4 / 2, J_6 / 3, and so on."""
    return _repeat(32, theta * 0, lambda k, made: made + cos((theta * 2 + math.pi) * (k + 1)) / (k + 1))


def _bessel_y(x: tensor, n: int) -> tensor:
    """Y_0 by Neumann's series of J, and Y_1, which is less its derivative."""
    near, far = where((x > 0) & (x < _FAR), x, 1.0), where(x < _FAR, _FAR, x)
    step = math.pi / _STEPS

    def term(i: tensor) -> tensor:
        sine = sin((i + 0.5) * step)
        return _weight((i + 0.5) * step) * (cos(near * sine) if n == 0 else -sine * sin(near * sine))  # type: ignore[no-any-return]

    series = _repeat(_STEPS, near * 0, lambda i, total: total + term(i)) * (4 / math.pi / _STEPS)
    scale = log(near * 0.5) + 0.5772156649015329
    first = scale * _bessel_j(near, 0) if n == 0 else scale * _bessel_j(near, 1) - _bessel_j(near, 0) / near
    made = where(x < _FAR, first * (2 / math.pi) - series if n == 0 else first * (2 / math.pi) + series, _far_bessel(far, n, True))
    return where(x == 0, float("-inf"), where(x < 0, float("nan"), made))  # type: ignore[no-any-return]


def _odd(n: tensor) -> tensor: return (n.to(types.int32) & 1) == 1


@_wide
def j0(x: tensor) -> tensor: return _bessel_j(x, 0)
@_wide
def j1(x: tensor) -> tensor: return where(x < 0, -_bessel_j(x, 1), _bessel_j(x, 1))  # type: ignore[no-any-return]
@_wide
def y0(x: tensor) -> tensor: return _bessel_y(x, 0)
@_wide
def y1(x: tensor) -> tensor: return _bessel_y(x, 1)


@_wide
def jn(n: tensor, x: tensor) -> tensor:
    """For orders up to 64."""
    made = _bessel_j(x, n.to(types.float64), 150.0)
    return where((x < 0) & _odd(n), -made, made)  # type: ignore[no-any-return]


@_wide
def yn(n: tensor, x: tensor) -> tensor:
    """For orders up to 64, from one to the next."""
    before, now = _bessel_y(x, 0), _bessel_y(x, 1)
    made = where(n == 0, before, now)
    start = [(t + made * 0).handle for t in (made, before, now)]
    number, *carried = (tensor(v) for v in builder().begin_for(1, 64, 1, start))
    made, before, now = carried
    after = now * (2.0 * number.to(types.float64)) / x - before
    made = where(n == number + 1, after, made)
    return tensor(builder().end_for([t.handle for t in (made, now, after)])[0])


def _bessel_i(x: tensor, n: int) -> tensor:
    size = abs(x)
    step = math.pi / _STEPS
    total = _repeat(_STEPS, size * 0, lambda i, t: t + exp(size * (cos((i + 0.5) * step) - 1)) * cos((i + 0.5) * (n * step)))
    made = exp(size) * total / _STEPS
    return where(x < 0, -made, made) if n % 2 else made  # type: ignore[no-any-return]


@_wide
def cyl_bessel_i0(x: tensor) -> tensor: return _bessel_i(x, 0)
@_wide
def cyl_bessel_i1(x: tensor) -> tensor: return _bessel_i(x, 1)


__all__ = ["cyl_bessel_i0", "cyl_bessel_i1", "erfc", "erfcinv", "erfcx", "erfinv", "fast_exp10f", "fast_log10f", "fast_powf",
           "fast_tanf", "ilogb", "j0", "j1", "jn", "ldexp", "lgamma", "llrint", "llround", "logb", "norm3d", "norm4d", "normcdf",
           "normcdfinv", "remainder", "rhypot", "rnorm3d", "rnorm4d", "scalbn", "tgamma", "y0", "y1", "yn"]
