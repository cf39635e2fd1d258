"""What is wrong with kernels."""

from .._errors import CompilationError, CompileTimeAssertionFailure

UnsupportedLanguageConstruct = CompilationError

__all__ = ["CompilationError", "CompileTimeAssertionFailure", "UnsupportedLanguageConstruct"]
