"""An FX graph of functional ATen ops, or a part of one, as the text of a graph."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

import sympy
import torch
from torch import fx

from .. import parse
from .._errors import Error
from .graph import NAMES, GraphText, Unsupported, Value, expression, static
from .ops import TABLE

Symbols = (torch.SymInt, torch.SymFloat, torch.SymBool)


def is_tensor(meta: Any) -> bool:
    return isinstance(meta, torch.Tensor)


def layout_of(meta: torch.Tensor) -> tuple[int, ...] | None:
    """The order of dimensions in which the elements follow one another in memory; None where there are gaps."""
    def hint(n: Any) -> int:
        return n.node.hint if isinstance(n, torch.SymInt) and n.node.has_hint() else int(static(n) or 0)
    strides, sizes = list(meta.stride()), list(meta.shape)
    order = sorted(range(len(sizes)), key=lambda i: (-hint(strides[i]), -hint(sizes[i]), i))
    plain = tuple(range(len(sizes)))
    for candidate in (plain, tuple(order)):
        expected = sympy.Integer(1)
        for i in reversed(candidate):
            if expression(sizes[i]) != 1 and expression(strides[i]) != expected:
                break
            expected = expected * expression(sizes[i])
        else:
            return candidate
        if any(static(n) == 0 for n in sizes):
            return plain
    return None


def refuse_types(metas: Iterable[Any]) -> None:
    for meta in metas:
        if not is_tensor(meta):
            continue
        if meta.dtype not in NAMES:
            raise Unsupported(f"elements of {meta.dtype}")
        if meta.layout != torch.strided:
            raise Unsupported(f"a tensor of layout {meta.layout}")
        if meta.device.type not in ("cpu", "cuda"):
            raise Unsupported(f"a tensor on {meta.device.type}")


def flatten(meta: Any) -> list[Any]:
    return list(meta) if isinstance(meta, (list, tuple)) else [meta]


class Lowering:
    """Writes nodes into a graph. `values` has what they are computed from."""

    def __init__(self, find_symbol: Callable[[sympy.Symbol], Any] | None = None) -> None:
        self.graph = GraphText(find_symbol)
        self.values: dict[fx.Node, Any] = {}

    def input(self, node: fx.Node) -> tuple[int, ...] | None:
        """Declares a tensor input, in the order of its elements in memory, which is returned; None: copied first."""
        meta = node.meta["val"]
        refuse_types([meta])
        order = layout_of(meta)
        perm = order if order is not None else tuple(range(meta.dim()))
        given = self.graph.input(meta.dtype, [meta.shape[i] for i in perm])
        value = self.graph.transpose(given, [perm.index(i) for i in range(meta.dim())])
        self.values[node] = Value(value.name, meta.dtype, meta.shape, order == tuple(range(meta.dim())))
        return order

    def argument(self, a: Any) -> Any:
        if isinstance(a, fx.Node):
            meta = a.meta.get("val")
            return meta if isinstance(meta, (*Symbols, int, float, bool)) else self.values[a]
        if isinstance(a, (list, tuple)):
            return [self.argument(v) for v in a]
        if isinstance(a, slice) or isinstance(a, complex):
            raise Unsupported(f"an argument of type {type(a).__name__}")
        return a

    def write(self, node: fx.Node) -> None:
        g, meta = self.graph, node.meta["val"]
        g.origin = node
        if node.target is operator.getitem:
            source, index = node.args
            self.values[node] = self.values[source][index]
            if self.values[node] is None:
                raise Unsupported(f"result {index} of {source}")
            return
        metas = flatten(meta)
        several = isinstance(meta, (list, tuple))
        g.wanted = {u.args[1] for u in node.users if u.target is operator.getitem} if several else None
        if several and any(u.target is not operator.getitem for u in node.users):
            g.wanted = None
        refuse_types([m for i, m in enumerate(metas) if g.asked(i)])
        found = TABLE[node.target](g, meta, *self.argument(list(node.args)), **{k: self.argument(v) for k, v in node.kwargs.items()})
        results: list[Value | None] = []
        for i, (m, v) in enumerate(zip(metas, flatten(found))):
            if v is None or not is_tensor(m) or not g.asked(i):
                results.append(None)
                continue
            v = g.cast(v, m.dtype)
            results.append(Value(v.name, m.dtype, m.shape, layout_of(m) == tuple(range(m.dim()))))
        self.values[node] = results if several else results[0]

    def output(self, node: fx.Node) -> tuple[Value, tuple[int, ...] | None]:
        """The node's value in the order in which its elements are to lie in memory, and that order."""
        meta = node.meta["val"]
        order = layout_of(meta)
        value = self.values[node]
        if order is not None:
            value = self.graph.transpose(value, order)
        if not value.name.startswith("%") or any(value.name == i.split(":")[0] for i in self.graph.inputs):
            value = self.graph.op("identity", value)
        return value, order


_reasons: dict[Any, str | None] = {}


def key_of(a: Any) -> Any:
    if isinstance(a, fx.Node):
        return key_of(a.meta.get("val"))
    if is_tensor(a):
        return ("tensor", a.dtype, tuple(str(n) for n in a.shape), tuple(str(n) for n in a.stride()), a.device.type)
    if isinstance(a, (list, tuple)):
        return tuple(key_of(v) for v in a)
    return (type(a).__name__, str(a))


def why_not(node: fx.Node) -> str | None:
    """Why a node cannot be compiled; None where it can."""
    target = node.target
    if target is operator.getitem:
        return why_not(node.args[0]) if isinstance(node.args[0], fx.Node) and node.args[0].op == "call_function" else "a part of an input"
    if target not in TABLE:
        return "has no lowering"
    used = tuple(sorted(str(u.args[1]) if u.target is operator.getitem else "all" for u in node.users))
    key = (target, key_of(node.args), key_of(list(node.kwargs.items())), key_of(node.meta.get("val")), used)
    if key not in _reasons:
        _reasons[key] = _try(node)
    return _reasons[key]


def _try(node: fx.Node) -> str | None:
    try:
        lowering = Lowering(lambda symbol: None)
        for n in node.all_input_nodes:
            meta = n.meta.get("val")
            if is_tensor(meta):
                lowering.input(n)
            elif isinstance(meta, (list, tuple)):
                return "takes a list of results"
        lowering.write(node)
        metas = flatten(node.meta["val"])
        found = [(m, v) for m, v in zip(metas, flatten(lowering.values[node])) if v is not None]
        if not found:
            return None
        model = parse(lowering.graph.text([lowering.graph.op("identity", v) for _, v in found]))
        for port, (m, _) in zip(model.outputs, found):
            check_port(port, m)
    except Unsupported as e:
        return str(e)
    except Error as e:
        return str(e).splitlines()[0]
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, AssertionError, NotImplementedError) as e:
        return f"{type(e).__name__}: {e}"
    return None


def check_port(port: Any, meta: torch.Tensor) -> None:
    """That inference finds of a result what PyTorch says of it."""
    if port.dtype != NAMES[meta.dtype]:
        raise Unsupported(f"gives {port.dtype} for {NAMES[meta.dtype]}")
    if port.ranked and len(port.dims) != meta.dim():
        raise Unsupported(f"gives {port.type} for {list(meta.shape)}")
    for have, want in zip(port.sizes, meta.shape):
        known = static(want)
        if have >= 0 and known is not None and have != known:
            raise Unsupported(f"gives {port.type} for {list(meta.shape)}")

