"""Ops that combine elements along dimensions: sums, extremes, softmax, running sums, sorting."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..graph import GraphText, Unsupported, Value, static, wrap
from .registry import lowers


def axes_of(x: Value, dims: Any) -> list[int]:
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        return list(range(x.rank))
    return [wrap(d, x.rank) for d in (dims if isinstance(dims, (list, tuple)) else [dims])] if x.rank else []


def one(meta: Any) -> Any:
    return meta[0] if isinstance(meta, (list, tuple)) else meta


@lowers("sum", "sum.dim_IntList")
def sum_(g: GraphText, meta: Any, x: Value, dims: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    return g.reduce("reduce_sum", g.cast(x, meta.dtype), axes_of(x, dims), keepdim, meta.shape)


@lowers("mean", "mean.dim")
def mean(g: GraphText, meta: Any, x: Value, dims: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    return g.reduce("reduce_mean", g.cast(x, meta.dtype), axes_of(x, dims), keepdim, meta.shape)


@lowers("prod", "prod.dim_int")
def prod(g: GraphText, meta: Any, x: Value, dims: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    return g.reduce("reduce_prod", g.cast(x, meta.dtype), axes_of(x, dims), keepdim, meta.shape)


def extreme(g: GraphText, name: str, x: Value, axes: list[int], keepdim: bool, shape: Any) -> Value:
    if x.dtype == torch.bool:
        return g.cast(g.reduce(name, g.cast(x, torch.uint8), axes, keepdim, shape), torch.bool)
    return g.reduce(name, x, axes, keepdim, shape)


@lowers("amax", "max")
def amax(g: GraphText, meta: Any, x: Value, dims: Any = None, keepdim: bool = False) -> Value:
    return extreme(g, "reduce_max", x, axes_of(x, dims), keepdim, meta.shape)


@lowers("amin", "min")
def amin(g: GraphText, meta: Any, x: Value, dims: Any = None, keepdim: bool = False) -> Value:
    return extreme(g, "reduce_min", x, axes_of(x, dims), keepdim, meta.shape)


@lowers("any", "any.dim", "any.dims")
def any_(g: GraphText, meta: Any, x: Value, dims: Any = None, keepdim: bool = False) -> Value:
    y = extreme(g, "reduce_max", g.cast(x, torch.bool), axes_of(x, dims), keepdim, meta.shape)
    return g.cast(y, meta.dtype)


@lowers("all", "all.dim", "all.dims")
def all_(g: GraphText, meta: Any, x: Value, dims: Any = None, keepdim: bool = False) -> Value:
    y = extreme(g, "reduce_min", g.cast(x, torch.bool), axes_of(x, dims), keepdim, meta.shape)
    return g.cast(y, meta.dtype)


def position(g: GraphText, name: str, x: Value, dim: int | None, keepdim: bool, shape: Any) -> Value:
    if x.dtype == torch.bool:
        x = g.cast(x, torch.uint8)
    if x.rank == 0:
        return g.full((), 0, torch.int64)
    if dim is None:
        flat = g.reshape(x, [_elements(x.shape)])
        return g.reshape(g.op(name, flat, dtype=torch.int64, shape=(), axis=0, keepdims=0), shape)
    return g.op(name, x, dtype=torch.int64, shape=shape, axis=wrap(dim, x.rank), keepdims=int(keepdim))


def _elements(shape: Any) -> Any:
    total: Any = 1
    for n in shape:
        total = total * n
    return total


@lowers("argmax")
def argmax(g: GraphText, meta: Any, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    return position(g, "arg_max", x, dim, keepdim, meta.shape)


@lowers("argmin")
def argmin(g: GraphText, meta: Any, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    return position(g, "arg_min", x, dim, keepdim, meta.shape)


@lowers("max.dim")
def max_dim(g: GraphText, meta: Any, x: Value, dim: int, keepdim: bool = False) -> list[Value]:
    return [extreme(g, "reduce_max", x, axes_of(x, dim), keepdim, meta[0].shape),
            position(g, "arg_max", x, dim, keepdim, meta[1].shape)]


@lowers("min.dim")
def min_dim(g: GraphText, meta: Any, x: Value, dim: int, keepdim: bool = False) -> list[Value]:
    return [extreme(g, "reduce_min", x, axes_of(x, dim), keepdim, meta[0].shape),
            position(g, "arg_min", x, dim, keepdim, meta[1].shape)]


def count_of(g: GraphText, x: Value, axes: list[int], dtype: torch.dtype) -> Value:
    total: Any = 1
    for a in axes:
        total = total * x.shape[a]
    known = static(total)
    return g.const(known, dtype) if known is not None else g.cast(g.scalar(total), dtype)


def variance(g: GraphText, x: Value, axes: list[int], correction: Any, keepdim: bool, shape: Any) -> tuple[Value, Value]:
    """The variance, and the mean that it is around, with its dimensions kept."""
    middle = g.reduce("reduce_mean", x, axes, True)
    off = g.op("sub", x, middle)
    total = g.reduce("reduce_sum", g.op("mul", off, off), axes, keepdim, shape)
    count = count_of(g, x, axes, x.dtype)
    count = g.op("max", g.op("sub", count, g.const(correction, x.dtype)), g.const(0, x.dtype))
    return g.op("div", total, count), middle


@lowers("var.correction", "var.dim", "var")
def var(g: GraphText, meta: Any, x: Value, dims: Any = None, unbiased: Any = True, keepdim: bool = False, *,
        correction: Any = None) -> Value:
    correction = correction if correction is not None else int(bool(unbiased))
    return variance(g, x, axes_of(x, dims), correction, keepdim, meta.shape)[0]


@lowers("var_mean.correction", "var_mean.dim")
def var_mean(g: GraphText, meta: Any, x: Value, dims: Any = None, unbiased: Any = True, keepdim: bool = False, *,
             correction: Any = None) -> list[Value]:
    correction = correction if correction is not None else int(bool(unbiased))
    found, middle = variance(g, x, axes_of(x, dims), correction, keepdim, meta[0].shape)
    return [found, g.reshape(middle, meta[1].shape)]


@lowers("std.correction", "std.dim")
def std(g: GraphText, meta: Any, x: Value, dims: Any = None, unbiased: Any = True, keepdim: bool = False, *,
        correction: Any = None) -> Value:
    return g.op("sqrt", var(g, meta, x, dims, unbiased, keepdim, correction=correction))


@lowers("logsumexp")
def logsumexp(g: GraphText, meta: Any, x: Value, dims: Any, keepdim: bool = False) -> Value:
    x = g.cast(x, meta.dtype)
    axes = axes_of(x, dims)
    top = g.reduce("reduce_max", x, axes, True)
    finite = g.where(g.op("is_inf", top, dtype=torch.bool), 0.0, top, x.dtype, top.shape)
    total = g.op("log", g.reduce("reduce_sum", g.op("exp", g.op("sub", x, finite)), axes, True))
    return g.reshape(g.op("add", total, finite), meta.shape)


@lowers("_softmax")
def softmax(g: GraphText, meta: Any, x: Value, dim: int, to_float: bool = False) -> Value:
    x = g.cast(x, meta.dtype)
    if x.rank == 0:
        return g.full((), 1, x.dtype)
    return g.op("softmax", x, axis=wrap(dim, x.rank))


@lowers("_log_softmax")
def log_softmax(g: GraphText, meta: Any, x: Value, dim: int, to_float: bool = False) -> Value:
    x = g.cast(x, meta.dtype)
    if x.rank == 0:
        return g.full((), 0, x.dtype)
    return g.op("log_softmax", x, axis=wrap(dim, x.rank))


@lowers("_softmax_backward_data")
def softmax_backward(g: GraphText, meta: Any, dy: Value, y: Value, dim: int, dtype: torch.dtype) -> Value:
    both = g.op("mul", dy, y)
    total = g.reduce("reduce_sum", both, axes_of(y, dim), True)
    return g.op("sub", both, g.op("mul", y, total))


@lowers("_log_softmax_backward_data")
def log_softmax_backward(g: GraphText, meta: Any, dy: Value, y: Value, dim: int, dtype: torch.dtype) -> Value:
    total = g.reduce("reduce_sum", dy, axes_of(y, dim), True)
    return g.op("sub", dy, g.op("mul", g.op("exp", y), total))


def running(g: GraphText, name: str, meta: Any, x: Value, dim: int) -> Value:
    x = g.cast(x, meta.dtype)
    if x.rank == 0:
        return x
    return g.op(name, x, g.const(wrap(dim, x.rank), torch.int64))


@lowers("cumsum")
def cumsum(g: GraphText, meta: Any, x: Value, dim: int, dtype: Any = None) -> Value:
    return running(g, "cum_sum", meta, x, dim)


@lowers("cumprod")
def cumprod(g: GraphText, meta: Any, x: Value, dim: int, dtype: Any = None) -> Value:
    return running(g, "cum_prod", meta, x, dim)


@lowers("topk")
def topk(g: GraphText, meta: Any, x: Value, k: Any, dim: int = -1, largest: bool = True, ordered: bool = True) -> list[Value]:
    if x.rank == 0:
        return [x, g.full((), 0, torch.int64)]
    if x.dtype == torch.bool:
        raise Unsupported("sorting booleans")
    return g.ops("top_k", [x, g.dims([meta[0].shape[dim]])], [(x.dtype, meta[0].shape), (torch.int64, meta[0].shape)],
                 {"axis": wrap(dim, x.rank), "largest": int(largest), "sorted": 1})


@lowers("sort", "sort.stable")
def sort(g: GraphText, meta: Any, x: Value, dim: int = -1, descending: bool = False, *, stable: Any = None) -> list[Value]:
    flag = x.dtype == torch.bool
    values, places = topk(g, meta, g.cast(x, torch.uint8) if flag else x, None, dim, descending)
    return [g.cast(values, torch.bool) if flag else values, places]




@lowers("norm.ScalarOpt_dim", "norm.Scalar", "linalg_vector_norm")
def norm(g: GraphText, meta: Any, x: Value, p: Any = 2, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    x = g.cast(x, meta.dtype)
    p = 2 if p is None else p
    axes, size = axes_of(x, dims), g.op("abs", g.cast(x, meta.dtype))
    if p == math.inf:
        return g.reduce("reduce_max", size, axes, keepdim, meta.shape)
    if p == -math.inf:
        return g.reduce("reduce_min", size, axes, keepdim, meta.shape)
    if p == 0:
        there = g.cast(g.op("not", g.op("equal", x, g.const(0, x.dtype), dtype=torch.bool)), x.dtype)
        return g.reduce("reduce_sum", there, axes, keepdim, meta.shape)
    if p == 1:
        return g.reduce("reduce_sum", size, axes, keepdim, meta.shape)
    if p == 2:
        return g.op("sqrt", g.reduce("reduce_sum", g.op("mul", x, x), axes, keepdim, meta.shape))
    total = g.reduce("reduce_sum", g.op("pow", size, g.const(p, x.dtype)), axes, keepdim, meta.shape)
    return g.op("pow", total, g.const(1 / p, x.dtype))
