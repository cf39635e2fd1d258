"""What kernels are compiled for, by Triton's names."""

from . import compiler

__all__ = ["compiler"]
