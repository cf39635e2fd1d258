"""The library of functions by the name that it has for NVIDIA GPUs."""

from .. import libdevice

__all__ = ["libdevice"]
