"""NumPy arrays, DLPack tensors and Python values <-> what the compiled part takes and gives, without copies where the
layout allows."""

from __future__ import annotations

import math
import sys
from operator import index
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt

from ._arguments import shown
from ._errors import Error
from ._tessera import Datum, Port, Tensor, gpu_of_memory

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
    """The NumPy dtype of an element type: numpy_dtype("bf16")."""
    if name != "str" and name not in _NUMPY:
        raise Error("E0501", f'there is no element type "{name}"', hint=f"there are: {', '.join(_NUMPY)}, str")
    return np.dtype(object) if name == "str" else _NUMPY[name]


def array_name(dtype: DType) -> str:
    """Our name of a NumPy element type in native byte order."""
    name = _NAMES.get(dtype)
    if name is None:
        raise Error("E0403", f"arrays of {dtype} cannot be used", hint="convert it with astype first")
    return name


_TORCH_NAMES = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "f8e4m3fn": "float8_e4m3fn",
                "f8e5m2": "float8_e5m2", "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8", "u64": "uint64",
                "u32": "uint32", "u16": "uint16", "u8": "uint8", "bool": "bool"}
_torch_types: dict[type, bool] = {}


def is_torch(value: Any) -> bool:
    """Whether it is a tensor of PyTorch's."""
    kind = type(value)
    known = _torch_types.get(kind)
    if known is None:
        torch = sys.modules.get("torch")
        known = _torch_types[kind] = torch is not None and issubclass(kind, torch.Tensor)
    return known


def torch_dtype(name: str) -> Any:
    """The element type of PyTorch's of one of ours; None where it has none."""
    return getattr(sys.modules["torch"], _TORCH_NAMES.get(name, ""), None) if name in _TORCH_NAMES else None


def _tensor_from_torch(value: Any) -> Tensor:
    tensor = Tensor.from_torch(value)
    if tensor is None:  # a part of a larger one, one that gradients are computed for, or no numbers that kernels have
        if value.device.type not in ("cpu", "cuda"):
            raise Error("E0701", f"a tensor on {value.device} cannot be used", hint="copy it to the CPU or to an NVIDIA GPU")
        plain = value.detach().resolve_conj().resolve_neg().contiguous() if value.layout is sys.modules["torch"].strided else value
        tensor = Tensor.from_torch(plain)
        if tensor is None:
            try:
                return Tensor.from_dlpack(plain)
            except (TypeError, RuntimeError, BufferError):
                raise Error("E0403", f"tensors of {value.dtype}, {value.layout}, cannot be used") from None
    return tensor


class Said(NamedTuple):
    """What an array on a GPU says of itself, as __cuda_array_interface__."""

    dtype: DType
    shape: list[int]
    strides: list[int] | None
    address: int
    read_only: bool
    stream: int | None


def said_by(value: Any) -> Said:
    said = value.__cuda_array_interface__
    try:
        dtype, shape, strides = np.dtype(said["typestr"]), [index(n) for n in said["shape"]], said.get("strides")
        address, read_only = said["data"]
        stream = said.get("stream")
        found = Said(dtype, shape, None if strides is None else [index(n) for n in strides], index(address), bool(read_only),
                     None if stream is None else index(stream))
    except (AttributeError, KeyError, TypeError, ValueError) as e:
        raise Error("E0501", f"{type(value).__name__}.__cuda_array_interface__ cannot be read: {type(e).__name__}: {e}") from None
    count = math.prod(shape)
    if min(shape, default=0) < 0 or count * dtype.itemsize >= 1 << 63 or not 0 <= found.address < 1 << 64:
        raise Error("E0501", f"{type(value).__name__}.__cuda_array_interface__ has sizes {tuple(shape)} at address {found.address}")
    if found.address == 0 and count != 0:
        raise Error("E0501", f"{type(value).__name__}.__cuda_array_interface__ has {count} elements and no address")
    return found


def gpu_said(value: Any, gpu: int) -> int:
    """The GPU of an array that says where it lies on one: by its own word, by the driver's, or else `gpu`."""
    said = getattr(getattr(value, "device", None), "id", None)
    known = gpu_of_memory(said_by(value).address) if said is None else int(said)
    if known is not None and known < 0:
        raise Error("E0501", f"{type(value).__name__} is on GPU {known}, which does not exist")
    return max(gpu, 0) if known is None else known


def _tensor_from_interface(value: Any, gpu: int) -> Tensor:
    """Of an array on a GPU that says where it lies."""
    said = said_by(value)
    if said.strides is not None:
        step = said.dtype.itemsize
        for size, stride in zip(reversed(said.shape), reversed(said.strides)):
            if size != 1 and stride != step:
                raise Error("E0501", "an array on a GPU is not contiguous", hint="copy it to one that is")
            step *= size
    return Tensor.from_memory(array_name(said.dtype), said.shape, said.address, value, gpu_said(value, gpu))


def tensor_from(value: Any, expected: str | None = None, gpu: int = -1, writable: bool = False) -> Tensor:
    """A tensor that aliases the value's memory if it is contiguous and in native byte order, and a copy otherwise.
    `gpu` is the GPU of an array in GPU memory that does not specify it. `writable` requires memory that may be
    written to."""
    if isinstance(value, Tensor):
        return value
    numpy = isinstance(value, (np.ndarray, np.generic))
    if not numpy and is_torch(value):
        return _tensor_from_torch(value)
    if not numpy and hasattr(value, "__cuda_array_interface__"):
        return _tensor_from_interface(value, gpu)
    if not numpy and hasattr(value, "__dlpack__"):
        try:
            return Tensor.from_dlpack(value, writable)
        except (TypeError, RuntimeError, BufferError) as e:
            raise Error("E0501", f"{type(value).__name__} cannot be imported through DLPack: {str(e).splitlines()[0]}",
                        hint="it must be contiguous, in CPU or NVIDIA GPU memory" + (", and writable" if writable else "")) from None
    if numpy:
        if np.ma.is_masked(value):
            raise Error("E0501", "the array has masked elements, which tensors do not have", hint="give them values: x.filled(0)")
        array = np.asarray(value)
    else:  # a Python number, string or list takes the type that is asked for
        try:
            array = np.asarray(value, dtype=None if expected in (None, "str") else _NUMPY[expected])
        except (TypeError, ValueError, OverflowError) as e:
            raise Error("E0501", f"expected {expected or 'an array'}, got {shown(value)}: {e}") from None
    if array.dtype.kind == "O" and expected not in (None, "str"):
        raise Error("E0403", f"expected {expected}, got an array of Python objects", hint="convert it with astype first")
    if array.dtype.kind in "OUST":
        return Tensor.from_strings(list(array.shape), [_text(item) for item in array.ravel().tolist()])
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    name = array_name(array.dtype)
    shape = list(array.shape)
    array = np.ascontiguousarray(array)
    return Tensor.from_memory(name, shape, array.ctypes.data, array)


def _text(item: Any) -> str:
    if isinstance(item, bytes):
        return item.decode("utf-8", "surrogateescape")
    if not isinstance(item, (str, int, float, np.generic)):
        raise Error("E0403", f"expected strings, got an element of type {type(item).__name__}")
    return str(item)


def object_array(shape: list[int], items: list[str]) -> Array:
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array if len(shape) == 1 else array.reshape(shape)


def array_from(tensor: Tensor) -> Array:
    """A NumPy array that aliases the tensor's memory (for strings, an object array)."""
    if tensor.dtype == "str":
        return object_array(list(tensor.shape), tensor.strings())
    array = tensor.array()
    return array if array is not None else tensor.bytes().view(_NUMPY[tensor.dtype]).reshape(tensor.shape)


def is_plain(value: Any) -> bool:
    """Whether Datum.array_of takes it as it is, without a copy."""
    return type(value) is np.ndarray and value.dtype in _PLAIN and value.flags.c_contiguous


def datum_from(value: Any, port: Port | None = None, gpu: int = -1) -> Datum:
    optional = port is not None and port.type.startswith("optional(")
    if value is None:
        return Datum.none()
    if isinstance(value, Datum):
        return value
    wants_sequence = port is None or port.type.startswith(("seq(", "optional(seq("))
    if isinstance(value, (list, tuple)) and wants_sequence:
        datum = Datum.sequence([datum_from(item) for item in value])
    else:
        datum = Datum.tensor_of(tensor_from(value, port.dtype if port else None, gpu))
    return Datum.some(datum) if optional else datum


def value_from(datum: Datum) -> Any:
    """An array, a list of such, or None."""
    if datum.kind == "tensor":
        return array_from(datum.tensor)
    items = [value_from(item) for item in datum.items]
    if datum.kind == "sequence":
        return items
    return items[0] if items else None
