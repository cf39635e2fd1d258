"""Element types and shapes as ONNX Runtime names them."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from .._arrays import array_name, numpy_dtype
from .._tessera import Port
from .capi.onnxruntime_pybind11_state import InvalidArgument

# Tessera's name, ONNX Runtime's, and the number of ONNX's TensorProto.DataType.
_TYPES = (
    ("f32", "float", 1), ("u8", "uint8", 2), ("i8", "int8", 3), ("u16", "uint16", 4), ("i16", "int16", 5), ("i32", "int32", 6),
    ("i64", "int64", 7), ("str", "string", 8), ("bool", "bool", 9), ("f16", "float16", 10), ("f64", "double", 11),
    ("u32", "uint32", 12), ("u64", "uint64", 13), ("c64", "complex64", 14), ("c128", "complex128", 15), ("bf16", "bfloat16", 16),
    ("f8e4m3fn", "float8e4m3fn", 17), ("f8e4m3fnuz", "float8e4m3fnuz", 18), ("f8e5m2", "float8e5m2", 19),
    ("f8e5m2fnuz", "float8e5m2fnuz", 20), ("u4", "uint4", 21), ("i4", "int4", 22), ("f4e2m1", "float4e2m1", 23),
    ("f8e8m0", "float8e8m0", 24), ("u2", "uint2", 25), ("i2", "int2", 26),
)
_ORT_NAMES = {ours: name for ours, name, _ in _TYPES}
_NUMBERS = {ours: number for ours, _, number in _TYPES}
_BY_NUMBER = {number: ours for ours, _, number in _TYPES}


def type_name(type_text: str) -> str:
    """Of a Port's type: "seq(f32[N])" is "seq(tensor(float))"."""
    for outer in ("seq", "optional"):
        if type_text.startswith(outer + "("):
            return f"{outer}({type_name(type_text[len(outer) + 1:-1])})"
    return f"tensor({_ORT_NAMES[re.split(r'[^a-z0-9]', type_text)[0]]})"


def element_name(dtype: np.dtype[Any]) -> str:
    """Tessera's name of an array's element type."""
    return "str" if dtype.kind in "OUST" else array_name(dtype)


def element_number(dtype: np.dtype[Any]) -> int:
    return _NUMBERS[element_name(dtype)]


def dtype_of(element_type: Any) -> np.dtype[Any]:
    """Of what bind_input and OrtValues take: a NumPy type, or a number of TensorProto.DataType."""
    if isinstance(element_type, (int, np.integer)) and not isinstance(element_type, bool):
        if int(element_type) not in _BY_NUMBER:
            raise InvalidArgument(f"there is no element type {element_type}")
        return numpy_dtype(_BY_NUMBER[int(element_type)])
    dtype: np.dtype[Any] = np.dtype(element_type)
    return dtype


class NodeArg(NamedTuple):
    """An input or output. Sizes are numbers, names, or None if the file has neither; [] for scalars."""

    name: str
    type: str
    shape: list[int | str | None]

    def __repr__(self) -> str:
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape!r})"

    @classmethod
    def of(cls, port: Port, sizes: dict[str, int]) -> NodeArg:
        """`sizes` gives some symbolic dimensions a number."""
        shape: list[int | str | None] = []
        for size in port.shape or ():
            if isinstance(size, str):
                anonymous = re.search(r"\.d\d+(?!\w)", size)  # "x.d0": the file has no name for it
                shape.append(sizes.get(size, None if anonymous else size))
            else:
                shape.append(size)
        return cls(port.name, type_name(port.type), shape)
