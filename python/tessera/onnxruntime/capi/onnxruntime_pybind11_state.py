"""ONNX Runtime's exceptions, by the names under which programs catch them."""

from __future__ import annotations

from ..._errors import Error


class OrtError(Exception):
    """Begins as ONNX Runtime's messages do; the Tessera error that caused it is its __cause__."""

    status = 1
    title = "FAIL"

    def __init__(self, message: str) -> None:
        super().__init__(f"[ONNXRuntimeError] : {self.status} : {self.title} : {message}")


class Fail(OrtError):
    pass


class InvalidArgument(OrtError):
    status, title = 2, "INVALID_ARGUMENT"


class NoSuchFile(OrtError):
    status, title = 3, "NO_SUCHFILE"


class NoModel(OrtError):
    status, title = 4, "NO_MODEL"


class EngineError(OrtError):
    status, title = 5, "ENGINE_ERROR"


class RuntimeException(OrtError):
    status, title = 6, "RUNTIME_EXCEPTION"


class InvalidProtobuf(OrtError):
    status, title = 7, "INVALID_PROTOBUF"


class ModelLoaded(OrtError):
    status, title = 8, "MODEL_LOADED"


class NotImplemented(OrtError):  # noqa: A001 - the name is ONNX Runtime's
    status, title = 9, "NOT_IMPLEMENTED"


class InvalidGraph(OrtError):
    status, title = 10, "INVALID_GRAPH"


class EPFail(OrtError):
    status, title = 11, "EP_FAIL"


class ModelLoadCanceled(OrtError):
    status, title = 12, "MODEL_LOAD_CANCELED"


class ModelRequiresCompilation(OrtError):
    status, title = 13, "MODEL_REQUIRES_COMPILATION"


class NotFound(OrtError):
    status, title = 14, "NOT_FOUND"


# By how a Tessera error's code begins: the first that fits.
_KINDS: tuple[tuple[str, type[OrtError]], ...] = (
    ("E0101", NoSuchFile), ("E0102", InvalidProtobuf), ("E0103", InvalidProtobuf), ("E0104", InvalidProtobuf), ("E0105", Fail),
    ("E01", InvalidProtobuf), ("E0201", NotImplemented), ("E0202", NotImplemented), ("E0213", NotImplemented), ("E02", InvalidGraph),
    ("E03", InvalidProtobuf), ("E0408", RuntimeException), ("E0409", NotImplemented), ("E0410", Fail), ("E04", InvalidArgument),
    ("E05", InvalidArgument), ("E07", EPFail),
)


def from_tessera(error: Error) -> OrtError:
    """The exception that ONNX Runtime would raise."""
    for code, kind in _KINDS:
        if error.code.startswith(code):
            return kind(str(error))
    return Fail(str(error))
