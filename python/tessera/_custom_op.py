"""Operators that are Python functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ._arguments import checked
from ._arrays import array_from, array_name, tensor_from
from ._errors import Error
from ._tessera import Tensor
from ._tessera import register_op as _register

Function = TypeVar("Function", bound=Callable[..., Any])


class TensorType(NamedTuple):
    """The type of an operator's input or output: an element type such as "f32", and dimensions as in Port.dims, each a
    number or a text such as "N" or "2*N"; no dimensions where not even the rank is known."""

    dtype: str
    dims: Sequence[int | str] | None = None


def _many(found: Any, outputs: int) -> list[Any]:
    return list(found) if outputs != 1 or isinstance(found, list) else [found]


def _dim(text: str) -> int | str:
    return int(text) if text.lstrip("-").isdigit() else text


@checked
def custom_op(domain: str, name: str, *, types: Callable[..., Any] | None = None, outputs: int = 1,
              attrs: Mapping[str, Any] | None = None) -> Callable[[Function], Function]:
    """Registers a function as an operator of models, for the rest of the process:

        @tessera.custom_op("com.example", "Scale", attrs={"factor": 1.0})
        def scale(x, factor):
            return x * np.float32(factor)

    Models use it by domain and name; in the text form it is `com_example_scale(x, factor=0.5)`. Its parameters without
    those named in `attrs`, which gives defaults, are the inputs. It gets NumPy arrays, which are valid during the call,
    and returns an array, or a list of `outputs` arrays. `types` takes a TensorType for each input and the attributes, and
    returns those of the outputs; without it, outputs have the type of the first input. A compiled model calls the function
    as a step on the CPU, from any thread."""
    defaults = dict(attrs or {})

    def register(function: Function) -> Function:
        parameters = inspect.signature(function).parameters
        inputs = [p for p in parameters if p not in defaults]
        if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters.values()):
            raise Error("E0501", f"{domain}.{name} needs a function with a fixed number of parameters")
        if missing := [a for a in defaults if a not in parameters]:
            raise Error("E0501", f'the function of {domain}.{name} has no parameter "{missing[0]}" for that attribute')

        def find_types(given: list[tuple[str, list[str] | None]], said: dict[str, Any]) -> list[tuple[str, list[str] | None]]:
            shown = [TensorType(dtype, None if dims is None else tuple(_dim(d) for d in dims)) for dtype, dims in given]
            found = [shown[0]] * outputs if types is None else types(*shown, **said)
            if isinstance(found, TensorType):
                found = [found]
            return [(t.dtype, None if t.dims is None else [str(d) for d in t.dims]) for t in found]

        def run(given: list[Tensor], said: dict[str, Any]) -> list[Tensor]:
            arrays = [array_from(t) for t in given]
            for a in arrays:
                a.flags.writeable = False
            results = [np.asarray(r) for r in _many(function(*arrays, **said), outputs)]
            for r in results:
                array_name(r.dtype)
            return [tensor_from(np.array(r) if any(np.may_share_memory(r, a) for a in arrays) else r) for r in results]

        if types is None and not inputs:
            raise Error("E0501", f"{domain}.{name} has no input, so it needs `types`")
        _register(domain, name, len(inputs), outputs, defaults, find_types, run)
        return function

    return register
