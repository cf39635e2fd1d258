from __future__ import annotations

import contextlib
import contextvars
import os
import sys
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import Any, NamedTuple

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_FILES = ("E0101", "E0105")  # what the system refuses, not what a file contains
_OTHERS = ("E0408", "E0410", "E0604", "E0605", "E07", "E08")  # limits, cancellations, devices, our own faults


class Error(Exception):
    """An error in a file, a model or an input.

    docs/errors.md explains `code`; `hint` says what to do. Errors of opening or writing a file are also OSErrors;
    errors in the caller's arguments are also ValueErrors.
    """

    def __new__(cls, code: str = "", *args: Any, **kwargs: Any) -> Error:
        kind = cls
        if cls is Error and code.startswith(_FILES):
            kind = FileError
        elif cls is Error and not code.startswith(_OTHERS):
            kind = InputError
        return super(Error, kind).__new__(kind)

    def __init__(self, code: str, message: str, where: str = "", note: str = "", hint: str = "") -> None:
        self.code = code
        self.message = message
        self.where = where
        self.note = note
        self.hint = hint
        parts = [f"{code}: {message}"]
        parts += [f"{label}: {text}" for label, text in (("at", where), ("note", note), ("hint", hint)) if text]
        self.args = ("\n  ".join(parts),)  # OSError has no use for __init__ beside a __new__

    def __reduce__(self) -> tuple[type[Exception], tuple[str, ...]]:
        return (type(self), (self.code, self.message, self.where, self.note, self.hint))


class FileError(Error, OSError):
    """A file that cannot be opened or written."""


class MissingFileError(FileError, FileNotFoundError):
    """There is no such file."""


class InputError(Error, ValueError):
    """An error in a file's contents, a model, an input or an argument."""


class ModelWarning(UserWarning):
    """A fault in a model that does not prevent its use; the text begins with a code of docs/errors.md."""


class Line(NamedTuple):
    """A line of the user's: what the warnings module asks of it."""

    file: str
    number: int
    module: str
    registry: Any


_asked_at: contextvars.ContextVar[Line | None] = contextvars.ContextVar("_asked_at", default=None)


def users_line() -> Line | None:
    """The line outside of this package that led here, if there is one on this thread."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    if frame is None:
        return None
    names = frame.f_globals
    return Line(frame.f_code.co_filename, frame.f_lineno, names.get("__name__", "<string>"), names.setdefault("__warningregistry__", {}))


@contextlib.contextmanager
def asked_at(line: Line | None) -> Iterator[None]:
    """Within it, warnings point at this line: of the thread that asked for the work of another."""
    before = _asked_at.set(line)
    try:
        yield
    finally:
        _asked_at.reset(before)


def warn(text: str) -> None:
    """A ModelWarning at the line of the user's that led to it."""
    line = _asked_at.get() or users_line()
    if line is None:
        warnings.warn(text, ModelWarning)
    else:
        warnings.warn_explicit(text, ModelWarning, line.file, line.number, line.module, line.registry)
