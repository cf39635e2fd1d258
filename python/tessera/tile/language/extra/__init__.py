"""Libraries of functions beside the language."""

from . import cuda, libdevice

__all__ = ["cuda", "libdevice"]
