"""Tessera: a deep-learning compiler.

    import tessera
    model = tessera.load("model.onnx")
    y = model(x)                       # or model.run({"x": x}) for a dict of all outputs
    smaller, report = tessera.optimize(model)
    fast = tessera.compile(model)      # machine code for this processor
    y = fast(x)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ._arrays import array_from, datum_from, numpy_dtype, tensor_from, value_from
from ._errors import Error
from ._tessera import CompileReport, NodeText, OptimizeReport, PassRun, Port, Rewrite, StepProfile, Summary, Tensor
from ._tessera import Model as _Model
from ._tessera import compile as _compile
from ._tessera import compile_targets, optimizer_passes
from ._tessera import optimize as _optimize

try:
    __version__ = version("tessera")
except PackageNotFoundError:  # used from a source tree
    __version__ = "0"

__all__ = ["CompileReport", "Error", "Executable", "Model", "NodeText", "OptimizeReport", "PassRun", "Port", "Rewrite",
           "StepProfile", "Summary", "Tensor", "array_from", "compile", "compile_targets", "demo", "from_onnx", "load",
           "numpy_dtype", "optimize", "optimizer_passes", "parse", "tensor_from"]

Progress = Callable[[str, int, int], None]


class _Runnable:
    """What has inputs and computes outputs: a model, or machine code for one."""

    def __init__(self, held: Any) -> None:
        self._held = held

    @property
    def inputs(self) -> list[Port]:
        """Name, type and symbolic dims of each input: model.inputs[0].dims == ["N", "3", "224", "224"]."""
        return self._held.inputs

    @property
    def outputs(self) -> list[Port]:
        return self._held.outputs

    def _data(self, inputs: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
        ports = {port.name: port for port in self.inputs}
        if not isinstance(inputs, Mapping):
            if len(inputs) > len(ports):
                raise Error("E0401", f"{len(inputs)} inputs were given, the model takes {len(ports)}")
            inputs = dict(zip(ports, inputs))
        return {name: datum_from(value, ports.get(name)) for name, value in inputs.items()}

    def run(self, inputs: Mapping[str, Any] | Sequence[Any], *, seed: int = 0, max_work: int | None = None,
            progress: Progress | None = None) -> dict[str, Any]:
        """Computes all outputs, by name. Inputs by name or in order: NumPy arrays, anything with __dlpack__, numbers,
        lists for sequences, None for an empty optional. `progress(node, done, total)` is called after each node."""
        limits = {} if max_work is None else {"max_work": max_work}
        results = self._held.run(self._data(inputs), seed=seed, progress=progress, **limits)
        return {port.name: value_from(result) for port, result in zip(self.outputs, results)}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs for inputs in order or by name: one value, or a tuple."""
        names = [port.name for port in self.inputs]
        if len(args) > len(names):
            raise Error("E0401", f"{len(args)} inputs were given, the model takes {len(names)}")
        inputs = dict(zip(names, args)) | kwargs
        outputs = tuple(self.run(inputs).values())
        return outputs[0] if len(outputs) == 1 else outputs

    def __repr__(self) -> str:
        ins = ", ".join(f"{p.name}: {p.type}" for p in self.inputs)
        outs = ", ".join(f"{p.name}: {p.type}" for p in self.outputs)
        return f"<tessera.{type(self).__name__} ({ins}) -> ({outs})>"


class Model(_Runnable):
    """A model that can be inspected, run and written back. Make one with load, from_onnx, parse or demo."""

    @property
    def _model(self) -> _Model:
        return self._held

    def summary(self) -> Summary:
        """Ops used, parameters, FLOPs and bytes (as expressions over the symbolic dims), opset."""
        return self._model.summary()

    def peak_bytes(self, **symbols: int) -> int | None:
        """The most that inputs, results and outputs take at the same time; symbolic dims are sized by name (1 otherwise).
        None where a size is not known."""
        return self._model.peak_bytes(symbols)

    def random_inputs(self, seed: int = 0, **symbols: int) -> dict[str, Any]:
        """Inputs of the right types; symbolic dims are sized by name (1 otherwise)."""
        return {name: value_from(datum) for name, datum in self._model.random_inputs(seed, symbols).items()}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes ONNX (.onnx) or the text form."""
        self._model.save(os.fspath(path))

    def to_onnx(self) -> bytes:
        return self._model.to_onnx()

    def to_text(self) -> str:
        return self._model.to_text()


class Executable(_Runnable):
    """A model as machine code. Safe to call from many threads at once. Make one with compile."""

    @property
    def report(self) -> CompileReport:
        """Kernels and steps, time by phase, what was decided and why, which nodes no kernel computes."""
        return self._held.report

    @property
    def weight_bytes(self) -> int:
        return self._held.weight_bytes

    def arena_bytes(self, **symbols: int) -> int | None:
        """What a run takes besides weights; symbolic dims are sized by name (1 otherwise). None where it is not known."""
        return self._held.arena_bytes(symbols)

    def profile(self, inputs: Mapping[str, Any] | Sequence[Any], runs: int = 10) -> list[StepProfile]:
        """The time of each step, the median of some runs."""
        return self._held.profile(self._data(inputs), runs)

    def check(self, inputs: Mapping[str, Any] | Sequence[Any]) -> list[tuple[str, float]]:
        """Each step against the reference: its label, and the largest difference relative to the largest value."""
        return self._held.check(self._data(inputs))

    def emit(self, what: str) -> str:
        """A stage as text: "graph", "kernel", "llvm" or "asm"."""
        return self._held.emit(what)


def load(path: str | os.PathLike[str]) -> Model:
    """A model from a file: ONNX, or Tessera's text form."""
    return Model(_Model.load(os.fspath(path)))


def from_onnx(model: Any) -> Model:
    """A model from ONNX bytes or an onnx.ModelProto."""
    return Model(_Model.from_onnx(model if isinstance(model, bytes) else model.SerializeToString()))


def parse(text: str) -> Model:
    """A model from the text form."""
    return Model(_Model.parse(text))


def demo(name: str = "resnet50", seed: int = 0) -> Model:
    """A built-in model with seeded weights."""
    return Model(_Model.demo(name, seed))


def optimize(model: Model, precision: str = "default", *, rules: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
             refute_rules: bool = True, fold_limit: int = 1 << 24, stop_after: str = "",
             record: bool = False) -> tuple[Model, OptimizeReport]:
    """A model that computes the same with less, and what was done to it. The one given stays as it is.

    `precision`: "strict" keeps every bit, "default" also admits what holds of real numbers up to rounding, "fast" also
    approximations. `rules` are files of rewrite rules of your own (docs/rules.md); one with a counterexample is refused
    unless `refute_rules` is False. `record` keeps each rewrite in report.rewrites. `stop_after` names a pass whose first run
    is the last thing done; optimizer_passes() lists them."""
    if isinstance(rules, (str, os.PathLike)):
        rules = [rules]
    done = _optimize(model._model, precision, [os.fspath(path) for path in rules], refute_rules, fold_limit, stop_after,
                     record)
    return Model(done.model), done.report


def compile(model: Model, *, target: str = "host", threads: int = 0, precision: str = "default", optimize: bool = True,
            fuse: bool = True, keep_weights: bool = False, cache: str | os.PathLike[str] | None = None,
            progress: Progress | None = None) -> Executable:
    """Machine code for a model, for this processor or for another (compile_targets() lists them).

    `threads` is the most that a run uses (0: one for each core). `precision` "strict" gives the same bits whatever the
    number of threads. `keep_weights` also keeps the model's own where they were rearranged for running, which check and
    emit("graph") need. `cache` is a folder of compiled code (None: the user's; "": none)."""
    folder = None if cache is None else os.fspath(cache)
    return Executable(_compile(model._model, target, threads, precision, optimize, fuse, keep_weights, folder,
                               progress))
