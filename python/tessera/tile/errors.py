"""What all errors are."""

from .._errors import Error as TritonError

__all__ = ["TritonError"]
