"""The device: this processor."""

from __future__ import annotations

import os
import platform
from typing import Any


class Target:
    """What kernels are compiled for."""

    backend, warp_size = "cpu", 1
    arch = platform.machine()


class _Active:
    def get_current_target(self) -> Target: return Target()
    def get_current_device(self) -> int: return 0
    def get_current_stream(self, device: Any = None) -> int: return 0

    def get_active_torch_device(self) -> Any:
        import torch  # type: ignore[import-not-found, unused-ignore]
        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        import torch
        return torch.cpu

    @property
    def utils(self) -> Any: return self
    def get_device_properties(self, device: Any = None) -> dict[str, int]:
        return {"multiprocessor_count": os.cpu_count() or 1, "max_shared_mem": 1 << 20, "max_num_regs": 1 << 16, "warpSize": 1}


active = _Active()
