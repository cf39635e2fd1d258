"""ONNX's backend interface, as onnxruntime.backend has it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._options import RunOptions, SessionOptions
from ._session import CPU, CUDA, InferenceSession, get_available_providers


class BackendRep:
    """A prepared model."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session

    def run(self, inputs: Any, **kwargs: Any) -> list[Any]:
        """The outputs for inputs by name, in order, or one array for one input. Keywords are attributes of RunOptions."""
        options = None
        if kwargs:
            options = RunOptions()
            for name, value in kwargs.items():
                setattr(options, name, value)
        if not isinstance(inputs, dict):
            given = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
            inputs = dict(zip((port.name for port in self._session.get_inputs()), given))
        return self._session.run(None, inputs, options)


def supports_device(device: str) -> bool:
    """ "CPU", or "CUDA" where there is a GPU."""
    return device.split(":")[0] == "CPU" or (device.split(":")[0] in ("CUDA", "GPU") and CUDA in get_available_providers())


def is_compatible(model: Any, device: str | None = None, **kwargs: Any) -> bool:
    return device is None or supports_device(device)


def prepare(model: Any, device: str | None = None, **kwargs: Any) -> BackendRep:
    """A model that can be run: an ONNX file, its bytes, an onnx.ModelProto, or a session. Keywords are attributes of SessionOptions."""
    if isinstance(model, BackendRep):
        return model
    if isinstance(model, InferenceSession):
        return BackendRep(model)
    if device is not None and not supports_device(device):
        raise RuntimeError(f"the device {device!r} is not supported here")
    options = SessionOptions()
    for name, value in kwargs.items():
        setattr(options, name, value)
    on_gpu = device is not None and not device.startswith("CPU")
    return BackendRep(InferenceSession(model, options, [CUDA, CPU] if on_gpu else [CPU]))


def run_model(model: Any, inputs: Any, device: str | None = None, **kwargs: Any) -> list[Any]:
    return prepare(model, device, **kwargs).run(inputs)
