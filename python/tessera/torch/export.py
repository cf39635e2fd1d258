"""A Model from a module of PyTorch's, by torch.export."""

from __future__ import annotations


from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from .. import Model
from .._arrays import tensor_from
from .._errors import Error
from .._tessera import Model as _Model
from .decompositions import decompositions
from .graph import Unsupported
from .lowering import Lowering, is_tensor, why_not
from .stages import symbols_of


def from_torch(module: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None, *, dynamic_shapes: Any = None) -> Model:
    """A Model that computes what a torch.nn.Module does in inference, or an ExportedProgram. Parameters and buffers become
    constants. `args`, `kwargs` and `dynamic_shapes` are torch.export's."""
    if isinstance(module, torch.nn.Module):
        was = module.training
        module.eval()
        try:
            with torch.no_grad():
                program = torch.export.export(module, tuple(args), kwargs, dynamic_shapes=dynamic_shapes)
        finally:
            module.train(was)
    else:
        program = module
    if not isinstance(program, torch.export.ExportedProgram):
        raise Error("E0501", f"expected a torch.nn.Module or an ExportedProgram, got {type(module).__name__}")
    program = program.run_decompositions(decompositions())
    return _lower(program)


def _lower(program: Any) -> Model:
    gm, signature = program.graph_module, program.graph_signature
    symbols = symbols_of(gm)

    def find_symbol(symbol: Any) -> None:
        if symbol not in symbols:
            raise Unsupported(f"the size {symbol} is of no input")

    lowering = Lowering(find_symbol)
    g = lowering.graph
    kinds = {spec.arg.name: spec for spec in signature.input_specs}
    constants: dict[str, Any] = {}
    for n in gm.graph.nodes:
        if n.op == "placeholder":
            _place(program, lowering, n, kinds[n.name], constants)
        elif n.op == "get_attr":
            meta = n.meta["val"]
            value = getattr(gm, n.target)
            lowering.values[n] = g.input(meta.dtype, meta.shape, f"constant{len(constants)}")
            constants[lowering.values[n].name] = tensor_from(value.detach().contiguous())
        elif n.op == "call_function" and (is_tensor(n.meta.get("val")) or isinstance(n.meta.get("val"), (list, tuple))):
            why = why_not(n)
            if why is not None:
                raise Error("E0202", f"{n.target} cannot be written as a graph: {why}")
            lowering.write(n)
        elif n.op == "output":
            return _finish(lowering, signature, n, constants)
    raise AssertionError("a graph without outputs")


def _place(program: Any, lowering: Lowering, n: fx.Node, spec: Any, constants: dict[str, Any]) -> None:
    kind, meta = spec.kind.name, n.meta.get("val")
    if kind == "USER_INPUT":
        if is_tensor(meta):
            lowering.values[n] = lowering.graph.input(meta.dtype, meta.shape, f'"{n.name}"')
        elif meta is not None and not isinstance(meta, (int, float, bool, str)):
            raise Error("E0202", f"the input {n.name} is {type(meta).__name__}, not a tensor")
        return
    held = program.state_dict.get(spec.target)
    value = held if held is not None else program.constants.get(spec.target)
    if not isinstance(value, torch.Tensor):
        raise Error("E0202", f"{spec.target} is {type(value).__name__}, not a tensor")
    name = f'"{spec.target}"'
    lowering.values[n] = lowering.graph.input(meta.dtype, meta.shape, name)
    constants[spec.target] = tensor_from(value.detach().contiguous())


def _finish(lowering: Lowering, signature: Any, output: fx.Node, constants: dict[str, Any]) -> Model:
    wanted = [(spec, n) for spec, n in zip(signature.output_specs, output.args[0]) if spec.kind.name == "USER_OUTPUT"]
    if len(wanted) != len(signature.output_specs):
        raise Error("E0202", "the module changes its buffers or inputs, which a Model does not")
    values = []
    for _, n in wanted:
        if not isinstance(n, fx.Node):
            raise Error("E0202", "an output is no tensor")
        values.append(lowering.graph.op("identity", lowering.values[n]))
    text = lowering.graph.text(values)
    return Model(_Model.parse(text, constants))


__all__ = ["from_torch"]
