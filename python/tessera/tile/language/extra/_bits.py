"""Functions of bits and of whole numbers, by their names in libdevice."""

from __future__ import annotations

from typing import Any

from .. import _types as types
from .._core import builtin, tensor, to_tensor, unwatched, where
from .._standard import abs, ceil, floor, umulhi
from .._standard import _unary

_rint, _trunc = _unary("rint"), _unary("trunc")
_ROUNDED = {"rn": _rint, "rz": _trunc, "rd": floor, "ru": ceil}


def _bits(name: str, to: types.dtype) -> Any:
    def apply(x: Any) -> tensor: return to_tensor(x).to(to, bitcast=True)
    apply.__name__ = name
    return builtin(apply)


float_as_int, float_as_uint = _bits("float_as_int", types.int32), _bits("float_as_uint", types.uint32)
int_as_float, uint_as_float = _bits("int_as_float", types.float32), _bits("uint_as_float", types.float32)
double_as_longlong, longlong_as_double = _bits("double_as_longlong", types.int64), _bits("longlong_as_double", types.float64)


def _whole(name: str, how: str, to: types.dtype) -> Any:
    def apply(x: Any) -> tensor: return _ROUNDED[how](to_tensor(x)).to(to)  # type: ignore[no-any-return]
    apply.__name__ = name
    return builtin(apply)


for _from in ("float", "double"):
    for _to, _type in (("int", types.int32), ("uint", types.uint32), ("ll", types.int64), ("ull", types.uint64)):
        for _how in _ROUNDED:
            globals()[f"{_from}2{_to}_{_how}"] = _whole(f"{_from}2{_to}_{_how}", _how, _type)
for _from in ("int", "uint", "ll", "ull"):
    globals()[f"{_from}2double_rn"] = builtin(lambda x: to_tensor(x).to(types.float64))
    globals()[f"{_from}2float_rn"] = builtin(lambda x: to_tensor(x).to(types.float32))


@builtin
def double2hiint(x: Any) -> tensor: return (to_tensor(x).to(types.int64, bitcast=True) >> 32).to(types.int32)
@builtin
def double2loint(x: Any) -> tensor: return to_tensor(x).to(types.int64, bitcast=True).to(types.int32)
@builtin
def hiloint2double(high: Any, low: Any) -> tensor:
    word = to_tensor(high).to(types.int64) << 32 | to_tensor(low).to(types.uint32).to(types.int64)
    return word.to(types.float64, bitcast=True)


def _unsigned(x: tensor) -> tensor: return x.to(types.of_core(f"u{x.dtype.primitive_bitwidth}"))
def _all(x: tensor, pattern: int) -> int: return pattern * (2**x.dtype.primitive_bitwidth // 255 if pattern < 256 else 1)


@builtin
@unwatched
def popc(x: Any) -> tensor:
    """How many bits are set."""
    u = _unsigned(to_tensor(x)).to(types.uint64)
    u = u - ((u >> 1) & 0x5555555555555555)
    u = (u & 0x3333333333333333) + ((u >> 2) & 0x3333333333333333)
    return (((u + (u >> 4)) & 0x0F0F0F0F0F0F0F0F) * 0x0101010101010101 >> 56).to(types.int32)


@builtin
def clz(x: Any) -> tensor:
    """How many bits above the highest that is set."""
    x = to_tensor(x)
    u, width = _unsigned(x), x.dtype.primitive_bitwidth
    for shift in (1, 2, 4, 8, 16, 32):
        u = u | (u >> shift) if shift < width else u
    return width - popc(u)  # type: ignore[no-any-return]


@builtin
def brev(x: Any) -> tensor:
    """The bits in the other order."""
    x = to_tensor(x)
    u, width = _unsigned(x), x.dtype.primitive_bitwidth
    step = width // 2
    while step:
        low = sum(1 << at for at in range(width) if not at & step)
        u = ((u >> step) & low) | ((u & low) << step)
        step //= 2
    return u.to(x.dtype)


@builtin
def byte_perm(x: Any, y: Any, selector: Any) -> tensor:
    """Four of the eight bytes of both words, by four digits of the selector."""
    both = to_tensor(y).to(types.uint32).to(types.uint64) << 32 | to_tensor(x).to(types.uint32).to(types.uint64)
    digits, made = to_tensor(selector).to(types.uint64), None
    for n in range(4):
        byte = (both >> (((digits >> 4 * n) & 7) << 3)) & 0xFF
        made = byte if made is None else made | byte << 8 * n
    assert made is not None
    return made.to(types.uint32).to(types.int32)


def _wide(x: Any) -> tensor: return to_tensor(x).to(types.int64)


@builtin
def hadd(x: Any, y: Any) -> tensor: return ((_wide(x) + _wide(y)) >> 1).to(to_tensor(x).dtype)
@builtin
def rhadd(x: Any, y: Any) -> tensor: return ((_wide(x) + _wide(y) + 1) >> 1).to(to_tensor(x).dtype)
@builtin
def sad(x: Any, y: Any, z: Any) -> tensor: return (abs(_wide(x) - _wide(y)) + _wide(z)).to(types.uint32)  # type: ignore[no-any-return]
@builtin
def mul24(x: Any, y: Any) -> tensor:
    kind = to_tensor(x).dtype
    a, b = ((_wide(v) << 40) >> 40 if kind.is_int_signed() else _wide(v) & 0xFFFFFF for v in (x, y))
    return (a * b).to(kind)
@builtin
def mulhi(x: Any, y: Any) -> tensor:
    x, y = to_tensor(x), to_tensor(y)
    if x.dtype.primitive_bitwidth == 32:
        wide = types.int64 if x.dtype.is_int_signed() else types.uint64
        return ((x.to(wide) * y.to(wide)) >> 32).to(x.dtype)  # type: ignore[no-any-return]
    high = umulhi(x, y)
    if x.dtype.is_int_unsigned():
        return high  # type: ignore[no-any-return]
    return high - where(x < 0, y, 0) - where(y < 0, x, 0)  # type: ignore[no-any-return]


__all__ = [name for name in dir() if name[0] != "_" and name not in ("Any", "abs", "annotations", "builtin", "ceil", "floor", "tensor",
                                                                    "to_tensor", "types", "umulhi", "unwatched", "where")]
