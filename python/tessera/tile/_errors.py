"""What is wrong with a kernel, shown at its line."""

from __future__ import annotations

import ast
import re
from typing import Any

from .._errors import Error


def marked(file: str, line: int, column: int, text: str) -> str:
    """A place in a source, with its line and a mark below; columns count from 1."""
    return f"{file}:{line}:{column}\n    {text}\n    {' ' * (column - 1)}^"


def fault_at(e: Error, sources: list[Any]) -> Error:
    """A fault of a run, shown at the line of the kernel that made it."""
    place = re.fullmatch(r"file (\d+), line (\d+), column (\d+)", e.where)
    if not place:
        return e
    number, line, column = map(int, place.groups())
    function = sources[number]
    at = line - function.first_line
    text = function.lines[at] if 0 <= at < len(function.lines) else ""
    return Error(e.code, e.message, marked(function.file, line, column, text), e.note, e.hint)


class CompilationError(Error):
    """A kernel that cannot be compiled. The text shows the line and marks the place."""

    def __init__(self, code: str, message: str, file: str, source: list[str], first_line: int, node: ast.AST, hint: str = ""):
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        text = source[line - 1] if 0 < line <= len(source) else ""
        self.lineno = first_line + line - 1
        self.column = column
        self.error_message = message
        self.src, self.node = "\n".join(source), node
        super().__init__(code, message, marked(file, self.lineno, column + 1, text), f"at {line}:{column}: of the function", hint)


class CompileTimeAssertionFailure(CompilationError):
    """A static assertion that does not hold."""


class UnsupportedLanguageConstruct(CompilationError):
    """Python that kernels do not have."""


class DeviceAssertion(Error, RuntimeError):
    """A launch in which a condition of the kernel does not hold."""


class CallError(Error, RuntimeError):
    """A kernel that is called instead of launched."""


class OutOfResources(Error):
    """A kernel that needs more resources than the device has."""
