"""Training: a model, a loss and an optimizer as one compiled step (docs/training.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ._arguments import check_argument, checked, wrong
from ._arrays import Array, array_from, numpy_dtype, value_from
from ._errors import Error
from ._places import NO_GPU, datum_of
from ._runnable import Executable, Model, Path, number, path_text
from ._tessera import Datum, Port, TrainingOptions, TrainingReport
from ._tessera import Training as _Training

LearningRate = float | Callable[[int], float]  # a number, or a function of the update's index, from 0


class _UpdateRule:
    """Checks the numbers of an optimizer."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not callable(value) and not isinstance(value, bool):
                _check_number(f"{type(self).__name__}: {name}", value, below=1 if name.startswith("beta") else math.inf)


def _check_number(name: str, value: Any, below: float = math.inf) -> None:
    wanted = "a finite number of at least 0" + (f" and below {below}" if below < math.inf else "")
    if isinstance(value, (bool, str)) or not hasattr(value, "__float__") or not 0 <= float(value) < below:
        raise Error("E0501", f"{name}: expected {wanted}, got {value!r}")


@dataclass(frozen=True)
class SGD(_UpdateRule):
    """Stochastic gradient descent, with momentum and Nesterov momentum."""

    learning_rate: LearningRate = 1e-2
    momentum: float = 0
    nesterov: bool = False
    weight_decay: float = 0
    kind = "sgd"


@dataclass(frozen=True)
class Adam(_UpdateRule):
    """Adam; weight decay is added to the gradient."""

    learning_rate: LearningRate = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0
    kind = "adam"


@dataclass(frozen=True)
class AdamW(_UpdateRule):
    """Adam with decoupled weight decay."""

    learning_rate: LearningRate = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 1e-2
    kind = "adamw"


@dataclass(frozen=True)
class Adagrad(_UpdateRule):
    learning_rate: LearningRate = 1e-2
    epsilon: float = 1e-10
    weight_decay: float = 0
    kind = "adagrad"


@dataclass(frozen=True)
class Lion(_UpdateRule):
    """Lion, with decoupled weight decay."""

    learning_rate: LearningRate = 1e-4
    beta1: float = 0.9
    beta2: float = 0.99
    weight_decay: float = 0
    kind = "lion"


Optimizer = SGD | Adam | AdamW | Adagrad | Lion


@dataclass(frozen=True)
class Loss:
    """A loss with its options: Loss("cross_entropy", label_smoothing=0.1)."""

    kind: str = "cross_entropy"
    output: str = ""  # the model output that the loss is computed from; empty: the first
    class_axis: int = 1  # cross_entropy: the class dimension of the logits
    ignore_index: int = -100  # cross_entropy: rows with this label are ignored
    label_smoothing: float = 0
    class_weights: Sequence[float] = ()

    def __post_init__(self) -> None:
        for field in fields(self):
            check_argument(f"Loss: {field.name}", str(field.type), getattr(self, field.name))


@checked
def warmup_cosine(peak: float, updates: int, warmup: int = 0, floor: float = 0) -> Callable[[int], float]:
    """A learning rate that rises linearly to `peak` over `warmup` updates and falls to `floor` as a cosine until `updates`."""
    def rate(update: int) -> float:
        if update < warmup:
            return peak * (update + 1) / warmup
        done = min(1.0, (update - warmup) / max(1, updates - warmup))
        return floor + (peak - floor) * 0.5 * (1 + math.cos(math.pi * done))
    return rate


class Training:
    """A compiled training step with its parameters and optimizer state. Calling it executes one step and returns the
    loss."""

    def __init__(self, held: _Training, schedule: Callable[[int], float] | None) -> None:
        self._held = held
        self._schedule = schedule
        self._ports: dict[str, Port] = {port.name: port for port in held.inputs}
        self.report: TrainingReport | None = None  # of the last step

    @property
    def inputs(self) -> list[Port]:
        """The inputs of a step: the model's inputs, then "target"."""
        return list(self._held.inputs)

    def _batch(self, values: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Datum]:
        if len(values) > len(self._ports):
            raise Error("E0401", f"{len(values)} inputs were given, a training step takes {len(self._ports)}",
                        hint=f"they are: {', '.join(self._ports)}")
        batch = dict(zip(self._ports, values))
        for name, value in named.items():
            if name not in self._ports:
                raise Error("E0401", f'a training step has no input "{name}"', hint=f"there are: {', '.join(self._ports)}")
            if name in batch:
                raise Error("E0401", f'input "{name}" is given twice')
            batch[name] = value
        return {name: datum_of(name, self._converted(name, value), self._ports.get(name), NO_GPU)
                for name, value in batch.items()}

    def _converted(self, name: str, value: Any) -> Any:
        """Labels of any integers, and targets of any floats."""
        port = self._ports.get(name)
        if name != "target" or port is None or port.dtype is None or not isinstance(value, (np.ndarray, np.generic, list, tuple)):
            return value
        array, wanted = np.asanyarray(value), numpy_dtype(port.dtype)
        return array.astype(wanted) if array.dtype != wanted and array.dtype.kind in ("iu" if wanted.kind == "i" else "fiub") else array

    def __call__(self, *values: Any, **named: Any) -> float:
        if self._schedule is not None:
            rate = self._schedule(self._held.updates)
            _check_number(f"the learning rate of update {self._held.updates}", rate)
            self._held.learning_rate = rate
        self.report = self._held.step(self._batch(values, named))
        return self.report.loss

    def evaluate(self, *values: Any, **named: Any) -> tuple[float, dict[str, Any]]:
        """The loss and the model's outputs in inference mode: no dropout, and batch normalization uses running
        statistics."""
        loss, outputs = self._held.evaluate(self._batch(values, named))
        return loss, {name: value_from(datum) for name, datum in zip(self._names, outputs)}

    def parameters(self) -> dict[str, Array]:
        """Arrays that alias the parameters' memory: the next step uses what is written to them."""
        return {name: array_from(tensor) for name, tensor in self._held.parameters}

    def state(self) -> dict[str, Array]:
        """The same for the optimizer state and running statistics."""
        return {name: array_from(tensor) for name, tensor in self._held.state}

    @property
    def learning_rate(self) -> float:
        return self._held.learning_rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        _check_number("learning_rate", rate)
        self._schedule = None
        self._held.learning_rate = rate

    @property
    def updates(self) -> int:
        """The number of updates so far."""
        return self._held.updates

    @property
    def skipped(self) -> int:
        """The number of steps skipped because of non-finite gradients."""
        return self._held.skipped

    @property
    def loss_scale(self) -> float:
        return self._held.loss_scale

    def save(self, path: Path, extra: Mapping[str, str] | None = None) -> None:
        """Atomically writes parameters, optimizer state, counters and the seed in the safetensors format. `extra` is
        custom text."""
        self._held.save(path_text(path), dict(extra or {}))

    def load(self, path: Path) -> dict[str, str]:
        """Loads what save wrote; the losses of the next steps are bitwise equal. Returns the `extra` of save."""
        return self._held.load(path_text(path))

    def trained(self) -> Model:
        """The model with the current parameters."""
        return Model(self._held.trained())

    def export(self, path: Path) -> None:
        """Saves the trained model as .onnx or in the text form."""
        self.trained().save(path)

    @property
    def executable(self) -> Executable:
        """The compiled step, with report and emit. Over a mesh there is none."""
        if self._on_mesh:
            raise Error("E0501", "a step over a mesh is many executables")
        return Executable(self._held.executable)

    @property
    def mesh_use(self) -> dict[str, int] | None:
        """Over a mesh, after the first step: bytes of weights and optimizer state, all of them and a rank's at most, and the
        collectives of a step."""
        return self._held.mesh_use

    _names: list[str]
    _on_mesh: bool

    def __repr__(self) -> str:
        ins = ", ".join(f"{p.name}: {p.type}" for p in self.inputs)
        parameters, updates = len(self._held.parameters), self.updates
        return (f"<tessera.Training ({ins}): {parameters} parameter{'s' * (parameters != 1)}, {updates} update{'s' * (updates != 1)}"
                + (f", loss {self.report.loss:.6g}" if self.report else "") + ">")


def make_training(model: Model, loss: str | Loss | None, optimizer: Optimizer, *, parameters: Sequence[str],
                  frozen: Sequence[str], clip_norm: float, clip_value: float, precision: str | None, loss_scale: float,
                  accumulate: int, training_mode: bool, seed: int, mesh: str,
                  shardings: Mapping[str, str], zero: int, target: str, threads: int, strict: bool,
                  cache: Path | None) -> Training:
    options = TrainingOptions()
    if isinstance(loss, str) or loss is None:
        loss = Loss("output" if loss is None else loss)
    if not isinstance(optimizer, (SGD, Adam, AdamW, Adagrad, Lion)):
        raise wrong("optimizer", "tessera.SGD, Adam, AdamW, Adagrad or Lion", optimizer)
    chosen = options.loss
    for name in ("kind", "output", "class_axis", "ignore_index", "label_smoothing"):
        setattr(chosen, name, getattr(loss, name))
    chosen.class_weights = [float(weight) for weight in loss.class_weights]
    rule = options.optimizer
    rate = optimizer.learning_rate
    for name in ("kind", "momentum", "nesterov", "beta1", "beta2", "epsilon", "weight_decay"):
        if hasattr(optimizer, name):
            setattr(rule, name, getattr(optimizer, name))
    rule.learning_rate = rate(0) if callable(rate) else rate
    options.loss, options.optimizer = chosen, rule
    options.parameters, options.frozen = ([one] if isinstance(one, str) else list(one) for one in (parameters, frozen))
    options.clip_norm, options.clip_value = clip_norm, clip_value
    options.precision = precision or "f32"
    options.loss_scale = loss_scale
    options.accumulate = number("accumulate", accumulate, 1)
    options.training_mode = training_mode
    options.seed = number("seed", seed, 0)
    options.set_mesh(mesh, list(shardings.items()), number("zero", zero, 0, 3))
    options.set_compile(target, threads, "strict" if strict else "default", None if cache is None else path_text(cache))
    training = Training(_Training.create(model._held, options), rate if callable(rate) else None)
    training._on_mesh = bool(mesh)
    training._names = [port.name for port in model.outputs]
    return training
