"""Ops that place elements elsewhere: shapes, slices, joins, pads."""

from __future__ import annotations

from typing import Any

import torch

from ..graph import GraphText, Size, Unsupported, Value, expression, static, static_shape, wrap
from .registry import lowers


@lowers("view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "squeeze.dim", "squeeze.dims", "flatten.using_ints", "_reshape_alias")
def view(g: GraphText, meta: Any, x: Value, *given: Any) -> Value:
    return g.reshape(x, meta.shape)


@lowers("view.dtype")
def view_dtype(g: GraphText, meta: Any, x: Value, dtype: torch.dtype) -> Value:
    if dtype == x.dtype:
        return x
    raise Unsupported("bits of another element type")


@lowers("expand")
def expand(g: GraphText, meta: Any, x: Value, sizes: Any, *, implicit: bool = False) -> Value:
    return g.expand(x, meta.shape)


@lowers("permute")
def permute(g: GraphText, meta: Any, x: Value, dims: Any) -> Value:
    return g.transpose(x, [wrap(d, x.rank) for d in dims])


@lowers("transpose.int")
def transpose(g: GraphText, meta: Any, x: Value, a: int, b: int) -> Value:
    perm = list(range(x.rank))
    if x.rank:
        a, b = wrap(a, x.rank), wrap(b, x.rank)
        perm[a], perm[b] = perm[b], perm[a]
    return g.transpose(x, perm)


@lowers("t")
def t(g: GraphText, meta: Any, x: Value) -> Value:
    return g.transpose(x, list(reversed(range(x.rank))))


def bound(n: Any, size: Size) -> Size:
    """A slice's bound as PyTorch reads it."""
    whole, known = static(size), None if isinstance(n, torch.SymInt) else int(n)
    if known is not None and known < 0:
        return max(whole + known, 0) if whole is not None else size + known
    if known is not None and whole is not None:
        return min(known, whole)
    return size if known is not None and known >= 1 << 62 else n


@lowers("slice.Tensor")
def slice_(g: GraphText, meta: Any, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Value:
    axis = wrap(dim, x.rank)
    size = x.shape[axis]
    first = bound(0 if start is None else start, size)
    last = bound(size if end is None else end, size)
    if step == 1 and static(first) == 0 and expression(last) == expression(size):
        return x
    return g.slice(x, axis, first, last, step, meta.shape)


@lowers("select.int")
def select(g: GraphText, meta: Any, x: Value, dim: int, index: Any) -> Value:
    axis = wrap(dim, x.rank)
    if isinstance(index, torch.SymInt):
        return g.op("gather", x, g.scalar(index), shape=meta.shape, axis=axis)
    size = static(x.shape[axis])
    if index < 0 and size is not None:
        index += size
    if index < 0:
        return g.op("gather", x, g.const(index, torch.int64), shape=meta.shape, axis=axis)
    part = g.slice(x, axis, index, index + 1, 1, [1 if i == axis else n for i, n in enumerate(x.shape)])
    return g.reshape(part, meta.shape)


@lowers("cat", "concat")
def cat(g: GraphText, meta: Any, parts: list[Value], dim: int = 0) -> Value:
    kept = [g.cast(p, meta.dtype) for p in parts if not (p.rank == 1 and static(p.shape[0]) == 0 and len(meta.shape) != 1)]
    if not kept:
        return g.full(meta.shape, 0, meta.dtype)
    return kept[0] if len(kept) == 1 else g.op("concat", *kept, shape=meta.shape, axis=wrap(dim, len(meta.shape)))


@lowers("stack")
def stack(g: GraphText, meta: Any, parts: list[Value], dim: int = 0) -> Value:
    axis = wrap(dim, len(meta.shape))
    shape = [1 if i == axis else n for i, n in enumerate(meta.shape)]
    return cat(g, meta, [g.reshape(p, shape) for p in parts], axis)


def pieces(g: GraphText, meta: Any, x: Value, axis: int) -> list[Value]:
    found, at = [], 0
    for part in meta:
        size = part.shape[axis]
        found.append(g.slice(x, axis, at, at + size, 1, part.shape))
        at = at + size
    return found


@lowers("split_with_sizes", "split.Tensor", "chunk")
def split(g: GraphText, meta: Any, x: Value, sizes: Any, dim: int = 0) -> list[Value]:
    return pieces(g, meta, x, wrap(dim, x.rank))


@lowers("unbind.int")
def unbind(g: GraphText, meta: Any, x: Value, dim: int = 0) -> list[Value]:
    return [select(g, part, x, dim, i) for i, part in enumerate(meta)]


@lowers("repeat")
def repeat(g: GraphText, meta: Any, x: Value, times: Any) -> Value:
    padded = g.reshape(x, [1] * (len(times) - x.rank) + list(x.shape))
    return g.op("tile", padded, g.dims(times), shape=meta.shape) if len(times) else x


@lowers("flip")
def flip(g: GraphText, meta: Any, x: Value, dims: Any) -> Value:
    for d in dims:
        if x.rank:
            axis = g.ints([wrap(d, x.rank)])
            x = g.op("slice", x, g.ints([-1]), g.ints([-(2**62)]), axis, g.ints([-1]))
    return x


@lowers("roll")
def roll(g: GraphText, meta: Any, x: Value, shifts: Any, dims: Any = ()) -> Value:
    if not dims:
        flat = g.reshape(x, [_count(x)])
        return g.reshape(roll(g, flat, flat, shifts, [0]), meta.shape)
    for shift, d in zip(shifts, dims):
        axis = wrap(d, x.rank)
        size = x.shape[axis]
        if static(size) == 0:
            continue
        if static(size) is None:
            raise Unsupported("roll along a dynamic size")
        cut = -shift % size
        if cut:
            shape = list(x.shape)
            parts = [g.slice(x, axis, cut, size, 1, shape[:axis] + [size - cut] + shape[axis + 1:]),
                     g.slice(x, axis, 0, cut, 1, shape[:axis] + [cut] + shape[axis + 1:])]
            x = g.op("concat", *parts, shape=x.shape, axis=axis)
    return x


def _count(x: Value) -> Size:
    total: Any = 1
    for n in x.shape:
        total = total * n
    return total


def pad(g: GraphText, x: Value, pads: Any, value: Any, mode: str, shape: Any) -> Value:
    """`pads` as PyTorch has them: pairs, the last dimension first."""
    rank, before, after = x.rank, [0] * x.rank, [0] * x.rank
    for i in range(len(pads) // 2):
        before[rank - 1 - i], after[rank - 1 - i] = pads[2 * i], pads[2 * i + 1]
    if any(isinstance(n, torch.SymInt) for n in before + after):
        raise Unsupported("pads of dynamic sizes")
    for i in range(rank):  # what is negative is cut off
        low, high = min(before[i], 0), min(after[i], 0)
        if low or high:
            kept = x.shape[i] + low + high
            x = g.slice(x, i, -low, -low + kept, 1, [kept if k == i else n for k, n in enumerate(x.shape)])
            before[i], after[i] = max(before[i], 0), max(after[i], 0)
    if not any(before + after):
        return x
    extra = [g.const(value, x.dtype)] if mode == "constant" else []
    if x.dtype == torch.bool and extra:
        wide = pad(g, g.cast(x, torch.uint8), pads, int(value), mode, shape)
        return g.cast(wide, torch.bool)
    return g.op("pad", x, g.ints(before + after), *extra, shape=shape, mode=mode)


@lowers("constant_pad_nd")
def constant_pad(g: GraphText, meta: Any, x: Value, pads: Any, value: Any = 0) -> Value:
    return pad(g, x, pads, value, "constant", meta.shape)


@lowers("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def reflection_pad(g: GraphText, meta: Any, x: Value, pads: Any) -> Value:
    return pad(g, x, pads, 0, "reflect", meta.shape)


@lowers("replication_pad1d", "replication_pad2d", "replication_pad3d")
def replication_pad(g: GraphText, meta: Any, x: Value, pads: Any) -> Value:
    return pad(g, x, pads, 0, "edge", meta.shape)


def _pad_backward(mode: str) -> Any:
    def write(g: GraphText, meta: Any, dy: Value, x: Value, pads: Any) -> Value:
        return g.vjp(pad(g, x, pads, 0, mode, dy.shape), dy, [x])[0]

    return write


lowers("reflection_pad1d_backward", "reflection_pad2d_backward", "reflection_pad3d_backward")(_pad_backward("reflect"))
lowers("replication_pad1d_backward", "replication_pad2d_backward", "replication_pad3d_backward")(_pad_backward("edge"))


@lowers("slice_scatter")
def slice_scatter(g: GraphText, meta: Any, x: Value, source: Value, dim: int = 0, start: Any = None, end: Any = None,
                  step: int = 1) -> Value:
    axis = wrap(dim, x.rank)
    size = x.shape[axis]
    source = g.expand(g.cast(source, x.dtype), source.shape)
    first = bound(0 if start is None else start, size)
    last = bound(size if end is None else end, size)
    if step == 1 and static(first) is not None and (static(last) is not None or expression(last) == expression(size)):
        def part(a: Size, b: Size) -> list[Value]:
            if expression(a) == expression(b):
                return []
            return [g.slice(x, axis, a, b, 1, [b - a if i == axis else n for i, n in enumerate(x.shape)])]
        middle = [source] if static(source.shape[axis]) != 0 else []
        joined = part(0, first) + middle + part(last if middle else first, size)
        return joined[0] if len(joined) == 1 else g.op("concat", *joined, shape=x.shape, axis=axis)
    count = static(source.shape[axis])
    if count is None or static(first) is None:
        raise Unsupported("slice_scatter of dynamic sizes")
    places = g.ints([first + step * i for i in range(count)])
    shape = [count if i == axis else 1 for i in range(x.rank)]
    index = g.expand(g.reshape(places, shape), source.shape)
    return g.op("scatter_elements", x, index, source, axis=axis)


@lowers("select_scatter")
def select_scatter(g: GraphText, meta: Any, x: Value, source: Value, dim: int, index: Any) -> Value:
    axis = wrap(dim, x.rank)
    size = static(x.shape[axis])
    if isinstance(index, torch.SymInt) or (index < 0 and size is None):
        raise Unsupported("select_scatter at a dynamic place")
    at = index + (size or 0) if index < 0 else index
    row = g.reshape(source, [1 if i == axis else n for i, n in enumerate(x.shape)])
    return slice_scatter(g, meta, x, row, axis, at, at + 1)


@lowers("diagonal")
def diagonal(g: GraphText, meta: Any, x: Value, offset: int = 0, a: int = 0, b: int = 1) -> Value:
    a, b = wrap(a, x.rank), wrap(b, x.rank)
    shape = static_shape(x.shape, "diagonal")
    rest = [i for i in range(x.rank) if i not in (a, b)]
    length = static_shape(meta.shape)[-1]
    rows = [i + max(-offset, 0) for i in range(length)]
    flat = g.reshape(g.transpose(x, [*rest, a, b]), [*(shape[i] for i in rest), shape[a] * shape[b]])
    places = [r * shape[b] + i + max(offset, 0) for i, r in enumerate(rows)]
    return g.op("gather", flat, g.ints(places), shape=meta.shape, axis=len(rest))


@lowers("as_strided")
def as_strided(g: GraphText, meta: Any, x: Value, sizes: Any, strides: Any, offset: Any = None) -> Value:
    shape, sizes, strides = static_shape(x.shape, "as_strided"), static_shape(sizes), static_shape(strides)
    if not x.contiguous:
        raise Unsupported("as_strided of a tensor that is not contiguous")
    count = 1
    for n in shape:
        count *= n
    flat = g.reshape(x, [count])
    places: Value = g.const(offset or 0, torch.int64)
    for i, (n, s) in enumerate(zip(sizes, strides)):
        line = g.op("range", g.const(0, torch.int64), g.const(n, torch.int64), g.const(1, torch.int64), dtype=torch.int64, shape=(n,))
        line = g.reshape(g.op("mul", line, g.const(s, torch.int64)), [n if k == i else 1 for k in range(len(sizes))])
        places = g.op("add", places, line, shape=[n if k <= i else 1 for k, n in enumerate(sizes)])
    return g.op("gather", flat, g.expand(places, sizes), shape=meta.shape, axis=0)


@lowers("tril")
def tril(g: GraphText, meta: Any, x: Value, diagonal: int = 0) -> Value:
    return g.op("trilu", x, g.const(diagonal, torch.int64), upper=0)


@lowers("triu")
def triu(g: GraphText, meta: Any, x: Value, diagonal: int = 0) -> Value:
    return g.op("trilu", x, g.const(diagonal, torch.int64), upper=1)


@lowers("split_with_sizes_copy")
def split_copy(g: GraphText, meta: Any, x: Value, sizes: Any, dim: int = 0) -> list[Value]:
    return split(g, meta, x, sizes, dim)
