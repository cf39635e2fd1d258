"""Ops that read or write at places that a tensor gives."""

from __future__ import annotations

from typing import Any

import torch

from ..graph import GraphText, Size, Unsupported, Value, static, wrap
from .elementwise import floor_divide
from .registry import lowers


def from_front(g: GraphText, index: Value, size: Size) -> Value:
    """Places counted from the end, counted from the front."""
    index = g.cast(index, torch.int64)
    known = static(size)
    whole = g.const(known, torch.int64) if known is not None else g.scalar(size)
    low = g.op("less", index, g.const(0, torch.int64), dtype=torch.bool)
    return g.where(low, g.op("add", index, whole), index, torch.int64, index.shape)


@lowers("embedding")
def embedding(g: GraphText, meta: Any, table: Value, index: Value, *given: Any) -> Value:
    return g.op("gather", table, index, shape=meta.shape, axis=0)


@lowers("index_select")
def index_select(g: GraphText, meta: Any, x: Value, dim: int, index: Value) -> Value:
    if x.rank == 0:
        return x
    return g.op("gather", x, g.reshape(index, [1]) if index.rank == 0 else index, shape=meta.shape, axis=wrap(dim, x.rank))


@lowers("gather")
def gather(g: GraphText, meta: Any, x: Value, dim: int, index: Value, *, sparse_grad: bool = False) -> Value:
    index = g.cast(index, torch.int64)
    if 0 in [static(n) for n in index.shape]:
        return g.full(meta.shape, 0, meta.dtype)
    if x.rank == 0 or index.rank == 0:
        flat = g.op("gather_elements", _row(g, x), _row(g, index), shape=_row(g, index).shape, axis=0)
        return g.reshape(flat, meta.shape)
    return g.op("gather_elements", x, index, shape=meta.shape, axis=wrap(dim, x.rank))


def _row(g: GraphText, x: Value) -> Value:
    return g.reshape(x, [1]) if x.rank == 0 else x


def _indices(g: GraphText, x: Value, given: Any) -> tuple[list[int], list[Value], list[Size]]:
    """The dimensions that are indexed, by what, and the shape that the indices broadcast to."""
    axes = [i for i, v in enumerate(given) if v is not None]
    found = [given[i] for i in axes]
    if any(v.dtype in (torch.bool, torch.uint8) for v in found):
        raise Unsupported("indices that are masks")
    rank = max(v.rank for v in found)
    shape: list[Size] = [1] * rank
    for v in found:
        for i, n in enumerate(v.shape):
            at = rank - v.rank + i
            if static(shape[at]) == 1:
                shape[at] = n
    return axes, found, shape


def _flat(g: GraphText, x: Value, axes: list[int], found: list[Value], shape: list[Size]) -> Value:
    """One index of the indexed dimensions together, in the order of `axes`."""
    total: Value | None = None
    for axis, index in zip(axes, found):
        index = from_front(g, index, x.shape[axis])
        if total is None:
            total = index
            continue
        n = static(x.shape[axis])
        size = g.const(n, torch.int64) if n is not None else g.scalar(x.shape[axis])
        shape_of = total.shape if total.rank >= index.rank else index.shape
        total = g.op("add", g.op("mul", total, size), index, shape=shape_of)
    assert total is not None
    return g.expand(total, shape)


def _together(axes: list[int]) -> bool:
    return all(b == a + 1 for a, b in zip(axes, axes[1:]))


@lowers("index.Tensor", "_unsafe_index.Tensor")
def index(g: GraphText, meta: Any, x: Value, given: Any) -> Value:
    axes, found, shape = _indices(g, x, given)
    if len(axes) == 1:
        return g.op("gather", x, found[0], shape=meta.shape, axis=axes[0])
    rest = [i for i in range(x.rank) if i not in axes]
    front = g.transpose(x, axes + rest)
    count: Any = 1
    for a in axes:
        count = count * x.shape[a]
    flat = g.reshape(front, [count, *(x.shape[i] for i in rest)])
    y = g.op("gather", flat, _flat(g, x, axes, found, shape), shape=[*shape, *(x.shape[i] for i in rest)], axis=0)
    if _together(axes) and axes[0] > 0:  # the indices' dimensions take the place of those indexed
        k, first = len(shape), axes[0]
        order = [k + i for i in range(first)] + list(range(k)) + list(range(k + first, y.rank))
        y = g.transpose(y, order)
    return y


@lowers("index_put", "_unsafe_index_put")
def index_put(g: GraphText, meta: Any, x: Value, given: Any, values: Value, accumulate: bool = False) -> Value:
    masks = [v for v in given if v is not None and v.dtype == torch.bool]
    if len(masks) == 1 and len([v for v in given if v is not None]) == 1 and not accumulate and values.rank == 0:
        lead = next(i for i, v in enumerate(given) if v is not None)
        if lead == 0:
            mask = g.reshape(masks[0], [*masks[0].shape, *[1] * (x.rank - masks[0].rank)])
            return g.where(mask, values, x, x.dtype, x.shape)
    axes, found, shape = _indices(g, x, given)
    rest = [i for i in range(x.rank) if i not in axes]
    front = g.transpose(x, axes + rest)
    count: Any = 1
    for a in axes:
        count = count * x.shape[a]
    flat = g.reshape(front, [count, *(x.shape[i] for i in rest)])
    places = g.reshape(_flat(g, x, axes, found, shape), [*shape, 1])
    k, first = len(shape), axes[0]
    updates = g.cast(values, x.dtype)
    inner = [x.shape[i] for i in rest]
    if _together(axes) and first > 0:
        seen = inner[:first] + shape + inner[first:]
        updates = g.expand(updates, seen)
        updates = g.transpose(updates, [first + i for i in range(k)] + list(range(first)) + list(range(first + k, len(seen))))
    else:
        updates = g.expand(updates, shape + inner)
    if x.dtype == torch.bool and accumulate:
        raise Unsupported("sums of booleans")
    y = g.op("scatter_nd", flat, places, updates, reduction="add" if accumulate else "none")
    order = axes + rest
    return g.transpose(g.reshape(y, front.shape), [order.index(i) for i in range(x.rank)])


def _turns(g: GraphText, mask: Value, shape: Any) -> tuple[Value, Value, Value]:
    """The mask in a row, for each place how many before it are true, and how many places there are."""
    count: Any = 1
    for n in shape:
        count = count * n
    flat = g.reshape(g.expand(g.cast(mask, torch.int64), shape), [count])
    before = g.op("cum_sum", flat, g.const(0, torch.int64), exclusive=1)
    return g.cast(flat, torch.bool), before, flat


@lowers("masked_scatter")
def masked_scatter(g: GraphText, meta: Any, x: Value, mask: Value, source: Value) -> Value:
    flat, before, row = _turns(g, mask, meta.shape)
    if static(source.shape[0] if source.rank else 1) == 0 or 0 in [static(n) for n in source.shape]:
        return g.expand(x, meta.shape)
    count: Any = 1
    for n in source.shape:
        count = count * n
    size = g.scalar_size(count)
    inside = g.op("min", before, g.op("sub", size, g.const(1, torch.int64)), shape=before.shape)
    taken = g.op("gather", g.reshape(g.cast(source, x.dtype), [count]), inside, shape=row.shape, axis=0)
    old = g.reshape(g.expand(x, meta.shape), row.shape)
    return g.reshape(g.where(flat, taken, old, x.dtype, row.shape), meta.shape)


@lowers("masked_scatter_backward")
def masked_scatter_backward(g: GraphText, meta: Any, dy: Value, mask: Value, sizes: Any) -> Value:
    flat, before, row = _turns(g, mask, dy.shape)
    count: Any = 1
    for n in sizes:
        count = count * n
    spare = g.scalar_size(count)  # what is not taken goes behind the end
    places = g.where(flat, before, spare, torch.int64, row.shape)
    y = g.op("scatter_elements", g.full([count + 1], 0, dy.dtype), places, g.reshape(dy, row.shape), axis=0)
    return g.reshape(g.slice(y, 0, 0, count, 1, [count]), meta.shape)


def scatter(g: GraphText, x: Value, dim: int, index: Value, source: Value, reduction: str) -> Value:
    if 0 in [static(n) for n in index.shape]:
        return x
    if x.rank == 0:
        y = scatter(g, g.reshape(x, [1]), 0, _row(g, index), _row(g, source), reduction)
        return g.reshape(y, [])
    index, source = _row(g, index), _row(g, source)
    for i in range(x.rank):  # of the source, as much as there are indices
        if static(source.shape[i]) != static(index.shape[i]) or static(index.shape[i]) is None:
            shape = [index.shape[k] if k == i else n for k, n in enumerate(source.shape)]
            source = g.slice(source, i, 0, index.shape[i], 1, shape)
    return g.op("scatter_elements", x, g.cast(index, torch.int64), source, axis=wrap(dim, x.rank), reduction=reduction)


@lowers("scatter.src")
def scatter_src(g: GraphText, meta: Any, x: Value, dim: int, index: Value, source: Value) -> Value:
    return scatter(g, x, dim, index, source, "none")


@lowers("scatter.value")
def scatter_value(g: GraphText, meta: Any, x: Value, dim: int, index: Value, value: Any) -> Value:
    return scatter(g, x, dim, index, g.full(index.shape, value, x.dtype), "none")


@lowers("scatter_add")
def scatter_add(g: GraphText, meta: Any, x: Value, dim: int, index: Value, source: Value) -> Value:
    return scatter(g, x, dim, index, source, "add")


@lowers("scatter_reduce.two")
def scatter_reduce(g: GraphText, meta: Any, x: Value, dim: int, index: Value, source: Value, reduce: str, *,
                   include_self: bool = True) -> Value:
    name = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min", "mean": "add"}[reduce]
    if x.dtype == torch.bool:
        raise Unsupported("scatter_reduce of booleans")
    zeros, ones = g.full(index.shape, 0, x.dtype), g.full(index.shape, 1, x.dtype)
    if not include_self:  # where something arrives, what was there gives way to what changes nothing
        neutral = {"sum": 0, "mean": 0, "prod": 1, "amax": lowest(x.dtype), "amin": highest(x.dtype)}[reduce]
        x = scatter(g, x, dim, index, g.full(index.shape, neutral, x.dtype), "none")
    y = scatter(g, x, dim, index, source, name)
    if reduce != "mean":
        return y
    counts = g.full(x.shape, 1, x.dtype)
    if not include_self:
        counts = scatter(g, counts, dim, index, zeros, "none")
    counts = scatter(g, counts, dim, index, ones, "add")
    return floor_divide(g, y, counts, x.dtype, x.shape) if not x.dtype.is_floating_point else g.op("div", y, counts)


def lowest(dtype: torch.dtype) -> Any:
    return -float("inf") if dtype.is_floating_point else torch.iinfo(dtype).min


def highest(dtype: torch.dtype) -> Any:
    return float("inf") if dtype.is_floating_point else torch.iinfo(dtype).max


@lowers("index_add")
def index_add(g: GraphText, meta: Any, x: Value, dim: int, index: Value, source: Value, *, alpha: Any = 1) -> Value:
    if alpha != 1:
        source = g.op("mul", source, g.const(alpha, source.dtype))
    if x.rank == 0:
        raise Unsupported("index_add without dimensions")
    lead = [None] * wrap(dim, x.rank)
    return index_put(g, meta, x, [*lead, _row(g, index)], source, True)
