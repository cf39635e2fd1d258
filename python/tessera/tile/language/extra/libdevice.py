"""Functions of elements, by their names in the C library."""

from __future__ import annotations

import math
from typing import Any

from .. import _types as types
from .._core import builder, builtin, operand, tensor, to_tensor, where
from .._standard import _unary, abs, ceil, cos, div_rn, erf, exp, exp2, floor, fma, log, log2, rsqrt, sin, sqrt, sqrt_rn

tanh, sinh, cosh, tan, asin, acos, atan, log1p, expm1, rint, trunc = (
    _unary(n) for n in ("tanh", "sinh", "cosh", "tan", "asin", "acos", "atan", "log1p", "expm1", "rint", "trunc"))
nearbyint, fabs, fast_expf, fast_logf, fast_sinf, fast_cosf = rint, abs, exp, log, sin, cos
fast_dividef, fast_log2f, rsqrt_rn, fast_tanhf = div_rn, log2, rsqrt, tanh


@builtin
def pow(x: Any, y: Any) -> tensor: return tensor(builder().binary("pow", operand(x), _as_float(y, x)))
@builtin
def atan2(x: Any, y: Any) -> tensor: return tensor(builder().binary("atan2", operand(x), operand(y)))
@builtin
def fmod(x: Any, y: Any) -> tensor: return tensor(builder().binary("%", operand(x), operand(y)))
@builtin
def isnan(x: tensor) -> tensor: return (x != x).to(types.int32)  # noqa: PLR0124
@builtin
def isinf(x: tensor) -> tensor: return (abs(x) == float("inf")).to(types.int32)  # type: ignore[no-any-return]
@builtin
def finitef(x: tensor) -> tensor: return (abs(x) < float("inf")).to(types.int32)  # type: ignore[no-any-return]
@builtin
def isfinited(x: tensor) -> tensor: return finitef(x)  # type: ignore[no-any-return]
@builtin
def round(x: tensor) -> tensor: return where(x < 0, ceil(x - 0.5), floor(x + 0.5))  # type: ignore[no-any-return]
@builtin
def log10(x: tensor) -> tensor: return log(x) * (1 / math.log(10))  # type: ignore[no-any-return]
@builtin
def exp10(x: tensor) -> tensor: return exp(x * math.log(10))  # type: ignore[no-any-return]
@builtin
def erfc(x: tensor) -> tensor: return 1 - erf(x)  # type: ignore[no-any-return]
@builtin
def hypot(x: tensor, y: tensor) -> tensor: return sqrt(x * x + y * y)  # type: ignore[no-any-return]
@builtin
def fdim(x: tensor, y: tensor) -> tensor: return where(x > y, x - y, 0.0)  # type: ignore[no-any-return]
@builtin
def asinh(x: tensor) -> tensor: return copysign(log(abs(x) + sqrt(x * x + 1)), x)  # type: ignore[no-any-return]
@builtin
def acosh(x: tensor) -> tensor: return log(x + sqrt(x * x - 1))  # type: ignore[no-any-return]
@builtin
def atanh(x: tensor) -> tensor: return log1p(2 * x / (1 - x)) * 0.5  # type: ignore[no-any-return]
@builtin
def cbrt(x: tensor) -> tensor:
    root = exp(log(where(x == 0, 1.0, abs(x))) * (1 / 3))
    return copysign(where(x == 0, 0.0, root - (root * root * root - abs(x)) / (3 * root * root)), x)  # type: ignore[no-any-return]
@builtin
def rcbrt(x: tensor) -> tensor: return 1 / cbrt(x)  # type: ignore[no-any-return]
@builtin
def sinpi(x: tensor) -> tensor: return sin(x * math.pi)  # type: ignore[no-any-return]
@builtin
def cospi(x: tensor) -> tensor: return cos(x * math.pi)  # type: ignore[no-any-return]
@builtin
def saturatef(x: tensor) -> tensor: return where(x > 0, where(x < 1, x, 1.0), 0.0)  # type: ignore[no-any-return]
@builtin
def mulhi(x: tensor, y: tensor) -> tensor: return ((x.to(types.int64) * y.to(types.int64)) >> 32).to(types.int32)


@builtin
def ffs(x: tensor) -> tensor:
    """The place of the lowest bit that is set, from 1; 0 where none is."""
    low = (x & -x).to(types.int64) & 0xFFFFFFFF
    place = (low.to(types.float32).to(types.int32, bitcast=True) >> 23) - 126
    return where(x == 0, 0, place).to(types.int32)  # type: ignore[no-any-return]


def _bits_of(x: tensor) -> tensor:
    return x.to(types.of_core(f"i{x.dtype.primitive_bitwidth}"), bitcast=True)


@builtin
def signbit(x: tensor) -> tensor: return (_bits_of(x) < 0).to(types.int32)
@builtin
def copysign(x: tensor, y: Any) -> tensor:
    return where(_bits_of(to_tensor(y, x.dtype)) < 0, -abs(x), abs(x))  # type: ignore[no-any-return]


def _as_float(x: Any, like: Any) -> Any:
    made = to_tensor(x)
    return made.to(to_tensor(like).dtype).handle if made.dtype.is_int() else operand(x)


from ._bits import *  # noqa: E402, F403
from ._rounding import *  # noqa: E402, F403
from ._special import *  # noqa: E402, F403

__all__ = [name for name in dir() if name[0] != "_" and name not in ("annotations", "builder", "builtin", "math", "operand", "tensor",
                                                                    "to_tensor", "types", "where", "Any")]
