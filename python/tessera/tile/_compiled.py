"""What a launch gives: the compiled kernel, by the names that Triton's scripts ask for; and the keys of kernels."""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
from typing import Any

from .. import _tessera
from .backends.compiler import GPUTarget
from .language._core import constexpr


class Metadata:
    """What a kernel was compiled with."""

    def __init__(self, function: Any, name: str, key: str, device: str, options: dict[str, Any]):
        self._function, self.name, self.hash = function, name, key
        self.num_warps, self.num_stages, self.num_ctas = options["num_warps"], options["num_stages"], options.get("num_ctas", 1)
        self.debug = options["debug"]
        arch = re.fullmatch(r"sm_(\d+)a?", device)
        self.target = GPUTarget("cpu", device, 1) if device == "cpu" else GPUTarget("cuda", int(arch[1]) if arch else device, 32)

    @property
    def shared(self) -> int:
        """Bytes of shared memory that the code of a GPU declares."""
        if self.target.backend == "cpu":
            return 0
        return sum(map(int, re.findall(r"^\s*\.shared [^\[;]*\[(\d+)\]", self._function.emit("ptx"), re.MULTILINE)))

    def _asdict(self) -> dict[str, Any]:
        names = ("name", "hash", "num_warps", "num_stages", "num_ctas", "debug", "target")
        return {n: getattr(self, n) for n in names}


class LaunchMetadata:
    """What hooks of launches are called with."""

    def __init__(self, given: dict[str, Any]): self.data = given
    def get(self) -> dict[str, Any]: return self.data
    def add(self, func: Any, args: Any) -> None: self.data.update(func(*args))


class _Asm(dict[str, str]):
    """The stages of a kernel, made when they are asked for."""

    _STAGES = {"tile": "tile", "ttir": "tile", "ttgir": "tile", "kernel": "kernel", "llir": "llvm", "llvm": "llvm",
               "asm": "asm", "blocks": "blocks", "ptx": "ptx"}

    def __init__(self, function: Any):
        super().__init__()
        self.function = function

    def __missing__(self, key: str) -> str:
        made = self[key] = self.function.emit(self._STAGES[key])
        return str(made)

    def __contains__(self, key: object) -> bool: return key in self._STAGES
    def keys(self) -> Any: return self._STAGES.keys()


_tessera.TileFunction.asm = property(_Asm)  # type: ignore[attr-defined]
_tessera.TileFunction.n_regs = 0  # type: ignore[attr-defined]
_tessera.TileFunction.n_spills = 0  # type: ignore[attr-defined]
_tessera.TileFunction.n_max_threads = 1024  # type: ignore[attr-defined]
_tessera.TileFunction._init_handles = lambda self: None  # type: ignore[attr-defined]  # code is loaded by then


def _found(node: ast.expr, scope: dict[str, Any]) -> Any:
    """What a name, or an attribute of a module, stands for outside of the kernel."""
    if isinstance(node, ast.Name):
        return scope.get(node.id)
    if isinstance(node, ast.Attribute):
        base = _found(node.value, scope)
        return getattr(base, node.attr, None) if type(base).__name__ == "module" else None
    return None


class ClassCell:
    """An attribute of a class, as a cell has its contents."""

    def __init__(self, owner: type, name: str):
        self.owner, self.name = owner, name

    @property
    def cell_contents(self) -> Any: return getattr(self.owner, self.name, None)


def place_of(base: Any, name: str) -> Any:
    """Where a program's attribute is held in which another value may be put; None where there is none."""
    owner = base if isinstance(base, type) else type(base)
    if (base.__name__ if inspect.ismodule(base) else owner.__module__).startswith("tessera."):
        return None
    if isinstance(base, type):
        return ClassCell(base, name)
    held = getattr(base, "__dict__", {})
    return held if name in held else None


def key_of(function: Any, above: tuple[Any, ...] = ()) -> str:
    """A digest of the source of a kernel, of the functions it calls, and of the constants it reads."""
    parts = [function.src, str(function.first_line), repr(function.noinline)]
    scope, own = function.scope, set(function.arg_names)
    for node in ast.walk(function.tree):
        if not isinstance(node, (ast.Name, ast.Attribute)) or isinstance(node, ast.Name) and node.id in own:
            continue
        value = _found(node, scope)
        if hasattr(value, "inline"):
            inner = value
            while not hasattr(inner, "tree"):
                inner = inner.fn
            parts.append(inner.name if inner in above or inner is function else key_of(inner, (*above, function)))
        elif isinstance(value, constexpr):
            parts.append(repr(value))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


class KernelCache(dict[Any, Any]):
    """The compiled kernels of a function; without them it is as if it had not been launched."""

    def __init__(self, function: Any):
        super().__init__(function._compiled)
        self._function = function

    def clear(self) -> None:
        super().clear()
        self._function._forget()


class DeviceCaches(dict[Any, Any]):
    """By devices: their kernels, and what Triton keeps beside them."""

    def __init__(self, function: Any):
        super().__init__()
        self._function = function

    def __missing__(self, device: Any) -> tuple[KernelCache, dict[Any, Any]]: return KernelCache(self._function), {}
    def clear(self) -> None: self._function._forget()
