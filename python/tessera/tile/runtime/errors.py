"""What goes wrong when kernels run."""

from ..._errors import Error as TritonError
from .._errors import OutOfResources

InterpreterError = TritonError

__all__ = ["InterpreterError", "OutOfResources", "TritonError"]
