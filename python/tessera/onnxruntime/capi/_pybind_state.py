"""Where ONNX Runtime's compiled classes and functions are imported from, too."""

from .._options import ExecutionMode, ExecutionOrder, GraphOptimizationLevel, RunOptions, SessionOptions
from .._session import ModelMetadata, get_all_providers, get_available_providers
from .._types import NodeArg
from .onnxruntime_pybind11_state import (EngineError, EPFail, Fail, InvalidArgument, InvalidGraph, InvalidProtobuf, ModelLoaded, NoModel,
                                         NoSuchFile, NotFound, NotImplemented, RuntimeException)

__all__ = ["EPFail", "EngineError", "ExecutionMode", "ExecutionOrder", "Fail", "GraphOptimizationLevel", "InvalidArgument",
           "InvalidGraph", "InvalidProtobuf", "ModelLoaded", "ModelMetadata", "NoModel", "NoSuchFile", "NodeArg", "NotFound",
           "NotImplemented", "RunOptions", "RuntimeException", "SessionOptions", "get_all_providers", "get_available_providers"]
