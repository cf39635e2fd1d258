"""Compiled parts of an FX graph, and how they are called."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch import fx

from .. import Executable, Model
from .. import compile as compile_model
from .._arrays import tensor_from
from .._tessera import Model as _Model
from .graph import Unsupported
from .lowering import Lowering, is_tensor, why_not
from .options import Options


class Piece(torch.nn.Module):
    """Nodes of an FX graph as one compiled model. It is called with the values of `inputs` and gives those of `outputs`.

    It is compiled when it is first called: then the values of `frozen` inputs are known, which become constants."""

    def __init__(self, nodes: Sequence[fx.Node], inputs: Sequence[fx.Node], outputs: Sequence[fx.Node], frozen: set[fx.Node],
                 symbols: dict[sympy.Symbol, fx.Node], options: Options) -> None:
        super().__init__()
        self.nodes, self.outputs, self.options = list(nodes), list(outputs), options
        extra: list[fx.Node] = []

        def find_symbol(symbol: sympy.Symbol) -> None:
            if symbol not in symbols:
                raise Unsupported(f"the size {symbol} is of no input")
            extra.append(symbols[symbol])

        lowering = Lowering(find_symbol)
        self.orders = [lowering.input(n) for n in inputs]
        for n in nodes:
            lowering.write(n)
        results = [lowering.output(n) for n in outputs]
        self.text = lowering.graph.text([v for v, _ in results])
        self.out_orders = [order for _, order in results]
        self.inputs = [*inputs, *extra]
        self.orders += [(0,)] * len(extra)
        self.frozen = [i for i, n in enumerate(inputs) if n in frozen]
        self.model: Model = self._parse({})  # says now what is wrong with it
        self.executable: Executable | None = None
        self.seconds = 0.0
        self._lock = threading.Lock()
        self._versions: list[tuple[torch.Tensor, int, int]] = []
        self._taken: list[tuple[int, Any]] = []
        identity = all(o is not None and o == tuple(range(len(o))) for o in self.out_orders)
        self._give = None if identity else [
            None if order is None or order == tuple(range(len(order))) else [order.index(i) for i in range(len(order))]
            for order in self.out_orders]
        self._gaps = {k: n.meta["val"].stride() for k, (n, order) in enumerate(zip(self.outputs, self.out_orders))
                      if order is None and _restorable(n.meta["val"])}

    def _parse(self, constants: dict[str, Any]) -> Model:
        return Model(_Model.parse(self.text, constants))

    def _build(self, args: Sequence[Any]) -> None:
        """Compiles it; with `frozen` inputs as constants."""
        began = time.perf_counter()
        constants = {}
        for i in self.frozen:
            constants[f"in{i}"] = tensor_from(_arranged(args[i], self.orders[i]).cpu())
        model = self._parse(constants)
        target = next((f"cuda:{a.device.index or 0}" for a in args if is_tensor(a) and a.is_cuda), "host")
        self.executable = compile_model(model, target=target, threads=torch.get_num_threads(), precision=self.options.precision)
        self._versions = [(args[i], args[i]._version, args[i].data_ptr()) for i in self.frozen]
        self._taken = [(i, None if order == tuple(range(len(order or ()))) and order is not None else order)
                       for i, order in enumerate(self.orders) if i not in self.frozen]
        self.seconds = time.perf_counter() - began

    def _changed(self, args: Sequence[Any]) -> bool:
        """Whether a frozen input is another tensor, or was written to."""
        return any(args[i]._version != version or args[i].data_ptr() != address
                   for i, (_, version, address) in zip(self.frozen, self._versions))

    def forward(self, *args: Any) -> tuple[Any, ...]:
        if self.executable is None or (self.frozen and self._changed(args)):
            with self._lock:
                if self.executable is not None and self.frozen and self._changed(args):
                    self.frozen, self.executable = [], None  # they change: no constants
                if self.executable is None:
                    self._build(args)
        values = []
        for i, order in self._taken:
            v = args[i]
            if type(v) is int:
                v = torch.tensor([v])
            elif order is not None:
                v = v.permute(order)
            elif not v.is_contiguous():
                v = v.contiguous()
            values.append(v.detach() if v.requires_grad else v)
        assert self.executable is not None
        found = self.executable(*values)
        results = list(found) if isinstance(found, tuple) else [found]
        if self._give is not None:
            for k, back in enumerate(self._give):
                if back is not None:
                    results[k] = results[k].permute(back)
            for k, stride in self._gaps.items():
                results[k] = torch.empty_strided(results[k].shape, stride, dtype=results[k].dtype, device=results[k].device).copy_(results[k])
        return tuple(results)


def _restorable(meta: torch.Tensor) -> bool:
    return all(isinstance(n, int) and n > 0 for n in meta.stride())


def _arranged(t: torch.Tensor, order: tuple[int, ...] | None) -> torch.Tensor:
    t = t.detach()
    return (t.permute(order) if order is not None else t).contiguous()


__all__ = ["Piece", "why_not"]
