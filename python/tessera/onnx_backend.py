"""Tessera as an ONNX backend: `onnx.backend.test.BackendTest(tessera.onnx_backend, __name__)` runs ONNX's own tests."""

from __future__ import annotations

from typing import Any

import onnx
from onnx.backend.base import Backend, BackendRep, Device, DeviceType, namedtupledict

import tessera


class TesseraRep(BackendRep):
    def __init__(self, model: tessera.Model) -> None:
        self.model = model

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        outputs = self.model.run(inputs)
        named: tuple[Any, ...] = namedtupledict("Outputs", list(outputs))(*outputs.values())
        return named


class TesseraBackend(Backend):
    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        try:
            cls.prepare(model, device, **kwargs)
        except tessera.Error:
            return False
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> TesseraRep:
        super().prepare(model, device, **kwargs)  # runs onnx.checker
        return TesseraRep(tessera.from_onnx(model))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(cls, node: onnx.NodeProto, inputs: Any, device: str = "CPU", outputs_info: Any = None,
                 **kwargs: Any) -> tuple[Any, ...]:
        super().run_node(node, inputs, device, outputs_info, **kwargs)
        opset = kwargs.get("opset_version", onnx.defs.onnx_opset_version())
        named = [(name, tessera.tensor_from(value)) for name, value in zip((n for n in node.input if n), inputs)]
        infos = [onnx.helper.make_tensor_value_info(name, _element_type(tensor), tensor.shape) for name, tensor in named]
        results = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        graph = onnx.helper.make_graph([node], "node", infos, results)
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid(node.domain, opset)])
        return TesseraRep(tessera.from_onnx(model)).run(dict(named))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return bool(Device(device).type == DeviceType.CPU)


def _element_type(tensor: tessera.Tensor) -> int:
    if tensor.dtype == "str":
        return int(onnx.TensorProto.STRING)
    return int(onnx.helper.np_dtype_to_tensor_dtype(tessera.numpy_dtype(tensor.dtype)))


is_compatible = TesseraBackend.is_compatible
prepare = TesseraBackend.prepare
run = TesseraBackend.run_model
run_model = TesseraBackend.run_model
run_node = TesseraBackend.run_node
supports_device = TesseraBackend.supports_device
