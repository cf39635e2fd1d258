"""Descriptions of targets, by Triton's names."""

from __future__ import annotations

from typing import NamedTuple


class GPUTarget(NamedTuple):
    """What kernels are compiled for."""

    backend: str       # "cuda", or "cpu"
    arch: int | str    # of a GPU, its compute capability: 90 where it is 9.0
    warp_size: int


__all__ = ["GPUTarget"]
