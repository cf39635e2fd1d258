"""Memory: pointers, block pointers and descriptors of arrays, and updates that nothing comes between."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

from . import _types as types
from ._core import arange, broadcast_to, builder, builtin, member, operand, reshape, shape_of, tensor, to_tensor, value_of
from ._types import dtype

@member
@builtin
def load(pointer: Any, mask: Any = None, other: Any = None, boundary_check: Any = (), padding_option: str = "",
         cache_modifier: str = "", eviction_policy: str = "", volatile: bool = False) -> tensor:
    _check_hints(cache_modifier, ("", ".ca", ".cg", ".cv"), eviction_policy)
    if padding_option not in ("", "zero", "nan", None):
        raise ValueError(f"Padding option {padding_option} not supported")
    if isinstance(pointer, block_pointer):
        if mask is not None or other is not None:
            raise ValueError("`mask` and `other` arguments cannot be specified for loading block pointers")
        at, inside = pointer.places(boundary_check)
        nan = padding_option == "nan"
        if nan and not pointer.element.is_floating():
            raise ValueError("Padding option `nan` is not supported for integer block pointers")
        return load(at, mask=inside, other=float("nan") if nan and inside is not None else None)  # type: ignore[no-any-return]
    if boundary_check or padding_option:
        raise ValueError("`padding_option` or `boundary_check` argument is not supported for loading a tensor of pointers "
                         "or loading a scalar")
    at = to_tensor(pointer)
    if not at.dtype.is_ptr():
        raise ValueError(f"Unsupported ptr type {at.type} in `tl.load`: array arguments are pointers; integers are not")
    if mask is None and other is not None:
        raise ValueError("`other` cannot be provided without `mask`")
    for what, value in (("Mask", mask), ("Other", other)):
        if isinstance(value, tensor) and value.shape and not at.shape:
            raise ValueError(f"{what} argument cannot be block type if pointer argument is not a block")
    return tensor(builder().load(at.handle, None if mask is None else operand(mask),
                                 None if other is None else operand(other)))


def _check_hints(cache: Any, caches: tuple[str, ...], eviction: Any) -> None:
    if cache and cache not in caches:
        raise ValueError(f"Cache modifier {cache} not supported")
    if eviction and eviction not in ("evict_last", "evict_first"):
        raise ValueError(f"Eviction policy {eviction} not supported")


def _stored_to(pointer: Any, by: str) -> tensor:
    at = to_tensor(pointer)
    if not at.dtype.is_ptr():
        raise ValueError(f"Unsupported ptr type {at.type} in `tl.{by}`")
    if at.const:
        raise ValueError("Cannot store to a constant pointer: of a read-only array, or a parameter that is tl.const")
    return at


@member
@builtin
def store(pointer: Any, value: Any, mask: Any = None, boundary_check: Any = (), cache_modifier: str = "",
          eviction_policy: str = "") -> None:
    _check_hints(cache_modifier, ("", ".wb", ".cg", ".cs", ".wt"), eviction_policy)
    if isinstance(pointer, block_pointer):
        if mask is not None:
            raise ValueError("`mask` and `other` arguments cannot be specified for storing block pointers")
        if isinstance(value, tensor) and value.shape and list(value.shape) != pointer.block:
            raise AssertionError(f"Block shape({pointer.block}) and value shape({list(value.shape)}) mismatch")
        if isinstance(value, tensor) and value.dtype != pointer.element:
            raise AssertionError(f"Block element type({pointer.element}) and value element type({value.dtype}) mismatch")
        at, inside = pointer.places(boundary_check)
        store(at, broadcast_to(to_tensor(value), pointer.block), mask=inside)
        return
    at = _stored_to(pointer, "store")
    for what, given in (("Value", value), ("Mask", mask)):
        if isinstance(given, tensor) and given.shape and not at.shape:
            raise ValueError(f"{what} argument cannot be block type if pointer argument is not a block")
    builder().store(at.handle, operand(value), None if mask is None else operand(mask))


_ORDERS = (None, "", "acquire", "release", "acq_rel", "relaxed")
_SCOPES = (None, "", "gpu", "cta", "sys")


def _check_order(sem: Any, scope: Any) -> None:
    if sem not in _ORDERS:
        raise ValueError(f"Memory semantic {sem} not supported")
    if scope not in _SCOPES:
        raise ValueError(f"Memory scope {scope} not supported")


def _atomic(name: str, how: str) -> Callable[..., Any]:
    def apply(pointer: tensor, val: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> tensor:
        _check_order(sem, scope)
        at = _stored_to(pointer, name)
        kind: dtype = at.dtype.element_ty  # type: ignore[attr-defined]
        if kind.primitive_bitwidth < 16 or kind.primitive_bitwidth == 16 and not kind.is_floating():
            raise ValueError(f"{name} does not support {kind}")
        return tensor(builder().atomic(how, at.handle, operand(val), None if mask is None else operand(mask)))
    apply.__name__ = name
    return member(builtin(apply))


atomic_add, atomic_max, atomic_min, atomic_and, atomic_or, atomic_xor, atomic_xchg = (
    _atomic(f"atomic_{n}", how) for n, how in (("add", "add"), ("max", "max"), ("min", "min"), ("and", "and"), ("or", "or"),
                                               ("xor", "xor"), ("xchg", "exchange")))


@member
@builtin
def atomic_cas(pointer: tensor, cmp: Any, val: Any, sem: Any = None, scope: Any = None) -> tensor:
    _check_order(sem, scope)
    at = _stored_to(pointer, "atomic_cas")
    if at.dtype.element_ty.primitive_bitwidth not in (16, 32, 64):  # type: ignore[attr-defined]
        raise ValueError("atomic_cas only supports elements with width {16, 32, 64}")
    return tensor(builder().atomic("compare", at.handle, operand(val), None, operand(cmp)))


class block_pointer:
    """A place in an array of some dimensions, from which whole tiles are loaded."""

    def __init__(self, base: tensor, shape: list[tensor], strides: list[tensor], offsets: list[tensor], block: list[int]):
        self.base, self.shape, self.strides, self.offsets, self.block = base, shape, strides, offsets, block

    @property
    def element(self) -> dtype: return self.base.dtype.element_ty  # type: ignore[attr-defined, no-any-return]

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
        if any(not 0 <= axis < len(self.block) for axis in checked):
            raise AssertionError(f"`boundary_check` must have dimensions below {len(self.block)}, not {tuple(checked)}")
        if len(set(checked)) != len(checked):
            raise AssertionError("Duplicate dimension in `boundary_check`")
        at: Any = self.base
        inside: Any = None
        for axis in builtins.range(len(self.block)):
            index = self.along(axis)
            at = at + index.to(types.int64) * self.strides[axis]
            if axis in checked:
                good = (index >= 0) & (index < self.shape[axis])
                inside = good if inside is None else inside & good
        return broadcast_to(at, self.block), inside

    def advance(self, offsets: Sequence[Any]) -> "block_pointer":
        moved = [a + value_of(o) for a, o in zip(self.offsets, offsets)]
        return block_pointer(self.base, self.shape, self.strides, moved, self.block)


@builtin
def make_block_ptr(base: tensor, shape: Any, strides: Any, offsets: Any, block_shape: Any, order: Any) -> block_pointer:
    if not isinstance(base.dtype, types.pointer_type) or base.shape:
        raise ValueError("Expected `base` to be a pointer type (but not a block pointer type or others)")
    block = shape_of([block_shape])
    if len({len(shape), len(strides), len(offsets), len(block), len(order)}) != 1:
        raise ValueError("Expected shape/strides/offsets/block_shape to have the same length")
    if sorted(order) != list(builtins.range(len(order))):
        raise ValueError(f"Expected a permutation of (0, 1, ..., len(order)-1) in order, not {order}")
    return block_pointer(base, [to_tensor(s, types.int64) for s in shape], [to_tensor(s, types.int64) for s in strides],
                         [to_tensor(o, types.int32) for o in offsets], block)


@builtin
def advance(base: block_pointer, offsets: Any) -> block_pointer: return base.advance(offsets)


_BITS = ("i32", "u32", "i64", "u64")
# Element types that descriptors have updates of.
_UPDATED = {"add": ("i32", "u32", "u64", "f16", "bf16", "f32"), "min": (*_BITS, "f16", "bf16"), "max": (*_BITS, "f16", "bf16"),
            "and": _BITS, "or": _BITS, "xor": _BITS}


class tensor_descriptor(block_pointer):
    """An array of some dimensions: tiles are loaded and stored at any place, 0 (or NaN) beyond its end."""

    padding = "zero"

    def unflatten(self, values: list[tensor]) -> "tensor_descriptor":
        n = len(self.shape)
        made = tensor_descriptor(values[0], values[1:1 + n], values[1 + n:1 + 2 * n], values[1 + 2 * n:1 + 3 * n], self.block)
        made.padding = self.padding
        return made

    @property
    def block_shape(self) -> list[int]: return self.block
    @property
    def dtype(self) -> dtype: return self.element
    @property
    def type(self) -> types.block_type: return types.block_type(self.element, self.block)
    @property
    def block_type(self) -> types.block_type: return types.block_type(self.element, self.block)

    def _at(self, offsets: Any) -> tuple[tensor, tensor | None]:
        places = value_of(offsets)
        if len(places) != len(self.block):
            raise ValueError(f"expected {len(self.block)} offsets, but got {len(places)}")
        placed = block_pointer(self.base, self.shape, self.strides, [to_tensor(o, types.int32) for o in places], self.block)
        return placed.places(builtins.range(len(self.block)))

    def load(self, offsets: Any) -> tensor:
        at, inside = self._at(offsets)
        return load(at, mask=inside, other=float("nan") if self.padding == "nan" else None)  # type: ignore[no-any-return]

    def store(self, offsets: Any, value: Any) -> None:
        at, inside = self._at(offsets)
        store(at, reshape(to_tensor(value), self.block), mask=inside)

    def _rows(self, rows: tensor, column: Any) -> tuple[tensor, tensor]:
        """Places of some rows, from a column on."""
        index = rows.to(types.int64)[:, None]
        along = (to_tensor(column, types.int64) + arange(0, self.block[1]))[None, :]
        inside = (index >= 0) & (index < self.shape[0]) & (along >= 0) & (along < self.shape[1])
        return self.base + index * self.strides[0] + along * self.strides[1], inside

    def gather(self, *args: Any) -> tensor:
        at, inside = self._rows(args[0], args[1])
        return load(at, mask=inside)  # type: ignore[no-any-return]

    def scatter(self, value: tensor, *args: Any) -> None:
        at, inside = self._rows(args[0], args[1])
        store(at, value, mask=inside)

    def _update(self, how: Any, offsets: Any, value: Any) -> None:
        taken = _UPDATED[how.__name__[len("atomic_"):]]
        if self.element.core not in taken:
            raise AssertionError(f"Unsupported dtype {self.element}: {how.__name__} of a descriptor is for {', '.join(taken)}")
        at, inside = self._at(offsets)
        how(at, reshape(to_tensor(value), self.block), mask=inside)

    def atomic_add(self, offsets: Any, value: Any) -> None: self._update(atomic_add, offsets, value)
    def atomic_min(self, offsets: Any, value: Any) -> None: self._update(atomic_min, offsets, value)
    def atomic_max(self, offsets: Any, value: Any) -> None: self._update(atomic_max, offsets, value)
    def atomic_and(self, offsets: Any, value: Any) -> None: self._update(atomic_and, offsets, value)
    def atomic_or(self, offsets: Any, value: Any) -> None: self._update(atomic_or, offsets, value)
    def atomic_xor(self, offsets: Any, value: Any) -> None: self._update(atomic_xor, offsets, value)


@builtin
def make_tensor_descriptor(base: tensor, shape: Any, strides: Any, block_shape: Any,
                           padding_option: str = "zero") -> tensor_descriptor:
    shape, strides, block_shape = (list(value_of(sizes)) for sizes in (shape, strides, block_shape))
    block = shape_of([block_shape])
    rank = len(block)
    if not 1 <= rank <= 5:
        raise ValueError(f"Expected 1 <= ndim <= 5 but got {rank} dimensions")
    for what, given in (("strides", strides), ("shape", shape)):
        if len(given) != rank:
            raise ValueError(f"Expected {rank} {what} but got {len(given)}")
    width = base.dtype.element_ty.itemsize  # type: ignore[attr-defined]
    if block[-1] * width < 16:
        raise ValueError(f"Descriptor block shape must have at least 16 bytes in the last dimension, but got {block[-1]} * "
                         f"{width} = {block[-1] * width} bytes")
    if isinstance(value_of(strides[-1]), int) and value_of(strides[-1]) != 1:
        raise ValueError(f"Tensor descriptor last dim must be 1 but got {value_of(strides[-1])}")
    if padding_option == "nan" and not base.dtype.element_ty.is_floating():  # type: ignore[attr-defined]
        raise ValueError("Padding option `nan` is not supported for integer blocks")
    made = tensor_descriptor(base, [to_tensor(s, types.int64) for s in shape], [to_tensor(s, types.int64) for s in strides],
                             [to_tensor(0) for _ in block], block)
    made.padding = padding_option
    return made


@builtin
def load_tensor_descriptor(desc: tensor_descriptor, offsets: Any) -> tensor: return desc.load(offsets)
@builtin
def store_tensor_descriptor(desc: tensor_descriptor, offsets: Any, value: Any) -> None: desc.store(offsets, value)
