"""Ops that compute each element from the elements in its place."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ..graph import GraphText, Unsupported, Value
from .registry import lowers


def wide(g: GraphText, a: Any, b: Any) -> torch.dtype:
    """The element type that PyTorch brings two operands to."""
    return torch.result_type(like(a), like(b))


def like(x: Any) -> Any:
    """Something that PyTorch promotes as it does x."""
    if isinstance(x, Value):
        return torch.empty((1,) * x.rank, dtype=x.dtype)
    return 1 if isinstance(x, torch.SymInt) else 1.0 if isinstance(x, torch.SymFloat) else x


def _arithmetic(name: str, of_bool: str) -> Callable[..., Value]:
    def write(g: GraphText, meta: Any, a: Any, b: Any, alpha: Any = 1) -> Value:
        if meta.dtype == torch.bool:
            return g.binary(of_bool, a, b, torch.bool, shape=meta.shape)
        if alpha != 1:
            b = g.binary("mul", b, alpha, meta.dtype)
        return g.binary(name, a, b, meta.dtype, shape=meta.shape)

    return write


lowers("add.Tensor", "add.Scalar")(_arithmetic("add", "or"))
lowers("sub.Tensor", "sub.Scalar")(_arithmetic("sub", "xor"))
lowers("mul.Tensor", "mul.Scalar")(_arithmetic("mul", "and"))
lowers("maximum")(_arithmetic("max", "or"))
lowers("minimum")(_arithmetic("min", "and"))


@lowers("rsub.Scalar", "rsub.Tensor")
def rsub(g: GraphText, meta: Any, a: Any, b: Any, alpha: Any = 1) -> Value:
    if alpha != 1:
        a = g.binary("mul", a, alpha, meta.dtype)
    return g.binary("sub", b, a, meta.dtype, shape=meta.shape)


def floor_divide(g: GraphText, a: Any, b: Any, dtype: torch.dtype, shape: Any) -> Value:
    x, y = g.as_value(a, dtype), g.as_value(b, dtype)
    zero = g.const(0, dtype)
    if not dtype.is_floating_point:
        if dtype == torch.uint8:
            return g.op("div", x, y, shape=shape)
        rest = g.op("mod", x, y, shape=shape)
        return g.op("div", g.op("sub", x, rest, shape=shape), y, shape=shape)
    rest = g.op("mod", x, y, shape=shape, fmod=1)
    whole = g.op("div", g.op("sub", x, rest, shape=shape), y, shape=shape)
    below = g.op("xor", g.op("less", y, zero, dtype=torch.bool), g.op("less", rest, zero, dtype=torch.bool),
                 dtype=torch.bool, shape=shape)
    below = g.op("and", below, g.op("not", g.op("equal", rest, zero, dtype=torch.bool)), dtype=torch.bool, shape=shape)
    whole = g.where(below, g.op("sub", whole, g.const(1, dtype)), whole, dtype, shape)
    floor = g.op("floor", whole)
    near = g.op("greater", g.op("sub", whole, floor), g.const(0.5, dtype), dtype=torch.bool)
    floor = g.where(near, g.op("add", floor, g.const(1, dtype)), floor, dtype, shape)
    by_zero = g.op("equal", y, zero, dtype=torch.bool)
    return g.where(by_zero, g.op("div", x, y, shape=shape), floor, dtype, shape)


@lowers("div.Tensor", "div.Scalar", "true_divide.Tensor")
def div(g: GraphText, meta: Any, a: Any, b: Any) -> Value:
    return g.binary("div", a, b, meta.dtype, shape=meta.shape)


@lowers("div.Tensor_mode", "div.Scalar_mode")
def div_mode(g: GraphText, meta: Any, a: Any, b: Any, rounding_mode: str | None = None) -> Value:
    if rounding_mode is None:
        return div(g, meta, a, b)
    if rounding_mode == "floor":
        return floor_divide(g, a, b, meta.dtype, meta.shape)
    quotient = g.binary("div", a, b, meta.dtype, shape=meta.shape)
    return truncate(g, quotient) if meta.dtype.is_floating_point else quotient


@lowers("floor_divide", "floor_divide.Scalar")
def floor_div(g: GraphText, meta: Any, a: Any, b: Any) -> Value:
    return floor_divide(g, a, b, meta.dtype, meta.shape)


def truncate(g: GraphText, x: Value) -> Value:
    negative = g.op("less", x, g.const(0, x.dtype), dtype=torch.bool)
    return g.where(negative, g.op("ceil", x), g.op("floor", x), x.dtype, x.shape)


@lowers("trunc", "fix")
def trunc(g: GraphText, meta: Any, x: Value) -> Value:
    return truncate(g, x) if x.dtype.is_floating_point else x


@lowers("fmod.Tensor", "fmod.Scalar")
def fmod(g: GraphText, meta: Any, a: Any, b: Any) -> Value:
    return g.op("mod", g.as_value(a, meta.dtype), g.as_value(b, meta.dtype), shape=meta.shape, fmod=1)


@lowers("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
def remainder(g: GraphText, meta: Any, a: Any, b: Any) -> Value:
    x, y = g.as_value(a, meta.dtype), g.as_value(b, meta.dtype)
    if not meta.dtype.is_floating_point:
        return g.op("mod", x, y, shape=meta.shape)
    zero, shape = g.const(0, meta.dtype), meta.shape
    rest = g.op("mod", x, y, shape=shape, fmod=1)
    differs = g.op("xor", g.op("less", y, zero, dtype=torch.bool), g.op("less", rest, zero, dtype=torch.bool),
                   dtype=torch.bool, shape=shape)
    differs = g.op("and", differs, g.op("not", g.op("equal", rest, zero, dtype=torch.bool)), dtype=torch.bool, shape=shape)
    return g.where(differs, g.op("add", rest, y, shape=shape), rest, meta.dtype, shape)


@lowers("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def power(g: GraphText, meta: Any, a: Any, b: Any) -> Value:
    if not meta.dtype.is_floating_point:
        if isinstance(b, int) and 0 <= b <= 8 and isinstance(a, Value):
            x = g.cast(a, meta.dtype)
            total = g.full(meta.shape, 1, meta.dtype) if b == 0 else x
            for _ in range(b - 1):
                total = g.op("mul", total, x)
            return total
        raise Unsupported("powers of integers")
    x = g.as_value(a, meta.dtype)
    if isinstance(b, (int, float)) and not isinstance(b, bool):
        if b == 2:
            return g.op("mul", x, x)
        if b == 1:
            return x
        if b == 0.5:
            return g.op("sqrt", x)
        if b == -0.5:
            return g.op("rsqrt", x)
        if b == 3:
            return g.op("mul", g.op("mul", x, x), x)
    return g.op("pow", x, g.as_value(b, meta.dtype), shape=meta.shape)


# Functions of one element, on floats; integers become floats first.
for aten, name in {"exp": "exp", "log": "log", "sqrt": "sqrt", "rsqrt": "rsqrt", "sin": "sin", "cos": "cos", "tan": "tan",
                   "asin": "asin", "acos": "acos", "atan": "atan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh",
                   "asinh": "asinh", "acosh": "acosh", "atanh": "atanh", "erf": "erf", "sigmoid": "sigmoid",
                   "reciprocal": "reciprocal"}.items():
    @lowers(aten)
    def _unary(g: GraphText, meta: Any, x: Value, name: str = name) -> Value:
        return g.op(name, g.cast(x, meta.dtype))

# The same of any numbers: integers stay what they are.
for aten, name in {"neg": "neg", "abs": "abs", "sign": "sign"}.items():
    @lowers(aten)
    def _signed(g: GraphText, meta: Any, x: Value, name: str = name) -> Value:
        if x.dtype == torch.bool:
            return x
        if x.dtype == torch.uint8:
            return x if name == "abs" else g.cast(g.op(name, g.cast(x, torch.int32)), x.dtype)
        return g.op(name, x)

for aten in ("floor", "ceil", "round"):
    @lowers(aten)
    def _rounded(g: GraphText, meta: Any, x: Value, name: str = aten) -> Value:
        return g.op(name, x) if x.dtype.is_floating_point else x


@lowers("round.decimals")
def round_decimals(g: GraphText, meta: Any, x: Value, *, decimals: int = 0) -> Value:
    if not x.dtype.is_floating_point:
        return x
    power = g.const(10.0 ** abs(decimals), x.dtype)
    up, down = ("mul", "div") if decimals > 0 else ("div", "mul")
    return g.op(down, g.op("round", g.op(up, x, power)), power)


@lowers("sgn")
def sgn(g: GraphText, meta: Any, x: Value) -> Value:
    return _signed(g, meta, x, "sign")


@lowers("expm1")
def expm1(g: GraphText, meta: Any, x: Value) -> Value:
    # exp(x) - 1 loses digits near 0; tanh(x / 2) * (exp(x) + 1) is the same and does not.
    x = g.cast(x, meta.dtype)
    small = g.op("mul", g.op("tanh", g.op("mul", x, g.const(0.5, x.dtype))),
                 g.op("add", g.op("exp", x), g.const(1, x.dtype)))
    near = g.op("less", g.op("abs", x), g.const(1, x.dtype), dtype=torch.bool)
    return g.where(near, small, g.op("sub", g.op("exp", x), g.const(1, x.dtype)), x.dtype, x.shape)


@lowers("log1p")
def log1p(g: GraphText, meta: Any, x: Value) -> Value:
    # log(1 + x) * x / ((1 + x) - 1), which makes up for the rounding of 1 + x.
    x = g.cast(x, meta.dtype)
    one = g.const(1, x.dtype)
    near = g.op("less", g.op("abs", x), g.const(0.5, x.dtype), dtype=torch.bool)
    half = g.op("div", x, g.op("add", x, g.const(2, x.dtype)))  # log1p(x) = 2 atanh(x / (x + 2))
    return g.where(near, g.op("mul", g.op("atanh", half), g.const(2, x.dtype)), g.op("log", g.op("add", x, one)), x.dtype, x.shape)


@lowers("log2")
def log2(g: GraphText, meta: Any, x: Value) -> Value:
    return g.op("div", g.op("log", g.cast(x, meta.dtype)), g.const(math.log(2), meta.dtype))


@lowers("log10")
def log10(g: GraphText, meta: Any, x: Value) -> Value:
    return g.op("div", g.op("log", g.cast(x, meta.dtype)), g.const(math.log(10), meta.dtype))


@lowers("exp2")
def exp2(g: GraphText, meta: Any, x: Value) -> Value:
    return g.op("pow", g.const(2, meta.dtype), g.cast(x, meta.dtype), shape=meta.shape)


@lowers("atan2")
def atan2(g: GraphText, meta: Any, a: Value, b: Value) -> Value:
    y, x, shape, t = g.cast(a, meta.dtype), g.cast(b, meta.dtype), meta.shape, meta.dtype
    zero = g.const(0, t)
    base = g.op("atan", g.op("div", y, x, shape=shape))
    left = g.op("less", x, zero, dtype=torch.bool)
    # The sign of y, also of -0.
    down = g.op("or", g.op("less", y, zero, dtype=torch.bool),
                g.op("less", g.op("div", g.const(1, t), y), zero, dtype=torch.bool), dtype=torch.bool)
    half_turn = g.where(down, -math.pi, math.pi, t, shape)
    turned = g.where(left, g.op("add", base, half_turn, shape=shape), base, t, shape)
    quarter = g.where(g.op("less", y, zero, dtype=torch.bool), -math.pi / 2, math.pi / 2, t, shape)
    at_zero = g.op("and", g.op("equal", x, zero, dtype=torch.bool),
                   g.op("not", g.op("equal", y, zero, dtype=torch.bool)), dtype=torch.bool, shape=shape)
    turned = g.where(at_zero, quarter, turned, t, shape)
    both = g.op("and", g.op("equal", x, zero, dtype=torch.bool), g.op("equal", y, zero, dtype=torch.bool),
                dtype=torch.bool, shape=shape)
    x_down = g.op("less", g.op("div", g.const(1, t), x), zero, dtype=torch.bool)
    origin = g.where(x_down, half_turn, y, t, shape)
    turned = g.where(both, origin, turned, t, shape)
    infinite = g.op("and", g.op("is_inf", x, dtype=torch.bool), g.op("is_inf", y, dtype=torch.bool), dtype=torch.bool, shape=shape)
    corner = g.where(left, 3 * math.pi / 4, math.pi / 4, t, shape)
    corner = g.where(down, g.op("neg", corner), corner, t, shape)
    return g.where(infinite, corner, turned, t, shape)


@lowers("hypot")
def hypot(g: GraphText, meta: Any, a: Value, b: Value) -> Value:
    x, y = g.cast(a, meta.dtype), g.cast(b, meta.dtype)
    return g.op("sqrt", g.op("add", g.op("mul", x, x), g.op("mul", y, y), shape=meta.shape))


@lowers("relu")
def relu(g: GraphText, meta: Any, x: Value) -> Value:
    return g.op("relu", x) if x.dtype.is_floating_point else g.op("max", x, g.const(0, x.dtype))


@lowers("gelu")
def gelu(g: GraphText, meta: Any, x: Value, approximate: str = "none") -> Value:
    return g.op("gelu", x, approximate=approximate)


@lowers("silu")
def silu(g: GraphText, meta: Any, x: Value) -> Value:
    return g.op("swish", x)


@lowers("mish")
def mish(g: GraphText, meta: Any, x: Value) -> Value:
    return g.op("mish", x)


@lowers("leaky_relu")
def leaky_relu(g: GraphText, meta: Any, x: Value, slope: float = 0.01) -> Value:
    positive = g.op("greater", x, g.const(0, x.dtype), dtype=torch.bool)
    return g.where(positive, x, g.op("mul", x, g.const(slope, x.dtype)), x.dtype, x.shape)


@lowers("elu")
def elu(g: GraphText, meta: Any, x: Value, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Value:
    low = g.op("mul", expm1(g, meta, g.op("mul", x, g.const(input_scale, x.dtype))), g.const(alpha * scale, x.dtype))
    positive = g.op("greater", x, g.const(0, x.dtype), dtype=torch.bool)
    return g.where(positive, g.op("mul", x, g.const(scale, x.dtype)), low, x.dtype, x.shape)


@lowers("hardtanh")
def hardtanh(g: GraphText, meta: Any, x: Value, low: Any = -1, high: Any = 1) -> Value:
    return g.op("min", g.op("max", x, g.const(low, x.dtype)), g.const(high, x.dtype))


@lowers("clamp", "clamp.Tensor", "clip")
def clamp(g: GraphText, meta: Any, x: Value, min: Any = None, max: Any = None) -> Value:
    y = g.cast(x, meta.dtype)
    if min is not None:
        y = g.op("max", y, g.as_value(min, meta.dtype), shape=meta.shape)
    if max is not None:
        y = g.op("min", y, g.as_value(max, meta.dtype), shape=meta.shape)
    return y


@lowers("clamp_min", "clamp_min.Tensor")
def clamp_min(g: GraphText, meta: Any, x: Value, low: Any) -> Value:
    return clamp(g, meta, x, low)


@lowers("clamp_max", "clamp_max.Tensor")
def clamp_max(g: GraphText, meta: Any, x: Value, high: Any) -> Value:
    return clamp(g, meta, x, None, high)


for aten, name in {"eq": "equal", "lt": "less", "le": "less_or_equal", "gt": "greater", "ge": "greater_or_equal"}.items():
    @lowers(f"{aten}.Tensor", f"{aten}.Scalar")
    def _compare(g: GraphText, meta: Any, a: Any, b: Any, name: str = name) -> Value:
        dtype = wide(g, a, b)
        if dtype == torch.bool and name != "equal":
            dtype = torch.uint8
        return g.binary(name, a, b, dtype, torch.bool, meta.shape)


@lowers("ne.Tensor", "ne.Scalar")
def ne(g: GraphText, meta: Any, a: Any, b: Any) -> Value:
    return g.op("not", g.binary("equal", a, b, wide(g, a, b), torch.bool, meta.shape))


for aten, name in {"logical_and": "and", "logical_or": "or", "logical_xor": "xor"}.items():
    @lowers(aten)
    def _logical(g: GraphText, meta: Any, a: Any, b: Any, name: str = name) -> Value:
        return g.binary(name, a, b, torch.bool, shape=meta.shape)


@lowers("logical_not")
def logical_not(g: GraphText, meta: Any, x: Value) -> Value:
    return g.op("not", g.cast(x, torch.bool))


for aten, name in {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}.items():
    @lowers(f"{aten}.Tensor", f"{aten}.Scalar", f"{aten}.Scalar_Tensor")
    def _bitwise(g: GraphText, meta: Any, a: Any, b: Any, name: str = name) -> Value:
        return g.binary(name if meta.dtype == torch.bool else "bitwise_" + name, a, b, meta.dtype, shape=meta.shape)


@lowers("bitwise_not")
def bitwise_not(g: GraphText, meta: Any, x: Value) -> Value:
    return g.op("not" if x.dtype == torch.bool else "bitwise_not", x)


@lowers("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def where(g: GraphText, meta: Any, condition: Value, a: Any, b: Any) -> Value:
    return g.where(condition, a, b, meta.dtype, meta.shape)


@lowers("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(g: GraphText, meta: Any, x: Value, mask: Value, value: Any) -> Value:
    return g.where(mask, value, x, meta.dtype, meta.shape)


@lowers("isnan")
def isnan(g: GraphText, meta: Any, x: Value) -> Value:
    if not x.dtype.is_floating_point:
        return g.full(meta.shape, False, torch.bool)
    return g.op("is_nan", x, dtype=torch.bool)


@lowers("isinf")
def isinf(g: GraphText, meta: Any, x: Value) -> Value:
    if not x.dtype.is_floating_point:
        return g.full(meta.shape, False, torch.bool)
    return g.op("is_inf", x, dtype=torch.bool)


@lowers("_to_copy")
def to_copy(g: GraphText, meta: Any, x: Value, **given: Any) -> Value:
    if x.dtype.is_floating_point and not meta.dtype.is_floating_point and meta.dtype not in (torch.bool, torch.int64, torch.int32):
        x = g.cast(x, torch.int64)  # then wraps, as PyTorch's does
    return g.cast(x, meta.dtype)


@lowers("convert_element_type", namespace="prims")
def convert(g: GraphText, meta: Any, x: Value, dtype: torch.dtype) -> Value:
    return to_copy(g, meta, x)


@lowers("clone", "alias", "lift_fresh_copy", "lift_fresh", "detach", "contiguous")
def clone(g: GraphText, meta: Any, x: Value, **given: Any) -> Value:
    return x


@lowers("copy")
def copy(g: GraphText, meta: Any, x: Value, source: Any, non_blocking: bool = False) -> Value:
    return g.expand(g.as_value(source, meta.dtype), meta.shape)


@lowers("fill.Scalar", "fill.Tensor", "full_like")
def fill(g: GraphText, meta: Any, x: Value, value: Any, **given: Any) -> Value:
    if isinstance(value, Value):
        return g.expand(g.cast(value, meta.dtype), meta.shape)
    return g.full(meta.shape, value, meta.dtype)


@lowers("full")
def full(g: GraphText, meta: Any, size: Any, value: Any, **given: Any) -> Value:
    return g.full(meta.shape, value, meta.dtype)


@lowers("scalar_tensor")
def scalar_tensor(g: GraphText, meta: Any, value: Any, **given: Any) -> Value:
    return g.full((), value, meta.dtype)


@lowers("new_full")
def new_full(g: GraphText, meta: Any, x: Value, size: Any, value: Any, **given: Any) -> Value:
    return g.full(meta.shape, value, meta.dtype)


# What lies in a new tensor is not defined: zeros as well as anything.
@lowers("zeros", "zeros_like", "new_zeros", "empty.memory_format", "empty_permuted", "empty_like", "empty_strided", "new_empty",
        "new_empty_strided")
def zeros(g: GraphText, meta: Any, *given: Any, **named: Any) -> Value:
    return g.full(meta.shape, 0, meta.dtype)


@lowers("ones", "ones_like", "new_ones")
def ones(g: GraphText, meta: Any, *given: Any, **named: Any) -> Value:
    return g.full(meta.shape, 1, meta.dtype)


@lowers("arange.start_step", "arange", "arange.start")
def arange(g: GraphText, meta: Any, *given: Any, **named: Any) -> Value:
    start = given[0] if len(given) > 1 else 0
    step = given[2] if len(given) > 2 else 1
    if meta.dtype.is_floating_point or any(isinstance(v, float) for v in (start, step)):
        start, step = float(start), float(step)
        count = g.op("range", g.const(0, torch.int64), g.scalar_size(meta.shape[0]), g.const(1, torch.int64),
                     dtype=torch.int64, shape=meta.shape)
        y = g.op("mul", g.cast(count, torch.float64), g.const(step, torch.float64))
        return g.cast(g.op("add", y, g.const(start, torch.float64)), meta.dtype)
    first = g.const(start, torch.int64)
    count = g.op("range", g.const(0, torch.int64), g.scalar_size(meta.shape[0]), g.const(1, torch.int64), dtype=torch.int64,
                 shape=meta.shape)
    if step != 1:
        count = g.op("mul", count, g.const(step, torch.int64))
    return g.cast(count if isinstance(start, int) and start == 0 else g.op("add", count, first), meta.dtype)


@lowers("iota", namespace="prims")
def iota(g: GraphText, meta: Any, length: Any, start: Any = 0, step: Any = 1, **given: Any) -> Value:
    return arange(g, meta, start, None, step)
