"""InferenceSession: a model that is compiled when the session is made."""

from __future__ import annotations

import concurrent.futures
import json
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import tessera

from .._arrays import numpy_dtype
from .._errors import Error, ModelWarning
from .._runnable import Executable, Model
from .._tessera import Port
from ._options import GraphOptimizationLevel, RunOptions, SessionOptions
from ._types import NodeArg
from ._values import IOBinding, OrtValue, plain
from .capi.onnxruntime_pybind11_state import Fail, InvalidArgument, from_tessera

Provider = str | tuple[str, Mapping[str, Any]]
CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
_QUIET = 3  # log_severity_level of errors


def get_available_providers() -> list[str]:
    return ([CUDA] if any(d.usable and d.target.startswith("cuda") for d in tessera.devices()) else []) + [CPU]


def get_all_providers() -> list[str]:
    return [CUDA, CPU]


class ModelMetadata(NamedTuple):
    """The metadata of the model file."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str]


class InferenceSession:
    """ONNX Runtime's class of this name, with the model compiled by Tessera: run(None, {"x": array}) returns a list
    of arrays.

    `path_or_bytes`: an ONNX file, its bytes or an onnx.ModelProto. `providers`: "CUDAExecutionProvider" before
    "CPUExecutionProvider" runs on a GPU; unavailable providers give a warning. Thread-safe."""

    def __init__(self, path_or_bytes: Any, sess_options: SessionOptions | None = None,
                 providers: Sequence[Provider] | None = None, provider_options: Sequence[Mapping[str, Any]] | None = None,
                 **kwargs: Any) -> None:
        if not isinstance(path_or_bytes, (str, os.PathLike, bytes, bytearray, memoryview, Model)) and not hasattr(path_or_bytes, "SerializeToString"):
            raise TypeError(f"Unable to load from type '{type(path_or_bytes)}'")
        if sess_options is not None and not isinstance(sess_options, SessionOptions):
            raise TypeError(f"sess_options: expected SessionOptions, got {type(sess_options).__name__}")
        began = time.time_ns()
        self._options = SessionOptions() if sess_options is None else sess_options
        self._start = began
        self._events: list[dict[str, Any]] | None = [] if self._options.enable_profiling else None
        try:
            with warnings.catch_warnings():
                if self._options.log_severity_level >= _QUIET:
                    warnings.simplefilter("ignore", ModelWarning)
                self._model = tessera.load(path_or_bytes)
            if self._options.optimized_model_filepath:
                tessera.optimize(self._model)[0].save(self._options.optimized_model_filepath)
        except Error as e:
            raise from_tessera(e) from e
        self._note("model_loading", began)
        self._input_ports: dict[str, Port] = {port.name: port for port in self._model.inputs}
        self._output_names = [port.name for port in self._model.outputs]
        self._required = [port.name for port in self._model.inputs if not port.has_default and not port.type.startswith("optional(")]
        began = time.time_ns()
        self.set_providers(providers if providers is not None else self._options._providers, provider_options)
        self._note("session_initialization", began)

    def __repr__(self) -> str:
        return repr(self._executable).replace(".Executable", ".InferenceSession", 1)

    # The model.

    def get_inputs(self) -> list[NodeArg]:
        return [NodeArg.of(port, self._options._sizes) for port in self._input_ports.values() if not port.has_default]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Inputs with a default value in the file, which may be omitted in a run."""
        return [NodeArg.of(port, self._options._sizes) for port in self._input_ports.values() if port.has_default]

    def get_outputs(self) -> list[NodeArg]:
        return [NodeArg.of(port, self._options._sizes) for port in self._model.outputs]

    def get_modelmeta(self) -> ModelMetadata:
        said = self._model.metadata()
        return ModelMetadata(said.producer_name, said.graph_name, said.domain, said.description, said.graph_description,
                             said.model_version, said.custom)

    def get_session_options(self) -> SessionOptions:
        return self._options

    @property
    def executable(self) -> Executable:
        """The underlying Tessera executable."""
        return self._executable

    # Providers.

    def get_providers(self) -> list[str]:
        return [CUDA, CPU] if self._target != "host" else [CPU]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {CPU: {}}
        return found if self._target == "host" else {CUDA: {"device_id": self._target.partition(":")[2]}} | found

    def set_providers(self, providers: Sequence[Provider] | None = None,
                      provider_options: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Compiles the model for the first available one, or for the CPU."""
        self._target = _target(providers or (), provider_options)
        options = self._options
        tier, cache = options._entries.get("tessera.tier", "full"), options._entries.get("tessera.cache")
        try:
            self._executable = tessera.compile(
                self._model, target=self._target, threads=max(int(options.intra_op_num_threads), 0), tier=tier, cache=cache,
                precision="strict" if options.use_deterministic_compute else "default",
                optimize=options.graph_optimization_level != GraphOptimizationLevel.ORT_DISABLE_ALL)
        except Error as e:
            raise from_tessera(e) from e

    def disable_fallback(self) -> None:
        """Accepted: a run never falls back to another provider."""

    def enable_fallback(self) -> None:
        """Accepted: a run never falls back to another provider."""

    # Runs.

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None) -> list[Any]:
        """Returns the named outputs in order, or all outputs."""
        names = self._chosen(output_names)
        found = self._run(names, input_feed, run_options)
        return [found[name] for name in names]

    def run_async(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any],
                  callback: Callable[[list[Any], Any, str], object], user_data: Any, run_options: RunOptions | None = None) -> None:
        """Returns immediately; callback(results, user_data, error) is called on another thread, with an empty error
        on success."""
        names = self._chosen(output_names)
        feed = self._feed(input_feed)
        _check_terminate(run_options)

        def done(future: concurrent.futures.Future[dict[str, Any]]) -> None:
            error = future.exception()
            found = {} if error else future.result()
            callback([found[name] for name in names] if not error else [], user_data,
                     "" if not error else str(from_tessera(error) if isinstance(error, Error) else error))

        try:
            future = self._executable.run_async(feed, outputs=names)
        except Error as e:
            raise from_tessera(e) from e
        future.add_done_callback(done)

    def run_with_ort_values(self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, OrtValue],
                            run_options: RunOptions | None = None) -> list[OrtValue]:
        return [OrtValue(value) for value in self.run(output_names, input_dict_ort_values, run_options)]

    def io_binding(self) -> IOBinding:
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        names = list(iobinding._outputs)
        if not names:
            raise InvalidArgument("no output is bound")
        out = {name: into for name, into in iobinding._outputs.items() if into is not None}
        found = self._run(names, iobinding._inputs, run_options, out)
        iobinding._results = [found[name] for name in names]

    def end_profiling(self) -> str:
        """Writes the events of enable_profiling as JSON (for chrome://tracing) and returns the file's name."""
        if self._events is None:
            return ""
        path = f"{self._options.profile_file_prefix}_{time.strftime('%Y-%m-%d_%H-%M-%S')}.json"
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self._events, file)
        self._events = None
        return path

    def get_profiling_start_time_ns(self) -> int:
        return self._start

    def _note(self, name: str, began: int, category: str = "Session", length: float | None = None, **arguments: Any) -> None:
        if self._events is not None:
            taken = (time.time_ns() - began) / 1000 if length is None else length
            self._events.append({"cat": category, "pid": os.getpid(), "tid": 0, "ph": "X", "name": name, "args": arguments,
                                 "ts": (began - self._start) / 1000, "dur": taken})

    def _chosen(self, output_names: Sequence[str] | None) -> list[str]:
        if isinstance(output_names, str):
            raise TypeError(f"output_names: expected a list of names, got {output_names!r}")
        if not output_names:
            return self._output_names
        for name in output_names:
            if name not in self._output_names:
                raise InvalidArgument(f"Invalid output name: {name}; there are {', '.join(self._output_names)}")
        return list(output_names)

    def _feed(self, given: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(given, Mapping):
            raise TypeError(f"input_feed: expected a dict of arrays by name, got {type(given).__name__}")
        missing = [name for name in self._required if name not in given]
        if missing:
            raise ValueError(f"Required inputs ({missing}) are missing from input feed ({list(given)}).")
        feed = {}
        for name, value in given.items():
            port = self._input_ports.get(name)
            if port is None:
                raise InvalidArgument(f"Invalid input name: {name}; there are {', '.join(self._input_ports)}")
            value = plain(value)
            if isinstance(value, (list, tuple)) and port.dtype and "(" not in port.type:
                try:
                    value = np.array(value, dtype=None if port.dtype == "str" else numpy_dtype(port.dtype))
                except (TypeError, ValueError) as e:
                    raise InvalidArgument(f"input {name}: {e}") from None
            if self._options._sizes and isinstance(value, np.ndarray):
                for i, (size, wanted) in enumerate(zip(value.shape, NodeArg.of(port, self._options._sizes).shape)):
                    if isinstance(wanted, int) and size != wanted:
                        raise InvalidArgument(f"Got invalid dimensions for input: {name}\n index: {i} Got: {size} Expected: {wanted}")
            feed[name] = value
        return feed

    def _run(self, names: list[str], given: Mapping[str, Any], options: RunOptions | None,
             out: dict[str, Any] | None = None) -> dict[str, Any]:
        feed = self._feed(given)
        began = time.time_ns()
        chosen = None if names == self._output_names else list(dict.fromkeys(names))
        try:
            if options is None:
                found = self._executable.run(feed, outputs=chosen, out=out)
            else:
                _check_terminate(options)
                found = self._executable.run(feed, outputs=chosen, out=out, progress=lambda *_: _check_terminate(options))
            if self._events is not None:
                self._note("model_run", began)
                for step in self._executable.profile(feed, 1):
                    self._note(step.label, began + int(step.begin * 1e9), "Node", step.seconds * 1e6, op_name=", ".join(step.ops))
            return found
        except Error as e:
            raise from_tessera(e) from e


def _check_terminate(options: RunOptions | None) -> None:
    if options is not None and options.terminate:
        raise Fail("Exiting due to terminate flag being set to true.")


def _target(providers: Sequence[Provider], provider_options: Sequence[Mapping[str, Any]] | None) -> str:
    if isinstance(providers, str):
        raise ValueError("providers is a list of names")
    if provider_options and len(provider_options) != len(providers):
        raise ValueError("'providers' and 'provider_options' should be the same length if both are given.")
    available = get_available_providers()
    for i, provider in enumerate(providers):
        name, options = (provider, {}) if isinstance(provider, str) else provider
        if provider_options:
            options = provider_options[i]
        if name == CUDA and name in available:
            return f"cuda:{int(options.get('device_id', 0))}"
        if name not in available:
            warnings.warn(f"Specified provider '{name}' is not in available provider names. "
                          f"Available providers: '{', '.join(available)}'", UserWarning, stacklevel=4)
        elif name == CPU:
            break
    return "host"
