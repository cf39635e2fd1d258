"""What kernels run on, by Triton's names."""

from __future__ import annotations

from typing import Any

from .._arguments import MockTensor, TensorWrapper, reinterpret
from .._autotune import Autotuner, Config, Heuristics, autotune, heuristics
from .._runtime import JITFunction
from . import driver, errors, jit
from .errors import InterpreterError, OutOfResources

KernelInterface = JITFunction


def set_allocator(allocator: Any) -> None:
    """Kernels on a processor need no memory of the caller's."""


__all__ = ["Autotuner", "Config", "Heuristics", "InterpreterError", "JITFunction", "KernelInterface", "MockTensor",
           "OutOfResources", "TensorWrapper", "autotune", "driver", "errors", "heuristics", "jit", "reinterpret", "set_allocator"]
