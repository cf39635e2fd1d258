"""What goes with kernels."""

from . import tensor_descriptor

__all__ = ["tensor_descriptor"]
