"""Options of sessions and runs. All of ONNX Runtime's are accepted; the docstrings say which have an effect."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from .capi.onnxruntime_pybind11_state import InvalidArgument, NotImplemented


class GraphOptimizationLevel(enum.IntEnum):
    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(enum.IntEnum):
    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class _Entries:
    """Settings by name, as text."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[str, str] = {}

    def _add(self, key: str, value: str) -> None:
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError("a configuration entry is a name and a text")
        self._entries[key] = value

    def _get(self, key: str, what: str) -> str:
        if key not in self._entries:
            raise InvalidArgument(f"there is no {what} configuration entry {key!r}")
        return self._entries[key]


class SessionOptions(_Entries):
    """With an effect: intra_op_num_threads (0: one thread for each core), graph_optimization_level (ORT_DISABLE_ALL compiles the
    graph as it is), use_deterministic_compute (the same bits whatever the number of threads), optimized_model_filepath,
    enable_profiling, profile_file_prefix, log_severity_level (3 and above: no warnings about the model), and free dimension
    overrides by name. The configuration entry "tessera.tier" is compile's `tier`, "tessera.cache" its `cache`.

    The others are accepted and ignored, since Tessera plans memory and threads itself."""

    __slots__ = ("enable_cpu_mem_arena", "enable_mem_pattern", "enable_mem_reuse", "enable_profiling", "execution_mode", "execution_order",
                 "graph_optimization_level", "inter_op_num_threads", "intra_op_num_threads", "log_severity_level", "log_verbosity_level",
                 "logid", "optimized_model_filepath", "profile_file_prefix", "use_deterministic_compute", "use_per_session_threads",
                 "_sizes", "_providers")

    def __init__(self) -> None:
        super().__init__()
        self.enable_cpu_mem_arena = True
        self.enable_mem_pattern = True
        self.enable_mem_reuse = True
        self.enable_profiling = False
        self.execution_mode = ExecutionMode.ORT_SEQUENTIAL
        self.execution_order = ExecutionOrder.DEFAULT
        self.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
        self.inter_op_num_threads = 0
        self.intra_op_num_threads = 0
        self.log_severity_level = 2
        self.log_verbosity_level = 0
        self.logid = ""
        self.optimized_model_filepath = ""
        self.profile_file_prefix = "onnxruntime_profile_"
        self.use_deterministic_compute = False
        self.use_per_session_threads = True
        self._sizes: dict[str, int] = {}
        self._providers: list[tuple[str, dict[str, Any]]] = []

    def add_session_config_entry(self, key: str, value: str) -> None:
        self._add(key, value)

    def get_session_config_entry(self, key: str) -> str:
        return self._get(key, "session")

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Sets the size of a symbolic dimension: inputs then have it, and runs with another size are rejected."""
        self._sizes[name] = int(size)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        raise NotImplemented("denotations of dimensions are not read; use add_free_dimension_override_by_name")

    def add_provider(self, name: str, options: dict[str, Any] | None = None) -> None:
        self._providers.append((name, dict(options or {})))

    def has_providers(self) -> bool:
        return bool(self._providers)

    def add_initializer(self, name: str, value: Any) -> None:
        raise NotImplemented("initializers cannot be replaced; give the value as an input of the run")

    def add_external_initializers(self, names: Sequence[str], values: Sequence[Any]) -> None:
        raise NotImplemented("external initializers are read from the files beside the model")

    def register_custom_ops_library(self, path: str) -> None:
        raise NotImplemented(f"{path}: libraries of operators for ONNX Runtime cannot be loaded")


class RunOptions(_Entries):
    """`terminate`, set before or during a run, stops it with Fail; the other attributes are accepted and ignored."""

    __slots__ = ("log_severity_level", "log_verbosity_level", "logid", "only_execute_path_to_fetches", "terminate", "training_mode")

    def __init__(self) -> None:
        super().__init__()
        self.log_severity_level = 2
        self.log_verbosity_level = 0
        self.logid = ""
        self.only_execute_path_to_fetches = False
        self.terminate = False
        self.training_mode = False

    def add_run_config_entry(self, key: str, value: str) -> None:
        self._add(key, value)

    def get_run_config_entry(self, key: str) -> str:
        return self._get(key, "run")
