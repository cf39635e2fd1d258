"""Expressions of kernels: what operators on elements and axes write, as the text that the compiled part reads."""

from __future__ import annotations

from typing import Any, Iterable

_FLOATS = ("f64", "f32", "f16", "bf16")


class Expr:
    """A scalar of one element type, made of elements of buffers, axes and numbers."""

    def __init__(self, text: str, dtype: str, axes: tuple[Axis, ...] = ()) -> None:
        self.text, self.dtype = text, dtype
        self.axes = axes  # that it depends on, in the order they came

    @staticmethod
    def element(buffer: str, dtype: str, indices: Iterable[Any]) -> Expr:
        parts = [i if isinstance(i, Expr) else _constant(i, "i64") for i in indices]
        return Expr(f"{buffer}[{', '.join(p.text for p in parts)}]", dtype, _merged(parts))

    def beside(self, other: Any) -> Expr:
        """`other` as an operand; a number takes the element type of this expression."""
        return other if isinstance(other, Expr) else _constant(other, self.dtype)

    def __str__(self) -> str:
        return self.text

    def __add__(self, other: Any) -> Expr:
        return _infix(self, "+", other)

    def __radd__(self, other: Any) -> Expr:
        return _infix(other, "+", self)

    def __sub__(self, other: Any) -> Expr:
        return _infix(self, "-", other)

    def __rsub__(self, other: Any) -> Expr:
        return _infix(other, "-", self)

    def __mul__(self, other: Any) -> Expr:
        return _infix(self, "*", other)

    def __rmul__(self, other: Any) -> Expr:
        return _infix(other, "*", self)

    def __truediv__(self, other: Any) -> Expr:
        return _infix(self, "/", other)

    def __rtruediv__(self, other: Any) -> Expr:
        return _infix(other, "/", self)

    def __floordiv__(self, other: Any) -> Expr:
        return function("floordiv", self, other)

    def __mod__(self, other: Any) -> Expr:
        return function("mod", self, other)

    def __pow__(self, other: Any) -> Expr:
        return function("pow", self, other)

    def __neg__(self) -> Expr:
        return Expr(f"(-{self.text})", self.dtype, self.axes)

    def __lt__(self, other: Any) -> Expr:
        return _infix(self, "<", other, "bool")

    def __le__(self, other: Any) -> Expr:
        return _infix(self, "<=", other, "bool")

    def __gt__(self, other: Any) -> Expr:
        return _infix(other, "<", self, "bool")

    def __ge__(self, other: Any) -> Expr:
        return _infix(other, "<=", self, "bool")

    def __bool__(self) -> bool:
        raise TypeError("an expression has no value yet: use select, all_of, any_of or not_")


class Axis(Expr):
    """An axis, over [0, extent)."""

    def __init__(self, name: str, extent: int | str | Expr) -> None:
        super().__init__(name, "i64")
        self.name, self.extent = name, extent
        self.axes = (self,)


class Reduction:
    """A reduction over axes, as the value of a stage."""

    def __init__(self, sign: str, value: Expr, over: Axis | Iterable[Axis]) -> None:
        self.sign, self.value = sign, value
        self.over = (over,) if isinstance(over, Axis) else tuple(over)
        if not self.over:
            raise ValueError("a reduction needs an axis to combine over")


def axis(name: str, extent: int | str | Expr) -> Axis:
    return Axis(name, extent)


def sum(value: Expr, over: Axis | Iterable[Axis]) -> Reduction:
    return Reduction("+=", value, over)


def product(value: Expr, over: Axis | Iterable[Axis]) -> Reduction:
    return Reduction("*=", value, over)


def largest(value: Expr, over: Axis | Iterable[Axis]) -> Reduction:
    return Reduction("max=", value, over)


def smallest(value: Expr, over: Axis | Iterable[Axis]) -> Reduction:
    return Reduction("min=", value, over)


def function(name: str, *args: Any) -> Expr:
    """Calls a function by name: exp, log, sqrt, tanh, erf, floor, pow, atan2, ..."""
    parts = _alike(args)
    dtype = "bool" if name in ("isnan", "isinf") else parts[0].dtype
    return Expr(f"{name}({', '.join(p.text for p in parts)})", dtype, _merged(parts))


def maximum(a: Any, b: Any) -> Expr:
    return function("max", a, b)


def minimum(a: Any, b: Any) -> Expr:
    return function("min", a, b)


def equal(a: Any, b: Any) -> Expr:
    return _infix(a, "==", b, "bool")


def not_equal(a: Any, b: Any) -> Expr:
    return _infix(a, "!=", b, "bool")


def all_of(a: Expr, b: Expr) -> Expr:
    return _infix(a, "&&", b)


def any_of(a: Expr, b: Expr) -> Expr:
    return _infix(a, "||", b)


def not_(a: Expr) -> Expr:
    return Expr(f"(!{a.text})", "bool", a.axes)


def select(condition: Expr, then: Any, otherwise: Any) -> Expr:
    """The conditional expression. The branch not taken is not evaluated, so it may access elements out of bounds."""
    a, b = _alike((then, otherwise))
    return Expr(f"select({condition.text}, {a.text}, {b.text})", a.dtype, _merged([condition, a, b]))


def cast(value: Expr, dtype: str) -> Expr:
    return Expr(f"{dtype}({value.text})", dtype, value.axes)


def _constant(value: Any, dtype: str) -> Expr:
    if dtype == "bool":
        return Expr("true" if value else "false", dtype)
    if dtype in _FLOATS:
        text = repr(float(value))
    elif float(value).is_integer():
        text = str(int(value))
    else:
        raise TypeError(f"cannot combine {value} with an expression of type {dtype}")
    text = text if dtype in ("i64", "f32") else f"{text}_{dtype}"
    return Expr(f"({text})" if text.startswith("-") else text, dtype)


def _alike(args: Iterable[Any]) -> list[Expr]:
    """Numbers take the element type of the first expression."""
    args = list(args)
    first = next((a for a in args if isinstance(a, Expr)), None)
    if first is None:
        raise TypeError("expected an expression, got numbers only")
    return [first.beside(a) for a in args]


def _infix(a: Any, sign: str, b: Any, dtype: str = "") -> Expr:
    left, right = _alike((a, b))
    return Expr(f"({left.text} {sign} {right.text})", dtype or left.dtype, _merged([left, right]))


def _merged(parts: Iterable[Expr]) -> tuple[Axis, ...]:
    found: dict[str, Axis] = {}
    for part in parts:
        for a in part.axes:
            found.setdefault(a.name, a)
    return tuple(found.values())
