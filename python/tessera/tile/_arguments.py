"""What kernels are launched with: arrays, numbers, tuples of them, and what is known when a kernel is compiled."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from .._arrays import gpu_said
from .._errors import Error
from .language import _types as types
from .language._core import constexpr, tensor, to_tensor, value_of
from .language._memory import tensor_descriptor

_INTEGERS = {"i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "u8": np.uint8, "u16": np.uint16,
             "u32": np.uint32, "u64": np.uint64, "bool": np.bool_}
_FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}


class Memory:
    """Where an array lies: address, the first address behind what it may reach, element type, and whose memory it is."""

    __slots__ = ("address", "end", "dtype", "size", "owner", "device", "stream", "name", "read_only")

    def __init__(self, address: int, end: int, dtype: str, size: int, owner: Any, device: str = "cpu", stream: int | None = None):
        self.address, self.end, self.dtype, self.size, self.owner = address, end, dtype, size, owner
        self.name = ""  # of the parameter
        self.read_only = False
        self.device, self.stream = device, stream  # "cpu" or "cuda:0"; the stream that its work is on, where it says so


class TensorWrapper:
    """The memory of an array, as elements of another type."""

    def __init__(self, base: Any, dtype: Any):
        self.base, self.dtype, self.is_cuda = base, dtype, False
        self.data, self.shape, self.device = getattr(base, "data", None), base.shape, getattr(base, "device", "cpu")

    def data_ptr(self) -> int: return memory_of(self.base).address
    def stride(self, *args: Any) -> Any: return self.base.stride(*args)
    def element_size(self) -> int: return int(self.base.element_size())
    def numel(self) -> int: return int(self.base.numel())
    def new_empty(self, sizes: Any) -> "TensorWrapper":
        base = self.base
        return TensorWrapper(base.new_empty(sizes) if hasattr(base, "new_empty") else np.empty(sizes, base.dtype), self.dtype)
    def cpu(self) -> "TensorWrapper": return TensorWrapper(self.base.cpu(), self.dtype)
    def to(self, device: Any) -> "TensorWrapper": return TensorWrapper(self.base.to(device), self.dtype)
    def clone(self) -> "TensorWrapper": return TensorWrapper(self.base.clone(), self.dtype)
    def copy_(self, other: Any) -> None: self.base.copy_(other.base)
    def __str__(self) -> str: return f"TensorWrapper[{self.dtype}]({self.base})"


def reinterpret(array: Any, dtype: Any) -> Any:
    """An array as elements of another type of as many bits, as kernels see it."""
    if isinstance(array, TensorWrapper):
        array = array.base
    if not is_array(array):
        raise TypeError(f"Cannot reinterpret a {type(array)}.")
    return TensorWrapper(array, dtype)


class MockTensor:
    """An array that is not there: for kernels that are compiled and not launched."""

    def __init__(self, dtype: Any, shape: Any = None):
        self.dtype, self.shape = dtype, shape or [1]

    @staticmethod
    def wrap_dtype(arg: Any) -> Any:
        is_dtype = isinstance(arg, types.dtype) or type(arg).__name__ == "dtype" and type(arg).__module__ == "torch"
        return MockTensor(arg) if is_dtype else arg

    @staticmethod
    def data_ptr() -> int: return 0


class TensorDescriptor:
    """An array of some dimensions, of which kernels load and store tiles."""

    def __init__(self, base: Any, shape: Any, strides: Any, block_shape: Any, padding: str = "zero", round_f32_to_tf32: bool = False):
        self.base, self.padding = base, padding
        self.shape, self.strides, self.block_shape = list(shape), list(strides), list(block_shape)
        self.__post_init__()

    def __post_init__(self) -> None:
        rank = len(self.shape)
        assert rank > 0, "rank must not be zero"
        assert len(self.strides) == rank, "rank mismatch"
        assert len(self.block_shape) == rank, "rank mismatch"
        assert self.strides[-1] == 1, "Last dimension must be contiguous"

    @staticmethod
    def from_tensor(array: Any, block_shape: Any, padding: str = "zero") -> "TensorDescriptor":
        strides = array.stride() if callable(getattr(array, "stride", None)) else [s // array.itemsize for s in array.strides]
        return TensorDescriptor(array, array.shape, strides, block_shape, padding)


_ARRAY_TYPES: dict[Any, str] = {}


def element_name(dtype: Any) -> str:
    """What the compiler calls an element type of NumPy's, PyTorch's or the language's."""
    found = _ARRAY_TYPES.get(dtype)
    if found is None:
        name = dtype.name if isinstance(dtype, (np.dtype, types.dtype)) else str(dtype).rpartition(".")[2]
        if name not in types.NAMES:
            raise Error("E0213", f"kernels have no elements of type {name}", "", "", "")
        if isinstance(dtype, np.dtype) and not dtype.isnative:
            raise Error("E0213", f"kernels have no elements of type {name} in the other byte order", "", "",
                        "copy the array: x.astype(x.dtype.newbyteorder('='))")
        found = _ARRAY_TYPES[dtype] = types.NAMES[name].core
    return found


def is_array(x: Any) -> bool:
    return isinstance(x, np.ndarray) or any(hasattr(x, how) for how in ("data_ptr", "__cuda_array_interface__", "__dlpack__"))


def _reach(shape: Any, strides: Any) -> int:
    """Elements from the first to behind the last; strides in elements."""
    return sum((n - 1) * max(s, 0) for n, s in zip(shape, strides)) + 1 if all(shape) else 0


def _memory_of_interface(x: Any) -> Memory:
    """Of an array on a GPU that says where it lies."""
    given = x.__cuda_array_interface__
    kind, shape, address = np.dtype(given["typestr"]), given["shape"], given["data"][0]
    if given.get("strides") is None:
        reach = int(np.prod(shape, dtype=np.int64))
    else:
        reach = _reach(shape, [s // kind.itemsize for s in given["strides"]])
    memory = Memory(address, address + reach * kind.itemsize, element_name(kind), kind.itemsize, x, f"cuda:{gpu_said(x, 0)}",
                    given.get("stream") or 0)
    memory.read_only = bool(given["data"][1])
    return memory


def memory_of(x: Any) -> Memory:
    if isinstance(x, np.ndarray):
        address, size = x.__array_interface__["data"][0], x.itemsize
        if x.flags.c_contiguous:
            end = address + x.nbytes
        else:
            end = address + (sum((n - 1) * max(s, 0) for n, s in zip(x.shape, x.strides)) + size if x.size else 0)
        memory = Memory(address, end, element_name(x.dtype), size, x)
        memory.read_only = not x.flags.writeable
        return memory
    if isinstance(x, TensorWrapper):
        base = memory_of(x.base)
        kind = types.NAMES[_plain_name(x.dtype)]
        memory = Memory(base.address, base.end, kind.core, kind.itemsize, x, base.device, base.stream)
        memory.read_only = base.read_only
        return memory
    if hasattr(x, "data_ptr"):
        device, on = getattr(x, "device", None), "cpu"
        where = getattr(device, "type", str(device)) if device is not None else "cpu"
        if where == "cuda":
            on = f"cuda:{getattr(device, 'index', None) or 0}"
        elif where not in ("cpu", "meta"):
            raise Error("E0701", f"a tensor on {device}", "", "", "kernels run on the CPU and on NVIDIA GPUs")
        core = element_name(x.dtype)
        size, address = types.of_core(core).itemsize, x.data_ptr()
        if not hasattr(x, "stride") or not hasattr(x, "numel"):
            return Memory(address, address + size if address else 0, core, size, x, on)
        return Memory(address, address + _reach(x.shape, x.stride()) * size, core, size, x, on)
    if hasattr(x, "__cuda_array_interface__"):
        return _memory_of_interface(x)
    if x.__dlpack_device__()[0] == 2:  # a GPU of NVIDIA's
        return memory_of(importlib.import_module("torch").from_dlpack(x))
    return memory_of(np.from_dlpack(x))


def _plain_name(dtype: Any) -> str: return dtype.name if isinstance(dtype, types.dtype) else str(dtype).rpartition(".")[2]


def annotated_type(annotation: Any) -> types.dtype | None:
    """The element type that a parameter is declared to have; none for pointers, which bring theirs."""
    if isinstance(annotation, types.dtype):
        return None if annotation.is_ptr() else annotation
    if isinstance(annotation, str):
        name = annotation.strip("\"'").rpartition(".")[2]
        return types.NAMES.get(name)
    return None


class Leaves:
    """The arguments of a launch, one by one: what code depends on of them (`key`), and what a launch gives to it."""

    def __init__(self, function: str) -> None:
        self.function = function
        self.key: list[Any] = []
        self.entries: list[Any] = []  # of those that are given at launch: memory, a number, or an array of one number
        self.arrays: list[tuple[int, Memory]] = []  # with their places among the entries
        self.changing = False  # whether a constant may be another one at the next launch, and the same object

    def add(self, name: str, value: Any, static: bool, whole: bool, kind: types.dtype | None = None) -> Any:
        """Adds an argument; gives how it is put together again."""
        value = value_of(value) if not isinstance(value, tuple) else value
        if static or value is None or isinstance(value, (str, types.dtype)):
            return self._fixed(value)
        if isinstance(value, tuple):
            fields = getattr(value, "_fields", range(len(value)))
            return ("tuple", type(value), tuple(self.add(f"{name}.{f}", v, isinstance(v, constexpr), whole)
                                                for f, v in zip(fields, value)))
        if isinstance(value, (bool, np.bool_)):
            return self._number(name, bool(value), kind or types.int1)
        if isinstance(value, (int, np.integer)):
            value = int(value)
            if value == 1 and not whole and kind is None:
                return self._fixed(1)
            if kind is None:
                kind = types.int32 if -2**31 <= value < 2**31 else types.int64 if value < 2**63 else types.uint64
                if not -2**63 <= value < 2**64:
                    raise OverflowError(f"argument {name} of {self.function} is {value}, which no integer type holds")
            return self._number(name, value, kind)
        if isinstance(value, (float, np.floating)):
            return self._number(name, float(value), kind or types.float32)
        if isinstance(value, TensorDescriptor) or hasattr(value, "block_shape") and hasattr(value, "base"):
            block = tuple(int(b) for b in value.block_shape)
            padding = getattr(value, "padding", "zero")
            parts = [self.add(f"{name}.base", value.base, False, whole)]
            for what in ("shape", "strides"):
                parts += [self.add(f"{name}.{what}.{n}", int(v), False, True, types.int64) for n, v in enumerate(getattr(value, what))]
            return ("descriptor", block, padding, tuple(parts))
        if is_array(value):
            memory = memory_of(value)
            memory.name = name
            self.arrays.append((len(self.entries), memory))
            self.key.append(("array", memory.dtype))
            self.entries.append(memory)
            return ("const" if memory.read_only else "leaf", name)
        if callable(value):
            return self._fixed(value)
        raise Error("E0403", f"argument {name} of {self.function} is of type {type(value).__name__}", "", "",
                    "kernels take arrays, numbers, tuples of them and, as tl.constexpr, anything")

    def _fixed(self, value: Any) -> Any:
        fixed = Fixed(value)
        self.changing |= fixed.changes
        return ("=", fixed)

    def _number(self, name: str, value: Any, kind: types.dtype) -> Any:
        if kind.is_floating():
            value = float(value)
            if kind.core not in _FLOATS:  # of 16 bits or fewer: given as f32, and cast
                self.key.append(("element", "f32"))
                self.entries.append(np.array([value], np.float32))
                return ("cast", name, kind)
            self.key.append(("element", kind.core))
            self.entries.append(np.array([value], _FLOATS[kind.core]))
            return ("leaf", name)
        fits = kind.core in ("i32", "i64") and 0 <= int(value) < (2**31 if kind.core == "i32" else 2**63)
        self.key.append(("size" if fits else "element", kind.core))
        bits = 8 * np.dtype(_INTEGERS[kind.core]).itemsize
        number: Any = np.array([int(value) & (1 << bits) - 1], np.uint64).astype(_INTEGERS[kind.core])
        self.entries.append(int(value) if fits else number)
        return ("leaf", name)

    def device(self, as_blocks: bool = False) -> tuple[str, int | None]:
        """Where the arrays are, and the stream that work with them is on, where one says so. On a GPU, what is known of
        numbers and addresses there becomes part of the key."""
        devices = {memory.device for _, memory in self.arrays if memory.end > memory.address}
        if len(devices) > 1:
            raise Error("E0701", f"arrays on {' and '.join(sorted(devices))}", "", "", "a kernel runs on one device")
        where = devices.pop() if devices else "cpu"
        if where == "cpu" and not as_blocks:
            return where, None
        for i, entry in enumerate(self.entries):
            if isinstance(entry, int) and self.key[i][0] == "size" and entry % 16 == 0:
                self.key[i] = ("size16", self.key[i][1])
        if where != "cpu" and any(memory.address % 16 for _, memory in self.arrays):
            self.by_address()
        return where, next((m.stream for _, m in self.arrays if m.stream is not None), None)

    def by_address(self) -> None:
        for at, each in self.arrays:
            self.key[at] = ("anywhere", each.dtype)
            self.entries[at] = each

    def share(self) -> None:
        """Arrays that overlap are one, which the others point into; of different types, they are reached by address."""
        if len(self.arrays) < 2:
            return
        order = sorted(self.arrays, key=lambda a: (a[1].address, a[0]))
        first: tuple[int, Memory] | None = None
        for i, memory in order:
            if first is None or memory.address >= first[1].end or memory.address == memory.end:
                first = (i, memory) if memory.end > memory.address else first
                continue
            base = first[1]
            if memory.dtype != base.dtype or (memory.address - base.address) % base.size:
                self.by_address()
                return
            base.end = max(base.end, memory.end)
            self.key[i] = (first[0], memory.dtype)
            self.entries[i] = (memory.address - base.address) // base.size

    def given(self) -> tuple[list[int], list[int]]:
        """Addresses and numbers, as a launch takes them."""
        addresses: list[int] = []
        numbers: list[int] = []
        for e in self.entries:
            if isinstance(e, Memory):
                if not e.address and (e.end or isinstance(e.owner, MockTensor)):
                    raise Error("E0403", f"argument {e.name} of {self.function} has no memory", "", "", "only warmup takes such")
                addresses.append(e.address)
                numbers.append(max(0, e.end - e.address) // e.size)
            elif isinstance(e, int):
                numbers.append(e)
            else:
                addresses.append(e.ctypes.data)
        return addresses, numbers


def _told_apart(value: Any) -> Any:
    """What a constant is for the compiler: 1, True and 1.0 differ, and 0.0 and -0.0, though they are equal."""
    if isinstance(value, (tuple, list)):
        return type(value), tuple(map(_told_apart, value))
    if isinstance(value, dict):
        return dict, tuple((_told_apart(k), _told_apart(v)) for k, v in value.items())
    if isinstance(value, constexpr):
        return constexpr, _told_apart(value.value)
    if isinstance(value, (float, np.floating)):
        return type(value), float(value).hex()
    if isinstance(value, np.ndarray):
        return np.ndarray, value.dtype.str, value.shape, value.tobytes()
    try:
        hash(value)
    except TypeError:
        return type(value), repr(value)
    return type(value), value


class Fixed:
    """A constant of a kernel."""

    def __init__(self, value: Any):
        self.value, self.told = value, _told_apart(value)
        try:
            hash(value)
            self.changes = False
        except TypeError:
            self.changes = True

    def __hash__(self) -> int: return hash(self.told)
    def __eq__(self, other: Any) -> bool: return isinstance(other, Fixed) and self.told == other.told


def put_together(form: Any, values: dict[str, tensor]) -> Any:
    """An argument as a kernel sees it, of its parts."""
    how = form[0]
    if how == "=":
        return constexpr(form[1].value)
    if how == "leaf":
        return values[form[1]]
    if how == "const":
        values[form[1]].const = True
        return values[form[1]]
    if how == "cast":
        return values[form[1]].to(form[2])
    if how == "tuple":
        items = [put_together(f, values) for f in form[2]]
        return form[1](*items) if hasattr(form[1], "_fields") else tuple(items)
    _, block, padding, parts = form
    base, *sizes = (put_together(p, values) for p in parts)
    sizes = [to_tensor(s) for s in sizes]
    rank = len(block)
    made = tensor_descriptor(base, sizes[:rank], sizes[rank:], [to_tensor(0) for _ in block], list(block))
    made.padding = padding
    return made
