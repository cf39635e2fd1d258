"""Tessera for PyTorch (docs/torch.md):

    fast = torch.compile(model, backend="tessera")
    print(tessera.torch.explain(model, x))        # graph breaks, compiled pieces, what stays in eager mode
    onnx = tessera.torch.from_torch(model, (x,))  # a tessera.Model

PyTorch finds the backend by itself: nothing of this package needs to be imported for it."""

from __future__ import annotations

from .backend import FallbackWarning, tessera_backend
from .export import from_torch
from .report import Report, explain

__all__ = ["FallbackWarning", "Report", "explain", "from_torch", "tessera_backend"]
