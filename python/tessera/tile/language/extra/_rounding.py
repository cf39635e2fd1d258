"""Arithmetic with a direction of rounding (_rn, _rz, _rd, _ru), by its names in libdevice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _types as types
from .._core import builtin, tensor, to_tensor, where
from .._standard import abs, sqrt

# How a result is found in float64, and what is left of it: of which the sign alone counts.
_Found = tuple[tensor, Callable[[tensor], tensor]]


def _next(x: tensor, up: Any) -> tensor:
    """The float next to one, upwards where `up` holds."""
    bits = types.of_core(f"i{x.dtype.primitive_bitwidth}")
    word = x.to(bits, bitcast=True)
    moved = where(x == 0, 1 | (word * 0), where((x > 0) == up, abs(x).to(bits, bitcast=True) + 1, abs(x).to(bits, bitcast=True) - 1))
    made = moved.to(x.dtype, bitcast=True)
    negative = where(x == 0, (up == 0), x < 0)
    finite = (x == x) & (abs(x) < float("inf"))  # noqa: PLR0124
    return where(finite, where(negative, -made, made), x)  # type: ignore[no-any-return]


def _two_sum(a: tensor, b: tensor) -> _Found:
    s = a + b
    t = s - a
    error = (a - (s - t)) + (b - t)

    def rest(nearest: tensor) -> tensor:
        left = s - nearest
        return where(left == 0, error, left)  # type: ignore[no-any-return]
    return s, rest


def _product(a: tensor, b: tensor) -> _Found: return a * b, lambda nearest: a * b - nearest
def _quotient(a: tensor, b: tensor) -> _Found: return a / b, lambda nearest: where(b < 0, nearest * b - a, a - nearest * b)
def _root(a: tensor) -> _Found: return sqrt(a), lambda nearest: a - nearest * nearest
def _fused(a: tensor, b: tensor, c: tensor) -> _Found: return _two_sum(a * b, c)


_OPERATIONS: dict[str, Callable[..., _Found]] = {
    "add": _two_sum, "sub": lambda a, b: _two_sum(a, -b), "mul": _product, "div": _quotient, "sqrt": _root, "fma": _fused,
    "rcp": lambda a: _quotient(a * 0 + 1, a)}


def _directed(name: str, how: str) -> Any:
    def apply(*args: Any) -> tensor:
        xs = [to_tensor(a) for a in args]
        if how != "rn" and not all(x.dtype.is_fp32() for x in xs):
            raise TypeError(f"{name}_{how} is for float32, not for {', '.join(str(x.dtype) for x in xs)}")
        if not all(x.dtype.is_fp32() for x in xs):
            return _OPERATIONS[name](*xs)[0]
        found, rest = _OPERATIONS[name](*(x.to(types.float64) for x in xs))
        nearest = found.to(types.float32)
        if how == "rn":
            return nearest
        left = rest(nearest.to(types.float64))
        below = nearest < 0 if how == "rz" else None
        up = left > 0 if how == "ru" else (left > 0) & below if how == "rz" else left > float("inf")
        down = left < 0 if how == "rd" else (left < 0) & (nearest > 0) if how == "rz" else left > float("inf")
        return where(up | down, _next(nearest, up), nearest)  # type: ignore[no-any-return]
    apply.__name__ = f"{name}_{how}"
    return builtin(apply)


for _name in _OPERATIONS:
    for _how in ("rn", "rz", "rd", "ru"):
        if (_name, _how) not in (("div", "rn"), ("sqrt", "rn")):
            globals()[f"{_name}_{_how}"] = _directed(_name, _how)


def _converted(how: str, to: types.dtype) -> Any:
    def apply(x: Any) -> tensor:
        whole = to_tensor(x)
        nearest = whole.to(to)
        wide = whole.to(types.float64)
        left = wide - nearest.to(types.float64)
        if whole.dtype.is_int() and whole.dtype.primitive_bitwidth == 64:  # rounded as float64: what is left then
            back = where(abs(wide) < 9.2e18, wide, 0.0).to(whole.dtype)
            left = where((left == 0) & (abs(wide) < 9.2e18), (whole - back).to(types.float64), left)
        if how == "rn":
            return nearest
        up = (left > 0) & (nearest < 0) if how == "rz" else left > 0 if how == "ru" else left > float("inf")
        down = (left < 0) & (nearest > 0) if how == "rz" else left < 0 if how == "rd" else left > float("inf")
        return where(up | down, _next(nearest, up), nearest)  # type: ignore[no-any-return]
    return builtin(apply)


for _from in ("int", "uint", "ll", "ull"):
    for _how in ("rz", "rd", "ru"):
        globals()[f"{_from}2float_{_how}"] = _converted(_how, types.float32)
        if _from in ("ll", "ull"):
            globals()[f"{_from}2double_{_how}"] = _converted(_how, types.float64)
for _how in ("rn", "rz", "rd", "ru"):
    globals()[f"double2float_{_how}"] = _converted(_how, types.float32)


@builtin
def rcp64h(x: Any) -> tensor:
    """The upper half of a reciprocal."""
    made = 1 / to_tensor(x)
    return (made.to(types.int64, bitcast=True) & -2**32).to(types.float64, bitcast=True)


@builtin
def nextafter(x: Any, y: Any) -> tensor:
    x = to_tensor(x)
    y = to_tensor(y, x.dtype)
    return where(x == y, y, where((x != x) | (y != y), x + y, _next(x, y > x)))  # type: ignore[no-any-return]  # noqa: PLR0124


__all__ = [name for name in dir() if name[0] != "_" and name not in ("Any", "Callable", "abs", "annotations", "builtin", "sqrt", "tensor",
                                                                    "to_tensor", "types", "where")]
