"""Random numbers by Philox: a function of a seed and a place, the same on every machine."""

from __future__ import annotations

from typing import Any

from . import _types as types
from ._core import builtin, dtype_of, full, maximum, tensor, to_tensor, unwatched, where
from ._standard import cos, log, sin, sqrt, umulhi

# By the bits of a word: what the keys grow by, and what the words are multiplied by.
_KEYS = {32: (0x9E3779B9, 0xBB67AE85), 64: (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)}
_FACTORS = {32: (0xD2511F53, 0xCD9E8D57), 64: (0xD2E7470EE14C6C93, 0xCA5A826395121157)}


def _word(x: Any, bits: int) -> tensor: return to_tensor(x).to(types.uint32 if bits == 32 else types.uint64)


@builtin
@unwatched
def philox_impl(c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any, n_rounds: int = 10) -> tuple[Any, Any, Any, Any]:
    bits = c0.dtype.primitive_bitwidth
    keys, factors = ([_word(n, bits) for n in table[bits]] for table in (_KEYS, _FACTORS))
    for _ in range(n_rounds):
        old0, old2 = c0, c2
        c0 = umulhi(old2, factors[1]) ^ c1 ^ k0
        c2 = umulhi(old0, factors[0]) ^ c3 ^ k1
        c1 = old2 * factors[1]
        c3 = old0 * factors[0]
        k0 = k0 + keys[0]
        k1 = k1 + keys[1]
    return c0, c1, c2, c3


@builtin
def philox(seed: Any, c0: Any, c1: Any, c2: Any, c3: Any, n_rounds: int = 10) -> tuple[Any, Any, Any, Any]:
    for what, given in (("seed", seed), ("counter", c0)):
        if not dtype_of(given).is_int():
            raise TypeError(f"the {what} of random numbers is an integer, not of type {dtype_of(given)}")
    wide = to_tensor(seed).to(types.uint64)
    bits = 64 if to_tensor(c0).dtype.primitive_bitwidth == 64 else 32
    low, high = (wide, wide * 0) if bits == 64 else (wide.to(types.uint32), (wide >> 32).to(types.uint32))
    words = [_word(c, bits) for c in (c0, c1, c2, c3)]
    return philox_impl(*words, low, high, n_rounds)  # type: ignore[no-any-return]


@builtin
def randint4x(seed: Any, offset: Any, n_rounds: int = 10) -> tuple[Any, Any, Any, Any]:
    offset = to_tensor(offset)
    if not offset.dtype.is_int():
        raise TypeError(f"offsets of random numbers are integers, not of type {offset.dtype}")
    low = offset.to(types.uint32)
    zero = low & 0
    high = (offset >> 32).to(types.uint32) if offset.dtype.primitive_bitwidth == 64 else zero
    return philox(seed, low, high, zero, zero, n_rounds)  # type: ignore[no-any-return]


@builtin
def randint(seed: Any, offset: Any, n_rounds: int = 10) -> tensor: return randint4x(seed, offset, n_rounds)[0]  # type: ignore[no-any-return]


@builtin
def uint_to_uniform_float(x: tensor) -> tensor:
    """From [0, 1)."""
    if not x.dtype.is_int() or x.dtype.primitive_bitwidth < 32:
        raise TypeError(f"random words have 32 or 64 bits, and no type {x.dtype}")
    wide = x.dtype.primitive_bitwidth == 64
    signed = x.to(types.int64 if wide else types.int32)
    positive = where(signed < 0, ~signed, signed).to(types.float32)
    return positive * (1.0842020432385337e-19 if wide else 4.6566127342e-10)  # type: ignore[no-any-return]


@builtin
def rand(seed: Any, offset: Any, n_rounds: int = 10) -> tensor:
    return uint_to_uniform_float(randint(seed, offset, n_rounds))  # type: ignore[no-any-return]


@builtin
def rand4x(seed: Any, offsets: Any, n_rounds: int = 10) -> tuple[Any, ...]:
    return tuple(uint_to_uniform_float(x) for x in randint4x(seed, offsets, n_rounds))


@builtin
def pair_uniform_to_normal(u1: tensor, u2: tensor) -> tuple[tensor, tensor]:
    """By Box and Muller."""
    u1 = maximum(full([], 1.0e-7, types.float32), u1)
    angle, radius = 6.283185307179586 * u2, sqrt(-2.0 * log(u1))
    return radius * cos(angle), radius * sin(angle)


@builtin
def randn(seed: Any, offset: Any, n_rounds: int = 10) -> tensor:
    a, b, _, _ = randint4x(seed, offset, n_rounds)
    return pair_uniform_to_normal(uint_to_uniform_float(a), uint_to_uniform_float(b))[0]  # type: ignore[no-any-return]


@builtin
def randn4x(seed: Any, offset: Any, n_rounds: int = 10) -> tuple[Any, ...]:
    u = rand4x(seed, offset, n_rounds)
    return (*pair_uniform_to_normal(u[0], u[1]), *pair_uniform_to_normal(u[2], u[3]))
