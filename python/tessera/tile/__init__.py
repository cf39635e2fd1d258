"""Kernels on tiles, with the names and the meaning of Triton's language.

    import tessera.tile as triton
    import tessera.tile.language as tl

    @triton.jit
    def add(x, y, z, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = at < n
        tl.store(z + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)

    add[(triton.cdiv(n, 1024),)](x, y, z, n, BLOCK=1024)

Arguments are NumPy arrays, tensors of PyTorch on the processor or a GPU, or anything that lends its memory by DLPack.
"""

from .._errors import Error as TritonError
from . import backends, compiler, errors, knobs, language, runtime, testing, tools
from ._arguments import MockTensor, TensorWrapper, reinterpret
from ._autotune import Autotuner, Config, Heuristics, autotune, heuristics
from ._errors import CompilationError, OutOfResources
from ._model import Input, KernelOp, Output, op
from ._runtime import JITFunction, compile, constexpr_function, jit, set_threads
from .runtime import InterpreterError, set_allocator

__all__ = [
    "Autotuner", "CompilationError", "Config", "Heuristics", "Input", "InterpreterError", "JITFunction", "KernelOp",
    "MockTensor", "OutOfResources", "Output", "TensorWrapper", "TritonError", "autotune", "backends", "cdiv", "compile",
    "compiler", "constexpr_function", "errors", "heuristics", "jit", "knobs", "language", "next_power_of_2", "op", "reinterpret",
    "runtime", "set_allocator", "set_threads", "testing", "tools",
]


@constexpr_function
def cdiv(x: int, y: int) -> int:
    """How many pieces of y cover x."""
    return -(-x // y)


@constexpr_function
def next_power_of_2(n: int) -> int:
    """The smallest power of two that is not below n."""
    return 1 << max(0, n - 1).bit_length()
