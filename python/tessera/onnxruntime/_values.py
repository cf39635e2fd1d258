"""OrtValue, and inputs and outputs that are bound before a run."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ._types import dtype_of, element_name, element_number, type_name
from .capi.onnxruntime_pybind11_state import InvalidArgument, NotImplemented

if TYPE_CHECKING:
    from ._session import InferenceSession

Array = npt.NDArray[Any]


def _check_device(device_type: str) -> None:
    if device_type != "cpu":
        raise NotImplemented(f"values on the device {device_type!r}: pass PyTorch tensors to tessera.compile(..., target=\"cuda\") instead")


def _memory_at(address: int, element_type: Any, shape: Sequence[int]) -> Array:
    """An array over memory that the caller keeps alive."""
    dtype = dtype_of(element_type)
    if dtype.kind in "OUST":
        raise InvalidArgument("strings have no address; bind an array of them")
    count = math.prod(shape)
    if min(shape, default=0) < 0:
        raise InvalidArgument(f"the shape {list(shape)} has a negative size")
    if count == 0:
        return np.empty(tuple(shape), dtype)
    if not address:
        raise InvalidArgument("buffer_ptr is null")
    held = (ctypes.c_ubyte * (count * dtype.itemsize)).from_address(address)
    found: Array = np.frombuffer(memoryview(held), dtype).reshape(tuple(shape))
    return found


class OrtValue:
    """A value of a session's inputs or outputs: a tensor, a sequence or an empty optional."""

    def __init__(self, value: Any) -> None:
        self._value = value

    @classmethod
    def ortvalue_from_numpy(cls, numpy_obj: Any, device_type: str = "cpu", device_id: int = 0) -> OrtValue:
        """Aliases the array's memory if it is contiguous, and copies it otherwise."""
        _check_device(device_type)
        return cls(np.ascontiguousarray(numpy_obj) if np.ndim(numpy_obj) else np.asarray(numpy_obj))

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: Any, onnx_element_type: int) -> OrtValue:
        """The array's bits as elements of another type of the same width, for types that NumPy lacks."""
        return cls(np.ascontiguousarray(data).view(dtype_of(onnx_element_type)))

    @classmethod
    def ortvalue_from_shape_and_type(cls, shape: Sequence[int], element_type: Any, device_type: str = "cpu",
                                     device_id: int = 0) -> OrtValue:
        _check_device(device_type)
        return cls(np.zeros(tuple(shape), dtype_of(element_type)))

    @classmethod
    def from_dlpack(cls, data: Any, is_bool_tensor: bool = False) -> OrtValue:
        array = np.from_dlpack(data)
        return cls(array.view(np.bool_) if is_bool_tensor else array)

    def _tensor(self) -> Array:
        if not isinstance(self._value, np.ndarray):
            raise InvalidArgument("the value is not a tensor")
        return self._value

    def numpy(self) -> Array:
        """A copy of the tensor."""
        return self._tensor().copy()

    def update_inplace(self, np_arr: Any) -> None:
        """Copies an array of the same type and shape into the value."""
        held, given = self._tensor(), np.asarray(np_arr)
        if held.shape != given.shape or held.dtype != given.dtype:
            raise InvalidArgument(f"the value is {held.dtype}{list(held.shape)}, the array {given.dtype}{list(given.shape)}")
        held[...] = given

    def shape(self) -> list[int]:
        return list(self._tensor().shape)

    def data_type(self) -> str:
        """ "tensor(float)" and the like."""
        if isinstance(self._value, list):
            return f"seq({OrtValue(self._value[0]).data_type()})" if self._value else "seq(tensor(float))"
        return type_name(element_name(self._tensor().dtype))

    def element_type(self) -> int:
        """A number of ONNX's TensorProto.DataType."""
        return element_number(self._tensor().dtype)

    def tensor_size_in_bytes(self) -> int:
        return int(self._tensor().nbytes)

    def data_ptr(self) -> int:
        return int(self._tensor().ctypes.data)

    def device_name(self) -> str:
        return "cpu"

    def is_tensor(self) -> bool:
        return isinstance(self._value, np.ndarray)

    def is_tensor_sequence(self) -> bool:
        return isinstance(self._value, list)

    def is_sparse_tensor(self) -> bool:
        return False

    def has_value(self) -> bool:
        return self._value is not None

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self._tensor().__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, number = self._tensor().__dlpack_device__()
        return int(kind), int(number)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self._tensor(), dtype=dtype, copy=copy)


def plain(value: Any) -> Any:
    """What a run takes for a value."""
    return value._value if isinstance(value, OrtValue) else value


class IOBinding:
    """Inputs and outputs of run_with_iobinding. Bound outputs are written to the given memory."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, Array | None] = {}
        self._results: list[Any] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        self._bind_input(name, arr_on_cpu)

    def bind_input(self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int) -> None:
        _check_device(device_type)
        self._bind_input(name, _memory_at(buffer_ptr, element_type, shape))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        self._bind_input(name, ortvalue)

    def bind_output(self, name: str, device_type: str = "cpu", device_id: int = 0, element_type: Any = None,
                    shape: Sequence[int] | None = None, buffer_ptr: int | None = None) -> None:
        """Without an address, the run allocates the output."""
        _check_device(device_type)
        if buffer_ptr is None:
            return self._bind_output(name, None)
        if element_type is None or shape is None:
            raise InvalidArgument("an output at an address needs its element type and shape")
        self._bind_output(name, _memory_at(buffer_ptr, element_type, shape))

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        self._bind_output(name, ortvalue._tensor())

    def _bind_input(self, name: str, value: Any) -> None:
        if name not in self._session._input_ports:
            raise InvalidArgument(f"there is no input {name!r}; there are {', '.join(self._session._input_ports)}")
        self._inputs[name] = value

    def _bind_output(self, name: str, into: Array | None) -> None:
        if name not in self._session._output_names:
            raise InvalidArgument(f"there is no output {name!r}; there are {', '.join(self._session._output_names)}")
        self._outputs[name] = into

    def synchronize_inputs(self) -> None:
        """Nothing to wait for: values are on the CPU."""

    def synchronize_outputs(self) -> None:
        """Nothing to wait for: values are on the CPU."""

    def get_outputs(self) -> list[OrtValue]:
        """In the order in which outputs were bound."""
        return [OrtValue(value) for value in self._results]

    def copy_outputs_to_cpu(self) -> list[Any]:
        return [value.copy() if isinstance(value, np.ndarray) else value for value in self._results]

    def clear_binding_inputs(self) -> None:
        self._inputs = {}

    def clear_binding_outputs(self) -> None:
        self._outputs = {}
        self._results = []


SessionIOBinding = IOBinding
