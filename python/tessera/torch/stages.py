"""Splits an FX graph into parts that are compiled and parts that PyTorch runs in eager mode."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

import sympy
import torch
from torch import fx

from .lowering import is_tensor, why_not

# What moves no element: alone, it is not worth a compiled piece.
_VIEWS = {"view", "permute", "unsqueeze", "squeeze", "expand", "slice", "select", "alias", "detach", "t", "transpose", "reshape",
          "_unsafe_view", "split_with_sizes", "unbind", "diagonal", "getitem", "as_strided", "clone", "lift_fresh_copy"}
_SOURCES = {"full", "arange", "scalar_tensor", "zeros", "ones", "iota", "empty"}


def _name(node: fx.Node) -> str:
    packet = getattr(node.target, "overloadpacket", node.target)
    return str(getattr(packet, "__name__", packet))


def is_random(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags \
        or node.target is dropout_mask


def dropout_mask(sizes: list[int], strides: list[int], p: float, device: torch.device) -> torch.Tensor:
    """What native_dropout draws, by the same calls of the generator."""
    return torch.empty_strided(sizes, strides, dtype=torch.bool, device=device).bernoulli_(1 - p)


def write_dropout_apart(gm: fx.GraphModule) -> None:
    """Dropout's mask depends on sizes alone: drawn by itself, it does not split what is around it."""
    graph = gm.graph
    for node in list(graph.nodes):
        if node.target is not torch.ops.aten.native_dropout.default or node.args[2] is False:
            continue
        x, p, meta = node.args[0], float(node.args[1]), node.args[0].meta["val"]
        users = list(node.users)
        if meta.device.type != "cpu" or any(u.target is not operator.getitem for u in users) or p in (0.0, 1.0) or \
                not all(isinstance(n, int) for n in (*meta.shape, *meta.stride())):
            continue
        mode = meta.fake_mode

        def add(target: Any, args: tuple[Any, ...], value: torch.Tensor) -> fx.Node:
            made = graph.call_function(target, args)
            made.meta["val"] = value
            return made
        with graph.inserting_before(node), mode:
            mask = add(dropout_mask, (list(meta.shape), list(meta.stride()), p, meta.device),
                       torch.empty_strided(meta.shape, meta.stride(), dtype=torch.bool, device=meta.device))
            like = torch.empty_strided(meta.shape, meta.stride(), dtype=meta.dtype, device=meta.device)
            kept = add(torch.ops.aten.mul.Tensor, (x, mask), like)
            y = add(torch.ops.aten.mul.Scalar, (kept, 1 / (1 - p)), like)
        for u in users:
            u.replace_all_uses_with(y if u.args[1] == 0 else mask)
            graph.erase_node(u)
        graph.erase_node(node)


class Stages:
    """A stage for each node: even ones are compiled, odd ones run in eager mode, in ascending order."""

    def __init__(self, gm: fx.GraphModule) -> None:
        self.nodes = [n for n in gm.graph.nodes if n.op == "call_function"]
        self.reasons = {n: why_not(n) if self._computes_tensors(n) else "sizes" for n in self.nodes}
        for _ in range(2):
            self.stage = self._assign()
            if not self._give_back():
                break

    @staticmethod
    def _computes_tensors(node: fx.Node) -> bool:
        meta = node.meta.get("val")
        metas = meta if isinstance(meta, (list, tuple)) else [meta]
        return any(is_tensor(m) for m in metas)

    def _assign(self) -> dict[fx.Node, int]:
        stage: dict[fx.Node, int] = {}
        random = -1
        for n in self.nodes:
            eager = self.reasons[n] is not None
            at = -1 if eager else 0
            for i in n.all_input_nodes:
                below = stage.get(i, -1)
                at = max(at, below if (below % 2 == 1) == eager else below + 1)
            if n.target is operator.getitem and n.args[0] in stage:
                at = stage[n.args[0]]
            elif eager and is_random(n):
                at = random = max(at, random)
            stage[n] = at
        return stage

    def _give_back(self) -> bool:
        """Leaves to eager mode the stages that compute nothing, and those without tensors to compute from."""
        changed = False
        for nodes in self.compiled().values():
            takes = any(is_tensor(i.meta.get("val")) for n in nodes for i in n.all_input_nodes if self.stage.get(i) != self.stage[n])
            if not takes or all(_name(n) in _VIEWS | _SOURCES for n in nodes):
                for n in nodes:
                    self.reasons[n] = "moves elements only"
                changed = True
        return changed

    def compiled(self) -> dict[int, list[fx.Node]]:
        found: dict[int, list[fx.Node]] = {}
        for n in self.nodes:
            if self.stage[n] % 2 == 0:
                found.setdefault(self.stage[n], []).append(n)
        return found

    def leave(self, stage: int, why: str) -> None:
        """Has a stage run in eager mode."""
        for n in self.nodes:
            if self.stage[n] == stage:
                self.reasons[n] = why
        self.stage = self._assign()

    def fallbacks(self) -> list[tuple[str, str]]:
        """Each node that runs in eager mode for want of a form here: the op and why."""
        return [(str(n.target), why) for n in self.nodes
                if (why := self.reasons[n]) not in (None, "sizes", "moves elements only") and n.target is not operator.getitem
                and n.target is not dropout_mask]


def symbols_of(gm: fx.GraphModule) -> dict[sympy.Symbol, fx.Node]:
    """The inputs that are sizes."""
    found: dict[sympy.Symbol, fx.Node] = {}
    for n in gm.graph.nodes:
        meta = n.meta.get("val")
        if isinstance(meta, torch.SymInt) and isinstance(meta.node.expr, sympy.Symbol):
            found.setdefault(meta.node.expr, n)
    return found


def inputs_of(nodes: Iterable[fx.Node]) -> list[fx.Node]:
    """The tensors that nodes take from elsewhere."""
    inside = set(nodes)
    found: dict[fx.Node, None] = {}
    for n in nodes:
        for i in n.all_input_nodes:
            if i not in inside and is_tensor(i.meta.get("val")):
                found[i] = None
    return list(found)


def outputs_of(nodes: Iterable[fx.Node]) -> list[fx.Node]:
    """The tensors of nodes that are used elsewhere."""
    inside = set(nodes)
    return [n for n in nodes if is_tensor(n.meta.get("val")) and any(u not in inside for u in n.users)]


def copy_node(graph: fx.Graph, node: fx.Node, of: Callable[[fx.Node], Any]) -> fx.Node:
    return graph.node_copy(node, of)
