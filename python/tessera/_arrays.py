"""NumPy arrays, DLPack tensors and Python values <-> what the compiled part takes and gives, without copies where the
layout allows."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from ._errors import Error
from ._tessera import Datum, Port, Tensor

Array = npt.NDArray[Any]
DType = np.dtype[Any]

_NUMPY: dict[str, DType] = {
    "f64": np.dtype(np.float64), "f32": np.dtype(np.float32), "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16), "f8e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8e4m3fnuz": np.dtype(ml_dtypes.float8_e4m3fnuz), "f8e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "f8e5m2fnuz": np.dtype(ml_dtypes.float8_e5m2fnuz), "f8e8m0": np.dtype(ml_dtypes.float8_e8m0fnu),
    "f4e2m1": np.dtype(ml_dtypes.float4_e2m1fn),
    "i64": np.dtype(np.int64), "i32": np.dtype(np.int32), "i16": np.dtype(np.int16), "i8": np.dtype(np.int8),
    "i4": np.dtype(ml_dtypes.int4), "i2": np.dtype(ml_dtypes.int2),
    "u64": np.dtype(np.uint64), "u32": np.dtype(np.uint32), "u16": np.dtype(np.uint16), "u8": np.dtype(np.uint8),
    "u4": np.dtype(ml_dtypes.uint4), "u2": np.dtype(ml_dtypes.uint2),
    "bool": np.dtype(np.bool_), "c64": np.dtype(np.complex64), "c128": np.dtype(np.complex128),
}
_NAMES = {dtype: name for name, dtype in _NUMPY.items()}
_PLAIN = frozenset(dtype for dtype in _NUMPY.values() if dtype.isbuiltin == 1)
PLAIN_NAMES = frozenset(_NAMES[dtype] for dtype in _PLAIN)  # of element types that NumPy itself has


def numpy_dtype(name: str) -> DType:
    """The NumPy element type of one of ours: numpy_dtype("bf16")."""
    return np.dtype(object) if name == "str" else _NUMPY[name]


def array_name(dtype: DType) -> str:
    """Our name of a NumPy element type in native byte order."""
    name = _NAMES.get(dtype)
    if name is None:
        raise Error("E0403", f"arrays of {dtype} cannot be used", hint="convert it with astype first")
    return name


def tensor_from(value: Any, expected: str | None = None) -> Tensor:
    """A tensor over the value's own memory if it is contiguous and in native byte order, over a copy otherwise."""
    if isinstance(value, Tensor):
        return value
    if not isinstance(value, (np.ndarray, np.generic)) and hasattr(value, "__dlpack__"):
        return Tensor.from_dlpack(value)
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
    else:  # a Python number, string or list takes the type that is asked for
        array = np.asarray(value, dtype=None if expected in (None, "str") else _NUMPY[expected])
    if array.dtype.kind in "OUST":
        return Tensor.from_strings(list(array.shape), [_text(item) for item in array.ravel().tolist()])
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    name = array_name(array.dtype)
    shape = list(array.shape)
    array = np.ascontiguousarray(array)
    return Tensor.from_memory(name, shape, array.ctypes.data, array)


def _text(item: Any) -> str:
    return item.decode("utf-8", "surrogateescape") if isinstance(item, bytes) else str(item)


def array_from(tensor: Tensor) -> Array:
    """A NumPy array over the tensor's memory (strings: an object array)."""
    if tensor.dtype == "str":
        strings = np.empty(len(tensor.strings()), dtype=object)
        strings[:] = tensor.strings()
        return strings.reshape(tensor.shape)
    array = tensor.array()
    return array if array is not None else tensor.bytes().view(_NUMPY[tensor.dtype]).reshape(tensor.shape)


def is_plain(value: Any) -> bool:
    """Whether Datum.array_of takes it as it is, without a copy."""
    return type(value) is np.ndarray and value.dtype in _PLAIN and value.flags.c_contiguous


def datum_from(value: Any, port: Port | None = None) -> Datum:
    optional = port is not None and port.type.startswith("optional(")
    if value is None:
        return Datum.none()
    if isinstance(value, Datum):
        return value
    wants_sequence = port is None or port.type.startswith(("seq(", "optional(seq("))
    if isinstance(value, (list, tuple)) and wants_sequence:
        datum = Datum.sequence([datum_from(item) for item in value])
    else:
        datum = Datum.tensor_of(tensor_from(value, port.dtype if port else None))
    return Datum.some(datum) if optional else datum


def value_from(datum: Datum) -> Any:
    """An array, a list of such, or None."""
    if datum.kind == "tensor":
        return array_from(datum.tensor)
    items = [value_from(item) for item in datum.items]
    if datum.kind == "sequence":
        return items
    return items[0] if items else None
