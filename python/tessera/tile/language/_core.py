"""Values of a kernel while it is being compiled: each operation adds to the program under construction."""

from __future__ import annotations

import builtins
import functools
import operator
import threading
from collections.abc import Callable, Sequence
from typing import Any

from ..._tessera import TileBuilder, TileValue
from . import _types as types
from ._types import dtype

_local = threading.local()


def builder() -> TileBuilder:
    """The program under construction."""
    made: TileBuilder | None = getattr(_local, "builder", None)
    if made is None:
        raise RuntimeError("functions of tessera.tile.language are for kernels: decorate the function with @jit")
    return made


def generator() -> Any:
    """Who translates the kernel's source: calls functions of the user."""
    return _local.generator


class constexpr:
    """A value that is known when the kernel is compiled."""

    def __init__(self, value: Any):
        self.value: Any = value.value if isinstance(value, constexpr) else value

    def __repr__(self) -> str: return f"constexpr[{self.value}]"
    def __hash__(self) -> int: return hash(self.value)
    def __index__(self) -> int: return operator.index(self.value)
    def __bool__(self) -> bool: return bool(self.value)
    def __int__(self) -> int: return int(self.value)
    def __float__(self) -> float: return float(self.value)
    def __call__(self, *args: Any, **kwargs: Any) -> Any: return self.value(*args, **kwargs)
    def __getitem__(self, key: Any) -> Any: return constexpr(self.value[value_of(key)])
    def __len__(self) -> int: return len(self.value)
    def __neg__(self) -> Any: return constexpr(-self.value)
    def __pos__(self) -> Any: return constexpr(+self.value)
    def __invert__(self) -> Any: return constexpr(~self.value)
    def logical_and(self, other: Any) -> Any: return constexpr(self.value and value_of(other))
    def logical_or(self, other: Any) -> Any: return constexpr(self.value or value_of(other))


def _static(op: Callable[[Any, Any], Any], reverse: bool) -> Callable[[constexpr, Any], Any]:
    def apply(self: constexpr, other: Any) -> Any:
        if isinstance(other, tensor):
            return NotImplemented
        other = value_of(other)
        return constexpr(op(other, self.value) if reverse else op(self.value, other))
    return apply


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift", "and_", "or_", "xor"):
    _plain = _name.rstrip("_")
    setattr(constexpr, f"__{_plain}__", _static(getattr(operator, _name), False))
    setattr(constexpr, f"__r{_plain}__", _static(getattr(operator, _name), True))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(constexpr, f"__{_name}__", _static(getattr(operator, _name), False))


def value_of(x: Any) -> Any:
    """Without the wrapping of what is known."""
    if isinstance(x, constexpr):
        return x.value
    if isinstance(x, (list, tuple)) and any(isinstance(e, (constexpr, list, tuple)) for e in x):
        return type(x)(value_of(e) for e in x) if type(x) in (list, tuple) else x
    return x


_value_of = value_of


def builtin(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the language: its arguments are unwrapped."""
    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("_semantic", None)
        kwargs.pop("_builder", None)
        return fn(*(value_of(a) for a in args), **{k: value_of(v) for k, v in kwargs.items()})
    call.__tile_builtin__ = True  # type: ignore[attr-defined]
    return call


def operand(x: Any) -> Any:
    """As the builder takes it: a value or a number."""
    x = value_of(x)
    if isinstance(x, tensor):
        return x.handle
    if isinstance(x, (bool, int, float)):
        return x
    raise TypeError(f"a number or a tile is expected, not {type(x).__name__}")


def to_tensor(x: Any, type: dtype | None = None) -> "tensor":
    x = value_of(x)
    if isinstance(x, tensor):
        return x if type is None else x.to(type)
    return tensor(builder().constant(operand(x), type.core if type is not None else None))


def _binary(op: str, a: Any, b: Any) -> "tensor":
    return tensor(builder().binary(op, operand(a), operand(b)))


class tensor:
    """One element or a tile, of numbers or of pointers."""

    __hash__ = object.__hash__

    def __init__(self, handle: TileValue):
        self.handle = handle

    @property
    def shape(self) -> tuple[int, ...]: return tuple(self.handle.shape)
    @property
    def dtype(self) -> dtype:
        element = types.of_core(self.handle.dtype)
        return types.pointer_type(element) if self.handle.pointer else element
    @property
    def type(self) -> types.dtype: return types.block_type(self.dtype, list(self.shape)) if self.shape else self.dtype
    @property
    def numel(self) -> int: return functools.reduce(operator.mul, self.shape, 1)
    @property
    def T(self) -> "tensor": return trans(self)  # type: ignore[no-any-return]
    def __repr__(self) -> str: return f"tensor({self.handle!r})"
    def __bool__(self) -> bool: raise TypeError("what a tile holds is not known when the kernel is compiled")

    def __add__(self, o: Any) -> "tensor": return _binary("+", self, o)
    def __radd__(self, o: Any) -> "tensor": return _binary("+", o, self)
    def __sub__(self, o: Any) -> "tensor": return _binary("-", self, o)
    def __rsub__(self, o: Any) -> "tensor": return _binary("-", o, self)
    def __mul__(self, o: Any) -> "tensor": return _binary("*", self, o)
    def __rmul__(self, o: Any) -> "tensor": return _binary("*", o, self)
    def __truediv__(self, o: Any) -> "tensor": return _binary("/", self, o)
    def __rtruediv__(self, o: Any) -> "tensor": return _binary("/", o, self)
    def __floordiv__(self, o: Any) -> "tensor": return _binary("//", self, o)
    def __rfloordiv__(self, o: Any) -> "tensor": return _binary("//", o, self)
    def __mod__(self, o: Any) -> "tensor": return _binary("%", self, o)
    def __rmod__(self, o: Any) -> "tensor": return _binary("%", o, self)
    def __and__(self, o: Any) -> "tensor": return _binary("&", self, o)
    def __rand__(self, o: Any) -> "tensor": return _binary("&", o, self)
    def __or__(self, o: Any) -> "tensor": return _binary("|", self, o)
    def __ror__(self, o: Any) -> "tensor": return _binary("|", o, self)
    def __xor__(self, o: Any) -> "tensor": return _binary("^", self, o)
    def __rxor__(self, o: Any) -> "tensor": return _binary("^", o, self)
    def __lshift__(self, o: Any) -> "tensor": return _binary("<<", self, o)
    def __rlshift__(self, o: Any) -> "tensor": return _binary("<<", o, self)
    def __rshift__(self, o: Any) -> "tensor": return _binary(">>", self, o)
    def __rrshift__(self, o: Any) -> "tensor": return _binary(">>", o, self)
    def __lt__(self, o: Any) -> "tensor": return _binary("<", self, o)
    def __le__(self, o: Any) -> "tensor": return _binary("<=", self, o)
    def __gt__(self, o: Any) -> "tensor": return _binary(">", self, o)
    def __ge__(self, o: Any) -> "tensor": return _binary(">=", self, o)
    def __eq__(self, o: Any) -> "tensor": return _binary("==", self, o)  # type: ignore[override]
    def __ne__(self, o: Any) -> "tensor": return _binary("!=", self, o)  # type: ignore[override]
    def __neg__(self) -> "tensor": return tensor(builder().unary("-", self.handle))
    def __pos__(self) -> "tensor": return self
    def __invert__(self) -> "tensor": return tensor(builder().unary("~", self.handle))
    def logical_not(self) -> "tensor": return tensor(builder().unary("not", self.handle))
    def logical_and(self, o: Any) -> "tensor": return _binary("&", _truth(self), _truth(o))
    def logical_or(self, o: Any) -> "tensor": return _binary("|", _truth(self), _truth(o))

    def __getitem__(self, key: Any) -> "tensor":
        key = value_of(key)
        keys = key if isinstance(key, (tuple, list)) else (key,)
        made = self
        axis = 0
        for k in keys:
            k = value_of(k)
            if k is None:
                made = expand_dims(made, axis)
            elif not (isinstance(k, slice) and k == slice(None)):
                raise TypeError("a tile is indexed by ':' and None alone")
            axis += 1
        return made

    def to(self, dtype: Any, fp_downcast_rounding: Any = None, bitcast: bool = False) -> "tensor":
        return cast(self, dtype, fp_downcast_rounding, bitcast)  # type: ignore[no-any-return]


def _truth(x: Any) -> Any:
    if isinstance(x, tensor) and x.dtype != types.int1:
        return _binary("!=", x, 0)
    return x if isinstance(x, tensor) else bool(value_of(x))


def member(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Also a method of tensors."""
    setattr(tensor, fn.__name__, fn)
    return fn


def shape_of(shape: Any) -> list[int]:
    shape = value_of(shape)
    if len(shape) == 1 and isinstance(value_of(shape[0]), (list, tuple)):
        shape = value_of(shape[0])
    return [int(value_of(s)) for s in shape]


# The grid.
@builtin
def program_id(axis: int) -> tensor: return tensor(builder().program_id(axis))
@builtin
def num_programs(axis: int) -> tensor: return tensor(builder().program_count(axis))


# Making tiles.
@builtin
def arange(start: int, end: int) -> tensor:
    if not isinstance(start, int) or not isinstance(end, int):
        raise TypeError("arange() takes numbers that are known when the kernel is compiled (tl.constexpr)")
    return tensor(builder().arange(start, end))


@builtin
def full(shape: Sequence[int], value: Any, dtype: dtype) -> tensor:
    return tensor(builder().full(shape_of([shape]), operand(value), dtype.core))


@builtin
def cast(input: Any, dtype: dtype, fp_downcast_rounding: Any = None, bitcast: bool = False) -> tensor:
    x = to_tensor(input)
    if isinstance(dtype, types.block_type):
        dtype = dtype.scalar
    if bitcast and dtype.primitive_bitwidth != x.dtype.primitive_bitwidth:
        raise TypeError(f"{x.dtype} has other bits than {dtype}")
    if bitcast and x.dtype.is_floating() != dtype.is_floating():
        raise TypeError(f"the bits of {x.dtype} cannot be taken as {dtype}")
    return tensor(builder().cast(x.handle, dtype.core))


# Shapes.
@member
@builtin
def expand_dims(input: tensor, axis: Any) -> tensor:
    axes = sorted(axis) if isinstance(axis, (list, tuple)) else [axis]
    made = to_tensor(input)
    for a in axes:
        made = tensor(builder().expand(made.handle, int(a)))
    return made


@member
@builtin
def broadcast_to(input: tensor, *shape: Any) -> tensor:
    return tensor(builder().broadcast(to_tensor(input).handle, shape_of(shape)))


@builtin
def broadcast(input: Any, other: Any) -> tuple[tensor, tensor]:
    a, b = to_tensor(input), to_tensor(other)
    zero = [1] * max(len(a.shape), len(b.shape))
    shape = [max(x, y) for x, y in zip([*zero[len(a.shape):], *a.shape], [*zero[len(b.shape):], *b.shape])]
    return broadcast_to(a, shape), broadcast_to(b, shape)


@member
@builtin
def reshape(input: tensor, *shape: Any, can_reorder: bool = False) -> tensor:
    sizes = shape_of(shape)
    if -1 in sizes:
        rest = functools.reduce(operator.mul, (s for s in sizes if s != -1), 1)
        sizes[sizes.index(-1)] = input.numel // rest
    return tensor(builder().reshape(input.handle, sizes))


@member
@builtin
def view(input: tensor, *shape: Any) -> tensor: return reshape(input, *shape)  # type: ignore[no-any-return]


@member
@builtin
def ravel(x: tensor, can_reorder: bool = False) -> tensor: return reshape(x, [x.numel])  # type: ignore[no-any-return]


@member
@builtin
def squeeze(x: tensor, dim: int) -> tensor:
    return reshape(x, [s for i, s in enumerate(x.shape) if i != dim % len(x.shape)])  # type: ignore[no-any-return]


@member
@builtin
def unsqueeze(x: tensor, dim: int) -> tensor: return expand_dims(x, dim)  # type: ignore[no-any-return]


@member
@builtin
def permute(input: tensor, *dims: Any) -> tensor: return tensor(builder().permute(input.handle, shape_of(dims)))


@member
@builtin
def trans(input: tensor, *dims: Any) -> tensor:
    if not dims:
        rank = len(input.shape)
        if rank < 2:
            raise ValueError("trans() needs two dimensions or more")
        dims = (*builtins.range(rank - 2), rank - 1, rank - 2)
    return permute(input, *dims)  # type: ignore[no-any-return]


@builtin
def join(a: Any, b: Any) -> tensor: return tensor(builder().join(operand(a), operand(b)))


@member
@builtin
def split(a: tensor) -> tuple[tensor, tensor]:
    first, second = builder().split(a.handle)
    return tensor(first), tensor(second)


@builtin
def cat(input: tensor, other: tensor, can_reorder: bool = False) -> tensor:
    return tensor(builder().concatenate(input.handle, other.handle))


@builtin
def interleave(a: Any, b: Any) -> tensor:
    c = join(a, b)
    return reshape(c, [*c.shape[:-2], -1]) if len(c.shape) > 1 else c  # type: ignore[no-any-return]


@member
@builtin
def gather(src: tensor, index: tensor, axis: int) -> tensor:
    return tensor(builder().gather(src.handle, index.handle, axis))


# Memory.
class _Masked:
    def masked(self) -> tuple[tensor, tensor | None]:
        raise NotImplementedError


@builtin
def load(pointer: Any, mask: Any = None, other: Any = None, boundary_check: Any = (), padding_option: str = "",
         cache_modifier: str = "", eviction_policy: str = "", volatile: bool = False) -> tensor:
    if isinstance(pointer, block_pointer):
        if mask is not None or other is not None:
            raise ValueError("a block pointer is loaded without mask and other")
        at, inside = pointer.places(boundary_check)
        nan = padding_option == "nan"
        return load(at, mask=inside, other=float("nan") if nan and inside is not None else None)  # type: ignore[no-any-return]
    return tensor(builder().load(to_tensor(pointer).handle, None if mask is None else operand(mask),
                                 None if other is None else operand(other)))


@builtin
def store(pointer: Any, value: Any, mask: Any = None, boundary_check: Any = (), cache_modifier: str = "",
          eviction_policy: str = "") -> None:
    if isinstance(pointer, block_pointer):
        at, inside = pointer.places(boundary_check)
        store(at, value, mask=inside)
        return
    builder().store(to_tensor(pointer).handle, operand(value), None if mask is None else operand(mask))


def _atomic(name: str, how: str) -> Callable[..., Any]:
    def apply(pointer: tensor, val: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> tensor:
        return tensor(builder().atomic(how, to_tensor(pointer).handle, operand(val), None if mask is None else operand(mask)))
    apply.__name__ = name
    return member(builtin(apply))


atomic_add, atomic_max, atomic_min, atomic_and, atomic_or, atomic_xor, atomic_xchg = (
    _atomic(f"atomic_{n}", how) for n, how in (("add", "add"), ("max", "max"), ("min", "min"), ("and", "and"), ("or", "or"),
                                               ("xor", "xor"), ("xchg", "exchange")))


@member
@builtin
def atomic_cas(pointer: tensor, cmp: Any, val: Any, sem: Any = None, scope: Any = None) -> tensor:
    return tensor(builder().atomic("compare", to_tensor(pointer).handle, operand(val), None, operand(cmp)))


class block_pointer:
    """A place in an array of some dimensions, from which whole tiles are loaded."""

    def __init__(self, base: tensor, shape: list[tensor], strides: list[tensor], offsets: list[tensor], block: list[int]):
        self.base, self.shape, self.strides, self.offsets, self.block = base, shape, strides, offsets, block

    # What a loop carries of it.
    def flatten(self) -> list[tensor]: return [self.base, *self.shape, *self.strides, *self.offsets]

    def unflatten(self, values: list[tensor]) -> "block_pointer":
        n = len(self.shape)
        return block_pointer(values[0], values[1:1 + n], values[1 + n:1 + 2 * n], values[1 + 2 * n:1 + 3 * n], self.block)

    def along(self, axis: int) -> tensor:
        keys = [None] * len(self.block)
        keys[axis] = slice(None)  # type: ignore[call-overload]
        return self.offsets[axis] + arange(0, self.block[axis])[tuple(keys)]  # type: ignore[no-any-return]

    def places(self, checked: Sequence[int]) -> tuple[tensor, tensor | None]:
        at: Any = self.base
        inside: Any = None
        for axis in builtins.range(len(self.block)):
            index = self.along(axis)
            at = at + index.to(types.int64) * self.strides[axis]
            if axis in [c % len(self.block) for c in checked]:
                good = (index >= 0) & (index < self.shape[axis])
                inside = good if inside is None else inside & good
        return broadcast_to(at, self.block), inside

    def advance(self, offsets: Sequence[Any]) -> "block_pointer":
        moved = [a + value_of(o) for a, o in zip(self.offsets, offsets)]
        return block_pointer(self.base, self.shape, self.strides, moved, self.block)


@builtin
def make_block_ptr(base: tensor, shape: Any, strides: Any, offsets: Any, block_shape: Any, order: Any) -> block_pointer:
    return block_pointer(base, [to_tensor(s, types.int64) for s in shape], [to_tensor(s, types.int64) for s in strides],
                         [to_tensor(o, types.int32) for o in offsets], shape_of([block_shape]))


@builtin
def advance(base: block_pointer, offsets: Any) -> block_pointer: return base.advance(offsets)


class tensor_descriptor(block_pointer):
    """An array of some dimensions: tiles are loaded and stored at any place, 0 beyond its end."""

    def unflatten(self, values: list[tensor]) -> "tensor_descriptor":
        n = len(self.shape)
        return tensor_descriptor(values[0], values[1:1 + n], values[1 + n:1 + 2 * n], values[1 + 2 * n:1 + 3 * n], self.block)

    @property
    def block_shape(self) -> list[int]: return self.block
    @property
    def dtype(self) -> dtype: return self.base.dtype.element_ty  # type: ignore[attr-defined, no-any-return]

    def _at(self, offsets: Any) -> tuple[tensor, tensor | None]:
        placed = block_pointer(self.base, self.shape, self.strides,
                               [to_tensor(o, types.int32) for o in value_of(offsets)], self.block)
        return placed.places(builtins.range(len(self.block)))

    def load(self, offsets: Any) -> tensor:
        at, inside = self._at(offsets)
        return load(at, mask=inside)  # type: ignore[no-any-return]

    def store(self, offsets: Any, value: Any) -> None:
        at, inside = self._at(offsets)
        store(at, reshape(value, self.block), mask=inside)


@builtin
def make_tensor_descriptor(base: tensor, shape: Any, strides: Any, block_shape: Any, padding_option: str = "zero") -> tensor_descriptor:
    zero = [to_tensor(0) for _ in block_shape]
    return tensor_descriptor(base, [to_tensor(s, types.int64) for s in shape], [to_tensor(s, types.int64) for s in strides],
                             zero, shape_of([block_shape]))


@builtin
def load_tensor_descriptor(desc: tensor_descriptor, offsets: Any) -> tensor: return desc.load(offsets)
@builtin
def store_tensor_descriptor(desc: tensor_descriptor, offsets: Any, value: Any) -> None: desc.store(offsets, value)


# Products.
@builtin
def dot(input: tensor, other: tensor, acc: Any = None, input_precision: Any = None, allow_tf32: Any = None,
        max_num_imprecise_acc: Any = None, out_dtype: dtype = types.float32) -> tensor:
    return tensor(builder().dot(input.handle, other.handle, None if acc is None else acc.handle, out_dtype.core))


# Choosing.
@builtin
def where(condition: Any, x: Any, y: Any) -> tensor:
    return tensor(builder().select(operand(condition), operand(x), operand(y)))


@builtin
def minimum(x: Any, y: Any, propagate_nan: Any = None) -> tensor: return _binary("min_nan" if propagate_nan else "min", x, y)
@builtin
def maximum(x: Any, y: Any, propagate_nan: Any = None) -> tensor: return _binary("max_nan" if propagate_nan else "max", x, y)
@builtin
def clamp(x: Any, min: Any, max: Any, propagate_nan: Any = None) -> tensor:
    return minimum(maximum(x, min, propagate_nan), max, propagate_nan)  # type: ignore[no-any-return]


# Reductions and scans.
def _as_list(x: Any) -> list[tensor]: return list(x) if isinstance(x, (tuple, list)) else [x]


def _combine(xs: list[tensor], combine_fn: Any) -> list[Any]:
    """Between the beginning and the end of a reduction: what the function makes of two of each."""
    arguments = [tensor(v) for v in builder().begin_combine([x.handle for x in xs])]
    made = generator().call(combine_fn, arguments, {})
    return [to_tensor(v, x.dtype).handle for v, x in zip(_as_list(made), xs)]


@member
@builtin
def reduce(input: Any, axis: Any, combine_fn: Any, keep_dims: bool = False) -> Any:
    xs = _as_list(input)
    shape = xs[0].shape
    if axis is None:
        xs, axis = [ravel(x) for x in xs], 0
    made = [tensor(v) for v in builder().end_reduce(_combine(xs, combine_fn), int(axis), keep_dims and len(xs[0].shape) == len(shape))]
    if keep_dims and len(xs[0].shape) != len(shape):
        made = [reshape(to_tensor(m), [1] * len(shape)) for m in made]
    return tuple(made) if isinstance(input, (tuple, list)) else made[0]


@member
@builtin
def associative_scan(input: Any, axis: int, combine_fn: Any, reverse: bool = False) -> Any:
    xs = _as_list(input)
    made = [tensor(v) for v in builder().end_scan(_combine(xs, combine_fn), int(axis), reverse)]
    return tuple(made) if isinstance(input, (tuple, list)) else made[0]


# Hints: nothing depends on them here.
@builtin
def multiple_of(input: tensor, values: Any) -> tensor: return input
@builtin
def max_contiguous(input: tensor, values: Any) -> tensor: return input
@builtin
def max_constancy(input: tensor, values: Any) -> tensor: return input
@builtin
def assume(cond: Any) -> None: return None
@builtin
def debug_barrier() -> None: return None


# When the kernel is compiled.
@builtin
def static_print(*values: Any, sep: str = " ", end: str = "\n", file: Any = None, flush: bool = False) -> None:
    print(*values, sep=sep, end=end, file=file, flush=flush)


@builtin
def static_assert(cond: Any, msg: str = "") -> None:
    if not cond:
        raise AssertionError(msg or "a static assertion does not hold")


class range:
    """The iterator of a loop that is not unrolled; hints for pipelines have no meaning on a processor."""

    def __init__(self, arg1: Any, arg2: Any = None, step: Any = None, num_stages: Any = None,
                 loop_unroll_factor: Any = None, disallow_acc_multi_buffer: bool = False, flatten: bool = False,
                 warp_specialize: bool = False, disable_licm: bool = False):
        self.start: Any = 0 if arg2 is None else arg1
        self.end: Any = arg1 if arg2 is None else arg2
        self.step = 1 if step is None else step


class static_range(range):
    """The iterator of a loop that is unrolled."""
