"""tessera.torch.explain: what torch.compile makes of a model."""

from __future__ import annotations

import collections
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from .backend import tessera_backend
from .options import Options
from .pieces import Piece


@dataclass
class Graph:
    """One graph that PyTorch gave, and what became of it."""

    kind: str  # "inference", "forward" or "backward"
    nodes: int
    pieces: list[Piece]
    fallbacks: list[tuple[str, str]]  # the op, and why


@dataclass
class Report:
    """What explain found. print(report) says all of it."""

    graphs: list[Graph] = field(default_factory=list)
    breaks: dict[str, int] = field(default_factory=dict)  # why PyTorch split the model, how often

    def add(self, kind: str, gm: fx.GraphModule, pieces: list[Piece], fallbacks: list[tuple[str, str]]) -> None:
        nodes = sum(n.op == "call_function" for n in gm.graph.nodes)
        self.graphs.append(Graph(kind, nodes, pieces, fallbacks))

    @property
    def fallbacks(self) -> dict[str, int]:
        """The ops that run in eager mode, and how often."""
        return dict(collections.Counter(op for g in self.graphs for op, _ in g.fallbacks))

    def __str__(self) -> str:
        total = sum(len(g.pieces) for g in self.graphs)
        lines = [f"{len(self.graphs)} graphs, {sum(self.breaks.values())} graph breaks, {total} compiled pieces, "
                 f"{sum(len(g.fallbacks) for g in self.graphs)} ops in eager mode"]
        lines += [f"  break ({n}x): {why}" for why, n in self.breaks.items()]
        for i, g in enumerate(self.graphs):
            lines.append(f"graph {i}, {g.kind}: {g.nodes} nodes, {len(g.pieces)} pieces")
            for piece in g.pieces:
                lines.append(f"  piece of {len(piece.nodes)} nodes: {_shapes(piece.inputs)} -> {_shapes(piece.outputs)}, "
                             + (f"compiled in {piece.seconds:.2f} s" if piece.executable else "not called"))
            reasons = dict(g.fallbacks)
            for op, n in collections.Counter(op for op, _ in g.fallbacks).most_common():
                lines.append(f"  eager ({n}x): {op}: {reasons[op]}")
        return "\n".join(lines)


def _shapes(nodes: list[fx.Node], most: int = 4) -> str:
    shown = [f"{tuple(v.shape)}" if isinstance(v := n.meta["val"], torch.Tensor) else str(v) for n in nodes[:most]]
    return ", ".join(shown) + (f" and {len(nodes) - most} more" if len(nodes) > most else "")


def explain(model: Any, *inputs: Any, backward: bool = False, options: dict[str, Any] | None = None, **named: Any) -> Report:
    """Compiles a model for these inputs, runs it once and says what PyTorch and Tessera made of it. `backward` also computes
    gradients, of the sum of its first output that has any. What torch.compile has compiled before is forgotten."""
    report = Report()
    torch._dynamo.reset()
    counted = torch._dynamo.utils.counters["graph_break"]
    before = dict(counted)
    given = Options.of({"fallback": "quiet", **(options or {})})

    def backend(gm: fx.GraphModule, examples: Any, **rest: Any) -> Any:
        return tessera_backend(gm, examples, options={"precision": given.precision, "freeze": given.freeze,
                                                      "fallback": given.fallback, "report": report})

    found = torch.compile(model, backend=backend)(*inputs, **named)
    if backward:
        leaves = torch.utils._pytree.tree_leaves(found)
        with_gradient = [v for v in leaves if isinstance(v, torch.Tensor) and v.requires_grad]
        if with_gradient:
            with_gradient[0].sum().backward()
    report.breaks = {why: n - before.get(why, 0) for why, n in counted.items() if n > before.get(why, 0)}
    torch._dynamo.reset()
    return report
