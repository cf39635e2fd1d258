"""Matrix products, normalization over batches and features, attention."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..graph import GraphText, Unsupported, Value, static
from .reductions import variance
from .registry import lowers


def product(g: GraphText, a: Value, b: Value, shape: Any) -> Value:
    if a.dtype in (torch.bool, torch.uint8, torch.int8, torch.int16):
        raise Unsupported(f"products of {a.dtype}")
    return g.op("matmul", a, b, shape=shape)


@lowers("mm", "bmm", "mv", "dot", "matmul")
def mm(g: GraphText, meta: Any, a: Value, b: Value) -> Value:
    return product(g, a, b, meta.shape)


@lowers("addmm", "baddbmm", "addmv")
def addmm(g: GraphText, meta: Any, c: Value, a: Value, b: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    y = product(g, a, b, meta.shape)
    if alpha != 1:
        y = g.op("mul", y, g.const(alpha, y.dtype))
    if beta == 0:
        return y
    if beta != 1:
        c = g.op("mul", c, g.const(beta, c.dtype))
    return g.op("add", y, c, shape=meta.shape)


@lowers("_int_mm")
def int_mm(g: GraphText, meta: Any, a: Value, b: Value) -> Value:
    return g.op("matmul_integer", a, b, dtype=torch.int32, shape=meta.shape)


def along(g: GraphText, v: Value, x: Value) -> Value:
    """A vector of channels as it broadcasts to [N, C, ...]."""
    return g.reshape(v, [1, x.shape[1], *[1] * (x.rank - 2)])


@lowers("_native_batch_norm_legit_no_training")
def batch_norm_inference(g: GraphText, meta: Any, x: Value, w: Value | None, b: Value | None, mean: Value, var: Value,
                         momentum: float, eps: float) -> list[Value | None]:
    def given(v: Value | None, otherwise: float) -> Value:
        return v if v is not None else g.full(mean.shape, otherwise, mean.dtype)
    if x.dtype == torch.float64 or x.rank < 2:
        t = mean.dtype
        scale = g.op("rsqrt", g.op("add", var, g.const(eps, t)))
        y = g.op("mul", g.op("sub", g.cast(x, t), along(g, mean, x)), along(g, g.op("mul", scale, given(w, 1)), x), shape=x.shape)
        y = g.cast(g.op("add", y, along(g, given(b, 0), x)), x.dtype)
    else:
        y = g.op("batch_normalization", x, given(w, 1), given(b, 0), mean, var, epsilon=eps)
    empty = g.full((0,), 0, meta[1].dtype)
    return [y, empty if g.asked(1) else None, empty if g.asked(2) else None]


def batch_norm_training(g: GraphText, x: Value, w: Value | None, b: Value | None, eps: float) -> tuple[Value, Value, Value, Value]:
    """The result, and of the batch: mean, 1 / deviation, variance."""
    t = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
    wide = g.cast(x, t)
    axes = [i for i in range(x.rank) if i != 1]
    var, middle = variance(g, wide, axes, 0, True, None)
    rstd = g.op("rsqrt", g.op("add", var, g.const(eps, t)))
    y = g.op("mul", g.op("sub", wide, middle, shape=x.shape), rstd)
    if w is not None:
        y = g.op("mul", y, along(g, g.cast(w, t), x))
    if b is not None:
        y = g.op("add", y, along(g, g.cast(b, t), x))
    flat = [x.shape[1]]
    return g.cast(y, x.dtype), g.reshape(middle, flat), g.reshape(rstd, flat), g.reshape(var, flat)


@lowers("_native_batch_norm_legit_functional")
def batch_norm_functional(g: GraphText, meta: Any, x: Value, w: Value | None, b: Value | None, mean: Value, var: Value,
                          training: bool, momentum: float, eps: float) -> list[Value | None]:
    if not training:
        y, *rest = batch_norm_inference(g, meta, x, w, b, mean, var, momentum, eps)
        return [y, *rest, mean, var]
    y, middle, rstd, spread = batch_norm_training(g, x, w, b, eps)
    count: Any = 1
    for i, n in enumerate(x.shape):
        count = count * n if i != 1 else count
    known = static(count)
    t = middle.dtype
    if known is not None:
        unbiased = g.op("mul", spread, g.const(known / max(known - 1, 1) if known > 1 else math.nan, t))
    else:
        n = g.cast(g.scalar(count), t)
        unbiased = g.op("mul", spread, g.op("div", n, g.op("sub", n, g.const(1, t))))

    def moved(old: Value, new: Value) -> Value:
        kept = g.op("mul", old, g.const(1 - momentum, old.dtype))
        return g.op("add", kept, g.op("mul", g.cast(new, old.dtype), g.const(momentum, old.dtype)))
    return [y, middle, rstd, moved(mean, middle), moved(var, unbiased)]


@lowers("_native_batch_norm_legit.no_stats")
def batch_norm_no_stats(g: GraphText, meta: Any, x: Value, w: Value | None, b: Value | None, training: bool, momentum: float,
                        eps: float) -> list[Value]:
    return list(batch_norm_training(g, x, w, b, eps)[:3])


@lowers("native_layer_norm")
def layer_norm(g: GraphText, meta: Any, x: Value, shape: Any, w: Value | None, b: Value | None, eps: float) -> list[Value]:
    axis = x.rank - len(shape)
    if x.dtype != torch.float64:
        wide = next((v.dtype for v in (w, b) if v is not None), x.dtype)  # may be wider than x, under autocast
        x = g.cast(x, wide)
        scale = w if w is not None else g.full(shape, 1, wide)
        wanted = [(wide, x.shape)] + [(torch.float32, meta[i].shape) if g.asked(i) else None for i in (1, 2)]
        while wanted[-1] is None:
            wanted.pop()
        found = g.ops("layer_normalization", [x, scale] + ([b] if b is not None else []), wanted, {"axis": axis, "epsilon": eps})
        return [found[0], *(g.cast(v, meta[i + 1].dtype) for i, v in enumerate(found[1:]))]
    var, middle = variance(g, x, list(range(axis, x.rank)), 0, True, None)
    rstd = g.op("rsqrt", g.op("add", var, g.const(eps, x.dtype)))
    y = g.op("mul", g.op("sub", x, middle), rstd)
    y = g.op("mul", y, w) if w is not None else y
    return [g.op("add", y, b) if b is not None else y, middle, rstd]


@lowers("native_group_norm")
def group_norm(g: GraphText, meta: Any, x: Value, w: Value | None, b: Value | None, n: Any, c: Any, plane: Any, groups: int,
               eps: float) -> list[Value]:
    t = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
    parts = g.cast(g.reshape(x, [n, groups, (c // groups) * plane]), t)
    var, middle = variance(g, parts, [2], 0, True, None)
    rstd = g.op("rsqrt", g.op("add", var, g.const(eps, t)))
    y = g.reshape(g.op("mul", g.op("sub", parts, middle), rstd), x.shape)
    y = g.op("mul", y, along(g, g.cast(w, t), x)) if w is not None else y
    y = g.op("add", y, along(g, g.cast(b, t), x)) if b is not None else y
    return [g.cast(y, x.dtype), *(g.cast(g.reshape(v, [n, groups]), meta[1].dtype) for v in (middle, rstd))]


@lowers("_fused_rms_norm")
def rms_norm(g: GraphText, meta: Any, x: Value, shape: Any, w: Value | None, eps: float | None) -> list[Value]:
    t = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
    wide = g.cast(x, t)
    axes = list(range(x.rank - len(shape), x.rank))
    square = g.reduce("reduce_mean", g.op("mul", wide, wide), axes, True)
    rstd = g.op("rsqrt", g.op("add", square, g.const(torch.finfo(x.dtype).eps if eps is None else eps, t)))
    y = g.op("mul", wide, rstd)
    y = g.op("mul", y, g.cast(w, t)) if w is not None else y
    return [g.cast(y, x.dtype), g.cast(rstd, meta[1].dtype)]


def attention(g: GraphText, meta: Any, q: Value, k: Value, v: Value, mask: Value | None, dropout: float, causal: bool,
              scale: float | None) -> list[Value | None]:
    """Of the ops' results only the first: what else they leave for their backward ops is computed again there."""
    if dropout:
        raise Unsupported("attention with dropout")
    if g.wanted is None or g.wanted - {0}:
        raise Unsupported("results of attention beside the first")
    if scale is None:
        size = static(q.shape[-1])
        if size is None:
            raise Unsupported("attention over heads of dynamic size")
        scale = 1 / math.sqrt(size)
    inputs = [q, k, v] + ([mask] if mask is not None else [])
    y = g.op("attention", *inputs, shape=meta[0].shape, is_causal=int(causal), scale=float(scale))
    return [y, *[None] * (len(meta) - 1)]


@lowers("_scaled_dot_product_flash_attention_for_cpu")
def attention_cpu(g: GraphText, meta: Any, q: Value, k: Value, v: Value, dropout: float = 0.0, causal: bool = False, *,
                  attn_mask: Value | None = None, scale: float | None = None) -> list[Value | None]:
    return attention(g, meta, q, k, v, attn_mask, dropout, causal, scale)


@lowers("_scaled_dot_product_flash_attention")
def attention_flash(g: GraphText, meta: Any, q: Value, k: Value, v: Value, dropout: float = 0.0, causal: bool = False,
                    return_debug_mask: bool = False, *, scale: float | None = None) -> list[Value | None]:
    return attention(g, meta, q, k, v, None, dropout, causal, scale)


@lowers("_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention")
def attention_efficient(g: GraphText, meta: Any, q: Value, k: Value, v: Value, mask: Value | None, with_sums: bool,
                        dropout: float = 0.0, causal: bool = False, *given: Any, scale: float | None = None) -> list[Value | None]:
    return attention(g, meta, q, k, v, mask, dropout, causal, scale)
