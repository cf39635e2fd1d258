"""Tessera: a deep-learning compiler.

    import tessera
    model = tessera.load("model.onnx")
    y = model(x)                       # or model.run({"x": x}) for a dict of all outputs
    smaller, report = tessera.optimize(model)
    fast = tessera.compile(model)      # machine code for this processor
    y = fast(x)
    fast.save("model.tessera")         # Executable.load reads it back
    faster, report = tessera.search(model, seconds=30)            # applies rules and times the candidates
    found = tessera.discover("add,mul,relu", 2, out="my.rules")   # new, proved rules
    step = tessera.training(model, "cross_entropy", tessera.AdamW(3e-4))
    loss = step(x, labels)             # one update
    small, report = tessera.quantize(model, samples=[x])          # 8-bit integers, calibrated on x
    parts = tessera.shard(model, "data=2,model=4", search=True)   # partitioned over 8 ranks
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol, cast

from . import _html
from ._arguments import checked
from ._arrays import array_from, numpy_dtype, tensor_from
from ._custom_op import TensorType, custom_op
from ._errors import Error, FileError, InputError, MissingFileError, ModelWarning
from ._quantize import calibrate_model, quantize_model
from ._runnable import Executable, Inputs, Model, Path, Progress, check_symbols, number, path_text
from ._shard import ShardedModel, shard_model
from ._tessera import Collective, CompileReport, DiscoveredCounts, DiscoveredRule, DiscoveredRules, DiscoverProgress, NodeText
from ._tessera import OptimizeReport, PassRun, Port, Rewrite, SearchedCandidate, SearchedRule, SearchReport, StepProfile
from ._tessera import Device, DeviceProfile, DeviceSpeed, LinkSpeed, Metadata, Profile, QuantizedLayer, QuantizeReport, Summary, Tensor, TrainingReport, ValueProfile
from ._tessera import Model as _Model
from ._tessera import ShardCost, ShardedValue, ShardReport, ShardSecond
from ._tessera import compile as _compile
from ._tessera import compile_targets, memory_in_use, memory_limit, optimizer_passes
from ._tessera import devices as _devices
from ._tessera import discover as _discover
from ._tessera import optimize as _optimize
from ._tessera import search as _search
from ._tessera import set_memory_limit as _set_memory_limit
from ._training import SGD, Adagrad, Adam, AdamW, Lion, Loss, Optimizer, Training, make_training, warmup_cosine

try:
    __version__ = version("tessera")
except PackageNotFoundError:  # used from a source tree
    __version__ = "0"

__all__ = ["Adagrad", "Adam", "AdamW", "Collective", "CompileReport", "Device", "DeviceProfile", "DeviceSpeed", "DiscoverProgress", "DiscoveredCounts", "DiscoveredRule", "DiscoveredRules", "Error",
           "Executable", "FileError", "InferenceSession", "InputError", "Lion", "LinkSpeed", "Loss", "Metadata", "MissingFileError", "Model", "ModelWarning", "NodeText", "OptimizeReport", "PassRun", "Port", "Profile", "QuantizeReport", "QuantizedLayer", "Rewrite", "SGD", "SearchReport",
           "SearchedCandidate", "SearchedRule", "ShardCost", "ShardReport", "ShardSecond", "ShardedModel", "ShardedValue", "StepProfile", "Summary", "Tensor", "TensorType", "Training", "TrainingReport", "ValueProfile", "array_from", "calibrate", "compile",
           "compile_targets", "custom_op", "demo", "devices", "discover", "from_onnx", "from_torch", "load", "memory_in_use", "memory_limit", "numpy_dtype",
           "optimize", "optimizer_passes", "parse", "quantize", "search", "set_memory_limit", "shard", "tensor_from",
           "training", "warmup_cosine"]

Files = Path | Sequence[Path]


class OnnxModel(Protocol):
    """An onnx.ModelProto, or whatever else turns into the bytes of one."""

    def SerializeToString(self) -> bytes: ...


class TorchModule(Protocol):
    """A torch.nn.Module."""

    def state_dict(self, *args: Any, **kwargs: Any) -> Any: ...


Source = Path | bytes | bytearray | memoryview | OnnxModel | Model
MOST_THREADS = 4096


@checked
def load(model: Source, *, strict: bool = False) -> Model:
    """Loads a model from a file (ONNX or Tessera's text form), ONNX bytes or an onnx.ModelProto; returns a Model
    unchanged.

    Wrong declarations that inference can correct give a ModelWarning, as does a run whose sizes contradict declared
    ones. With `strict`, both are errors."""
    if isinstance(model, Model):
        if strict:
            raise Error("E0501", "strict applies when a model is read, but this one is already loaded")
        return model
    if isinstance(model, (str, os.PathLike)):
        try:
            return Model(_Model.load(path_text(model), strict))
        except FileError as e:
            if os.path.exists(model):
                raise
            raise MissingFileError(e.code, e.message, e.where, e.note, e.hint) from None
    if isinstance(model, (bytes, bytearray, memoryview)):
        return Model(_Model.from_onnx(bytes(model), strict))
    if hasattr(model, "SerializeToString"):
        return Model(_Model.from_onnx(model.SerializeToString(), strict))
    hint = "from_torch and compile take the inputs of a torch.nn.Module beside it" if hasattr(model, "state_dict") else ""
    raise Error("E0501", f"expected a path, ONNX bytes, an onnx.ModelProto or a Model, got {type(model).__name__}", hint=hint)


def from_onnx(model: Source, *, strict: bool = False) -> Model:
    """The same as load."""
    return load(model, strict=strict)


def from_torch(module: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None, *, dynamic_shapes: Any = None) -> Model:
    """Converts a torch.nn.Module in inference mode, or an ExportedProgram, to a model (docs/torch.md). Parameters
    become constants. `args`, `kwargs` and `dynamic_shapes` are those of torch.export."""
    from .torch import from_torch as convert  # PyTorch is imported by those who use it

    return convert(module, args, kwargs, dynamic_shapes=dynamic_shapes)


@checked
def parse(text: str) -> Model:
    """Parses the text form of a model."""
    return Model(_Model.parse(text))


@checked
def demo(name: str = "resnet50", seed: int = 0) -> Model:
    """A built-in model with seeded weights."""
    return Model(_Model.demo(name, number("seed", seed, 0)))


def devices() -> list[Device]:
    """The host, all GPUs that the driver reports, then simulated accelerators. Device.target is an argument for
    `target`."""
    return _html.Rows(_devices())


def set_memory_limit(size: int | str) -> None:
    """Sets the maximum number of bytes of all tensors of this process, as a number or as text ("4G"). Allocations
    beyond it fail with E0408."""
    if isinstance(size, str):
        digits, unit = size.rstrip("kKMGT"), size[len(size.rstrip("kKMGT")):]
        try:
            size = int(float(digits) * {"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}[unit])
        except (KeyError, ValueError, OverflowError):
            raise Error("E0501", f"memory limit: expected a number above 0, such as 500M or 4G, got {size!r}") from None
    _set_memory_limit(number("memory limit", size, 1, 2**62))


def _paths(files: Files) -> list[str]:
    return [path_text(path) for path in ([files] if isinstance(files, (str, os.PathLike)) else files)]


@checked
def optimize(model: Source, precision: str = "default", *, rules: Files = (),
             refute_rules: bool = True, fold_limit: int = 1 << 24, stop_after: str = "",
             record: bool = False, cache: Path | None = None) -> tuple[Model, OptimizeReport]:
    """Returns an equivalent model that does less work, and a report of the rewrites. The argument is not changed.

    `precision`: "strict" keeps results bitwise equal, "default" also admits rewrites that are equal over the reals up
    to rounding, "fast" also approximations. `rules` are files of additional rewrite rules (docs/rules.md); a rule
    with a counterexample is rejected unless `refute_rules` is False. `record` keeps each rewrite in report.rewrites.
    `stop_after` stops after the first run of that pass; optimizer_passes() lists them. `cache` is the folder that
    remembers which rules were checked (None: the user's; "": none)."""
    folder = None if cache is None else path_text(cache)
    done = _optimize(load(model)._held, precision, _paths(rules), refute_rules, fold_limit, stop_after, record, folder)
    return Model(done.model), done.report


@checked
def search(model: Source, seconds: float = 60, *, strategy: str = "egraph", cost: str = "measured",
           precision: str = "default", target: str = "host", rules: Files = (), built_in_rules: bool = True,
           refute_rules: bool = True, tested_rules: bool = False, max_rule_ops: int = 0, time_candidates: bool = True,
           max_nodes: int = 20000, threads: int = 1, alpha: float | None = None, budget: int | None = None,
           cache: Path | None = None, mutate: float = 0, sizes: Mapping[str, int] | None = None,
           progress: Progress | None = None) -> tuple[Model, SearchReport]:
    """Returns an equivalent model that runs faster on this machine, and a report (docs/search.md). If nothing faster
    is found, it is the input model.

    `strategy`: "egraph", or "backtrack", TASO's search (`alpha` 1.05, `budget` 1000). `cost`: "measured" (of fused
    groups), "sum" (of single ops) or "estimate" (without measuring). `rules` are files of additional rules: a rule
    tagged proved needs a certificate beside the file, and others are checked for counterexamples unless
    `refute_rules` is False. `max_nodes` bounds the e-graph and `seconds` the time; report.complete and
    report.stopped_by tell whether a limit was reached, in which case the result is the best so far. Candidates are
    timed on `threads` threads (0: all), or on a GPU if `target` is "cuda" ("cuda:1" is the second); report.device
    names the device. For a model with dynamic sizes, `sizes` gives those for measurements. With `time_candidates`
    False, the cheapest graph by cost is taken. print(report.explain()) shows the rules used, where they apply and
    their gains. `mutate` is the time in seconds for mutants: rules for this model's own products, corrected and
    proved (docs/corrected.md); report.mutants lists them, each with a `picture`."""
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
                   None if cache is None else path_text(cache), mutate, check_symbols(sizes or {}, loaded._held.inputs), progress)
    return Model(done.model), done.report


@checked
def discover(ops: Path | Sequence[str] = "taso", max_ops: int = 3, *,
             out: Path | None = None, seed: int = 0, threads: int = 0,
             work_dir: Path | None = None, prove: bool = True, all: bool = False,
             shrinking: bool = False, corrected: bool = False,
             progress: Callable[[DiscoverProgress], None] | None = None) -> DiscoveredRules:
    """Discovers rewrite rules, each with its verdict (docs/superoptimizer.md).

    `ops` is "taso", "extended", an .ops file, or names of ops ("add,mul,relu" or a list). `out` is the file for
    proved rules; certificates go to .cert beside it, tested rules to .tested. With `work_dir`, repeating an
    interrupted call resumes it. `all` also keeps redundant pairs; `shrinking` writes only rules that reduce the
    number of ops or merge siblings. The result depends on `seed`, not on `threads`. `corrected` instead finds
    programs that equal an original almost everywhere, corrects and proves them (docs/corrected.md); `ops` is then a
    file of originals, or "taso" for the built-in ones."""
    number("threads", threads, 0, MOST_THREADS)
    number("seed", seed, 0)
    if out is not None and not prove:
        raise Error("E0501", "out receives proved rules, but prove=False proves none")
    names = os.fspath(ops) if isinstance(ops, (str, os.PathLike)) else ",".join(ops)
    return _discover(names, max_ops, "" if out is None else path_text(out), seed, threads,
                     "" if work_dir is None else path_text(work_dir), prove, all, shrinking, corrected, progress)


@checked
def compile(model: Source | TorchModule, example_inputs: Sequence[Any] | None = None, *, target: str = "host", threads: int = 0,
            precision: str = "default", optimize: bool = True, fuse: bool = True, keep_weights: bool = False, cache: Path | None = None, tier: str = "full",
            virtual_threads: int = 2, progress: Progress | None = None) -> Executable:
    """Compiles a model for this machine or another target (compile_targets() lists them). `example_inputs` are those
    of a torch.nn.Module, which from_torch converts first.

    `threads` is the maximum number of threads of a run (0: one for each core). With `precision` "strict", results are
    bitwise independent of the number of threads. `keep_weights` keeps the original weights after packing, and the
    stages before kernels, which check() and emit() of "graph", "outline", "compute" and "schedule" need. `cache` is
    the folder of the code cache (None: the user's; "": none).

    `tier` "full" waits for optimized code. "auto" uses optimized code if the cache has it; otherwise it returns a
    baseline that runs several times slower, until a background thread has compiled optimized code (Executable.wait
    waits for it). "fast" compiles the baseline only.

    An accelerator as `target` computes the quantized layers of a model, the host the others (docs/accelerator.md):
    "tessel", or "tessel:FILE.json" with the description of another machine. `virtual_threads` is how many tiles it has
    in flight: 1 or 2."""
    folder = None if cache is None else path_text(cache)
    loaded = load(cast(Source, model)) if example_inputs is None else from_torch(model, example_inputs)
    return Executable(_compile(loaded._held, target, number("threads", threads, 0, MOST_THREADS), precision, optimize,
                               fuse, keep_weights, folder, tier, number("virtual_threads", virtual_threads, 1, 2), progress))


@checked
def training(model: Source, loss: str | Loss | None = "cross_entropy", optimizer: Optimizer = AdamW(), *,
             parameters: Sequence[str] = (), frozen: Sequence[str] = (), clip_norm: float = 0, clip_value: float = 0,
             precision: str | None = None, loss_scale: float = 0, accumulate: int = 1, training_mode: bool = True, seed: int = 0,
             mesh: str = "", shardings: Mapping[str, str] | None = None, zero: int = 0, target: str = "host", threads: int = 0,
             strict: bool = False, cache: Path | None = None) -> Training:
    """Compiles a training step of a model: step(x, labels) updates the parameters and returns the loss
    (docs/training.md).

    `loss` is "cross_entropy" (logits and integer labels), "mse", "l1", "bce_with_logits", a Loss with options, or
    None if the model's first output is the loss. `parameters` and `frozen` are patterns of initializer names; without
    them, all float initializers of rank 1 or more that a gradient reaches are trained. `clip_norm` bounds the global
    gradient norm, `clip_value` each element. `precision` ("bf16" or "f16") is that of products; the parameters keep
    their types. `loss_scale` 0 is dynamic for f16. The gradients of `accumulate` steps make one update. With
    `training_mode` False, dropout and batch normalization keep the model's modes. `seed` is that of random ops.
    `threads`, `target` and `cache` are those of compile; with `strict`, results are bitwise independent of the number
    of threads.

    `mesh`, such as "data=2,model=2", partitions the step over ranks, which are threads of this process. `shardings`
    divides inputs, parameters and other values by name or pattern; `zero` is the stage of ZeRO (docs/sharding.md)."""
    return make_training(load(model), loss, optimizer, parameters=parameters, frozen=frozen, clip_norm=clip_norm,
                         clip_value=clip_value, precision=precision, loss_scale=loss_scale, accumulate=accumulate,
                         training_mode=training_mode, seed=seed, mesh=mesh, shardings=shardings or {}, zero=zero, target=target,
                         threads=number("threads", threads, 0, MOST_THREADS), strict=strict, cache=cache)


@checked
def calibrate(model: Source, samples: Iterable[Inputs], *, optimize: bool = True, threads: int = 0,
              progress: Progress | None = None) -> Profile:
    """Runs a model on samples and returns the ranges and histograms of its values (docs/quantization.md).

    Each sample is what a run takes: arrays by name, in order, or one array. Profiles of the same model merge, save and
    load. With `optimize` False, the model is profiled as it is; quantize() needs the same setting."""
    return calibrate_model(load(model), samples, optimize, threads, progress)


@checked
def quantize(model: Source, profile: Profile | Path | None = None, *, samples: Iterable[Inputs] = (), scheme: str = "minmax",
             percentile: float = 99.99, activations: str = "uint8", symmetric: bool = False, power_of_two: bool = False,
             per_channel: bool = True, weight_scheme: str = "minmax", bias_correction: bool = False, products: bool = False,
             format: str = "qdq", keep: Sequence[str] = (), optimize: bool = True, threads: int = 0,
             progress: Progress | None = None) -> tuple[Model, QuantizeReport]:
    """Returns a model that computes convolutions and matrix products with 8-bit integers, in the QDQ form of ONNX, and a
    report of its layers (docs/quantization.md).

    Ranges come from `profile`, or from calibrating on `samples`, with which the error of each layer is also measured.
    `scheme` is "minmax", "percentile", "entropy" or "mse"; `activations` is "uint8", "int8", "uint16" or "int16". Weights
    are symmetric int8, with one scale for each output channel, or with one for all if `per_channel` is False. `keep` are
    patterns of nodes, values or operators that stay in floating point; `products` also quantizes matrix products of two
    activations. With `format` "integer", the model has QLinearConv and MatMulInteger nodes instead of the QDQ form, and
    every runtime computes the same integers."""
    return quantize_model(load(model), profile, samples, scheme=scheme, percentile=percentile, activations=activations,
                          symmetric=symmetric, power_of_two=power_of_two, per_channel=per_channel,
                          weight_scheme=weight_scheme, bias_correction=bias_correction, products=products, format=format, keep=keep,
                          optimize=optimize, threads=threads, progress=progress)


@checked
def shard(model: Source, mesh: str, annotations: Mapping[str, str] = {}, *, sizes: Mapping[str, int] = {}, search: bool = False,
          memory: int | None = None, speed: DeviceSpeed | None = None, progress: Progress | None = None) -> ShardedModel:
    """Partitions a model over a mesh of ranks, such as "data=2,model=4" (docs/sharding.md).

    `annotations` are shardings of values by name or pattern: {"x": "data,_"}. `sizes` are those of the symbolic
    dimensions. With `search`, the sharding is found whose run is estimated to take least, by the figures of `speed`;
    `memory` is the number of bytes that a rank may use for weights and live activations, and implies a search.
    `progress(step, done, total)` is called meanwhile."""
    return shard_model(load(model), mesh, annotations, sizes, search, memory, speed, progress)


from .onnxruntime import InferenceSession  # noqa: E402 - it needs load and compile


def __dir__() -> list[str]:
    """What an interactive session completes: the public names, and the submodules that are loaded."""
    modules = [name for name in ("kernel", "onnx_backend", "onnxruntime", "tile", "torch") if name in globals()]
    return sorted([*__all__, *modules, *(name for name in globals() if name.startswith("__"))])
