"""Functions of the language that are made of others."""

from __future__ import annotations

from typing import Any

from . import _types as types
from ._core import (arange, broadcast_to, builder, builtin, checked_axis, dtype_of, expand_dims, full, member, operand, ravel, reduce, reshape,
                    tensor, to_tensor, where)


@builtin
def zeros(shape: Any, dtype: types.dtype) -> tensor: return full(shape, 0, dtype)  # type: ignore[no-any-return]
@builtin
def zeros_like(input: tensor) -> tensor: return zeros(list(input.shape), input.dtype)  # type: ignore[no-any-return]


@builtin
def cdiv(x: Any, div: Any) -> Any: return (x + div - 1) // div


# Functions of elements.
def _unary(name: str) -> Any:
    def apply(x: Any) -> tensor:
        if name != "abs":
            _check_types(("fp32", "fp64", "fp16", "bf16"), x)
        return tensor(builder().unary(name, operand(x)))
    apply.__name__ = name
    return member(builtin(apply))


abs, exp, exp2, log, log2, sin, cos, sqrt, rsqrt, erf, floor, ceil = (
    _unary(n) for n in ("abs", "exp", "exp2", "log", "log2", "sin", "cos", "sqrt", "rsqrt", "erf", "floor", "ceil"))
sqrt_rn = sqrt
tensor.sqrt_rn, tensor.cdiv = sqrt_rn, cdiv  # type: ignore[attr-defined]


def _check_types(allowed: tuple[str, ...], *values: Any) -> None:
    """The element types that a function is for."""
    for kind in map(dtype_of, values):
        if kind.name not in allowed:
            raise ValueError(f"Expected dtype {list(allowed)} but got {kind}")


@builtin
def fma(x: Any, y: Any, z: Any) -> tensor: return tensor(builder().fma(operand(x), operand(y), operand(z)))
@builtin
def fdiv(x: Any, y: Any, ieee_rounding: bool = False) -> tensor:
    if not (dtype_of(x).is_floating() and dtype_of(y).is_floating()):
        raise TypeError("both operands of fdiv must have floating scalar type")
    made = div_rn(x, y) if ieee_rounding else to_tensor(x) / y
    kinds = {dtype_of(v) for v in (x, y)}
    return made.to(kinds.pop()) if len(kinds) == 1 else made  # type: ignore[no-any-return]
@builtin
def div_rn(x: Any, y: Any) -> tensor:
    _check_types(("fp32", "fp64", "fp16", "bf16"), x, y)
    return tensor(builder().binary("div_rn", operand(x), operand(y)))
@builtin
def umulhi(x: Any, y: Any) -> tensor:
    _check_types(("int32", "int64", "uint32", "uint64"), x, y)
    return tensor(builder().binary("umulhi", operand(x), operand(y)))
@member
@builtin
def sigmoid(x: tensor) -> tensor: return 1 / (1 + exp(-x))  # type: ignore[no-any-return]


@member
@builtin
def softmax(x: tensor, dim: Any = None, keep_dims: bool = False, ieee_rounding: bool = False) -> tensor:
    axis = 0 if dim is None else dim
    z = x - max(x, axis, keep_dims=True)
    e = exp(z)
    return e / sum(e, axis, keep_dims=True)  # type: ignore[no-any-return]


# Reductions.
def _reduced(how: str, x: tensor, axis: Any, keep_dims: bool) -> tensor:
    rank = len(x.shape)
    if rank == 0:
        return x
    if how in ("max", "min") and x.dtype.is_floating():
        x = where(x != x, float("-inf") if how == "max" else float("inf"), x)  # NaN is passed over  # noqa: PLR0124
    if axis is None:
        made = tensor(builder().reduce(how, ravel(x).handle, 0, False))
        return reshape(broadcast_to(made, [1]), [1] * rank) if keep_dims else made
    return tensor(builder().reduce(how, x.handle, checked_axis(axis, rank), keep_dims))


def _at_least_32_bits(x: tensor) -> tensor:
    if x.dtype.primitive_bitwidth >= 32:
        return x
    return x.to(types.float32 if x.dtype.is_floating() else types.uint32 if x.dtype.is_int_unsigned() else types.int32)


def _compared(x: tensor) -> tensor:
    """As it is compared: in 32 bits or more."""
    if x.dtype.primitive_bitwidth >= 32:
        return x
    return x.to(types.float32 if x.dtype.is_floating() else types.int32)


@member
@builtin
def sum(input: tensor, axis: Any = None, keep_dims: bool = False, dtype: Any = None) -> tensor:
    if dtype is not None:
        return _reduced("sum", input.to(dtype), axis, keep_dims)
    narrow = input.dtype
    if narrow.is_int() or narrow.primitive_bitwidth <= 16:
        input = _at_least_32_bits(input)
    made = _reduced("sum", input, axis, keep_dims)
    return made.to(narrow) if narrow.is_floating() else made


@member
@builtin
def xor_sum(input: tensor, axis: Any = None, keep_dims: bool = False) -> tensor:
    if not input.dtype.is_int():
        raise ValueError("xor_sum only supported for integers")
    return _reduced("xor", input, axis, keep_dims)


def _first(better: Any, x: tensor, axis: Any, keep_dims: bool, left: bool) -> tuple[tensor, tensor]:
    """The best element along an axis, and where it is: the first of equal ones."""
    rank = len(x.shape)
    if axis is None:
        x, axis = ravel(x), 0
    axis = checked_axis(axis, len(x.shape)) % len(x.shape)
    keys: list[Any] = [None] * len(x.shape)
    keys[axis] = slice(None)
    index = broadcast_to(arange(0, x.shape[axis])[tuple(keys)], list(x.shape))

    def combine(v1: Any, i1: Any, v2: Any, i2: Any) -> Any:
        ahead = better(v1, v2) | ((v1 == v2) & (i1 < i2)) if left else better(v1, v2)
        return where(ahead, v1, v2), where(ahead, i1, i2)

    values, where_ = reduce((x, index), axis, combine, keep_dims=keep_dims)
    if keep_dims and len(values.shape) != rank:
        values, where_ = (reshape(broadcast_to(t, [1]), [1] * rank) for t in (values, where_))
    return values, where_


@member
@builtin
def max(input: tensor, axis: Any = None, return_indices: bool = False, return_indices_tie_break_left: bool = True,
        keep_dims: bool = False) -> Any:
    if return_indices:
        input = input.to(types.float32) if input.dtype.is_bf16() else input
        return _first(lambda a, b: a > b, input, axis, keep_dims, return_indices_tie_break_left)
    return _reduced("max", _compared(input), axis, keep_dims)


@member
@builtin
def min(input: tensor, axis: Any = None, return_indices: bool = False, return_indices_tie_break_left: bool = True,
        keep_dims: bool = False) -> Any:
    if return_indices:
        input = input.to(types.float32) if input.dtype.is_bf16() else input
        return _first(lambda a, b: a < b, input, axis, keep_dims, return_indices_tie_break_left)
    return _reduced("min", _compared(input), axis, keep_dims)


@member
@builtin
def reduce_or(input: tensor, axis: Any, keep_dims: bool = False) -> tensor:
    if not input.dtype.is_int():
        raise ValueError("reduce_or only supported for integers")
    return reduce(input, axis, lambda a, b: a | b, keep_dims=keep_dims)  # type: ignore[no-any-return]


@member
@builtin
def argmax(input: tensor, axis: Any, tie_break_left: bool = True, keep_dims: bool = False) -> tensor:
    return _first(lambda a, b: a > b, input, axis, keep_dims, tie_break_left)[1]
@member
@builtin
def argmin(input: tensor, axis: Any, tie_break_left: bool = True, keep_dims: bool = False) -> tensor:
    return _first(lambda a, b: a < b, input, axis, keep_dims, tie_break_left)[1]


# Scans and sorting.
@member
@builtin
def cumsum(input: tensor, axis: int = 0, reverse: bool = False, dtype: Any = None) -> tensor:
    from ._core import associative_scan
    if dtype is not None:
        input = input.to(dtype)
    else:
        input = _at_least_32_bits(input) if input.dtype.is_int() or input.dtype == types.bfloat16 else input
    return associative_scan(input, axis, lambda a, b: a + b, reverse)  # type: ignore[no-any-return]


@member
@builtin
def cumprod(input: tensor, axis: int = 0, reverse: bool = False) -> tensor:
    from ._core import associative_scan
    if input.dtype == types.bfloat16:
        input = _at_least_32_bits(input)
    return associative_scan(input, axis, lambda a, b: a * b, reverse)  # type: ignore[no-any-return]


@member
@builtin
def flip(x: tensor, dim: Any = None) -> tensor:
    if dim is None and len(x.shape) != 1:
        raise ValueError("flip() of more than one dimension needs dim")
    return tensor(builder().flip(x.handle, 0 if dim is None else dim))


def _exchange(x: tensor, step: int, descending: Any) -> tensor:
    """Elements `step` apart in order, pair by pair; `descending` says which pairs the other way round."""
    n = x.shape[-1]
    pairs = reshape(x, [*x.shape[:-1], n // (2 * step), 2, step])
    other = flip(pairs, -2)
    first = expand_dims(arange(0, 2) == 0, -1)
    wants_small = first != descending
    smaller, larger = where(pairs < other, pairs, other), where(pairs < other, other, pairs)
    return reshape(where(wants_small, smaller, larger), list(x.shape))  # type: ignore[no-any-return]


@member
@builtin
def bitonic_merge(x: tensor, dim: Any = None, descending: bool = False) -> tensor:
    """In order, if it rises and then falls along the last dimension."""
    if dim is not None and dim % len(x.shape) != len(x.shape) - 1:
        raise ValueError("only minor dimension is currently supported")
    step = x.shape[-1] // 2
    while step:
        x = _exchange(x, step, descending)
        step //= 2
    return x


@member
@builtin
def sort(x: tensor, dim: Any = None, descending: bool = False) -> tensor:
    if dim is not None and dim % len(x.shape) != len(x.shape) - 1:
        raise ValueError("only minor dimension is currently supported")
    n = x.shape[-1]
    length = 2
    while length <= n:
        step = length // 2
        while step:
            if length == n:
                way: Any = descending
            else:
                number = arange(0, n // (2 * step)) // (length // (2 * step))
                way = expand_dims(expand_dims((number % 2) != (1 if descending else 0), -1), -1)
            x = _exchange(x, step, way)
            step //= 2
        length *= 2
    return x


@member
@builtin
def topk(x: tensor, k: int, dim: Any = None) -> tensor:
    ordered = sort(_compared(x), dim, descending=True)
    while ordered.shape[-1] > k:
        from ._core import permute, split
        halves = reshape(ordered, [*ordered.shape[:-1], 2, ordered.shape[-1] // 2])
        rank = len(halves.shape)
        ordered, _ = split(permute(halves, *range(rank - 2), rank - 1, rank - 2))
    return ordered  # type: ignore[no-any-return]


@member
@builtin
def histogram(input: tensor, num_bins: int, mask: Any = None) -> tensor:
    if not input.dtype.is_int():
        raise AssertionError("histogram only supports integer input")
    if len(input.shape) != 1:
        raise AssertionError("histogram only supports 1D input")
    hits = expand_dims(input, 1) == expand_dims(arange(0, num_bins).to(input.dtype), 0)
    if mask is not None:
        hits = hits & expand_dims(mask, 1)
    return _reduced("sum", hits.to(types.int32), 0, False)


@builtin
def swizzle2d(i: Any, j: Any, size_i: Any, size_j: Any, size_g: Any) -> tuple[Any, Any]:
    """Row-major places of a grid, in groups of `size_g` rows that are column-major."""
    from ._core import minimum
    place = i * size_j + j
    in_group = size_g * size_j
    group = place // in_group
    row = group * size_g
    height = minimum(size_i - row, size_g)
    place = place % in_group
    return row + place % height, place // height
