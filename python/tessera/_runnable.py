"""What has inputs and computes outputs: a model, or machine code for one."""

from __future__ import annotations

import concurrent.futures
import os
import re
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from . import _html
from ._arguments import checked, shown, wrong
from ._arrays import PLAIN_NAMES, value_from
from ._errors import Error, Line, asked_at, users_line
from ._places import NO_GPU, Places, datum_of, empty_tensor
from ._tessera import CompileReport, Datum, DeviceProfile, FoundWarning, Metadata, Port, StepProfile, Summary
from ._tessera import Executable as _Executable
from ._tessera import Model as _Model
from ._tessera import ModelCaller

Progress = Callable[[str, int, int], object]
Inputs = Mapping[str, Any] | Sequence[Any] | Any  # by name, in order, or one array for one input
Outs = Mapping[str, Any] | Sequence[Any] | Any  # the same of outputs
Path = str | os.PathLike[str]

_pool: concurrent.futures.ThreadPoolExecutor | None = None
_pool_lock = threading.Lock()


def _forget_pool() -> None:
    """In a forked child, which has none of the pool's threads: the next run_async starts others."""
    global _pool, _pool_lock
    _pool, _pool_lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


def _workers() -> concurrent.futures.ThreadPoolExecutor:
    global _pool
    with _pool_lock:
        if _pool is None:
            _pool = concurrent.futures.ThreadPoolExecutor(thread_name_prefix="tessera")
        return _pool


def number(name: str, value: int, low: int, high: int | None = None) -> int:
    """The value, or an error that says the range."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise wrong(name, "a whole number", value)
    if value < low or (high is not None and value > high):
        wanted = f"a number of at least {low}" if high is None else f"a number from {low} to {high}"
        raise Error("E0501", f"{name}: expected {wanted}, got {value}")
    return int(value)


def path_text(path: Path) -> str:
    """The path as text, or an error if no file that the library can open has it."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise wrong("path", "a path", path)
    text = os.fsdecode(path)
    if "\0" in text:
        raise Error("E0501", f"the path {text!r} contains a null character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Error("E0501", f"the path {os.fsencode(text)!r} is not UTF-8", hint="rename the file") from None
    return text


def check_symbols(symbols: Mapping[str, int], ports: Iterable[Port]) -> dict[str, int]:
    dims = [dim for port in ports for dim in port.dims]
    for name, size in symbols.items():
        if not any(re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", dim) for dim in dims):
            names = sorted({word for dim in dims for word in re.findall(r"[A-Za-z_][\w.]*", dim)})
            raise Error("E0401", f'there is no symbolic dimension "{name}"',
                        hint=f"there are: {', '.join(names)}" if names else "all sizes are fixed")
        number(name, size, 0)
    return {name: int(size) for name, size in symbols.items()}


def _is_one_array(value: Any) -> bool:
    return (isinstance(value, (np.ndarray, np.generic, int, float, complex)) or hasattr(value, "__dlpack__")
            or hasattr(value, "__cuda_array_interface__"))


class Runnable:
    """What a model and an executable have in common."""

    def __init__(self, held: _Model | _Executable) -> None:
        if not isinstance(held, (_Model, _Executable)):
            raise Error("E0501", f"a tessera.{type(self).__name__} is not made of {shown(held)}",
                        hint="tessera.load reads a model, and tessera.compile compiles one")
        self._held = held
        self._ports = {port.name: port for port in held.inputs}
        self._needed = sum(not port.has_default and not port.type.startswith("optional(") for port in held.inputs)
        self._gpu = held.gpu if isinstance(held, _Executable) else NO_GPU
        self._output_names = [port.name for port in held.outputs]
        self._caller = ModelCaller(held, empty_tensor) if isinstance(held, _Executable) else None
        plain = all(port.dtype in PLAIN_NAMES for port in (*held.inputs, *held.outputs))
        self._of_arrays = held if plain and isinstance(held, _Model) else None

    @property
    def inputs(self) -> list[Port]:
        """Name, type and symbolic dims of each input: model.inputs[0].dims == ["N", "3", "224", "224"]."""
        return list(self._held.inputs)

    @property
    def outputs(self) -> list[Port]:
        return list(self._held.outputs)

    def _named(self, inputs: Inputs) -> Mapping[str, Any]:
        if isinstance(inputs, Mapping):
            for name in inputs:
                if not isinstance(name, str):
                    raise Error("E0401", f"there is no input {name!r}", hint=f"there are: {', '.join(self._ports)}")
        else:
            if not _is_one_array(inputs) and not isinstance(inputs, Iterable):
                raise Error("E0501", f"inputs: expected arrays by name or in order, got {type(inputs).__name__}")
            given = [inputs] if _is_one_array(inputs) else list(inputs)
            if len(given) > len(self._ports):
                raise Error("E0401", f"{len(given)} inputs were given, the model takes {len(self._ports)}")
            inputs = dict(zip(self._ports, given))
        return inputs

    def _data(self, inputs: Inputs) -> dict[str, Datum]:
        return {name: datum_of(name, value, self._ports.get(name), self._gpu)
                for name, value in self._named(inputs).items()}

    def _placed(self, inputs: Inputs, out: Outs | None, chosen: list[str]) -> tuple[dict[str, Datum], Places]:
        named = self._named(inputs)
        data = self._data(named)
        return data, Places(self._gpu, ((named[name], datum) for name, datum in data.items()), _named_out(out, chosen))

    def _chosen_outputs(self, outputs: Sequence[str] | str | None) -> list[str]:
        if outputs is None:
            return self._output_names
        chosen = [outputs] if isinstance(outputs, str) else list(outputs)
        for name in chosen:
            if name not in self._output_names:
                raise Error("E0401", f'there is no output "{name}"', hint=f"there are: {', '.join(self._output_names)}")
        return chosen

    def _run(self, data: dict[str, Datum], places: Places, chosen: list[str], seed: int, max_work: int | None,
             progress: Progress | None) -> dict[str, Any]:
        limits = {} if max_work is None else {"max_work": number("max_work", max_work, 1)}
        names = self._output_names

        def place(output: int, dtype: str, shape: list[int]) -> Any:
            return places.place(names[output], dtype, shape) if names[output] in chosen else None

        asked = place if places.out or places.torch is not None or places.stream is not None else None
        found = self._held.run(data, seed=seed, progress=progress, place=asked, stream=places.stream, **limits)
        results = dict(zip(names, found))
        return {name: places.value(name, results[name]) for name in chosen}

    def _run_elsewhere(self, line: Line | None, data: dict[str, Datum], places: Places, chosen: list[str], seed: int,
                       max_work: int | None) -> dict[str, Any]:
        with places.entered(), asked_at(line):
            return self._run(data, places, chosen, seed, max_work, None)

    def run(self, inputs: Inputs, *more: Any, outputs: Sequence[str] | str | None = None,
            out: Outs | None = None, seed: int = 0, max_work: int | None = None,
            progress: Progress | None = None) -> dict[str, Any]:
        """Returns the outputs by name. Inputs are passed by name, in order (in a list, or one after the other), or as
        one array for a single input. They are NumPy arrays, PyTorch tensors, anything with __dlpack__ or __cuda_array_interface__, numbers, lists for
        sequences, or None for an empty optional. Contiguous ones are read in place. Outputs are PyTorch tensors if an
        input is one, else NumPy arrays.

        `outputs` names the requested outputs (default: all). `out` takes arrays to write outputs to, by name, in
        order (None to skip one), or as one array for a single output. On a GPU, inputs in its memory are used in
        place, the run is enqueued on PyTorch's current stream, and the call does not wait for outputs that stay
        there. `progress(node, done, total)` is called after each node."""
        if more:
            inputs = _in_order(inputs, more)
        if seed:
            seed = number("seed", seed, 0, (1 << 64) - 1)
        if outputs is None and max_work is None and progress is None:
            values: dict[str, Any] | None = None
            if self._caller is not None:
                values = self._caller.run(inputs, out, seed)
            elif self._of_arrays is not None and out is None and type(inputs) is dict:
                values = self._of_arrays.run_arrays(inputs, self._output_names, seed)
            if values is not None:
                return values
        chosen = self._chosen_outputs(outputs)
        return self._run(*self._placed(inputs, out, chosen), chosen, seed, max_work, progress)

    def run_async(self, inputs: Inputs, *more: Any, outputs: Sequence[str] | str | None = None,
                  out: Outs | None = None, seed: int = 0,
                  max_work: int | None = None) -> concurrent.futures.Future[dict[str, Any]]:
        """Runs on another thread and returns a future of run's result. `await asyncio.wrap_future(...)` waits for it."""
        if more:
            inputs = _in_order(inputs, more)
        if seed:
            seed = number("seed", seed, 0, (1 << 64) - 1)
        chosen = self._chosen_outputs(outputs)
        return _workers().submit(self._run_elsewhere, users_line(), *self._placed(inputs, out, chosen), chosen, seed, max_work)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the output, or a tuple of the outputs, for inputs in order or by name. `out` is that of `run`,
        unless an input has that name."""
        if self._caller is not None:
            found = self._caller.call(args, kwargs)
            if found is not None:
                return found
        names = list(self._ports)
        out = kwargs.pop("out", None) if "out" not in names else None
        if len(args) == 1 and isinstance(args[0], Mapping):  # model({"x": x}), as run takes them
            if kwargs:
                raise Error("E0501", "inputs are given both as a dict and by name", hint="put all of them into the dict")
            outputs = tuple(self.run(args[0], out=out).values())
            return outputs[0] if len(outputs) == 1 else outputs
        if len(args) == 1 and isinstance(args[0], (list, tuple)) and not kwargs and self._needed > 1:  # model([x, y])
            args = tuple(args[0])
        if len(args) > len(names):
            raise Error("E0401", f"{len(args)} inputs were given, the model takes {len(names)}")
        inputs = dict(zip(names, args))
        for name in kwargs:
            if name in inputs:
                raise Error("E0401", f'input "{name}" is given twice', hint="give it in order or by name, not both")
        outputs = tuple(self.run(inputs | kwargs, out=out).values())
        return outputs[0] if len(outputs) == 1 else outputs

    def __copy__(self) -> Any:
        return self  # nothing changes it

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self

    def __repr__(self) -> str:
        ins = ", ".join(f"{p.name}: {p.type}" for p in self.inputs)
        outs = ", ".join(f"{p.name}: {p.type}" for p in self.outputs)
        target = f" for {self._held.target}" if isinstance(self._held, _Executable) else ""
        return f"<tessera.{type(self).__name__}{target} ({ins}) -> ({outs})>"


def _in_order(first: Any, more: Sequence[Any]) -> list[Any]:
    """The inputs of run(x, y)."""
    if isinstance(first, Mapping):
        raise Error("E0501", "inputs are given both as a dict and in order", hint="put all of them into the dict")
    return [first, *more]


def _named_out(out: Outs | None, chosen: list[str]) -> Mapping[str, Any]:
    if out is None:
        return {}
    if isinstance(out, (list, tuple)):
        if len(out) != len(chosen):
            raise Error("E0501", f"out has {len(out)} arrays, and there are {len(chosen)} outputs")
        for i, name in enumerate(chosen):
            if name in chosen[:i]:
                raise Error("E0501", f'out has two arrays for output "{name}", which is requested twice')
        out = dict(zip(chosen, out))
    if not isinstance(out, Mapping):
        if len(chosen) != 1:
            raise Error("E0501", f"out is one array, and there are {len(chosen)} outputs", hint="give a dict of arrays by name")
        return {chosen[0]: out}
    for name in out:
        if name not in chosen:
            raise Error("E0401", f'out names "{name}", which is not a requested output', hint=f"there are: {', '.join(chosen)}")
    return {name: into for name, into in out.items() if into is not None}


class Model(Runnable):
    """A model, which can be inspected, run and saved. Created by load, from_onnx, parse or demo."""

    _held: _Model

    def metadata(self) -> Metadata:
        """The file's metadata: producer, versions, descriptions, and custom keys and values (`custom`)."""
        return self._held.metadata()

    def summary(self) -> Summary:
        """Ops used, parameters, FLOPs and bytes (as expressions over the symbolic dims), opset."""
        return self._held.summary()

    def peak_bytes(self, **symbols: int) -> int | None:
        """The largest memory that inputs, intermediate results and outputs occupy at the same time, for sizes of
        symbolic dims by name (1 by default). None if a size is unknown."""
        return self._held.peak_bytes(check_symbols(symbols, self.inputs))

    @property
    def warnings(self) -> list[FoundWarning]:
        """The warnings of reading the file, each with code, message, where and hint."""
        return list(self._held.warnings)

    def random_inputs(self, seed: int = 0, **symbols: int) -> dict[str, Any]:
        """Random inputs, for sizes of symbolic dims by name (1 by default)."""
        drawn = self._held.random_inputs(number("seed", seed, 0), check_symbols(symbols, self.inputs))
        return {name: value_from(datum) for name, datum in drawn.items()}

    @checked
    def save(self, path: Path) -> None:
        """Writes ONNX (.onnx) or the text form."""
        self._held.save(path_text(path))

    def to_onnx(self) -> bytes:
        return self._held.to_onnx()

    def to_text(self) -> str:
        return self._held.to_text()

    def _repr_html_(self) -> str:
        return _html.of_model(self.inputs, self.outputs, self.summary())

    def __reduce__(self) -> tuple[Callable[[bytes | str, bool], Model], tuple[bytes | str, bool]]:
        try:
            return _unpickle_model, (self.to_onnx(), self._held.strict)
        except Error:  # not every model is one of ONNX
            return _unpickle_model, (self.to_text(), False)


def _unpickle_model(source: bytes | str, strict: bool) -> Model:
    if isinstance(source, str):
        return Model(_Model.parse(source))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whoever loaded it first was told
        return Model(_Model.from_onnx(source, strict))


class Executable(Runnable):
    """A compiled model. Thread-safe. Created by compile, or loaded from a file that save wrote."""

    _held: _Executable

    @property
    def target(self) -> str:
        """The target that it was compiled for, as compile was given it."""
        return self._held.target

    @property
    def report(self) -> CompileReport:
        """Numbers of kernels and steps, time by phase, optimization decisions with reasons, and nodes that no kernel
        computes."""
        return self._held.report

    @property
    def weight_bytes(self) -> int:
        return self._held.weight_bytes

    def arena_bytes(self, **symbols: int) -> int | None:
        """The memory of a run besides weights, for sizes of symbolic dims by name (1 by default). None if unknown."""
        return self._held.arena_bytes(check_symbols(symbols, self.inputs))

    def profile(self, inputs: Inputs, runs: int = 10) -> list[StepProfile]:
        """The time of each step, as the median of several runs."""
        return _html.Rows(self._held.profile(self._data(inputs), number("runs", runs, 1)))

    def profile_devices(self) -> list[DeviceProfile]:
        """What each part takes that an accelerator computes, by its own clock; empty if there are none."""
        return _html.Rows(self._held.profile_devices())

    def check(self, inputs: Inputs) -> list[tuple[str, float]]:
        """Compares each step with the reference: its label, and the largest difference relative to the largest value."""
        return list(self._held.check(self._data(inputs)))

    def wait(self) -> None:
        """With tier="auto", waits for optimized code, after which report.tier is "full". Raises the error if
        compiling it failed; the baseline then remains in use. profile, check, emit and save wait too."""
        self._held.wait()

    @checked
    def emit(self, what: str) -> str:
        """A compilation stage as text: "graph", "outline" (without the data of weights), "compute" or "schedule",
        which need keep_weights; "kernel", "llvm" or "asm"."""
        return self._held.emit(what)

    @checked
    def save(self, path: Path) -> None:
        """Writes one file for Executable.load, for this processor and this build of Tessera."""
        self._held.save(path_text(path))

    @staticmethod
    @checked
    def load(path: Path) -> Executable:
        """Loads a file that save wrote. Its weights are memory-mapped."""
        return Executable(_Executable.load(path_text(path)))

    def _repr_html_(self) -> str:
        return _html.of_executable(self.inputs, self.outputs, self.report)

    def __reduce__(self) -> tuple[Callable[[bytes], Executable], tuple[bytes]]:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "executable")
            self.save(path)
            with open(path, "rb") as file:
                return _unpickle_executable, (file.read(),)


def _unpickle_executable(saved: bytes) -> Executable:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "executable")
        with open(path, "wb") as file:
            file.write(saved)
        return Executable.load(path)  # the file is mapped, and may go
