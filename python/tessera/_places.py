"""Where a run finds its inputs and leaves its outputs: in memory of NumPy's, of PyTorch's, or of whoever says where it
lies, on the processor or on a GPU."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ._arrays import datum_from, gpu_said, is_plain, is_torch, numpy_dtype, said_by, tensor_from, torch_dtype, value_from
from ._errors import Error
from ._tessera import Datum, Port, Tensor, torch_stream

NO_GPU = -1


def datum_of(name: str, value: Any, port: Port | None, gpu: int) -> Datum:
    """An input, in place where it can be read so. Errors name it."""
    if port is not None and port.dtype and is_plain(value):
        return Datum.array_of(value)
    if value is None and port is not None and not port.type.startswith("optional("):
        raise Error("E0402", f'input "{name}" is None, but takes {port.type}',
                    hint="leave it out for its default" if port.has_default else "only optional inputs may be None")
    try:
        return datum_from(value, port, gpu)
    except Error as e:
        if e.code not in ("E0403", "E0501", "E0701") or f'"{name}"' in e.message:
            raise
        raise Error(e.code, f'input "{name}": {e.message}', hint=e.hint) from None


def _foreign_stream(value: Any) -> int | None:
    """Of an array on a GPU that is not PyTorch's: the stream it is computed on, if whoever uses it has to follow one."""
    if hasattr(value, "__cuda_array_interface__"):
        return said_by(value).stream
    return 0  # what is given over DLPack is ready on the first


def _torch(needed: bool) -> Any:
    return sys.modules["torch"] if needed else None


def empty_tensor(dtype: str, shape: list[int], gpu: int) -> Any:
    """A tensor of PyTorch's, for an output; None where it has no such elements."""
    kind = torch_dtype(dtype)
    where = "cpu" if gpu == NO_GPU else f"cuda:{gpu}"
    return None if kind is None else sys.modules["torch"].empty(shape, dtype=kind, device=where)


class Places:
    """Of one run: its stream, and the arrays that its outputs come back as."""

    def __init__(self, gpu: int, given: Iterable[tuple[Any, Datum]], out: Mapping[str, Any]) -> None:
        """`gpu`: that the model runs on. `given`: the inputs, each as it came and as it is read."""
        values = [(value, datum.tensor.gpu) for value, datum in given if datum.kind == "tensor"]
        values += [(value, _gpu_of(value, gpu)) for value in out.values()]
        tensors = [(value, on) for value, on in values if is_torch(value)]
        self.torch = _torch(bool(tensors))
        self.gpu = gpu
        self.device = NO_GPU  # of outputs that nobody gave memory for
        self.stream: int | None = None
        self.out = out
        _check_apart(out)
        self.made: dict[str, Any] = {}
        if gpu == NO_GPU or all(on == NO_GPU for _, on in values):
            return
        foreign = {_foreign_stream(value) for value, on in values if on == gpu and not is_torch(value)} - {None}
        if any(on == gpu for _, on in tensors):
            self.device = gpu
            self.stream = torch_stream(gpu)
            for stream in foreign - {self.stream}:
                cuda = self.torch.cuda
                cuda.current_stream(gpu).wait_stream(
                    cuda.ExternalStream(stream, device=gpu) if stream else cuda.default_stream(gpu))
            return
        if len(foreign) > 1:
            raise Error("E0501", "inputs are computed on several streams", hint="wait for all but one of them first")
        self.stream = next(iter(foreign), 0)

    def entered(self) -> Any:
        """PyTorch's stream, for another thread: what it allocates there is for that stream."""
        if self.device == NO_GPU:
            return contextlib.nullcontext()
        cuda = self.torch.cuda
        return cuda.stream(cuda.ExternalStream(self.stream, device=self.device) if self.stream
                           else cuda.default_stream(self.device))

    def place(self, name: str, dtype: str, shape: list[int]) -> Tensor | None:
        """Memory for an output; None where the run's own will do."""
        if name in self.out:
            into = self.out[name]
            _check_out(name, into, dtype, shape, self.gpu)
            tensor = _writable(into, self.gpu)
            if tensor is not None:
                self.made[name] = into
                return tensor
            if not is_torch(into):
                return None
        made = empty_tensor(dtype, shape, self.device) if self.torch is not None else None
        if made is not None:
            self.made[name] = made
            return Tensor.from_torch(made)
        if self.stream is None or dtype == "str":
            return None
        self.made[name] = np.empty(shape, numpy_dtype(dtype))
        return tensor_from(self.made[name])

    def value(self, name: str, datum: Datum) -> Any:
        """What the caller gets for an output."""
        made, into = self.made.get(name), self.out.get(name)
        if made is None:
            made = value_from(datum)
            if into is None and self.torch is not None:
                made = self._as_torch(made)
        if into is None or made is into:
            return made
        if not isinstance(made, np.ndarray) and not is_torch(made):
            raise Error("E0501", f'out for "{name}" cannot hold a {type(made).__name__}')
        _check_out(name, into, datum.tensor.dtype, list(made.shape), self.gpu)
        if is_torch(into):
            into.copy_(made if is_torch(made) else self._as_torch(made))
            return into
        to = into if isinstance(into, np.ndarray) else self._array_over(name, into)
        np.copyto(to, made)
        return into

    def _array_over(self, name: str, into: Any) -> Any:
        tensor = _given_out(name, into, self.gpu)
        if tensor.gpu != NO_GPU:
            where = "the CPU" if self.gpu == NO_GPU else f"GPU {self.gpu}"
            raise Error("E0701", f'out for "{name}" is on GPU {tensor.gpu}, but the model runs on {where}')
        return value_from(Datum.tensor_of(tensor))

    def _as_torch(self, value: Any) -> Any:
        if not isinstance(value, np.ndarray) or value.dtype == object:
            return value
        tensor = tensor_from(value)
        if torch_dtype(tensor.dtype) is None:
            return value
        made = self.torch.empty(value.shape, dtype=torch_dtype(tensor.dtype))
        np.copyto(value_from(Datum.tensor_of(tensor_from(made))), value)
        return made


def _check_apart(out: Mapping[str, Any]) -> None:
    """No two outputs are to be left in one place. Of memory that kernels write to, a run looks at the rest."""
    for (name, one), (other, two) in itertools.combinations(out.items(), 2):
        arrays = isinstance(one, np.ndarray) and isinstance(two, np.ndarray)
        if one is two or (arrays and np.shares_memory(one, two)):
            raise Error("E0501", f'outputs "{name}" and "{other}" overlap in memory')


def _gpu_of(value: Any, gpu: int) -> int:
    if isinstance(value, np.ndarray) or not (is_torch(value) or hasattr(value, "__dlpack__")
                                             or hasattr(value, "__cuda_array_interface__")):
        return NO_GPU
    if is_torch(value):
        return int(value.get_device())
    if hasattr(value, "__cuda_array_interface__"):
        return gpu_said(value, gpu)
    kind, number = value.__dlpack_device__()
    return int(number) if kind == 2 else NO_GPU


def _writable(into: Any, gpu: int) -> Tensor | None:
    """Over an array that outputs are written to; None where that cannot be done in place."""
    if isinstance(into, np.ndarray):
        return tensor_from(into) if into.flags.c_contiguous and into.dtype.isnative and into.dtype != object else None
    if is_torch(into):
        return Tensor.from_torch(into.detach() if into.requires_grad else into)
    return tensor_from(into, gpu=gpu, writable=True)


def _check_out(name: str, into: Any, dtype: str, shape: list[int], gpu: int) -> None:
    if is_torch(into):
        if into.device.type not in ("cpu", "cuda") or into.layout is not sys.modules["torch"].strided:
            raise Error("E0701", f'out for "{name}" cannot be a tensor of {into.layout} on {into.device}',
                        hint="pass a dense one in CPU or NVIDIA GPU memory")
        if into.numel() > 0 and into.data_ptr() == 0:
            raise Error("E0501", f'out for "{name}" has no memory')
        expected, found = torch_dtype(dtype), into.dtype
    elif isinstance(into, np.ndarray):
        expected, found = numpy_dtype(dtype), into.dtype
    else:
        tensor = _given_out(name, into, gpu)
        expected, found = numpy_dtype(dtype), numpy_dtype(tensor.dtype)
        into = tensor
    if found != expected:
        raise Error("E0403", f'out for "{name}": expected {expected}, got {found}')
    if tuple(into.shape) != tuple(shape):
        raise Error("E0405", f'out for "{name}": expected shape {tuple(shape)}, got {tuple(into.shape)}')
    if np.ma.is_masked(into):
        raise Error("E0501", f'out for "{name}" has masked elements', hint="give it values first: out.filled(0)")
    if isinstance(into, np.ndarray) and not into.flags.writeable:
        raise Error("E0501", f'out for "{name}" cannot be written to')
    if _meets_itself(into):
        raise Error("E0501", f'out for "{name}" has elements that share memory', hint="pass a copy of it")


def _meets_itself(into: Any) -> bool:
    """Whether elements of an array share memory, as those of one that was expanded do."""
    numpy = isinstance(into, np.ndarray)
    if not numpy and not is_torch(into) or (into.flags.c_contiguous if numpy else into.is_contiguous()):
        return False
    strides, size = (into.strides, into.itemsize) if numpy else (into.stride(), 1)
    axes = sorted((abs(stride), count) for stride, count in zip(strides, into.shape) if count > 1)
    reach = size
    for stride, count in axes:
        if stride == 0:
            return True
        if stride < reach:
            break
        reach += stride * (count - 1)
    else:
        return False
    begins = np.zeros(1, np.int64)  # of the elements
    for stride, count in axes:
        begins = np.add.outer(begins, stride * np.arange(count)).ravel()
    begins.sort()
    return bool((np.diff(begins) < size).any())


def _given_out(name: str, into: Any, gpu: int) -> Tensor:
    if not hasattr(into, "__dlpack__") and not hasattr(into, "__cuda_array_interface__"):
        raise Error("E0501", f'out for "{name}": expected an array, got {type(into).__name__}')
    if hasattr(into, "__cuda_array_interface__") and said_by(into).read_only:
        raise Error("E0501", f'out for "{name}" cannot be written to')
    return tensor_from(into, gpu=gpu, writable=True)
