"""Tessera: a deep-learning compiler.

    import tessera
    model = tessera.load("model.onnx")
    y = model(x)                       # or model.run({"x": x}) for a dict of all outputs
    smaller, report = tessera.optimize(model)
    fast = tessera.compile(model)      # machine code for this processor
    y = fast(x)
    fast.save("model.tessera")         # Executable.load reads it back
    faster, report = tessera.search(model, seconds=30)            # by trying rules and timing what they give
    found = tessera.discover("add,mul,relu", 2, out="my.rules")   # new rules, proved
    step = tessera.training(model, "cross_entropy", tessera.AdamW(3e-4))
    loss = step(x, labels)             # one update
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Protocol

from ._arrays import array_from, numpy_dtype, tensor_from
from ._errors import Error, FileError, InputError, ModelWarning
from ._runnable import Executable, Model, Path, Progress, check_symbols, number
from ._tessera import CompileReport, DiscoveredCounts, DiscoveredRule, DiscoveredRules, DiscoverProgress, NodeText
from ._tessera import OptimizeReport, PassRun, Port, Rewrite, SearchedCandidate, SearchedRule, SearchReport, StepProfile
from ._tessera import Device, Metadata, Summary, Tensor, TrainingReport
from ._tessera import Model as _Model
from ._tessera import compile as _compile
from ._tessera import compile_targets, devices, memory_in_use, memory_limit, optimizer_passes
from ._tessera import discover as _discover
from ._tessera import optimize as _optimize
from ._tessera import search as _search
from ._tessera import set_memory_limit as _set_memory_limit
from ._training import SGD, Adagrad, Adam, AdamW, Lion, Loss, Optimizer, Training, make_training, warmup_cosine

try:
    __version__ = version("tessera")
except PackageNotFoundError:  # used from a source tree
    __version__ = "0"

__all__ = ["Adagrad", "Adam", "AdamW", "CompileReport", "Device", "DiscoverProgress", "DiscoveredCounts", "DiscoveredRule", "DiscoveredRules", "Error",
           "Executable", "FileError", "InferenceSession", "InputError", "Lion", "Loss", "Metadata", "Model", "ModelWarning", "NodeText", "OptimizeReport", "PassRun", "Port", "Rewrite", "SGD", "SearchReport",
           "SearchedCandidate", "SearchedRule", "StepProfile", "Summary", "Tensor", "Training", "TrainingReport", "array_from", "compile",
           "compile_targets", "demo", "devices", "discover", "from_onnx", "from_torch", "load", "memory_in_use", "memory_limit", "numpy_dtype",
           "optimize", "optimizer_passes", "parse", "search", "set_memory_limit", "tensor_from",
           "training", "warmup_cosine"]

Files = Path | Sequence[Path]


class OnnxModel(Protocol):
    """An onnx.ModelProto, or whatever else turns into the bytes of one."""

    def SerializeToString(self) -> bytes: ...


Source = Path | bytes | bytearray | memoryview | OnnxModel | Model
MOST_THREADS = 4096


def load(model: Source, *, strict: bool = False) -> Model:
    """A model from a file (ONNX, or Tessera's text form), from ONNX bytes or from an onnx.ModelProto; a Model as it is.

    What the file declares wrongly and inference knows better gives a ModelWarning, as does a run whose sizes contradict
    declared ones. With `strict`, both are errors."""
    if isinstance(model, Model):
        if strict:
            raise Error("E0501", "strict is for models that are being read, and this one is loaded already")
        return model
    if isinstance(model, (str, os.PathLike)):
        return Model(_Model.load(os.fspath(model), strict))
    if isinstance(model, (bytes, bytearray, memoryview)):
        return Model(_Model.from_onnx(bytes(model), strict))
    if hasattr(model, "SerializeToString"):
        return Model(_Model.from_onnx(model.SerializeToString(), strict))
    raise Error("E0501", f"expected a path, ONNX bytes, an onnx.ModelProto or a Model, got {type(model).__name__}")


def from_onnx(model: Source, *, strict: bool = False) -> Model:
    """The same as load."""
    return load(model, strict=strict)


def from_torch(module: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None, *, dynamic_shapes: Any = None) -> Model:
    """A model that computes what a torch.nn.Module does in inference, or an ExportedProgram (docs/torch.md). Parameters become
    constants. `args`, `kwargs` and `dynamic_shapes` are torch.export's."""
    from .torch import from_torch as convert  # PyTorch is imported by those who use it

    return convert(module, args, kwargs, dynamic_shapes=dynamic_shapes)


def parse(text: str) -> Model:
    """A model from the text form."""
    return Model(_Model.parse(text))


def demo(name: str = "resnet50", seed: int = 0) -> Model:
    """A built-in model with seeded weights."""
    return Model(_Model.demo(name, number("seed", seed, 0)))


def set_memory_limit(size: int | str) -> None:
    """The most bytes that all tensors of this process may take together, as a number or as text: "4G". What would go over
    it is an error, E0408."""
    if isinstance(size, str):
        digits, unit = size.rstrip("kKMGT"), size[len(size.rstrip("kKMGT")):]
        try:
            size = int(float(digits) * {"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}[unit])
        except (KeyError, ValueError, OverflowError):
            raise Error("E0501", f"memory limit: expected a number above 0, such as 500M or 4G, got {size!r}") from None
    _set_memory_limit(number("memory limit", size, 1, 2**62))


def _paths(files: Files) -> list[str]:
    return [os.fspath(path) for path in ([files] if isinstance(files, (str, os.PathLike)) else files)]


def optimize(model: Source, precision: str = "default", *, rules: Files = (),
             refute_rules: bool = True, fold_limit: int = 1 << 24, stop_after: str = "",
             record: bool = False) -> tuple[Model, OptimizeReport]:
    """A model that computes the same with less, and what was done to it. The one given stays as it is.

    `precision`: "strict" keeps every bit, "default" also admits what holds of real numbers up to rounding, "fast" also
    approximations. `rules` are files of rewrite rules of your own (docs/rules.md); one with a counterexample is refused
    unless `refute_rules` is False. `record` keeps each rewrite in report.rewrites. `stop_after` names a pass whose first run
    is the last thing done; optimizer_passes() lists them."""
    done = _optimize(load(model)._held, precision, _paths(rules), refute_rules, fold_limit, stop_after, record)
    return Model(done.model), done.report


def search(model: Source, seconds: float = 60, *, strategy: str = "egraph", cost: str = "measured",
           precision: str = "default", target: str = "host", rules: Files = (), built_in_rules: bool = True,
           refute_rules: bool = True, tested_rules: bool = False, max_rule_ops: int = 0, time_candidates: bool = True,
           max_nodes: int = 20000, threads: int = 1, alpha: float | None = None, budget: int | None = None,
           cache: Path | None = None, mutate: float = 0, sizes: Mapping[str, int] | None = None,
           progress: Progress | None = None) -> tuple[Model, SearchReport]:
    """A model that computes the same and runs faster on this machine, and what was found (docs/search.md). Where nothing
    is faster by the clock, it is the model given.

    `strategy`: "egraph", or "backtrack" as TASO searches (`alpha` 1.05, `budget` 1000). `cost`: "measured" (of fused groups), "sum"
    (of every op alone) or "estimate" (no clock). `rules` are files of rules of your own; one that is said to be proved needs its
    certificate beside it, others are tried for counterexamples, unless `refute_rules` is False. `max_nodes` bounds the
    e-graph and `seconds` the time: report.complete and report.stopped_by say whether a limit was met, and the best so far
    is the result. Candidates are timed on `threads` (0: all), or on a GPU where `target` is "cuda" ("cuda:1" is the
    second); report.device says on which. Where the model has open sizes, `sizes` says at which all is
    measured. `time_candidates` False takes the cheapest by its
    cost. print(report.explain()) shows which rule was used where and what it gains. `mutate` seconds go into rules for
    this model's own products, corrected and proved (docs/corrected.md): report.mutants, each with its `picture`."""
    if strategy == "egraph" and (alpha is not None or budget is not None):
        raise Error("E0501", "alpha and budget are for the strategy \"backtrack\"")
    if cost == "estimate" and cache is not None:
        raise Error("E0501", "an estimated cost uses no cache")
    number("threads", threads, 0, MOST_THREADS)
    number("max_nodes", max_nodes, 1)
    loaded = load(model)
    done = _search(loaded._held, seconds, strategy, cost, precision, target, _paths(rules), built_in_rules, refute_rules,
                   tested_rules, max_rule_ops, time_candidates, max_nodes, threads,
                   1.05 if alpha is None else alpha, 1000 if budget is None else number("budget", budget, 1),
                   None if cache is None else os.fspath(cache), mutate, check_symbols(sizes or {}, loaded._held.inputs), progress)
    return Model(done.model), done.report


def discover(ops: Path | Sequence[str] = "taso", max_ops: int = 3, *,
             out: Path | None = None, seed: int = 0, threads: int = 0,
             work_dir: Path | None = None, prove: bool = True, all: bool = False,
             shrinking: bool = False, corrected: bool = False,
             progress: Callable[[DiscoverProgress], None] | None = None) -> DiscoveredRules:
    """Rules that nobody wrote, each with its verdict (docs/superoptimizer.md).

    `ops`: "taso", "extended", a file that ends in .ops, or names of ops, as "add,mul,relu" or a list. `out` is the file of
    the proved rules; their certificates go to .cert beside it, what is only tested to .tested. With `work_dir`, a discovery
    that was interrupted goes on when it is started again. `all` also keeps the pairs that other rules give; `shrinking`
    writes only rules that leave fewer ops or compute siblings together. The result depends on `seed`, not on `threads`.
    `corrected` finds programs that equal an original almost everywhere instead, corrected and proved (docs/corrected.md);
    `ops` is then a file of originals, or "taso" for those that come with Tessera."""
    number("threads", threads, 0, MOST_THREADS)
    number("seed", seed, 0)
    if out is not None and not prove:
        raise Error("E0501", "out takes rules that are proved, and prove=False proves none")
    names = os.fspath(ops) if isinstance(ops, (str, os.PathLike)) else ",".join(ops)
    return _discover(names, max_ops, "" if out is None else os.fspath(out), seed, threads,
                     "" if work_dir is None else os.fspath(work_dir), prove, all, shrinking, corrected, progress)


def compile(model: Source, example_inputs: Sequence[Any] | None = None, *, target: str = "host", threads: int = 0, precision: str = "default", optimize: bool = True,
            fuse: bool = True, keep_weights: bool = False, cache: Path | None = None, tier: str = "full",
            progress: Progress | None = None) -> Executable:
    """Machine code for a model, for this processor or for another (compile_targets() lists them). `example_inputs` are those
    of a torch.nn.Module, which from_torch makes a model of first.

    `threads` is the most that a run uses (0: one for each core). `precision` "strict" gives the same bits whatever the
    number of threads. `keep_weights` also keeps the model's own where they were rearranged for running, and the stages
    before kernels: check needs them, and emit of "graph", "outline", "compute" and "schedule". `cache` is a folder of
    compiled code (None: the user's; "": none).

    `tier` "full" returns when optimized code is there. "auto" returns sooner, with a baseline that runs several times
    slower and answers until a thread has compiled optimized code (Executable.wait waits for it); where the cache has
    optimized code, it is used at once. "fast" stays with the baseline."""
    folder = None if cache is None else os.fspath(cache)
    if example_inputs is not None:
        model = from_torch(model, example_inputs)
    return Executable(_compile(load(model)._held, target, number("threads", threads, 0, MOST_THREADS), precision, optimize,
                               fuse, keep_weights, folder, tier, progress))


def training(model: Source, loss: str | Loss | None = "cross_entropy", optimizer: Optimizer = AdamW(), *,
             parameters: Sequence[str] = (), frozen: Sequence[str] = (), clip_norm: float = 0, clip_value: float = 0,
             precision: str | None = None, loss_scale: float = 0, accumulate: int = 1, training_mode: bool = True, seed: int = 0,
             target: str = "host", threads: int = 0, strict: bool = False, cache: Path | None = None) -> Training:
    """A training step of a model, compiled: step(x, labels) updates the parameters and gives the loss (docs/training.md).

    `loss`: "cross_entropy" (logits and integer labels), "mse", "l1", "bce_with_logits", a Loss with options, or None where the
    model's first output is the loss. `parameters` and `frozen` are patterns of the names of initializers; without them, all
    float ones of rank 1 or more that a gradient reaches are trained. `clip_norm` bounds the norm of all gradients together,
    `clip_value` each element. `precision`: "bf16" or "f16" of products, whose parameters stay as they are; `loss_scale` 0 is
    chosen by the steps for f16. `accumulate` steps make one update. `training_mode` False leaves dropout and batch
    normalization as the model has them. `seed` is of random numbers. `threads`, `target` and `cache` are compile's; `strict`
    gives the same bits whatever the number of threads."""
    return make_training(load(model), loss, optimizer, parameters=parameters, frozen=frozen, clip_norm=clip_norm,
                         clip_value=clip_value, precision=precision, loss_scale=loss_scale, accumulate=accumulate,
                         training_mode=training_mode, seed=seed, target=target,
                         threads=number("threads", threads, 0, MOST_THREADS), strict=strict, cache=cache)


from .onnxruntime import InferenceSession  # noqa: E402 - it needs load and compile
