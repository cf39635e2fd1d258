"""How ATen ops are written as graphs, one module for each kind."""

from . import elementwise, indexing, products, reductions, views, windows  # noqa: F401
from .registry import TABLE, find

__all__ = ["TABLE", "find"]
