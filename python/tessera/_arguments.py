"""Checks the arguments of public functions against their annotations: an error names the wrong one, and says what was
expected and what was given."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

import numpy as np

from ._errors import Error

P = ParamSpec("P")
R = TypeVar("R")


def _is_number(value: Any, kind: type = Real) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _is_path(value: Any) -> bool:
    return isinstance(value, (str, bytes, os.PathLike))


def _is_list(value: Any, of: Callable[[Any], bool]) -> bool:
    return isinstance(value, (Sequence, np.ndarray)) and all(of(item) for item in value)


# By the text of an annotation: what an error calls it, and what it takes. Annotations that are not here are not checked.
_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "None": ("None", lambda value: value is None),
    "str": ("a string", lambda value: isinstance(value, str)),
    "bool": ("True or False", lambda value: isinstance(value, bool)),
    "int": ("a whole number", lambda value: _is_number(value, Integral)),
    "float": ("a number", _is_number),
    "Path": ("a path", _is_path),
    "Files": ("a path or a list of paths", lambda value: _is_path(value) or _is_list(value, _is_path)),
    "Progress": ("a function", callable),
    "Callable[[DiscoverProgress], None]": ("a function", callable),
    "Loss": ("a tessera.Loss", lambda value: type(value).__name__ == "Loss"),
    "Sequence[str]": ("a list of strings", lambda value: _is_list(value, lambda item: isinstance(item, str))),
    "Sequence[float]": ("a list of numbers", lambda value: _is_list(value, _is_number)),
    "Mapping[str, int]": ("sizes by name", lambda value: isinstance(value, Mapping)),
}


def shown(value: Any) -> str:
    """A value in an error: itself where it is short."""
    text = repr(value)
    return text if len(text) <= 40 else type(value).__name__


def wrong(name: str, expected: str, value: Any, hint: str = "") -> Error:
    return Error("E0501", f"{name}: expected {expected}, got {shown(value)}", hint=hint)


def check_argument(name: str, annotation: str, value: Any) -> None:
    kinds = [_KINDS.get(part.strip()) for part in annotation.split(" | ")]
    words = [kind[0] for kind in kinds if kind is not None]
    if len(words) < len(kinds) or any(kind is not None and kind[1](value) for kind in kinds):
        return
    raise wrong(name, " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words), value)


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """The function, whose arguments are checked first."""
    signature = inspect.signature(function)
    annotations = {name: p.annotation for name, p in signature.parameters.items()
                   if isinstance(p.annotation, str) and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:
            return function(*args, **kwargs)  # Python names the function and the argument
        for name, value in given.items():
            if name in annotations:
                check_argument(name, annotations[name], value)
        return function(*args, **kwargs)

    return call
