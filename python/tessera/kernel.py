"""Handwritten kernels: a Compute specifies what is computed and a Schedule how; build returns a function over NumPy
arrays.

    c = Compute("matmul")
    a, b, out = c.input("a", (m, k)), c.input("b", (k, n)), c.output("c", (m, n))
    i, j, l = axis("m", m), axis("n", n), axis("k", k)
    c.stage("mm", out[i, j], sum(a[i, l] * b[l, j], over=l))

    s = Schedule(c)
    outer, inner = s.split("mm.n", 8)
    s.reorder("mm.m", "mm.k", outer, inner)
    s.vectorize(inner)
    s.build()(x, y, z)

Loops and stages are identified by name. A rejected primitive raises Error with code E0602 and changes nothing.
docs/schedules.md lists all primitives, and tutorial/matmul.py uses most of them.
"""

from __future__ import annotations

import re
from typing import Any, Iterable, Mapping, Sequence

import numpy as np

from ._arrays import array_name, numpy_dtype, tensor_from
from ._errors import Error
from ._tessera import KernelArgument, KernelFunction, KernelSchedule
from ._tessera import describe_processor as _describe_processor
from ._kernel_exprs import (Axis, Expr, Reduction, all_of, any_of, axis, cast, equal, function, largest, maximum, minimum,
                            not_, not_equal, product, select, smallest, sum)

__all__ = ["Argument", "Axis", "Buffer", "Compute", "Expr", "Function", "Reduction", "Schedule", "all_of", "any_of", "axis",
           "cast", "default_schedule", "equal", "function", "largest", "maximum", "minimum", "not_", "not_equal", "processor",
           "product", "replay", "select", "smallest", "sum"]

Argument = KernelArgument
Size = int | str | Expr


class Buffer:
    """An input, output or intermediate; b[i, j] is its element."""

    def __init__(self, name: str, dtype: str, rank: int) -> None:
        self.name, self.dtype, self.rank = name, dtype, rank

    def __getitem__(self, indices: Any) -> Expr:
        indices = indices if isinstance(indices, tuple) else (indices,)
        if len(indices) != self.rank:
            raise IndexError(f"{self.name} has {self.rank} dimensions, not {len(indices)}")
        return Expr.element(self.name, self.dtype, indices)


class Compute:
    """What a kernel computes: stages in order, each filling one buffer from the expression of one element."""

    def __init__(self, name: str = "kernel") -> None:
        self.name = _checked(name)
        self._sizes: list[str] = []
        self._parameters: list[str] = []
        self._known: list[str] = []
        self._inner: list[str] = []
        self._stages: list[str] = []
        self._names: set[str] = set()

    def size(self, name: str) -> Expr:
        """A dynamic size, for use in shapes and extents."""
        self._sizes.append(self._fresh(name))
        return Expr(name, "i64")

    def input(self, name: str, shape: Sequence[Size], dtype: str = "f32", *, known: bool = False) -> Buffer:
        """A parameter. Work on `known` (constant) parameters alone is done once, when the kernel is built with them."""
        if known:
            self._known.append(name)
        return self._declare(self._parameters, name, shape, dtype)

    def output(self, name: str, shape: Sequence[Size], dtype: str = "f32") -> Buffer:
        return self._declare(self._parameters, name, shape, dtype)

    def buffer(self, name: str, shape: Sequence[Size], dtype: str = "f32") -> Buffer:
        """An intermediate buffer, which one stage writes, indexed by its axes, and others read."""
        return self._declare(self._inner, name, shape, dtype, " global")

    def stage(self, name: str, element: Expr, value: Expr | Reduction | float, *, axes: Iterable[Axis] | None = None) -> None:
        """Adds a stage: element = value, for all axes (by default, those in `element`)."""
        running = list(element.axes if axes is None else axes)
        over: tuple[Axis, ...] = ()
        sign = "="
        if isinstance(value, Reduction):
            over, sign, value = value.over, value.sign, value.value
        text = f"{_checked(name)}{_ranges(' for ', running)}: {element.text} {sign} {element.beside(value).text}"
        self._stages.append(text + _ranges(" over ", over))

    def _declare(self, where: list[str], name: str, shape: Sequence[Size], dtype: str, scope: str = "") -> Buffer:
        numpy_dtype(dtype)  # there must be one
        where.append(f"{self._fresh(name)}: {dtype}[{', '.join(map(str, shape))}]{scope}")
        return Buffer(name, dtype, len(shape))

    def _fresh(self, name: str) -> str:
        if _checked(name) in self._names:
            raise ValueError(f"{name} is declared twice")
        self._names.add(name)
        return name

    def __str__(self) -> str:
        """As text, which Schedule takes too."""
        lines = [f"known {name}" for name in self._known] + self._inner + self._stages
        body = "".join(f"  {line}\n" for line in lines)
        return f"compute {self.name}({', '.join(self._sizes)}) ({', '.join(self._parameters)}) {{\n{body}}}\n"


class Function:
    """A compiled kernel."""

    def __init__(self, held: KernelFunction) -> None:
        self._held = held
        self.arguments: list[Argument] = held.arguments

    def __call__(self, *arrays: np.ndarray) -> Any:
        """Runs the kernel on arrays in the order of `arguments` and writes to its outputs. If only the inputs are
        given, allocates and returns the outputs."""
        made: list[np.ndarray] = []
        given = list(arrays)
        if len(given) < len(self.arguments) and len(given) == len([a for a in self.arguments if not a.written]):
            rest = iter(given)
            given = []
            for argument in self.arguments:
                if argument.written:
                    made.append(_made(argument))
                given.append(made[-1] if argument.written else next(rest))
        described = []
        for i, array in enumerate(given):
            name = self.arguments[i].name if i < len(self.arguments) else f"argument {i}"
            if not isinstance(array, np.ndarray):
                raise TypeError(f"{name}: expected a NumPy array, got {type(array).__name__}")
            if not array.flags.c_contiguous or not array.flags.aligned:
                raise Error("E0407", f"{name} is not contiguous", hint="use numpy.ascontiguousarray")
            if i < len(self.arguments) and self.arguments[i].written and not array.flags.writeable:
                raise Error("E0407", f"{name} cannot be written to")
            described.append((array_name(array.dtype), list(array.shape), array.ctypes.data))
        self._held.run(described)
        if made:
            return made[0] if len(made) == 1 else tuple(made)
        return None

    def emit(self, what: str) -> str:
        """A stage as text: "kernel", "llvm" or "asm"."""
        return self._held.emit(what)


class Schedule:
    """A schedule of a Compute (or its text). Initially, plain loops."""

    def __init__(self, compute: Compute | str) -> None:
        self._held = KernelSchedule.parse(str(compute))

    @classmethod
    def _of(cls, held: KernelSchedule) -> Schedule:
        made = cls.__new__(cls)
        made._held = held
        return made

    def apply(self, primitive: str, *args: Any) -> list[str]:
        """Applies a primitive by name and returns the names of the loops and stages that it created."""
        return self._held.apply(primitive, [str(arg) for arg in args])

    def copy(self) -> Schedule:
        return Schedule._of(self._held.copy())

    # Reading.

    @property
    def stages(self) -> list[str]:
        return self._held.stages()

    def loops(self, stage: str) -> list[str]:
        """Outermost first."""
        return [name for name, _ in self._held.loops(stage)]

    def extents(self, stage: str) -> dict[str, str]:
        """The extents by loop, if the stage is computed as a whole."""
        return dict(self._held.loops(stage))

    def compute(self) -> str:
        """The Compute as text, after the primitives so far."""
        return self._held.compute()

    def trace(self) -> str:
        """The primitives so far, one on each line, for replay."""
        return self._held.trace()

    def lower(self) -> str:
        """The kernel that the schedule lowers to, as text."""
        return self._held.lower()

    def build(self, threads: int = 1, known: Mapping[str, Any] | None = None) -> Function:
        """Compiles the kernel. `threads` is the maximum number of threads of a call (0: one for each core). `known`
        has the values of the parameters declared known: work on them alone is done now, and calls do not take
        them."""
        return Function(self._held.build(threads, {name: tensor_from(value) for name, value in (known or {}).items()}))

    # Loops.

    def split(self, loop: str, factor: int) -> tuple[str, str]:
        outer, inner = self.apply("split", loop, factor)
        return outer, inner

    def split_parts(self, loop: str, parts: int) -> tuple[str, str]:
        outer, inner = self.apply("split_parts", loop, parts)
        return outer, inner

    def split_whole(self, loop: str, factor: int) -> tuple[str, str]:
        outer, inner = self.apply("split_whole", loop, factor)
        return outer, inner

    def fuse(self, outer: str, inner: str) -> str:
        return self.apply("fuse", outer, inner)[0]

    def reorder(self, *loops: str) -> None:
        self.apply("reorder", *loops)

    def tile(self, a: str, b: str, factor_a: int, factor_b: int) -> tuple[str, str, str, str]:
        """Outer a, outer b, inner a, inner b."""
        ao, bo, ai, bi = self.apply("tile", a, b, factor_a, factor_b)
        return ao, bo, ai, bi

    def skew(self, outer: str, inner: str, factor: int) -> None:
        self.apply("skew", outer, inner, factor)

    def unroll(self, loop: str) -> None:
        self.apply("unroll", loop)

    def vectorize(self, loop: str) -> None:
        self.apply("vectorize", loop)

    def parallel(self, loop: str) -> None:
        self.apply("parallel", loop)

    def bind(self, loop: str, axis: str) -> None:
        self.apply("bind", loop, axis)

    def annotate(self, loop: str, key: str, value: int) -> None:
        self.apply("annotate", loop, key, value)

    def loop_partition(self, loop: str) -> None:
        self.apply("loop_partition", loop)

    def fission(self, loop: str) -> None:
        self.apply("fission", loop)

    # Stages.

    def compute_inline(self, stage: str) -> None:
        self.apply("compute_inline", stage)

    def reverse_compute_inline(self, stage: str) -> None:
        self.apply("reverse_compute_inline", stage)

    def compute_at(self, stage: str, loop: str) -> None:
        self.apply("compute_at", stage, loop)

    def reverse_compute_at(self, stage: str, loop: str) -> None:
        self.apply("reverse_compute_at", stage, loop)

    def compute_root(self, stage: str) -> None:
        self.apply("compute_root", stage)

    def cache_read(self, stage: str, buffer: str | int, scope: str) -> str:
        """Returns the new stage. `buffer` is a name or a number."""
        return self.apply("cache_read", stage, buffer, scope)[0]

    def cache_write(self, stage: str, scope: str) -> str:
        """Returns the new last stage."""
        return self.apply("cache_write", stage, scope)[0]

    def set_scope(self, stage: str, scope: str) -> None:
        self.apply("set_scope", stage, scope)

    def rfactor(self, loop: str) -> str:
        """The new stage."""
        return self.apply("rfactor", loop)[0]

    def decompose_reduction(self, stage: str, loop: str) -> None:
        self.apply("decompose_reduction", stage, loop)

    def reindex(self, stage: str, operand: int) -> str:
        """The new stage."""
        return self.apply("reindex", stage, operand)[0]

    def merge_axes(self, stage: str, groups: Sequence[Sequence[int]], reduce_groups: Sequence[Sequence[int]] = ()) -> None:
        self.apply("merge_axes", stage, _groups(groups), *([_groups(reduce_groups)] if reduce_groups else []))

    def transform_layout(self, stage: str, layout: str) -> None:
        """`layout` as in "i, j -> floordiv(i, 8), j, mod(i, 8) < 4, 16, 8": indices, then the new sizes."""
        self.apply("transform_layout", stage, layout)

    def pad(self, stage: str, *multiples: int) -> None:
        self.apply("pad", stage, *multiples)

    def storage_align(self, stage: str, dim: int, factor: int, offset: int) -> None:
        self.apply("storage_align", stage, dim, factor, offset)

    # Instructions.

    def tensorize(self, loop: str, intrinsic: str) -> None:
        self.apply("tensorize", loop, intrinsic)

    def prefetch(self, stage: str, buffer: str | int, loop: str, ahead: int) -> None:
        self.apply("prefetch", stage, buffer, loop, ahead)

    def prefetch_next(self, stage: str, buffer: str | int, loop: str, outer: str, part: str) -> None:
        self.apply("prefetch_next", stage, buffer, loop, outer, part)

    def pipeline(self, loop: str, stages: int) -> None:
        self.apply("pipeline", loop, stages)

    def online(self, *stages: str, block: int) -> tuple[str, ...]:
        """A maximum, and sums of exp(x - maximum) * y along the same axis, in one loop over blocks of it."""
        return tuple(self.apply("online", *stages, block))

    def double_buffer(self, stage: str) -> None:
        self.apply("double_buffer", stage)


def default_schedule(compute: Compute | str, threads: int = 1) -> Schedule:
    """The schedule that compile chooses for this computation on this CPU."""
    return Schedule._of(KernelSchedule.automatic(str(compute), threads))


def replay(compute: Compute | str, trace: str) -> Schedule:
    """Applies the trace of another schedule to a Compute with the same stages."""
    return Schedule._of(KernelSchedule.replay(str(compute), trace))


def processor(target: str = "host") -> dict[str, int]:
    """The machine description for choosing schedules: vector_bytes, vector_registers, lane_multiply, l1_bytes, ..."""
    return _describe_processor(target)


def _checked(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        raise ValueError(f"{name!r}: expected a name of letters, digits and _")
    return name


def _ranges(word: str, axes: Iterable[Axis]) -> str:
    text = ", ".join(f"{a.name} < {a.extent}" for a in axes)
    return word + text if text else ""


def _groups(groups: Sequence[Sequence[int]]) -> str:
    return ";".join(",".join(map(str, group)) for group in groups)


def _made(argument: Argument) -> np.ndarray:
    if not all(size.isdigit() for size in argument.shape):
        raise Error("E0402", f"{argument.name} is missing", hint="its size is dynamic: pass the array to write to")
    return np.empty([int(size) for size in argument.shape], numpy_dtype(argument.dtype))
