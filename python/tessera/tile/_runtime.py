"""Functions that are compiled when they are first launched with arguments of new types."""

from __future__ import annotations

import ast
import inspect
import os
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import _tessera
from .._errors import Error
from ._codegen import Generator, generate
from ._errors import fault_at
from .language import _core as core
from .language import _types as types
from .language._core import constexpr, value_of

_OPTIONS = {"num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion", "warmup", "stream", "debug"}
_DTYPES = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int8": "i8", "int16": "i16",
           "int32": "i32", "int64": "i64", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
           "bool": "bool", "float8_e4m3fn": "f8e4m3fn", "float8_e5m2": "f8e5m2", "float8_e4m3fnuz": "f8e4m3fnuz",
           "float8_e5m2fnuz": "f8e5m2fnuz"}


_threads = 0


class _Memory:
    """Where an array lies: address, the first address behind what it may reach, element type."""

    __slots__ = ("address", "end", "dtype", "size", "owner")

    def __init__(self, address: int, end: int, dtype: str, size: int, owner: Any):
        self.address, self.end, self.dtype, self.size, self.owner = address, end, dtype, size, owner


def _memory_of(x: Any) -> _Memory:
    if isinstance(x, np.ndarray):
        address, size = x.__array_interface__["data"][0], x.itemsize
        if x.flags.c_contiguous:
            end = address + x.nbytes
        else:
            end = address + (sum((n - 1) * max(s, 0) for n, s in zip(x.shape, x.strides)) + size if x.size else 0)
        return _Memory(address, end, _ARRAY_TYPES.get(x.dtype) or _array_type(x.dtype), size, x)
    if hasattr(x, "data_ptr"):
        device = str(getattr(x, "device", "cpu"))
        if device != "cpu":
            raise Error("E0701", f"a tensor on {device}", "", "", "kernels run on the processor: use tensors on the CPU")
        size, address = x.element_size(), x.data_ptr()
        storage = getattr(x, "untyped_storage", None)
        end = storage().data_ptr() + storage().nbytes() if storage is not None else address + x.numel() * size
        return _Memory(address, end, _dtype_name(str(x.dtype).rpartition(".")[2]), size, x)
    return _memory_of(np.from_dlpack(x))


_ARRAY_TYPES: dict[Any, str] = {}


def _array_type(dtype: Any) -> str:
    made = _ARRAY_TYPES[dtype] = _dtype_name(dtype.name)
    return made


def _dtype_name(name: str) -> str:
    if name not in _DTYPES:
        raise Error("E0213", f"kernels have no elements of type {name}", "", "", "")
    return _DTYPES[name]


def _is_array(x: Any) -> bool: return isinstance(x, np.ndarray) or hasattr(x, "data_ptr") or hasattr(x, "__dlpack__")


class JITFunction:
    """A kernel: `kernel[grid](arguments)` launches it. Called inside of another kernel, it becomes part of that."""

    def __init__(self, fn: Callable[..., Any], do_not_specialize: Any = None, noinline: bool = False, **_: Any):
        self.fn, self.name, self.__name__, self.__doc__ = fn, fn.__name__, fn.__name__, fn.__doc__
        self.__module__ = fn.__module__
        self.signature = inspect.signature(fn)
        self.arg_names = list(self.signature.parameters)
        self.constexprs = [i for i, p in enumerate(self.signature.parameters.values()) if self._is_static(p.annotation)]
        self._static = [self._is_static(p.annotation) for p in self.signature.parameters.values()]
        self._whole = {i if isinstance(i, int) else self.arg_names.index(i) for i in do_not_specialize or ()}
        self._names = set(self.arg_names)
        self._names_behind: dict[int, set[str]] = {}
        self._compiled: dict[Any, Any] = {}
        self._sources: dict[Any, list[Any]] = {}
        self._launcher = _tessera.TileLauncher(self._static, [i in self._whole for i in range(len(self.arg_names))])
        self._parsed: ast.FunctionDef | None = None
        self.file = fn.__code__.co_filename
        self.first_line = fn.__code__.co_firstlineno
        self.lines: list[str] = []
        self.src = ""

    @staticmethod
    def _is_static(annotation: Any) -> bool:
        return annotation is constexpr or (isinstance(annotation, str) and annotation.rpartition(".")[2] == "constexpr")

    @property
    def tree(self) -> ast.FunctionDef:
        if self._parsed is None:
            try:
                self.src = textwrap.dedent(inspect.getsource(self.fn))
            except OSError:
                raise Error("E0501", f"the source of {self.name} is not there", self.file, "",
                            "kernels are read from their file: write them into one") from None
            self.lines = self.src.splitlines()
            found = ast.parse(self.src).body[0]
            assert isinstance(found, ast.FunctionDef)
            self._parsed = found
        return self._parsed

    @property
    def scope(self) -> dict[str, Any]:
        closure = inspect.getclosurevars(self.fn).nonlocals if self.fn.__closure__ else {}
        return {**self.fn.__globals__, **closure}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise Error("E0501", f"{self.name} is a kernel and cannot be called outside of one", "", "",
                    f"launch it over a grid: {self.name}[grid](...)")

    # Inside of another kernel.
    def inline(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        names: dict[str, Any] = {}
        for name, static in zip(self.arg_names, self._static):
            value = bound.arguments[name]
            if static:
                value = constexpr(value)
            elif isinstance(value, (bool, int, float)):
                value = constexpr(value)
            names[name] = value
        outer = core._local.generator
        inner = Generator(self, names, outer.sources)
        _ = self.tree
        core._local.generator = inner
        try:
            return inner.run()
        finally:
            core._local.generator = outer

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        def launch(*args: Any, **kwargs: Any) -> Any:
            return self.run(*args, grid=grid, **kwargs)
        return launch

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        if kwargs:
            for option in _OPTIONS & kwargs.keys() - self._names:
                del kwargs[option]
        if len(args) + len(kwargs) == len(self.arg_names) and not kwargs.keys() - self._names_after(len(args)):
            values = [*args, *(kwargs[n] for n in self.arg_names[len(args):])]
        else:
            bound = self.signature.bind(*args, **kwargs)
            bound.apply_defaults()
            values = list(bound.arguments.values())
        if callable(grid):
            grid = grid(dict(zip(self.arg_names, values)))
        grid = (grid,) if isinstance(grid, int) else tuple(int(value_of(g)) for g in grid)
        size = (*grid, 1, 1)[:3]
        interpreted = os.environ.get("TESSERA_INTERPRET") == "1"
        if not warmup and not interpreted and (found := self._launcher.launch(values, size)) is not None:
            return found
        rank = 3 if size[2] != 1 else 2 if size[1] != 1 else 1
        key, memory, numbers = self._specialise(values)
        found = self._compiled.get((key, rank))
        if found is None:
            found = self._compiled[key, rank] = self._compile(key, values, rank)
        if warmup or 0 in size:
            return found
        addresses = [m.address if isinstance(m, _Memory) else m.ctypes.data for m in memory]
        if not interpreted:
            found.launch(size, addresses, numbers)
            self._launcher.keep(values, size, found)
            return found
        try:
            found.interpret(size, addresses, numbers)
        except Error as e:
            raise fault_at(e, self._sources[key, rank]) from None
        return found

    def _names_after(self, count: int) -> set[str]:
        if count not in self._names_behind:
            self._names_behind[count] = set(self.arg_names[count:])
        return self._names_behind[count]

    def _specialise(self, values: list[Any]) -> tuple[Any, list[Any], list[int]]:
        """What code depends on of the arguments; and their memory and numbers, as a launch takes them."""
        key: list[Any] = []
        arrays: list[tuple[int, _Memory]] = []
        entries: list[Any] = []  # per parameter: memory or number, or None
        for i, value in enumerate(values):
            value = value_of(value)
            if self._static[i] or value is None or isinstance(value, (str, types.dtype)) or callable(value):
                key.append(("=", value if not isinstance(value, (list, dict)) else repr(value)))
                entries.append(None)
            elif isinstance(value, (bool, np.bool_)):
                key.append(("element", "bool"))
                entries.append(np.array([value]))
            elif isinstance(value, (int, np.integer)):
                if value == 1 and i not in self._whole:
                    key.append(("=", 1))
                    entries.append(None)
                    continue
                dtype = "i32" if -2**31 <= value < 2**31 else "i64" if value < 2**63 else "u64"
                key.append(("size" if value >= 0 and dtype != "u64" else "element", dtype))
                entries.append(int(value) if key[-1][0] == "size" else np.array([value], {"i32": np.int32, "i64": np.int64, "u64": np.uint64}[dtype]))
            elif isinstance(value, (float, np.floating)):
                key.append(("element", "f32"))
                entries.append(np.array([value], np.float32))
            elif _is_array(value):
                memory = _memory_of(value)
                arrays.append((i, memory))
                key.append(("array", memory.dtype))
                entries.append(memory)
            else:
                raise Error("E0403", f"argument {self.arg_names[i]} of {self.name} is of type {type(value).__name__}", "", "",
                            "kernels take arrays, numbers and, as tl.constexpr, anything")
        if len(arrays) > 1:
            self._share(key, entries, arrays)
        places = [e for e in entries if isinstance(e, (_Memory, np.ndarray))]
        numbers: list[int] = []
        for e in entries:
            if isinstance(e, _Memory):
                numbers.append((e.end - e.address) // e.size)
            elif isinstance(e, int):
                numbers.append(e)
        return tuple(key), places, numbers

    def _share(self, key: list[Any], entries: list[Any], arrays: list[tuple[int, _Memory]]) -> None:
        """Arrays that overlap are one, which the others point into."""
        order = sorted(arrays, key=lambda a: (a[1].address, a[0]))
        first: tuple[int, _Memory] | None = None
        for i, memory in order:
            if first is None or memory.address >= first[1].end or memory.address == memory.end:
                first = (i, memory) if memory.end > memory.address else first
                continue
            base = first[1]
            if memory.dtype != base.dtype or (memory.address - base.address) % base.size:
                raise Error("E0407", f"{self.arg_names[first[0]]} and {self.arg_names[i]} share memory, but not their elements",
                            "", "", "copy one of them")
            base.end = max(base.end, memory.end)
            key[i] = (first[0], memory.dtype)
            entries[i] = (memory.address - base.address) // base.size

    def _compile(self, key: Any, values: list[Any], rank: int) -> Any:
        names: dict[str, Any] = {}
        parameters: list[tuple[str, str, bool]] = []
        arguments: list[Any] = []
        order: dict[int, int] = {}
        _ = self.tree
        for i, ((how, what), name) in enumerate(zip(key, self.arg_names)):
            if how == "=":
                names[name] = constexpr(value_of(values[i])) if not isinstance(value_of(values[i]), core.tensor) else values[i]
                continue
            order[i] = len(parameters)
            parameters.append((name, what, how == "array" or isinstance(how, int)))
            arguments.append(how)
        program, self._sources[key, rank] = generate(self, names, parameters)
        return _tessera.compile_tile(program, [order[a] if isinstance(a, int) else a for a in arguments], rank, _threads)


def set_threads(count: int) -> None:
    """How many threads kernels that are compiled from now on run on; 0: one for each core."""
    global _threads
    _threads = count


def jit(fn: Any = None, **options: Any) -> Any:
    """Makes a kernel of a function that is written in tessera.tile.language."""
    return JITFunction(fn, **options) if fn is not None else lambda f: JITFunction(f, **options)


def compile(kernel: JITFunction, *args: Any, grid: Any = (1,), **kwargs: Any) -> Any:
    """The kernel as it is for these arguments, not launched; `.emit("tile" | "kernel" | "llvm" | "asm")` shows it."""
    return kernel.run(*args, grid=grid, warmup=True, **kwargs)
