"""Functions that are compiled when they are first launched with arguments of new types."""

from __future__ import annotations

import ast
import inspect
import operator
import os
import re
import sys
import textwrap
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import _tessera
from .._errors import Error
from ._arguments import Leaves, MockTensor, annotated_type
from ._codegen import Generator, generate
from ._compiled import DeviceCaches, LaunchMetadata, Metadata, key_of
from ._errors import CallError, DeviceAssertion, fault_at
from .language import _core as core
from .language import _types as types
from .language._core import constexpr, value_of

# What is given beside the parameters of a kernel, for compilers of GPUs.
_OPTIONS = {"num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion", "warmup", "stream", "debug", "ir_override",
            "launch_cooperative_grid", "launch_pdl", "sanitize_overflow", "arch", "allow_fp8e4nv", "cluster_dims",
            "default_dot_input_precision", "allowed_dot_input_precisions", "max_num_imprecise_acc_default", "extern_libs",
            "instrumentation_mode", "deprecated_fp8_dot_operand_dtypes", "supported_fp8_dtypes", "matrix_instr_nonkdim",
            "waves_per_eu", "kpack", "schedule_hint", "num_buffers_warp_spec", "num_consumer_groups"}

_WARPS, _STAGES = 4, 3  # of an instance on a GPU, and of its loops with products, where nobody says
_threads = 0
on_compile: list[Callable[[str, Any], None]] = []  # called with the name and the code of each kernel that is compiled
# Called after each launch: with the kernel, its key, program and sources, the grid, numbers among the arguments, and seconds.
on_launch: list[Callable[..., None]] = []


def _now(place: Any, name: str) -> Any:
    """What a constant is by now: of a module's names, or in a cell."""
    if isinstance(place, dict):
        return place.get(name)
    try:
        return place.cell_contents
    except ValueError:  # it has been deleted
        return None


def _is_static(annotation: Any) -> bool:
    return annotation is constexpr or (isinstance(annotation, str) and annotation.rpartition(".")[2] == "constexpr")


def _source_of_exec(fn: Callable[..., Any]) -> str | None:
    """The text that a function comes from whose file is none, where somebody above still holds it."""
    if not fn.__code__.co_filename.startswith("<"):
        return None
    frame: Any = sys._getframe(1)
    while frame is not None:
        for text in [v for v in frame.f_locals.values() if isinstance(v, str) and f"def {fn.__name__}" in v]:
            found = re.search(rf"^(@.*\n)*def\s+{fn.__name__}\s*\(", text, re.MULTILINE)
            if found:
                return text[found.start():]
        frame = frame.f_back
    return None


def _size_of(grid: Any) -> tuple[int, int, int]:
    if type(grid) is tuple and len(grid) == 1 and type(grid[0]) is int and 0 <= grid[0] < 2**31:
        return grid[0], 1, 1
    try:
        whole = [operator.index(value_of(g)) for g in ((grid,) if isinstance(grid, int) else grid or (1,))]
    except TypeError:
        whole = []
    if not 0 < len(whole) <= 3 or max(whole) >= 2**63:
        raise Error("E0403", f"a grid has at most three sizes, which are integers, and not {grid}", "", "", "")
    x, y, z = (*whole, 1, 1)[:3]
    return x, y, z


def _current_stream(device: str) -> int:
    """The stream of the GPU that PyTorch works on."""
    if device == "cpu":
        return 0
    torch: Any = sys.modules.get("torch")
    return int(torch._C._cuda_getCurrentRawStream(int(device.partition(":")[2]))) if torch else 0


def _as_assertion(e: Error) -> Error:
    """A condition of a kernel that does not hold is an error of a run, as in Triton."""
    return DeviceAssertion(e.code, f"device-side assert: {e.message}", e.where, e.note, e.hint) if e.code == "E0407" else e


class KernelParam:
    """A parameter of a kernel, as its signature has it."""

    def __init__(self, num: int, parameter: inspect.Parameter, whole: bool):
        self.num, self.name, self.annotation, self.do_not_specialize = num, parameter.name, parameter.annotation, whole
        self.is_constexpr = _is_static(parameter.annotation)
        self.is_const = parameter.annotation is types.const or (
            isinstance(parameter.annotation, str) and parameter.annotation.rpartition(".")[2] == "const")
        self.default = parameter.default

    @property
    def has_default(self) -> bool: return self.default is not inspect.Parameter.empty


class JITFunction(_tessera.Launchable):
    """A kernel: `kernel[grid](arguments)` launches it. Called inside of another kernel, it becomes part of that."""

    def __init__(self, fn: Callable[..., Any], version: Any = None, do_not_specialize: Any = None,
                 do_not_specialize_on_alignment: Any = None, debug: Any = None, noinline: Any = None, repr: Any = None,
                 launch_metadata: Any = None, **_: Any):
        super().__init__()
        self.fn, self.name, self.__name__, self.__doc__ = fn, fn.__name__, fn.__name__, fn.__doc__
        self.__qualname__, self.__module__ = fn.__qualname__, fn.__module__
        self.debug, self.noinline, self.launch_metadata = debug, noinline, launch_metadata
        self.signature = inspect.signature(fn)
        self.arg_names = list(self.signature.parameters)
        whole = {i if isinstance(i, int) else self.arg_names.index(i) for i in do_not_specialize or ()}
        self.params = [KernelParam(i, p, i in whole) for i, p in enumerate(self.signature.parameters.values())]
        self.constexprs = [p.num for p in self.params if p.is_constexpr]
        self._static = [p.is_constexpr for p in self.params]
        self._kinds = [None if p.is_constexpr else annotated_type(p.annotation) for p in self.params]
        self._names = set(self.arg_names)
        self._names_behind: dict[int, set[str]] = {}
        self.pre_run_hooks: list[Callable[..., Any]] = []
        self._exec_source = _source_of_exec(fn)
        self.file = fn.__code__.co_filename
        self._forget()

    def _forget(self) -> None:
        self._compiled: dict[Any, Any] = {}
        self._sources: dict[Any, list[Any]] = {}
        self._read: dict[Any, list[tuple[Any, str, Any]]] = {}  # constants of modules, and of functions around
        self._programs: dict[Any, Any] = {}  # where somebody wants to be told of launches
        self._parsed: ast.FunctionDef | None = None
        self._source: str | None = None
        self.lines: list[str] = []
        self.first_line = self.fn.__code__.co_firstlineno
        # Numbers of a declared type are read by Python.
        self._quick = all(k is None for k in self._kinds) and not self.pre_run_hooks and not self.debug
        defaults = {p.name: p.default for p in self.params if p.has_default}
        self._launcher = _tessera.TileLauncher(self.arg_names, defaults, self._static,
                                               [p.do_not_specialize for p in self.params], _OPTIONS - {"warmup", "debug"})
        self.launch_by(self._launcher if self._quick else None, on_launch)

    @property
    def src(self) -> str:
        """The source, from `def` on."""
        if self._source is None:
            try:
                text = self._exec_source or textwrap.dedent(inspect.getsource(self.fn))
            except (OSError, TypeError):
                raise Error("E0501", f"the source of {self.name} is not available", self.file, "",
                            "kernels are read from their file: write them into one") from None
            begin = re.search(r"^def\s+\w+\s*\(", text, re.MULTILINE)
            at = begin.start() if begin else 0
            self.first_line = self.fn.__code__.co_firstlineno + text[:at].count("\n")
            self._source = text[at:]
        return self._source

    def _unsafe_update_src(self, text: str) -> None:
        self._forget()
        _ = self.src
        self._source = text

    @property
    def tree(self) -> ast.FunctionDef:
        if self._parsed is None:
            text = self.src
            self.lines = text.splitlines()
            found = ast.parse(text).body[0]
            assert isinstance(found, ast.FunctionDef)
            self._parsed = found
        return self._parsed

    def parse(self) -> ast.Module: return ast.parse(self.src)

    @property
    def cache_key(self) -> str: return key_of(self)

    @property
    def device_caches(self) -> DeviceCaches: return DeviceCaches(self)

    @property
    def scope(self) -> dict[str, Any]:
        closure = inspect.getclosurevars(self.fn).nonlocals if self.fn.__closure__ else {}
        return {**self.fn.__globals__, **closure}

    def add_pre_run_hook(self, hook: Callable[..., Any]) -> None:
        self.pre_run_hooks.append(hook)
        self._quick = False
        self.launch_by(None, on_launch)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise CallError("E0501", f"{self.name} is a kernel and cannot be called outside of the scope of a kernel", "", "",
                        f"launch it over a grid: {self.name}[grid](...)")

    def __reduce__(self) -> str: return self.__qualname__  # as functions: by name, and copies are the same
    def __repr__(self) -> str: return f"JITFunction({self.__module__}:{self.__qualname__})"

    # Inside of another kernel.
    def inline(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        names: dict[str, Any] = {}
        for name, static in zip(self.arg_names, self._static):
            value = bound.arguments[name]
            if static and not isinstance(value, core.tensor) or isinstance(value, (bool, int, float)):
                value = constexpr(value)
            names[name] = value
        outer = core._local.generator
        inner = Generator(self, names, outer.sources, outer.debug, outer.sanitize)
        inner.read, inner.combining = outer.read, outer.combining
        inner.read.append((vars(self), "_parsed", self.tree))
        core._local.generator = inner
        try:
            return inner.run()
        finally:
            core._local.generator = outer

    if TYPE_CHECKING:
        def __getitem__(self, grid: Any) -> Callable[..., Any]: ...

    def warmup(self, *args: Any, grid: Any = (1,), **kwargs: Any) -> Any:
        """Compiled for arguments like these, and not launched. An element type stands for an array."""
        return self.run(*map(MockTensor.wrap_dtype, args), grid=grid, warmup=True,
                        **{k: MockTensor.wrap_dtype(v) if k in self._names else v for k, v in kwargs.items()})

    def _take_options(self, kwargs: dict[str, Any]) -> tuple[bool | None, bool, int, int]:
        """Takes out what is no parameter; gives whether debugging is on, where that is said, whether it finds integers that
        overflow, the warps of a block, and the stages of loops."""
        debug, watches, warps, stages = None, True, _WARPS, _STAGES
        for option in kwargs.keys() - self._names:
            if option not in _OPTIONS:
                raise KeyError(f"Keyword argument {option} was specified but unrecognised")
            value = kwargs.pop(option)
            if option == "num_warps" and (not isinstance(value, int) or value < 1 or value & value - 1):
                raise AssertionError("num_warps must be a power of 2")
            if option == "num_stages" and (not isinstance(value, int) or value < 0):
                raise AssertionError("num_stages must not be negative")
            warps = value if option == "num_warps" else warps
            stages = value if option == "num_stages" else stages
            debug = bool(value) if option == "debug" and value is not None else debug
            watches = bool(value) if option == "sanitize_overflow" else watches
        return debug, watches, warps, stages

    def run(self, *args: Any, grid: Any, warmup: bool = False, _target: str | None = None, **kwargs: Any) -> Any:
        debug, watches, warps, stages = bool(self.debug), True, _WARPS, _STAGES
        if not kwargs.keys() <= self._names:
            asked, watches, warps, stages = self._take_options(kwargs)
            debug = debug if asked is None else asked
        if len(args) + len(kwargs) == len(self.arg_names) and kwargs.keys() <= self._names_after(len(args)):
            values = [*args, *[kwargs[n] for n in self.arg_names[len(args):]]]
        else:
            bound = self.signature.bind(*args, **kwargs)
            bound.apply_defaults()
            values = list(bound.arguments.values())
        for hook in self.pre_run_hooks:
            hook(*args, **kwargs)
        if callable(grid):
            grid = grid(dict(zip(self.arg_names, values)))
        size = _size_of(grid)
        interpreted = os.environ.get("TESSERA_INTERPRET") in ("1", "gpu")
        debug = debug or os.environ.get("TRITON_DEBUG") == "1" or os.environ.get("TESSERA_DEBUG") == "1"
        rank = 3 if size[2] != 1 else 2 if size[1] != 1 else 1
        leaves = Leaves(self.name)
        forms = tuple(leaves.add(p.name, v, p.is_constexpr, p.do_not_specialize, k)
                      for p, v, k in zip(self.params, values, self._kinds))
        leaves.share()
        device, stream = leaves.device(os.environ.get("TESSERA_INTERPRET") == "gpu" if _target is None else _target != "host")
        device = _target or device
        key = (forms, tuple(leaves.key), rank, (debug, debug and watches), device, warps, stages)
        found = self._compiled.get(key)
        if found is None or any(_now(place, name) is not value for place, name, value in self._read[key]):
            found = self._made(key, warmup)
            if found is None:
                return None
        if warmup or 0 in size:
            return found
        addresses, numbers = leaves.given()
        if not interpreted or device != "cpu":
            if stream is None:
                stream = _current_stream(device)
            begin = time.perf_counter()
            self._launch(found, size, addresses, numbers, stream)
            if on_launch and key not in self._programs:
                self._programs[key] = generate(self, forms, key[1], *key[3])[0]
            for call in on_launch:
                call(self, key, self._programs[key], self._sources[key], size,
                     [e if isinstance(e, int) else None for e in leaves.entries], time.perf_counter() - begin)
            if self._quick and not debug and not leaves.changing and all(how in ("array", "size", "size16", "element") for how, _ in leaves.key):
                self._launcher.keep(values, size, warps, stages, found, self._read[key])
            return found
        try:
            found.interpret(size, addresses, numbers, os.environ.get("TESSERA_INTERPRET") == "gpu")
        except Error as e:
            raise _as_assertion(fault_at(e, self._sources[key])) from None
        return found

    def _launch(self, found: Any, size: tuple[int, int, int], addresses: list[int], numbers: list[int], stream: int) -> None:
        switches = sys.modules["tessera.tile.knobs"].runtime
        told = None
        if switches.launch_enter_hook.calls or switches.launch_exit_hook.calls:
            told = LaunchMetadata({"name": found.name, "function": found, "stream": stream})
            if self.launch_metadata:
                told.data.update(self.launch_metadata(size, found.metadata, {}))
            switches.launch_enter_hook(told)
        try:
            found.launch(size, addresses, numbers, stream)
        except Error as e:
            raise _as_assertion(e) from None
        if told is not None:
            switches.launch_exit_hook(told)

    def _made(self, key: Any, warmup: bool) -> Any:
        """Compiles it, with the hooks that are to know of that."""
        switches = sys.modules["tessera.tile.knobs"].runtime
        told: dict[str, Any] = {}
        if switches.jit_cache_hook or switches.jit_post_compile_hook:
            options = {"num_warps": key[5], "num_stages": key[6], "debug": key[3][0]}
            told = {"key": repr(key[1:]), "repr": f"{self.name}[{options}]({key[1]})", "fn": self, "is_manual_warmup": warmup,
                    "compile": {"key": repr(key[1:]), **options}, "already_compiled": False}
        if switches.jit_cache_hook and switches.jit_cache_hook(**told):
            return None
        found = self._compiled[key] = self._compile(key)
        if switches.jit_post_compile_hook:
            switches.jit_post_compile_hook(**told)
        return found

    def _names_after(self, count: int) -> set[str]:
        if count not in self._names_behind:
            self._names_behind[count] = set(self.arg_names[count:])
        return self._names_behind[count]

    def _compile(self, key: Any) -> Any:
        forms, kinds, rank, debug, device, warps, stages = key
        _ = self.tree
        program, self._sources[key], self._read[key] = generate(self, forms, kinds, *debug)
        if on_launch:
            self._programs[key] = program
        made: Any = _tessera.compile_tile(program, [how for how, _ in kinds], rank, _threads,
                                      "host" if device == "cpu" else device, warps, stages)
        made.name = self.name
        made.metadata = Metadata(made, self.name, key_of(self), device, {"num_warps": warps, "num_stages": stages, "debug": debug[0]})
        made.hash, made.src = made.metadata.hash, self
        for call in on_compile:
            call(self.name, made)
        return made


class ConstexprFunction:
    """A function of what is known when a kernel is compiled."""

    is_of_constants = True

    def __init__(self, fn: Callable[..., Any]):
        self.fn, self.__name__, self.__doc__, self.__module__ = fn, fn.__name__, fn.__doc__, fn.__module__

    def __get__(self, owner: Any, kind: Any) -> Any:
        return self if owner is None else lambda *args, **kwargs: self(owner, *args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        outside = getattr(core._local, "builder", None) is None
        if outside and not kwargs:
            for a in args:
                if type(a) is not int:
                    break
            else:
                return self.fn(*args)
        plain = [a if type(a) is int else value_of(a) for a in args]
        made = self.fn(*plain, **{k: value_of(v) for k, v in kwargs.items()}) if kwargs else self.fn(*plain)
        return made if outside or made is None else constexpr(made)


def set_threads(count: int) -> None:
    """How many threads kernels that are compiled from now on run on; 0: one for each core."""
    global _threads
    _threads = count


def jit(fn: Any = None, **options: Any) -> Any:
    """Makes a kernel of a function that is written in tessera.tile.language."""
    return JITFunction(fn, **options) if fn is not None else lambda f: JITFunction(f, **options)


def constexpr_function(fn: Callable[..., Any]) -> ConstexprFunction: return ConstexprFunction(fn)


class ASTSource:
    """A kernel with the types of its arguments: {"x": "*fp32", "n": "i32"}."""

    def __init__(self, fn: JITFunction, signature: dict[str, str], constexprs: Any = None, attrs: Any = None):
        self.fn, self.name, self.signature, self.attrs = fn, fn.name, signature, attrs
        self.constants = {(fn.arg_names[k[0]] if isinstance(k, tuple) else k): v for k, v in (constexprs or {}).items()}

    def arguments(self) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name in self.fn.arg_names:
            text = self.signature.get(name, "constexpr")
            if name in self.constants or text == "constexpr":
                made[name] = constexpr(self.constants.get(name))
            elif text.startswith("*"):
                made[name] = MockTensor(types.str_to_ty(text).element_ty)  # type: ignore[attr-defined]
            else:
                made[name] = 2.0 if types.str_to_ty(text).is_floating() else 2**40 if text.endswith("64") else 2
        return made


def _target_named(target: Any) -> str:
    """"sm_80", "cuda:0" or "host", or one of Triton's, which have a backend and a number: 90 is 9.0."""
    if isinstance(target, str):
        return target
    backend, arch = getattr(target, "backend", None), getattr(target, "arch", None)
    if backend == "cpu":
        return "host"
    if backend != "cuda" or not isinstance(arch, int):
        raise TypeError(f"a target is named \"sm_90a\", \"cuda\" or \"host\", or is a GPUTarget of CUDA, not {target!r}")
    return _tessera.gpu_target(*divmod(arch, 10)) or f"sm_{arch}"


def compile(kernel: Any = None, *args: Any, src: Any = None, grid: Any = (1,), target: Any = None, options: Any = None, **kwargs: Any) -> Any:
    """The kernel as it is for these arguments, not launched; `.emit("tile" | "kernel" | "llvm" | "asm" | "blocks" | "ptx")` shows it.

    `target`: "sm_80", "sm_90a" and so on, without a GPU too; else that of the arrays."""
    kernel = src if kernel is None else kernel
    if isinstance(kernel, ASTSource):
        kernel, kwargs = kernel.fn, {**kernel.arguments(), **kwargs}
    if target is not None:
        kwargs["_target"] = _target_named(target)
    return kernel.run(*args, grid=grid, warmup=True, **kwargs, **(options or {}))
