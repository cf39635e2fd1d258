"""Arrays of which kernels load and store tiles."""

from .._arguments import TensorDescriptor

__all__ = ["TensorDescriptor"]
