"""Switches that Triton has; here they change nothing, and can be set."""

from __future__ import annotations

from typing import Any


class _Group:
    """Takes any switch, and says no."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


runtime, compilation, autotuning, language, cache, redis, nvidia, amd, proton, build = (_Group() for _ in range(10))
