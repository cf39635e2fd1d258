"""Tessera: a deep-learning compiler.

    import tessera
    model = tessera.load("model.onnx")
    y = model(x)                       # or model.run({"x": x}) for a dict of all outputs
    smaller, report = tessera.optimize(model)
    fast = tessera.compile(model)      # machine code for this processor
    y = fast(x)
    faster, report = tessera.search(model, seconds=30)            # by trying rules and timing what they give
    found = tessera.discover("add,mul,relu", 2, out="my.rules")   # new rules, proved
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ._arrays import array_from, datum_from, is_plain, numpy_dtype, tensor_from, value_from
from ._errors import Error, ModelWarning
from ._tessera import CompileReport, Datum, DiscoveredCounts, DiscoveredRule, DiscoveredRules, DiscoverProgress, NodeText
from ._tessera import OptimizeReport, PassRun, Port, Rewrite, SearchedCandidate, SearchedRule, SearchReport, StepProfile
from ._tessera import Summary, Tensor
from ._tessera import Model as _Model
from ._tessera import compile as _compile
from ._tessera import compile_targets, optimizer_passes
from ._tessera import discover as _discover
from ._tessera import optimize as _optimize
from ._tessera import search as _search

try:
    __version__ = version("tessera")
except PackageNotFoundError:  # used from a source tree
    __version__ = "0"

__all__ = ["CompileReport", "DiscoverProgress", "DiscoveredCounts", "DiscoveredRule", "DiscoveredRules", "Error",
           "Executable", "Model", "ModelWarning", "NodeText", "OptimizeReport", "PassRun", "Port", "Rewrite", "SearchReport",
           "SearchedCandidate", "SearchedRule", "StepProfile", "Summary", "Tensor", "array_from", "compile",
           "compile_targets", "demo", "discover", "from_onnx", "load", "numpy_dtype", "optimize", "optimizer_passes",
           "parse", "search", "tensor_from"]

Progress = Callable[[str, int, int], None]
Files = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class _Runnable:
    """What has inputs and computes outputs: a model, or machine code for one."""

    def __init__(self, held: Any) -> None:
        self._held = held
        self._ports = {port.name: port for port in held.inputs}
        self._tensors = frozenset(name for name, port in self._ports.items() if port.dtype)
        self._output_names = [port.name for port in held.outputs]

    @property
    def inputs(self) -> list[Port]:
        """Name, type and symbolic dims of each input: model.inputs[0].dims == ["N", "3", "224", "224"]."""
        return self._held.inputs

    @property
    def outputs(self) -> list[Port]:
        return self._held.outputs

    def _data(self, inputs: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
        if not isinstance(inputs, Mapping):
            if len(inputs) > len(self._ports):
                raise Error("E0401", f"{len(inputs)} inputs were given, the model takes {len(self._ports)}")
            inputs = dict(zip(self._ports, inputs))
        return {name: Datum.array_of(value) if name in self._tensors and is_plain(value)
                else datum_from(value, self._ports.get(name)) for name, value in inputs.items()}

    def run(self, inputs: Mapping[str, Any] | Sequence[Any], *, seed: int = 0, max_work: int | None = None,
            progress: Progress | None = None) -> dict[str, Any]:
        """Computes all outputs, by name. Inputs by name or in order: NumPy arrays, anything with __dlpack__, numbers,
        lists for sequences, None for an empty optional. `progress(node, done, total)` is called after each node."""
        limits = {} if max_work is None else {"max_work": max_work}
        results = self._held.run(self._data(inputs), seed=seed, progress=progress, **limits)
        return {name: value_from(result) for name, result in zip(self._output_names, results)}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs for inputs in order or by name: one value, or a tuple."""
        names = list(self._ports)
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

    @property
    def warnings(self) -> list[Any]:
        """What the file got wrong: code, message, where and hint of each."""
        return self._model.warnings

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
        """A stage as text: "graph", "compute" or "schedule", which need keep_weights; "kernel", "llvm" or "asm"."""
        return self._held.emit(what)


def load(path: str | os.PathLike[str], *, strict: bool = False) -> Model:
    """A model from a file: ONNX, or Tessera's text form.

    What the file declares wrongly and inference knows better gives a ModelWarning, as does a run whose sizes contradict
    declared ones. With `strict`, both are errors."""
    return Model(_Model.load(os.fspath(path), strict))


def from_onnx(model: Any, *, strict: bool = False) -> Model:
    """A model from ONNX bytes or an onnx.ModelProto; `strict` as load has it."""
    return Model(_Model.from_onnx(model if isinstance(model, bytes) else model.SerializeToString(), strict))


def parse(text: str) -> Model:
    """A model from the text form."""
    return Model(_Model.parse(text))


def demo(name: str = "resnet50", seed: int = 0) -> Model:
    """A built-in model with seeded weights."""
    return Model(_Model.demo(name, seed))


def _paths(files: Files) -> list[str]:
    return [os.fspath(path) for path in ([files] if isinstance(files, (str, os.PathLike)) else files)]


def optimize(model: Model, precision: str = "default", *, rules: Files = (),
             refute_rules: bool = True, fold_limit: int = 1 << 24, stop_after: str = "",
             record: bool = False) -> tuple[Model, OptimizeReport]:
    """A model that computes the same with less, and what was done to it. The one given stays as it is.

    `precision`: "strict" keeps every bit, "default" also admits what holds of real numbers up to rounding, "fast" also
    approximations. `rules` are files of rewrite rules of your own (docs/rules.md); one with a counterexample is refused
    unless `refute_rules` is False. `record` keeps each rewrite in report.rewrites. `stop_after` names a pass whose first run
    is the last thing done; optimizer_passes() lists them."""
    done = _optimize(model._model, precision, _paths(rules), refute_rules, fold_limit, stop_after, record)
    return Model(done.model), done.report


def search(model: Model, seconds: float = 60, *, strategy: str = "egraph", cost: str = "measured",
           precision: str = "default", target: str = "host", rules: Files = (), built_in_rules: bool = True,
           refute_rules: bool = True, tested_rules: bool = False, max_rule_ops: int = 0, time_candidates: bool = True,
           max_nodes: int = 20000, threads: int = 1, alpha: float = 1.05, budget: int = 1000,
           cache: str | os.PathLike[str] | None = None,
           progress: Progress | None = None) -> tuple[Model, SearchReport]:
    """A model that computes the same and runs faster on this machine, and what was found (docs/search.md). Where nothing
    is faster by the clock, it is the model given.

    `strategy`: "egraph", or "backtrack" as TASO searches (`alpha`, `budget`). `cost`: "measured" (of fused groups), "sum"
    (of every op alone) or "estimate" (no clock). `rules` are files of rules of your own; one that is said to be proved needs its
    certificate beside it, others are tried for counterexamples, unless `refute_rules` is False. `max_nodes` bounds the
    e-graph and `seconds` the time: report.complete and report.stopped_by say whether a limit was met, and the best so far
    is the result. Candidates are timed on `threads` (0: all). `time_candidates` False takes the cheapest by its cost. print(report.explain()) shows which rule was
    used where and what it gains."""
    done = _search(model._model, seconds, strategy, cost, precision, target, _paths(rules), built_in_rules, refute_rules,
                   tested_rules, max_rule_ops, time_candidates, max_nodes, threads, alpha, budget,
                   None if cache is None else os.fspath(cache), progress)
    return Model(done.model), done.report


def discover(ops: str | os.PathLike[str] | Sequence[str] = "taso", max_ops: int = 3, *,
             out: str | os.PathLike[str] | None = None, seed: int = 0, threads: int = 0,
             work_dir: str | os.PathLike[str] | None = None, prove: bool = True, all: bool = False,
             shrinking: bool = False, progress: Callable[[DiscoverProgress], None] | None = None) -> DiscoveredRules:
    """Rules that nobody wrote, each with its verdict (docs/superoptimizer.md).

    `ops`: "taso", "extended", a file that ends in .ops, or names of ops, as "add,mul,relu" or a list. `out` is the file of
    the proved rules; their certificates go to .cert beside it, what is only tested to .tested. With `work_dir`, a discovery
    that was interrupted goes on when it is started again. `all` also keeps the pairs that other rules give; `shrinking`
    writes only rules that leave fewer ops or compute siblings together. The result depends on `seed`, not on `threads`."""
    names = os.fspath(ops) if isinstance(ops, (str, os.PathLike)) else ",".join(ops)
    return _discover(names, max_ops, "" if out is None else os.fspath(out), seed, threads,
                     "" if work_dir is None else os.fspath(work_dir), prove, all, shrinking, progress)


def compile(model: Model, *, target: str = "host", threads: int = 0, precision: str = "default", optimize: bool = True,
            fuse: bool = True, keep_weights: bool = False, cache: str | os.PathLike[str] | None = None,
            progress: Progress | None = None) -> Executable:
    """Machine code for a model, for this processor or for another (compile_targets() lists them).

    `threads` is the most that a run uses (0: one for each core). `precision` "strict" gives the same bits whatever the
    number of threads. `keep_weights` also keeps the model's own where they were rearranged for running, and the stages before kernels: check
    needs them, and emit of "graph", "compute" and "schedule". `cache` is a folder of compiled code (None: the user's; "": none)."""
    folder = None if cache is None else os.fspath(cache)
    return Executable(_compile(model._model, target, threads, precision, optimize, fuse, keep_weights, folder,
                               progress))
