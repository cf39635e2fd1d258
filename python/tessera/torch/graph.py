"""Writes a graph of Tessera's in the text form (docs/graph.md), one line for each node."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy
import torch

NAMES = {torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64",
         torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "bool"}
_NUMBERS = {torch.float64: 11, torch.float32: 1, torch.float16: 10, torch.bfloat16: 16, torch.int64: 7, torch.int32: 6,
            torch.int16: 5, torch.int8: 3, torch.uint8: 2, torch.bool: 9}  # as ONNX numbers element types

Size = Any  # an int, or a torch.SymInt
Shape = tuple[Size, ...]


class Unsupported(Exception):
    """Why an ATen op, or this use of it, has no form here."""


class Value:
    """A value of the graph: how the text names it, its element type, and its shape as PyTorch knows it."""

    __slots__ = ("contiguous", "dtype", "name", "shape")

    def __init__(self, name: str, dtype: torch.dtype, shape: Sequence[Size], contiguous: bool = True) -> None:
        self.name, self.dtype, self.shape, self.contiguous = name, dtype, tuple(shape), contiguous

    @property
    def rank(self) -> int:
        return len(self.shape)


def expression(size: Size) -> sympy.Expr:
    """A size as an expression over PyTorch's symbols."""
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(int(size))


def static(size: Size) -> int | None:
    """The size where it is known."""
    if not isinstance(size, torch.SymInt):
        return int(size)
    found = size.node.expr
    return int(found) if found.is_number else None


def static_shape(shape: Sequence[Size], what: str = "this op") -> tuple[int, ...]:
    sizes = [static(n) for n in shape]
    if None in sizes:
        raise Unsupported(f"{what} of dynamic sizes")
    return tuple(n for n in sizes if n is not None)


def wrap(axis: int, rank: int) -> int:
    return axis + rank if axis < 0 else axis


def number(value: float | int | bool, dtype: torch.dtype) -> str:
    """A literal of an element type."""
    if dtype == torch.bool:
        return ("true" if value else "false") + ":bool"
    if not dtype.is_floating_point:
        return f"{int(value)}:{NAMES[dtype]}"
    wide = float(value)
    text = "nan" if math.isnan(wide) else ("-inf" if wide < 0 else "inf") if math.isinf(wide) else repr(wide)
    return f"{text}:{NAMES[dtype]}"


def attribute(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return number(value, torch.float32).split(":")[0]
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(attribute(v) for v in value) + "]"
    return str(value)


class GraphText:
    """Collects the lines of a graph. `origin` is what an error in a line is reported as. `find_symbol` is told of a size
    that no dimension of an input is, and which becomes an input of its own; it may refuse."""

    def __init__(self, find_symbol: Callable[[sympy.Symbol], Any] | None = None) -> None:
        self.find_symbol = find_symbol
        self.lines: list[str] = []
        self.inputs: list[str] = []
        self.origins: list[Any] = []  # by line
        self.origin: Any = None
        self.wanted: set[int] | None = None  # of the op being written: the results that somebody uses
        self._count = 0
        self._symbols: dict[sympy.Symbol, Value] = {}  # i64[1]
        self._sizes: dict[sympy.Expr, Value] = {}
        self._known: dict[str, Value] = {}  # nodes by their text: the same is written once

    # Inputs and outputs.

    def input(self, dtype: torch.dtype, shape: Sequence[Size], name: str | None = None) -> Value:
        name = name or f"in{len(self.inputs)}"
        self.inputs.append(f"{name}: {NAMES[dtype]}[{','.join(self._dim(n, name, i) for i, n in enumerate(shape))}]")
        value = Value(name, dtype, shape)
        for i, n in enumerate(shape):
            symbol = expression(n)
            if isinstance(symbol, sympy.Symbol) and symbol not in self._symbols:
                self._symbols[symbol] = Value(f"shape({name}, start={i}, end={i + 1})", torch.int64, (1,))
        return value

    def input_for_symbol(self, symbol: sympy.Symbol) -> None:
        """An input that is the size itself, where no dimension is."""
        name = f"in{len(self.inputs)}"
        self.inputs.append(f"{name}: i64[1]")
        self._symbols[symbol] = Value(name, torch.int64, (1,))

    def _dim(self, size: Size, name: str, axis: int) -> str:
        known = static(size)
        if known is not None:
            return str(known)
        return _as_text(expression(size)) or f"{name}_d{axis}"

    def text(self, outputs: Sequence[Value]) -> str:
        named = ", ".join(f"out{i}" for i in range(len(outputs)))
        body = "\n".join("  " + line for line in self.lines)
        returned = ", ".join(v.name for v in outputs)
        return f"graph torch({', '.join(self.inputs)}) -> ({named}) {{\n{body}\n  return {returned}\n}}\n"

    # Nodes.

    def _fresh(self) -> str:
        self._count += 1
        return f"%t{self._count}"

    def ops(self, name: str, inputs: Sequence[Any], results: Sequence[tuple[torch.dtype, Sequence[Size]] | None],
            attributes: Mapping[str, Any] | None = None) -> list[Value]:
        """A node; a result that is None is not asked for."""
        parts = [_operand(v) for v in inputs]
        parts += [f"{key}={attribute(v)}" for key, v in (attributes or {}).items() if v is not None]
        while parts and parts[-1] == "_":
            parts.pop()
        names = [self._fresh() if r else "_" for r in results]
        self._write(f"{', '.join(names)} = {name}({', '.join(parts)})")
        return [Value(n, *(r or (torch.float32, ()))) for n, r in zip(names, results)]

    def op(self, name: str, *inputs: Any, dtype: torch.dtype | None = None, shape: Sequence[Size] | None = None,
           **attributes: Any) -> Value:
        """A node of one result: of the first input's element type and shape unless others are given."""
        first = next((v for v in inputs if isinstance(v, Value)), None)
        if dtype is None:
            assert first is not None
            dtype = first.dtype
        if shape is None:
            assert first is not None
            shape = first.shape
        key = f"{name}({[_operand(v) for v in inputs]},{attributes})"
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self.ops(name, inputs, [(dtype, shape)], attributes)[0]
        return Value(known.name, dtype, shape)

    def vjp(self, y: Value, dy: Value, wanted: Sequence[Value]) -> list[Value]:
        """The gradients with respect to `wanted` where `dy` arrives at `y`."""
        names = [self._fresh() for _ in wanted]
        operands = ", ".join(v.name for v in (y, dy, *wanted))
        self._write(f"{', '.join(names)} = vjp({operands})")
        return [Value(n, w.dtype, w.shape) for n, w in zip(names, wanted)]

    def _write(self, line: str) -> None:
        self.lines.append(line)
        self.origins.append(self.origin)

    # What most ops are made of.

    def const(self, value: Any, dtype: torch.dtype) -> Value:
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self.cast(self.scalar(value), dtype)
        if isinstance(value, complex):
            raise Unsupported("complex numbers")
        return Value(number(value, dtype), dtype, ())

    def ints(self, values: Sequence[int]) -> Value:
        return Value("[" + ",".join(str(int(v)) for v in values) + "]:i64", torch.int64, (len(values),))

    def matrix(self, rows: Sequence[Sequence[float]], dtype: torch.dtype) -> Value:
        text = "[" + ",".join("[" + ",".join(number(v, torch.float64).split(":")[0] for v in row) + "]" for row in rows) + "]"
        return Value(f"{text}:{NAMES[dtype]}", dtype, (len(rows), len(rows[0])))

    def asked(self, result: int) -> bool:
        """Whether somebody uses this result of the op being written."""
        return self.wanted is None or result in self.wanted

    def cast(self, x: Value, dtype: torch.dtype) -> Value:
        if x.dtype == dtype:
            return x
        if dtype not in _NUMBERS:
            raise Unsupported(f"elements of {dtype}")
        return self.op("cast", x, dtype=dtype, to=_NUMBERS[dtype])

    def as_value(self, x: Any, dtype: torch.dtype) -> Value:
        """A tensor or a number, of this element type."""
        return self.cast(x, dtype) if isinstance(x, Value) else self.const(x, dtype)

    def binary(self, name: str, a: Any, b: Any, dtype: torch.dtype, result: torch.dtype | None = None,
               shape: Sequence[Size] | None = None) -> Value:
        """Of operands brought to `dtype`."""
        x, y = self.as_value(a, dtype), self.as_value(b, dtype)
        if shape is None:
            shape = x.shape if x.rank >= y.rank else y.shape
        return self.op(name, x, y, dtype=result or dtype, shape=shape)

    def reshape(self, x: Value, shape: Sequence[Size]) -> Value:
        if _same(x.shape, shape):
            return x
        known = [static(n) for n in shape]
        if known.count(None) == 1 and 0 not in known:
            return self.op("reshape", x, self.ints([-1 if n is None else n for n in known]), shape=shape)
        return self.op("reshape", x, self.dims(shape), shape=shape, allowzero=1)

    def expand(self, x: Value, shape: Sequence[Size]) -> Value:
        return x if _same(x.shape, shape) else self.op("expand", x, self.dims(shape), shape=shape)

    def transpose(self, x: Value, perm: Sequence[int]) -> Value:
        if list(perm) == list(range(x.rank)):
            return x
        return self.op("transpose", x, shape=[x.shape[p] for p in perm], perm=list(perm))

    def full(self, shape: Sequence[Size], value: Any, dtype: torch.dtype) -> Value:
        scalar = self.const(value, dtype)
        return self.op("expand", scalar, self.dims(shape), shape=shape) if len(shape) else self.op("identity", scalar)

    def where(self, condition: Value, a: Any, b: Any, dtype: torch.dtype, shape: Sequence[Size]) -> Value:
        return self.op("where", self.cast(condition, torch.bool), self.as_value(a, dtype), self.as_value(b, dtype),
                       dtype=dtype, shape=shape)

    def slice(self, x: Value, axis: int, start: Size, end: Size, step: int, shape: Sequence[Size]) -> Value:
        def one(n: Size) -> Value:
            return self.dims([n])
        return self.op("slice", x, one(start), one(end), self.ints([axis]), self.ints([step]), shape=shape)

    def reduce(self, name: str, x: Value, axes: Sequence[int], keep: bool, shape: Sequence[Size] | None = None) -> Value:
        axes = sorted(wrap(a, x.rank) for a in axes)
        if shape is None:
            shape = [1 if i in axes else n for i, n in enumerate(x.shape) if keep or i not in axes]
        if not axes:
            return self.reshape(x, shape)
        return self.op(name, x, self.ints(axes), shape=shape, keepdims=int(keep))

    # Sizes.

    def dims(self, shape: Sequence[Size]) -> Value:
        """A list of sizes as a tensor."""
        known = [static(n) for n in shape]
        if None not in known:
            return self.ints([n for n in known if n is not None])
        parts = [self.size(expression(n)) for n in shape]
        return parts[0] if len(parts) == 1 else self.op("concat", *parts, shape=(len(parts),), axis=0)

    def scalar(self, value: Any) -> Value:
        """A size, or a number made of sizes, as a tensor without dimensions."""
        if not isinstance(value, torch.SymInt):
            raise Unsupported("numbers that depend on sizes")
        return self.op("reshape", self.size(value.node.expr), self.ints([]), shape=())

    def scalar_size(self, size: Size) -> Value:
        known = static(size)
        return self.const(known, torch.int64) if known is not None else self.scalar(size)

    def size(self, e: sympy.Expr) -> Value:
        """An expression of sizes as i64[1]."""
        known = self._sizes.get(e)
        if known is None:
            known = self._sizes[e] = self._size(e)
        return known

    def _size(self, e: sympy.Expr) -> Value:
        if e.is_Integer:
            return self.ints([int(e)])
        if isinstance(e, sympy.Symbol):
            if e not in self._symbols:
                if self.find_symbol is None:
                    raise Unsupported(f"the size {e} is of no input")
                self.find_symbol(e)
                self.input_for_symbol(e)
            v = self._symbols[e]
            return self.op("identity", v) if "(" in v.name else v
        name = {"Add": "add", "Mul": "mul", "Max": "max", "Min": "min"}.get(type(e).__name__)
        if name:
            parts = [self.size(a) for a in e.args]
            total = parts[0]
            for part in parts[1:]:
                total = self.op(name, total, part)
            return total
        kind = type(e).__name__
        if kind in ("FloorDiv", "CleanDiv", "IntTrueDiv", "Mod", "PythonMod", "ModularIndexing") and len(e.args) == 2:
            a, b = (self.size(x) for x in e.args)
            return self.op("mod" if "Mod" in kind else "div", a, b)  # sizes are not negative
        if isinstance(e, sympy.Pow) and e.exp.is_Integer and 0 < int(e.exp) < 5:
            base = total = self.size(e.base)
            for _ in range(int(e.exp) - 1):
                total = self.op("mul", total, base)
            return total
        raise Unsupported(f"the size {e}")


def _operand(v: Any) -> str:
    return "_" if v is None else v.name if isinstance(v, Value) else str(v)


def _same(a: Sequence[Size], b: Sequence[Size]) -> bool:
    return len(a) == len(b) and all(expression(x) == expression(y) for x, y in zip(a, b))


def _as_text(e: sympy.Expr) -> str:
    """The expression in the text form's words; empty where it has none."""
    if e.is_Integer or isinstance(e, sympy.Symbol):
        return str(e)
    kind = type(e).__name__
    if kind in ("Add", "Mul"):
        parts = [_as_text(a) for a in e.args]
        return "(" + ("+" if kind == "Add" else "*").join(parts) + ")" if all(parts) else ""
    if kind in ("FloorDiv", "CleanDiv"):
        a, b = (_as_text(x) for x in e.args)
        return f"floordiv({a},{b})" if a and b else ""
    return ""
