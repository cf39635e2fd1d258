"""Functions that are compiled when they are first launched, by Triton's names."""

from .._arguments import MockTensor, TensorWrapper, reinterpret
from .._runtime import JITFunction, KernelParam, constexpr_function, jit
from ..language._types import NAMES

# Names of element types, as signatures have them.
type_canonicalisation_dict = {
    "bool": "u1", "float8e4nv": "fp8e4nv", "float8e5": "fp8e5", "float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5",
    "half": "fp16", "float16": "fp16", "bfloat16": "bf16", "float": "fp32", "float32": "fp32", "double": "fp64",
    "float64": "fp64", **{f"int{n}": f"i{n}" for n in (1, 8, 16, 32, 64)}, **{f"uint{n}": f"u{n}" for n in (1, 8, 16, 32, 64)},
    "void": "void", **{name: name for name in NAMES if name[0] in "iu" and name[1:].isdigit()},
    "fp16": "fp16", "bf16": "bf16", "fp32": "fp32", "fp64": "fp64",
}
KernelInterface = JITFunction

__all__ = ["JITFunction", "KernelInterface", "KernelParam", "MockTensor", "TensorWrapper", "constexpr_function", "jit",
           "reinterpret", "type_canonicalisation_dict"]
