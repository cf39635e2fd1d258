"""Compiling without launching, by Triton's names."""

from .._errors import CompilationError, CompileTimeAssertionFailure
from .._runtime import ASTSource, compile
from . import errors

__all__ = ["ASTSource", "CompilationError", "CompileTimeAssertionFailure", "compile", "errors"]
