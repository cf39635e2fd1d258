"""Kernels as operators of models: the text of a tile program, and formulas over the inputs' sizes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from .._errors import Error
from .._runnable import Model
from .._tessera import Model as _Model
from ._arguments import Fixed, element_name
from ._codegen import generate
from ._runtime import JITFunction
from .language import _types as types
from .language._core import value_of


class Input:
    """A tensor that the model gives to a kernel; `scalar`: one element, for a parameter that is no pointer."""

    def __init__(self, dtype: Any, *, scalar: bool = False):
        self.dtype, self.scalar = _core(dtype), scalar


class Output:
    """A tensor that a kernel makes. Its sizes are numbers or formulas: "in0.d1" is dimension 1 of the first input, "in0.size"
    how many elements that has, "cdiv(in0.d0, 2)" a half. It begins as zeros, or as an input of its type and shape."""

    def __init__(self, dtype: Any, *sizes: int | str, initial: int | None = None):
        self.dtype, self.sizes, self.initial = _core(dtype), sizes, initial

    def __str__(self) -> str: return f"{self.dtype}[{', '.join(str(s) for s in self.sizes)}]"


def _core(dtype: Any) -> str:
    if isinstance(dtype, str):
        return types.NAMES[dtype].core if dtype in types.NAMES else dtype
    return element_name(dtype)


class KernelOp:
    """A kernel with what a model says of it: `op("x", "y")` is a term of Tessera's text form, `op.node(...)` a node of ONNX."""

    def __init__(self, name: str, inputs: int, attributes: dict[str, Any]):
        self.name, self.inputs, self.attributes = name, inputs, attributes

    def __call__(self, *inputs: str) -> str:
        if len(inputs) != self.inputs:
            raise Error("E0207", f"{self.name} takes {self.inputs} inputs, not {len(inputs)}", "", "", "")
        attributes = [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in self.attributes.items()]
        return f"tile_kernel({', '.join([*inputs, *attributes])})"

    def node(self, inputs: Sequence[str], outputs: Sequence[str], name: str = "") -> Any:
        """An onnx.NodeProto; its model imports version 1 of domain "tessera"."""
        import onnx
        made = onnx.helper.make_node("TileKernel", list(inputs), list(outputs), name=name or self.name, domain="tessera")
        made.attribute.extend(onnx.helper.make_attribute(name, value) for name, value in self.attributes.items())
        return made

    def model(self, *kinds: str) -> Model:
        """A model of this kernel alone, for inputs of these types: "f32[M, N]"."""
        names = [f"x{i}" for i in range(len(kinds))]
        count = len(self.attributes["outputs"])
        made = ", ".join(f"%y{i}" for i in range(count))
        given = ", ".join(f"{n}: {t}" for n, t in zip(names, kinds))
        return Model(_Model.parse(f"graph {self.name}({given}) {{\n  {made} = {self(*names)}\n  return {made}\n}}\n"))


def op(kernel: JITFunction, *args: Any, grid: Any, **kwargs: Any) -> KernelOp:
    """A kernel as an operator. Its arguments are Input and Output; formulas over sizes, for integers; and numbers, which
    become part of the kernel, like everything that is tl.constexpr. `grid`: one to three numbers or formulas.

        row_softmax = triton.op(softmax, triton.Output("f32", "in0.d0", "in0.d1"), triton.Input("f32"), "in0.d1", "in0.d1",
                                BLOCK=1024, grid=("in0.d0",))
    """
    bound = kernel.signature.bind(*args, **kwargs)
    bound.apply_defaults()
    forms: list[Any] = []
    kinds: list[tuple[Any, str]] = []
    arguments: list[str] = []
    outputs: list[Output] = []
    inputs = 0
    for parameter in kernel.params:
        value = value_of(bound.arguments[parameter.name])
        if isinstance(value, (Input, Output)) or (isinstance(value, str) and not parameter.is_constexpr):
            forms.append(("leaf", parameter.name))
        else:
            forms.append(("=", Fixed(value)))
            continue
        if isinstance(value, Input):
            kinds.append(("element" if value.scalar else "array", value.dtype))
            arguments.append(f"in{inputs}")
            inputs += 1
        elif isinstance(value, Output):
            kinds.append(("array", value.dtype))
            arguments.append(f"out{len(outputs)}")
            outputs.append(value)
        else:
            kind = kernel._kinds[parameter.num]
            kinds.append(("size", kind.core if kind else "i32"))
            arguments.append(value)
    _ = kernel.tree
    program, _, _ = generate(kernel, tuple(forms), tuple(kinds), False)
    axes = grid if isinstance(grid, (tuple, list)) else (grid,)
    attributes: dict[str, Any] = {"arguments": arguments, "grid": [str(axis) for axis in axes], "kernel": str(program),
                                  "outputs": [str(o) for o in outputs]}
    if any(o.initial is not None for o in outputs):
        attributes["initial"] = [-1 if o.initial is None else o.initial for o in outputs]
    return KernelOp(kernel.name, inputs, attributes)
