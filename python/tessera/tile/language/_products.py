"""Products of tiles."""

from __future__ import annotations

from typing import Any

from . import _types as types
from ._core import (broadcast_to, builder, builtin, expand_dims, full, join, permute, reshape, tensor, to_tensor, trans,
                    where)
from ._types import dtype

_PRECISIONS = (None, "tf32", "tf32x3", "ieee", "bf16x3", "bf16x6")
_FORMATS = {"e4m3": types.float8e4nv, "e5m2": types.float8e5, "bf16": types.bfloat16, "fp16": types.float16}
_PER_SCALE = 32  # elements along k that one scale is for


def _check_operands(a: tensor, b: tensor, acc: Any) -> None:
    if len(a.shape) != len(b.shape) or len(a.shape) < 2:
        raise AssertionError(f"input and other must have equal ranks >= 2, and have {list(a.shape)} and {list(b.shape)}")
    if a.dtype != b.dtype and not all(t.dtype.is_fp8() or t.dtype.is_int() for t in (a, b)):
        raise AssertionError(f"Both operands must be same dtype. Got {a.dtype} and {b.dtype}")
    if a.shape[-1] != b.shape[-2]:
        raise AssertionError(f"input and other must have equal reduction dimensions: {list(a.shape)} and {list(b.shape)}")
    if a.shape[:-2] != b.shape[:-2]:
        raise AssertionError(f"input and other must have equal batch shapes: {list(a.shape)} and {list(b.shape)}")
    made = (*a.shape[:-1], b.shape[-1])
    if isinstance(acc, tensor) and acc.shape != made:
        raise AssertionError(f"accumulator shape is incompatible: {list(acc.shape)}, and the product has {list(made)}")


@builtin
def dot(input: tensor, other: tensor, acc: Any = None, input_precision: Any = None, allow_tf32: Any = None,
        max_num_imprecise_acc: Any = None, out_dtype: dtype = types.float32) -> tensor:
    if input_precision not in _PRECISIONS:
        raise ValueError(f"input_precision must be one of {_PRECISIONS[1:]}. Got {input_precision}")
    if input.dtype.is_int() and input.dtype.primitive_bitwidth != 8:
        raise TypeError(f"Unsupported lhs dtype {input.dtype}: products of integers are of 8 bits")
    if input_precision is not None and allow_tf32 is not None:
        raise AssertionError("Only one of input_precision and allow_tf32 can be specified")
    rank = len(input.shape)
    _check_operands(input, other, acc)
    if rank > 3 and len(other.shape) == rank and input.shape[:-2] == other.shape[:-2]:  # pairs along one dimension
        a, b = (reshape(t, [t.numel // (t.shape[-2] * t.shape[-1]), *t.shape[-2:]]) for t in (input, other))
        into = None if acc is None else reshape(acc, [a.shape[0], *acc.shape[-2:]])
        made = dot(a, b, into, input_precision, allow_tf32, max_num_imprecise_acc, out_dtype)
        return reshape(made, [*input.shape[:-2], *made.shape[-2:]])  # type: ignore[no-any-return]
    if input_precision is None:
        input_precision = "ieee" if allow_tf32 is not None and not allow_tf32 else "tf32"
    imprecise, depth = 0, input.shape[-1]
    if max_num_imprecise_acc is not None and input.dtype.is_fp8() and other.dtype.is_fp8():
        if max_num_imprecise_acc > depth:
            raise ValueError(f"max_num_imprecise_acc ({max_num_imprecise_acc}) must be <= K ({depth})")
        imprecise = max(int(max_num_imprecise_acc), 1)
    return tensor(builder().dot(input.handle, other.handle, None if acc is None else to_tensor(acc).handle, out_dtype.core,
                                imprecise, input_precision))


def _scales(scale: tensor) -> tensor:
    """Floats of 8 bits, or powers of two by their exponents: 2^(s - 127); 255 is NaN."""
    if scale.dtype.is_floating():
        return scale.to(types.float32)
    s = scale.to(types.uint8, bitcast=True).to(types.int32)
    power = where(s == 0, 0x00400000, s << 23)
    power = where(s == 255, 0x7FC00000, power)
    return power.to(types.float32, bitcast=True)  # type: ignore[no-any-return]


def _halves(x: tensor) -> tensor:
    """Floats of four bits, two in a byte along the last dimension, the lower half first."""
    bits = x.to(types.uint8, bitcast=True)
    both = join(bits & 0xF, bits >> 4)
    both = reshape(both, [*x.shape[:-1], 2 * x.shape[-1]]).to(types.int32)
    exponent, half = (both >> 1) & 3, (both & 1).to(types.float32) * 0.5
    size = where(exponent == 0, half, (1 + half) * (1 << where(exponent == 0, 0, exponent - 1)).to(types.float32))
    return where(both & 8 != 0, -size, size)  # type: ignore[no-any-return]


def _numbers(x: tensor, form: str, packed_last: bool, swap: bool) -> tensor:
    """As f32, with k along the last dimension. `swap`: k comes first; `packed_last`: halves lie side by side along k."""
    last = len(x.shape) - 1
    order = [*range(last - 1), last, last - 1]
    if form == "e2m1":
        if packed_last:
            return _halves(permute(x, order) if swap else x)
        spread = _halves(x if swap else permute(x, order))
        return permute(spread, order)  # type: ignore[no-any-return]
    kind = _FORMATS[form]
    if x.dtype != kind:
        x = x.to(kind, bitcast=True)
    x = x.to(types.float32)
    return permute(x, order) if swap else x


def _scaled(x: tensor, scale: Any) -> tensor:
    if scale is None:
        return x
    factor = _scales(scale)
    per = x.shape[-1] // factor.shape[-1]
    wide = broadcast_to(expand_dims(factor, -1), [*factor.shape, per])
    return x * reshape(wide, list(x.shape))  # type: ignore[no-any-return]


@builtin
def dot_scaled(lhs: tensor, lhs_scale: Any, lhs_format: str, rhs: tensor, rhs_scale: Any, rhs_format: str, acc: Any = None,
               fast_math: bool = False, lhs_k_pack: bool = True, rhs_k_pack: bool = True,
               out_dtype: dtype = types.float32) -> tensor:
    """A product of floats of few bits, with one power of two for each 32 of them along k."""
    for form in (lhs_format, rhs_format):
        if form not in (*_FORMATS, "e2m1"):
            raise ValueError(f"NYI: format {form}: e2m1, e4m3, e5m2, bf16 or fp16")
    a = _scaled(_numbers(lhs, lhs_format, lhs_k_pack, False), lhs_scale)
    b = _scaled(_numbers(rhs, rhs_format, rhs_k_pack, True), rhs_scale)
    if a.shape[-1] != b.shape[-1]:
        raise ValueError(f"reduction dimensions differ: {a.shape[-1]} and {b.shape[-1]}")
    made = dot(a, trans(b))
    if acc is not None:
        return made.to(acc.dtype) + acc  # type: ignore[no-any-return]
    return made.to(out_dtype)  # type: ignore[no-any-return]


__all__ = ["dot", "dot_scaled", "full"]
