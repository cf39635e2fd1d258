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

    @property
    def type(self) -> "constexpr_type": return constexpr_type(self.value)
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
    def logical_not(self) -> Any: return constexpr(not self.value)


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
    if isinstance(x, bool) or isinstance(x, float):
        return x
    if isinstance(x, int):
        if -2**63 <= x < 2**63:
            return x
        if x < 2**64:
            return builder().constant(x - 2**64, "u64")
        raise ValueError(f"no integer type holds {x}")
    raise TypeError(f"cannot convert {x} of type {type(x)} to tensor: a number or a tile is expected")


def to_tensor(x: Any, type: dtype | None = None) -> "tensor":
    x = value_of(x)
    if isinstance(x, tensor):
        return x if type is None else x.to(type)
    return tensor(builder().constant(operand(x), type.core if type is not None else None))


def _check_range(number: Any, beside: Any) -> None:
    """A number of the source takes the type of the tile that it meets, which has to hold it."""
    number = value_of(number)
    if not isinstance(number, int) or isinstance(number, bool) or not isinstance(beside, tensor):
        return
    kind = beside.dtype
    if not kind.is_int() or kind.is_bool() or kind.get_int_min_value() <= number <= kind.get_int_max_value():
        return
    if number < 0 and kind.is_int_unsigned():
        raise ValueError(f"Cannot perform a binary operation between an unsigned tensor and a negative scalar: scalar {number} is "
                         f"out of range for type {kind}. Perform an explicit cast on one of them.")
    raise ValueError(f"Scalar {number} is out of range for type {kind}")


def _beside_float(number: Any, tile: Any) -> Any:
    """Integers that only uint64 holds are floats beside a float: they take its type."""
    value = value_of(number)
    large = isinstance(value, int) and not isinstance(value, bool) and 2**63 <= value < 2**64
    return float(value) if large and isinstance(tile, tensor) and tile.dtype.is_floating() else number


_OVERFLOWS = {"+": "add", "-": "sub", "*": "mul"}  # operations that debugging watches


def _check_pointers(op: str, a: Any, b: Any) -> None:
    points = [isinstance(x, tensor) and x.dtype.is_ptr() for x in (a, b)]
    if op == "+" and all(points):
        raise TypeError("cannot add pointers together")
    if any(points) and op not in _COMPARISONS and (op not in "+-" or all(points) or op == "-" and points[1]):
        raise TypeError(f"invalid operands of type {dtype_of(a)} and {dtype_of(b)} for \"{op}\"")
    for moved, by in ((points[0], b), (points[1], a)):
        if moved and op in "+-" and not dtype_of(by).is_int():
            raise TypeError(f"invalid operands of type {dtype_of(a)} and {dtype_of(b)}: a pointer moves by integers")


_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_EXTREMES = ("min", "max", "min_nan", "max_nan")


def dtype_of(x: Any) -> dtype:
    """The element type of a tile, or the one that a number has by itself."""
    x = value_of(x)
    return x.dtype if isinstance(x, tensor) else to_tensor(x).dtype


def _watch_overflow(op: str, a: "tensor", b: "tensor", made: "tensor") -> None:
    """Where debugging is on, a launch fails in which an integer of 32 bits or fewer overflows."""
    kind = made.dtype
    if kind.primitive_bitwidth >= 64 or not kind.is_int() or kind.is_bool() or not _is_watching():
        return
    wide = types.int64
    exact = tensor(builder().binary(op, a.to(kind).to(wide).handle, b.to(kind).to(wide).handle))
    inside = (exact <= kind.get_int_max_value()) & (exact >= kind.get_int_min_value())
    builder().check(inside.handle, f"{kind} overflow detected for operation {_OVERFLOWS[op]}", None)


def _is_watching() -> bool:
    by = getattr(_local, "generator", None)
    return by is not None and by.debug and by.sanitize and not by.combining and not getattr(_local, "unwatched", False)


def unwatched(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose integers wrap around, as they are meant to."""
    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        before, _local.unwatched = getattr(_local, "unwatched", False), True
        try:
            return fn(*args, **kwargs)
        finally:
            _local.unwatched = before
    return call


def _binary(op: str, a: Any, b: Any, sanitize: bool = True) -> "tensor":
    if op in _COMPARISONS or op in _EXTREMES:  # a number of the source has its own type in these
        a, b = (x if isinstance(value_of(x), tensor) else to_tensor(x) for x in (a, b))
    a, b = _beside_float(a, b), _beside_float(b, a)
    _check_range(a, b)
    _check_range(b, a)
    _check_pointers(op, a, b)
    made = tensor(builder().binary(op, operand(a), operand(b)))
    made.const = is_const(a) or is_const(b)
    if op in _OVERFLOWS and sanitize and not made.dtype.is_ptr():
        _watch_overflow(op, to_tensor(a), to_tensor(b), made)
    return made


def is_const(x: Any) -> bool:
    """Whether it is a pointer that nothing is stored through."""
    return isinstance(x, tensor) and x.const


def as_const(made: "tensor", *sources: Any) -> "tensor":
    """Pointers made of others that nothing is stored through are such."""
    made.const = builtins.any(is_const(s) for s in sources)
    return made


class tensor:
    """One element or a tile, of numbers or of pointers."""

    __hash__ = object.__hash__

    const = False  # of pointers: nothing is stored through them

    def __init__(self, handle: TileValue):
        self.handle = handle

    @property
    def shape(self) -> tuple[int, ...]: return tuple(self.handle.shape)
    @property
    def dtype(self) -> dtype:
        then = self.handle.then
        element = types.of_core(self.handle.dtype) if then is None else types.pointer_type(types.of_core(then))
        return types.pointer_type(element, const=self.const) if self.handle.pointer else element
    @property
    def type(self) -> types.dtype: return types.block_type(self.dtype, list(self.shape)) if self.shape else self.dtype
    @property
    def numel(self) -> int: return functools.reduce(operator.mul, self.shape, 1)
    @property
    def T(self) -> "tensor": return trans(self)  # type: ignore[no-any-return]
    @property
    def description(self) -> str:
        """Its type, as errors show it."""
        return f"{self.handle!r} of tl.const" if self.const else repr(self.handle)
    def __repr__(self) -> str: return f"tensor({self.handle!r})"
    def __bool__(self) -> bool: raise TypeError("the elements of a tile are not known at compile time")

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
    def __neg__(self) -> "tensor":
        if self.dtype.is_ptr():
            raise ValueError(f"wrong type argument to unary minus ({self.dtype})")
        if self.dtype.is_bool():
            return self
        if self.dtype.is_int() and _is_watching():
            return _binary("-", 0, self)
        return tensor(builder().unary("-", self.handle))
    def __pos__(self) -> "tensor": return self
    def __invert__(self) -> "tensor":
        if self.dtype.is_ptr() or self.dtype.is_floating():
            raise ValueError(f"wrong type argument to unary invert ({self.dtype})")
        return tensor(builder().unary("~", self.handle))
    def logical_not(self) -> "tensor": return tensor(builder().unary("not", self.handle))
    def logical_and(self, o: Any) -> "tensor": return _binary("&", _truth(self), _truth(o))
    def logical_or(self, o: Any) -> "tensor": return _binary("|", _truth(self), _truth(o))

    def __getitem__(self, key: Any) -> "tensor":
        key = value_of(key)
        keys = key if isinstance(key, (tuple, list)) else (key,)
        made = self
        axis = 0
        for n, k in enumerate(keys):
            k = value_of(k)
            if k is None:
                made = expand_dims(made, axis)
            elif k is Ellipsis:
                axis += len(made.shape) - axis - builtins.sum(1 for after in keys[n + 1:] if value_of(after) is not None)
                continue
            elif not (isinstance(k, slice) and k == slice(None)):
                raise ValueError(f"unsupported tensor index: {k}: a tile can only be indexed by ':' and None")
            elif not self.shape:
                continue
            elif axis >= len(made.shape):
                raise ValueError(f"{len(keys)} indices for {self!r}")
            axis += 1
        return made

    def item(self) -> "tensor":
        if self.numel != 1:
            raise ValueError(f"can only unsplat single-element tensors, not {self!r}")
        return reshape(self, []) if self.shape else self

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
def program_id(axis: int) -> tensor: return tensor(builder().program_id(_checked_axis("program_id", axis)))
@builtin
def num_programs(axis: int) -> tensor: return tensor(builder().program_count(_checked_axis("num_programs", axis)))


def _checked_axis(of: str, axis: int) -> int:
    if axis not in (0, 1, 2):
        raise ValueError(f"{of} axis must be 0, 1, or 2 but got {axis}")
    return axis


# Making tiles.
@builtin
def arange(start: int, end: int) -> tensor:
    if not isinstance(start, int) or not isinstance(end, int):
        raise ValueError("arange's arguments must be of type tl.constexpr: known at compile time")
    if not -2**31 <= start < 2**31 or not -2**31 <= end < 2**32:
        raise ValueError("arange must fit in int32")
    return tensor(builder().arange(start, end))


@builtin
def full(shape: Sequence[int], value: Any, dtype: dtype) -> tensor:
    if isinstance(value, tensor):
        if value.numel != 1:
            raise ValueError("only accepts size-1 tensor")
        value = reshape(value, []) if value.shape else value
    if dtype is None and not isinstance(value, tensor):
        raise ValueError("dtype must be specified when value is not a tensor")
    dtype = value.dtype if dtype is None else dtype
    if dtype.is_int() and not isinstance(value, tensor) and (isinstance(value, float) or value < 0 and dtype.is_int_unsigned()):
        raise TypeError(f"full() of {dtype} takes numbers that it holds, not {value}")
    return tensor(builder().full(_powers_of_two(shape_of([shape])), operand(value), dtype.core))


def _powers_of_two(shape: list[int]) -> list[int]:
    for i, size in enumerate(shape):
        if size < 1 or size & size - 1:
            raise ValueError(f"Shape element {i} must be a power of 2, and is {size}")
    return shape


def checked_axis(axis: Any, rank: int) -> int:
    if not isinstance(axis, int) or not -rank <= axis < rank:
        raise ValueError(f"invalid axis {axis}. Expected {-rank} <= axis < {rank}")
    return axis


def _toward_zero(x: "tensor", kind: dtype) -> "tensor":
    """Rounded toward zero: the nearest, or the one before it where that is too large."""
    bits = types.of_core(f"i{kind.primitive_bitwidth}")
    nearest = x.to(kind)
    magnitude, made = x.to(types.float32), nearest.to(types.float32)
    over = where(made < 0, -made, made) > where(magnitude < 0, -magnitude, magnitude)
    return (nearest.to(bits, bitcast=True) - over.to(bits)).to(kind, bitcast=True)  # type: ignore[no-any-return]


def _cast_pointer(x: "tensor", kind: dtype, bitcast: bool) -> "tensor":
    if isinstance(kind, types.pointer_type):
        if x.dtype == kind and x.const == kind.const:
            return x
        if not x.dtype.is_ptr() and x.dtype.primitive_bitwidth != 64 and (bitcast or not x.dtype.is_int()):
            raise AssertionError(f"cannot cast {x.dtype} to {kind}")
        if isinstance(kind.element_ty, types.pointer_type):
            if kind.element_ty.element_ty.is_ptr():
                raise TypeError(f"{kind}: pointers point to pointers, and those to elements")
            return tensor(builder().pointer_at(x.handle, "i64", kind.element_ty.core))
        made = tensor(builder().pointer_at(x.handle, kind.core))
        made.const = kind.const
        return made
    if kind.is_int() and (kind.primitive_bitwidth == 64 or kind.is_bool()):
        return tensor(builder().cast(builder().address(x.handle), kind.core))
    raise AssertionError(f"cannot cast {x.dtype} to {kind}")


@builtin
def cast(input: Any, dtype: dtype, fp_downcast_rounding: Any = None, bitcast: bool = False) -> tensor:
    x = to_tensor(input)
    kind = dtype.scalar if isinstance(dtype, types.block_type) else dtype
    if not isinstance(kind, types.dtype):
        raise TypeError(f"{kind!r} is not an element type")
    if isinstance(kind, types.pointer_type) or x.dtype.is_ptr():
        return _cast_pointer(x, kind, bitcast)
    if x.dtype == kind:
        return x
    if fp_downcast_rounding is not None:
        if fp_downcast_rounding not in ("rtne", "rtz"):
            raise ValueError(f"Invalid rounding mode: {fp_downcast_rounding}. Supported rounding modes are 'rtne' and 'rtz'.")
        if not (x.dtype.is_floating() and kind.is_floating() and kind.primitive_bitwidth < x.dtype.primitive_bitwidth):
            raise ValueError("fp_downcast_rounding should be set only for truncating fp conversions. Source scalar type is "
                             f"{x.dtype} and destination type is {kind}")
        if fp_downcast_rounding == "rtz":
            return _toward_zero(x, kind)
    if bitcast:
        return tensor(builder().bitcast(x.handle, kind.core))
    if x.dtype.is_int() and kind.is_fp8():
        raise AssertionError(f"cannot cast {x.type} to {kind}")
    return tensor(builder().cast(x.handle, kind.core))


tensor.cast = cast  # type: ignore[attr-defined]


# Shapes.
@member
@builtin
def expand_dims(input: Any, axis: Any) -> tensor:
    made = to_tensor(input)
    axes = [int(a) for a in axis] if isinstance(axis, (list, tuple)) else [int(axis)]
    rank = len(made.shape) + len(axes)
    for a in axes:
        if not -rank <= a < rank:
            raise ValueError(f"invalid axis {a}. Expected {-rank} <= axis < {rank}")
    axes = sorted(a % rank for a in axes)
    if len(set(axes)) != len(axes):
        raise ValueError(f"expand_dims received duplicate axes, normalized axes = {axes}")
    for a in axes:
        made = as_const(tensor(builder().expand(made.handle, a)), made)
    return made


@member
@builtin
def broadcast_to(input: tensor, *shape: Any) -> tensor:
    made, sizes = to_tensor(input), shape_of(shape)
    if made.shape and len(made.shape) != len(sizes):
        raise ValueError(f"Cannot broadcast, rank mismatch: {list(made.shape)}, {sizes}")
    return as_const(tensor(builder().broadcast(made.handle, sizes)), made)


def _common_shape(a: tuple[int, ...], b: tuple[int, ...]) -> list[int]:
    rank = builtins.max(len(a), len(b))
    a, b = (*[1] * (rank - len(a)), *a), (*[1] * (rank - len(b)), *b)
    for i, (x, y) in enumerate(zip(a, b)):
        if x != y and 1 not in (x, y):
            raise ValueError(f"Cannot make_shape_compatible: incompatible dimensions at index {i}: {x} and {y}")
    return [y if x == 1 else x for x, y in zip(a, b)]


@builtin
def broadcast(input: Any, other: Any) -> tuple[tensor, tensor]:
    a, b = to_tensor(input), to_tensor(other)
    shape = _common_shape(a.shape, b.shape)
    return _spread(a, shape), _spread(b, shape)


def _spread(x: tensor, shape: list[int]) -> tensor:
    """With more dimensions in front where it has fewer."""
    return as_const(tensor(builder().broadcast(x.handle, shape)), x)


@member
@builtin
def reshape(input: Any, *shape: Any, can_reorder: bool = False) -> tensor:
    input = to_tensor(input)
    sizes = shape_of(shape)
    if -1 in sizes:
        rest = functools.reduce(operator.mul, (s for s in sizes if s != -1), 1)
        sizes[sizes.index(-1)] = input.numel // rest
    if functools.reduce(operator.mul, sizes, 1) != input.numel:
        raise ValueError(f"reshape() cannot change total number of elements in tensor: {list(input.shape)} to {sizes}")
    _powers_of_two(sizes)
    return as_const(tensor(builder().reshape(input.handle, sizes)), input)


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
def permute(input: tensor, *dims: Any) -> tensor:
    if len(shape_of(dims)) != len(input.shape):
        raise ValueError("permute dims must have the same length as input shape")
    if sorted(d % len(input.shape) for d in shape_of(dims)) != [*builtins.range(len(input.shape))]:
        raise ValueError(f"permute dims must be a permutation of 0, 1, ..., n-1, but were {tuple(shape_of(dims))}")
    return as_const(tensor(builder().permute(input.handle, shape_of(dims))), input)


@member
@builtin
def trans(input: tensor, *dims: Any) -> tensor:
    if not dims:
        rank = len(input.shape)
        if rank < 2:
            raise ValueError("tl.trans invoked with a 0- or 1-dimensional tensor")
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
def cat(input: tensor, other: tensor, can_reorder: bool = False, dim: int = 0) -> tensor:
    rank = len(input.shape)
    if rank == 0 or dim % rank == 0:
        return tensor(builder().concatenate(input.handle, other.handle))
    order = [dim % rank, *(d for d in builtins.range(rank) if d != dim % rank)]
    back = [order.index(d) for d in builtins.range(rank)]
    return permute(cat(permute(input, order), permute(other, order)), back)  # type: ignore[no-any-return]


@builtin
def interleave(a: Any, b: Any) -> tensor:
    c = join(a, b)
    return reshape(c, [*c.shape[:-2], -1]) if len(c.shape) > 1 else c  # type: ignore[no-any-return]


@member
@builtin
def gather(src: tensor, index: tensor, axis: int) -> tensor:
    rank = len(src.shape)
    if not index.dtype.is_int():
        raise AssertionError(f"index must be an integer tensor, not {index.type}")
    if len(index.shape) != rank:
        raise AssertionError(f"source and index tensors must have the same rank: {list(src.shape)} and {list(index.shape)}")
    if not -rank <= axis < rank:
        raise AssertionError(f"gather axis {axis} must be < source rank ({rank})")
    return tensor(builder().gather(src.handle, index.handle, axis))


# Choosing.
@builtin
def where(condition: Any, x: Any, y: Any) -> tensor:
    _check_range(x, y)
    _check_range(y, x)
    kinds = [v.dtype for v in (x, y) if isinstance(v, tensor)]
    if builtins.any(k.is_ptr() for k in kinds) and (len(kinds) == 1 or kinds[0] != kinds[1]):
        raise TypeError(f"invalid operands of type {dtype_of(x)} and {dtype_of(y)}")
    return as_const(tensor(builder().select(operand(condition), operand(x), operand(y))), x, y)


def _as_f32(*values: Any) -> list[Any]:
    """Tiles of bfloat16 are compared as float32."""
    return [v.to(types.float32) if isinstance(v, tensor) and v.dtype.is_bf16() else v for v in values]


@builtin
def minimum(x: Any, y: Any, propagate_nan: Any = None) -> tensor:
    return _binary("min_nan" if propagate_nan else "min", *_as_f32(x, y))
@builtin
def maximum(x: Any, y: Any, propagate_nan: Any = None) -> tensor:
    return _binary("max_nan" if propagate_nan else "max", *_as_f32(x, y))
@builtin
def clamp(x: Any, min: Any, max: Any, propagate_nan: Any = None) -> tensor:
    x, min, max = _as_f32(to_tensor(x), to_tensor(min), to_tensor(max))
    if not builtins.any(v.dtype.is_floating() for v in (x, min, max)):
        raise TypeError(f"Unexpected dtype {x.dtype}. Only floating point clamp is supported")
    made = minimum(maximum(x, min, propagate_nan), max, propagate_nan)
    return made if propagate_nan else where(x != x, min, made)  # type: ignore[no-any-return]  # noqa: PLR0124


class PropagateNan:
    """Of two numbers of which one is NaN: the other (NONE), or NaN (ALL)."""

    NONE, ALL = 0, 0xFFFF


@builtin
def add(x: Any, y: Any, sanitize_overflow: bool = True) -> tensor: return _binary("+", x, y, sanitize_overflow)
@builtin
def sub(x: Any, y: Any, sanitize_overflow: bool = True) -> tensor: return _binary("-", x, y, sanitize_overflow)
@builtin
def mul(x: Any, y: Any, sanitize_overflow: bool = True) -> tensor: return _binary("*", x, y, sanitize_overflow)


def broadcast_all(*values: Any) -> list[tensor]:
    """Tiles of one shape."""
    xs = [to_tensor(v) for v in values]
    shape: list[int] = []
    for x in xs:
        shape = _common_shape(tuple(shape), x.shape)
    return [x if list(x.shape) == shape else _spread(x, shape) for x in xs]


# Reductions and scans.
def _as_list(x: Any) -> list[tensor]: return list(x) if isinstance(x, (tuple, list)) else [x]


def _combine(xs: list[tensor], combine_fn: Any) -> list[Any]:
    """Between the beginning and the end of a reduction: what the function makes of two of each."""
    arguments = [tensor(v) for v in builder().begin_combine([x.handle for x in xs])]
    by = generator()
    by.combining, before = True, by.combining
    try:
        made = _as_list(value_of(by.call(combine_fn, arguments, {})))
    finally:
        by.combining = before
    if len(made) != len(xs):
        raise ValueError(f"the function combines {len(xs)} values, but returns {len(made)}")
    return [to_tensor(v, x.dtype).handle for v, x in zip(made, xs)]


@member
@builtin
def reduce(input: Any, axis: Any, combine_fn: Any, keep_dims: bool = False) -> Any:
    xs = list(broadcast_all(*_as_list(input)))
    shape = xs[0].shape
    if not shape:
        raise ValueError("a scalar cannot be reduced")
    if axis is None:
        xs, axis = [ravel(x) for x in xs], 0
    checked_axis(axis, len(xs[0].shape))
    made = [tensor(v) for v in builder().end_reduce(_combine(xs, combine_fn), int(axis), keep_dims and len(xs[0].shape) == len(shape))]
    if keep_dims and len(xs[0].shape) != len(shape):
        made = [reshape(to_tensor(m), [1] * len(shape)) for m in made]
    return tuple(made) if isinstance(input, (tuple, list)) else made[0]


@member
@builtin
def associative_scan(input: Any, axis: int, combine_fn: Any, reverse: bool = False) -> Any:
    xs = list(broadcast_all(*_as_list(input)))
    checked_axis(axis, len(xs[0].shape))
    made = [tensor(v) for v in builder().end_scan(_combine(xs, combine_fn), int(axis), reverse)]
    return tuple(made) if isinstance(input, (tuple, list)) else made[0]


def _types_given(fn: Any, kinds: list[dtype]) -> tuple[list[dtype], bool]:
    """The element types that a function of single elements gives, and whether that is a tuple: tried in a program that
    nobody keeps."""
    outer, _local.builder = builder(), TileBuilder("tried")
    try:
        made = value_of(generator().call(fn, [to_tensor(0, kind) for kind in kinds], {}))
        return [to_tensor(m).dtype for m in _as_list(made)], isinstance(made, (tuple, list))
    finally:
        _local.builder = outer


def _columns(x: tensor, count: int) -> list[tensor]:
    """Of each `count` elements that lie side by side the first, the second, and so on."""
    if count == 1:
        return [ravel(x)]
    halves = split(reshape(x, [x.numel // 2, 2]))
    return [c for pair in zip(*(_columns(h, count // 2) for h in halves)) for c in pair]


def _side_by_side(columns: Sequence[tensor]) -> tensor:
    if len(columns) == 1:
        return columns[0]
    return ravel(join(_side_by_side(columns[::2]), _side_by_side(columns[1::2])))  # type: ignore[no-any-return]


@builtin
def map_elementwise(scalar_fn: Any, *args: Any, pack: int = 1) -> Any:
    """A function of single elements, which may branch, of all of them. With `pack`, it takes as many elements of each tile
    at once, which lie side by side, and gives as many of each result."""
    xs = broadcast_all(*args)
    whole = list(xs[0].shape)
    if pack < 1 or pack & pack - 1 or xs[0].numel % pack:
        raise ValueError(f"{pack} elements at once: a power of two that divides {xs[0].numel}")
    if pack > 1:
        xs = [c for x in xs for c in _columns(x, pack)]
    kinds, several = _types_given(scalar_fn, [x.dtype for x in xs])
    if len(kinds) % pack:
        raise ValueError(f"the function returns {len(kinds)} values of {pack} elements")
    shape = list(xs[0].shape)
    blank = [full(shape, 0, kind) for kind in kinds]

    # A scan over pairs of one element: the second of a pair is what the function gives.
    def step(*both: Any) -> Any:
        second = list(both[len(xs) + len(blank):][:len(xs)])
        made = _as_list(value_of(generator().call(scalar_fn, second, {})))
        return (*second, *(to_tensor(m, kind) for m, kind in zip(made, kinds)))

    scanned = associative_scan(tuple(join(x, x) for x in [*xs, *blank]), len(shape), step)
    results = [split(s)[1] for s in scanned[len(xs):]]
    if pack > 1:
        results = [reshape(_side_by_side(results[n:n + pack]), whole) for n in builtins.range(0, len(results), pack)]
    return tuple(results) if several else results[0]


# Hints: nothing depends on them here.
def _hint(name: str) -> Callable[..., Any]:
    def apply(input: tensor, values: Any) -> tensor:
        if builtins.any(not isinstance(v, int) for v in _as_list(values)):
            raise TypeError(f"values of {name} must be known at compile time")
        if len(_as_list(values)) != builtins.max(1, len(input.shape)):
            raise ValueError(f"{name}: one value for each dimension")
        return input
    apply.__name__ = name
    return builtin(apply)


multiple_of, max_contiguous, max_constancy = (_hint(n) for n in ("multiple_of", "max_contiguous", "max_constancy"))


@builtin
def assume(cond: Any) -> None: return None
@builtin
def debug_barrier() -> None: return None


class constexpr_type(dtype):
    """The type of what is known when a kernel is compiled."""

    def __init__(self, value: Any):
        self.value, self.name, self.core = value_of(value), f"constexpr_type[{value_of(value)}]", "constexpr"
        self.primitive_bitwidth, self._kind, self.int_bitwidth, self.fp_mantissa_width = 0, "c", 0, 0

    def __repr__(self) -> str: return self.name
    def __eq__(self, other: Any) -> bool: return isinstance(other, constexpr_type) and self.value == other.value
    def __hash__(self) -> int: return hash(self.value)
    def mangle(self) -> str: return f"c{self.value}"


class range:
    """The iterator of a loop that is not unrolled; hints for pipelines have no meaning on a processor."""

    def __init__(self, arg1: Any, arg2: Any = None, step: Any = None, num_stages: Any = None,
                 loop_unroll_factor: Any = None, disallow_acc_multi_buffer: bool = False, flatten: bool = False,
                 warp_specialize: bool = False, disable_licm: bool = False):
        self.start: Any = 0 if arg2 is None else arg1
        self.end: Any = arg1 if arg2 is None else arg2
        self.step = 1 if step is None else step


class condition:
    """A condition of a loop by `while`, with hints for pipelines."""

    def __init__(self, arg1: Any, disable_licm: bool = False):
        self.condition = arg1


class static_range(range):
    """The iterator of a loop that is unrolled."""
