"""Functions of elements, by their names in the C library."""

from __future__ import annotations

from typing import Any

from .._core import builder, builtin, operand, tensor, where
from .._standard import _unary, abs, ceil, cos, erf, exp, exp2, floor, fma, log, log2, rsqrt, sin, sqrt

tanh, sinh, cosh, tan, asin, acos, atan, log1p, expm1, rint, trunc = (
    _unary(n) for n in ("tanh", "sinh", "cosh", "tan", "asin", "acos", "atan", "log1p", "expm1", "rint", "trunc"))


@builtin
def pow(x: Any, y: Any) -> tensor: return tensor(builder().binary("pow", operand(x), operand(y)))
@builtin
def atan2(x: Any, y: Any) -> tensor: return tensor(builder().binary("atan2", operand(x), operand(y)))
@builtin
def fmod(x: Any, y: Any) -> tensor: return tensor(builder().binary("%", operand(x), operand(y)))
@builtin
def isnan(x: tensor) -> tensor: return x != x  # noqa: PLR0124
@builtin
def isinf(x: tensor) -> tensor: return abs(x) == float("inf")  # type: ignore[no-any-return]
@builtin
def finitef(x: tensor) -> tensor: return abs(x) < float("inf")  # type: ignore[no-any-return]
@builtin
def round(x: tensor) -> tensor: return where(x < 0, ceil(x - 0.5), floor(x + 0.5))  # type: ignore[no-any-return]


__all__ = ["abs", "acos", "asin", "atan", "atan2", "ceil", "cos", "cosh", "erf", "exp", "exp2", "expm1", "finitef", "floor",
           "fma", "fmod", "isinf", "isnan", "log", "log1p", "log2", "pow", "rint", "round", "rsqrt", "sin", "sinh", "sqrt",
           "tan", "tanh", "trunc"]
