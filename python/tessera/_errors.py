from __future__ import annotations

from typing import Any

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
        return (Error, (self.code, self.message, self.where, self.note, self.hint))


class FileError(Error, OSError):
    """A file that cannot be opened or written."""


class MissingFileError(FileError, FileNotFoundError):
    """There is no such file."""


class InputError(Error, ValueError):
    """An error in a file's contents, a model, an input or an argument."""


class ModelWarning(UserWarning):
    """A fault in a model that does not prevent its use; the text begins with a code of docs/errors.md."""
