"""ONNX Runtime's Python interface on top of Tessera: change one import.

    import tessera.onnxruntime as ort      # was: import onnxruntime as ort
    session = ort.InferenceSession("model.onnx")
    y, = session.run(None, {"x": x})

For packages that import onnxruntime themselves, install() replaces that module in this process, and `python -m
tessera.onnxruntime PROGRAM` runs a program with it replaced.
"""

from __future__ import annotations

import sys

from . import backend, capi
from ._options import ExecutionMode, ExecutionOrder, GraphOptimizationLevel, RunOptions, SessionOptions
from ._session import InferenceSession, ModelMetadata, get_all_providers, get_available_providers
from ._types import NodeArg
from ._values import IOBinding, OrtValue, SessionIOBinding
from .capi import _pybind_state, onnxruntime_pybind11_state

__version__ = "1.31.0"  # the interface that this module has; packages compare it

__all__ = ["ExecutionMode", "ExecutionOrder", "GraphOptimizationLevel", "IOBinding", "InferenceSession", "ModelMetadata", "NodeArg",
           "OrtValue", "RunOptions", "SessionIOBinding", "SessionOptions", "backend", "capi", "disable_telemetry_events",
           "enable_telemetry_events", "get_all_providers", "get_available_providers", "get_build_info", "get_device",
           "get_version_string", "install", "set_default_logger_severity", "set_default_logger_verbosity", "set_seed"]


def get_device() -> str:
    return "GPU" if len(get_available_providers()) > 1 else "CPU"


def get_version_string() -> str:
    return __version__


def get_build_info() -> str:
    return "Tessera"


def set_default_logger_severity(severity: int) -> None:
    """Accepted: warnings about a model go through Python's warnings."""


def set_default_logger_verbosity(verbosity: int) -> None:
    """Accepted: warnings about a model go through Python's warnings."""


def set_seed(seed: int) -> None:
    """Accepted: runs of a model with random operators are reproducible, with the seed 0."""


def enable_telemetry_events() -> None:
    """Accepted: there is no telemetry."""


def disable_telemetry_events() -> None:
    """Accepted: there is no telemetry."""


def install() -> None:
    """Makes `import onnxruntime` give this module in the running process, whether or not ONNX Runtime is installed."""
    if "onnxruntime" in sys.modules and sys.modules["onnxruntime"] is not sys.modules[__name__]:
        raise RuntimeError("onnxruntime has been imported already: call tessera.onnxruntime.install() first")
    for name, module in (("", sys.modules[__name__]), (".backend", backend), (".capi", capi),
                         (".capi.onnxruntime_pybind11_state", onnxruntime_pybind11_state),
                         (".capi._pybind_state", _pybind_state)):
        sys.modules["onnxruntime" + name] = module
