"""Libraries of functions beside the language."""

from . import libdevice

__all__ = ["libdevice"]
