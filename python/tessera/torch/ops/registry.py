"""The table of ATen ops: each with the function that writes it as a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# f(graph, meta, *arguments, **keywords): tensors come as Value, sizes as numbers; `meta` is what PyTorch says of the result.
Lowering = Callable[..., Any]
TABLE: dict[Any, Lowering] = {}


def find(name: str, namespace: str = "aten") -> Any:
    """torch.ops.aten.add.Tensor for "add.Tensor"; None where this PyTorch has none."""
    packet, _, overload = name.partition(".")
    found = getattr(getattr(torch.ops, namespace), packet, None)
    return getattr(found, overload or "default", None) if found is not None else None


def lowers(*names: str, namespace: str = "aten") -> Callable[[Lowering], Lowering]:
    """Enters the function for these ops."""

    def enter(f: Lowering) -> Lowering:
        for name in names:
            op = find(name, namespace)
            if op is not None:
                assert op not in TABLE, name
                TABLE[op] = f
        return f

    return enter
