"""The device that kernels run on: the GPU that PyTorch works on, where there is one, else this processor."""

from __future__ import annotations

import importlib
import os
import platform
from typing import Any

from ..._tessera import Device, devices
from ..backends.compiler import GPUTarget


def _gpu() -> Device | None:
    """The one that PyTorch works on. Kernels that are interpreted read the processor's memory."""
    if os.environ.get("TESSERA_INTERPRET") in ("1", "gpu"):
        return None
    there = {d.target: d for d in devices() if d.usable}
    if len(there) == 1:
        return None
    try:
        cuda: Any = importlib.import_module("torch").cuda
    except ImportError:
        return None
    return there.get(f"cuda:{cuda.current_device()}") if cuda.is_available() else None


class _Active:
    def get_current_target(self) -> GPUTarget:
        gpu = _gpu()
        return GPUTarget("cuda", gpu.capability, 32) if gpu else GPUTarget("cpu", platform.machine(), 1)

    def get_current_device(self) -> int:
        gpu = _gpu()
        return int(gpu.target.partition(":")[2]) if gpu else 0

    def get_current_stream(self, device: Any = None) -> int:
        if not _gpu():
            return 0
        stream: Any = importlib.import_module("torch").cuda.current_stream(device)
        return int(stream.cuda_stream)

    def get_active_torch_device(self) -> Any:
        gpu = _gpu()
        return importlib.import_module("torch").device(gpu.target if gpu else "cpu")

    def get_device_interface(self) -> Any:
        torch: Any = importlib.import_module("torch")
        return torch.cuda if _gpu() else torch.cpu

    @property
    def utils(self) -> Any: return self

    def get_device_properties(self, device: Any = None) -> dict[str, int]:
        gpu = _gpu()
        if gpu and device is not None:
            number = device if isinstance(device, int) else getattr(device, "index", None)
            gpu = next((d for d in devices() if d.usable and d.target == f"cuda:{number}"), gpu)
        if not gpu:
            return {"multiprocessor_count": os.cpu_count() or 1, "max_shared_mem": 1 << 20, "max_num_regs": 1 << 16, "warpSize": 1}
        return {"multiprocessor_count": gpu.processors, "max_shared_mem": gpu.shared_bytes, "max_num_regs": 1 << 16, "warpSize": 32}


active = _Active()
