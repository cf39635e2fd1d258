"""Which ATen ops are written as others before they are lowered."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch._decomp import core_aten_decompositions

from .ops import TABLE

aten = torch.ops.aten


def attention_backward(dy: Any, q: Any, k: Any, v: Any, attn_mask: Any, dropout: float, causal: bool, scale: float | None) -> Any:
    """What flows back through attention to q, k, v and the scores, without what PyTorch's kernels leave for it: the weights are
    computed again."""
    if dropout != 0:
        return NotImplemented
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = torch.matmul(q, k.transpose(-1, -2)) * scale
    if attn_mask is not None:
        scores = scores + attn_mask
    if causal:
        rows = torch.arange(scores.shape[-2], device=q.device).unsqueeze(1)
        columns = torch.arange(scores.shape[-1], device=q.device).unsqueeze(0)
        scores = torch.where(columns <= rows, scores, -math.inf)
    p = torch.softmax(scores, -1)
    dv = torch.matmul(p.transpose(-1, -2), dy)
    dp = torch.matmul(dy, v.transpose(-1, -2))
    dscores = p * (dp - (dp * p).sum(-1, keepdim=True))
    ds = dscores * scale
    return torch.matmul(ds, k), torch.matmul(ds.transpose(-1, -2), q), dv, dscores


def attention_cpu_backward(dy: Any, q: Any, k: Any, v: Any, y: Any, sums: Any, dropout: float, causal: bool, *,
                           attn_mask: Any = None, scale: float | None = None) -> Any:
    found = attention_backward(dy, q, k, v, attn_mask, dropout, causal, scale)
    return found if found is NotImplemented else found[:3]


def attention_flash_backward(dy: Any, q: Any, k: Any, v: Any, y: Any, sums: Any, cum_q: Any, cum_k: Any, max_q: Any, max_k: Any,
                             dropout: float, causal: bool, seed: Any, offset: Any, *, scale: float | None = None) -> Any:
    found = attention_backward(dy, q, k, v, None, dropout, causal, scale)
    return found if found is NotImplemented else found[:3]


def attention_efficient_backward(dy: Any, q: Any, k: Any, v: Any, bias: Any, y: Any, sums: Any, seed: Any, offset: Any,
                                 dropout: float, wanted: Any, causal: bool = False, *, scale: float | None = None) -> Any:
    found = attention_backward(dy, q, k, v, bias, dropout, causal, scale)
    if found is NotImplemented:
        return found
    dbias = found[3].sum_to_size(bias.shape) if bias is not None and wanted[3] else None
    return (*found[:3], dbias)


def encoder_layer(x: Any, width: int, heads: int, qkv_w: Any, qkv_b: Any, out_w: Any, out_b: Any, gelu: bool, norm_first: bool,
                  eps: float, norm_w1: Any, norm_b1: Any, norm_w2: Any, norm_b2: Any, up_w: Any, up_b: Any, down_w: Any,
                  down_b: Any, mask: Any = None, mask_type: Any = None) -> Any:
    """nn.TransformerEncoderLayer in inference, which PyTorch has as one op."""
    if mask is not None or x.dim() != 3:
        return NotImplemented
    linear, norm = torch.nn.functional.linear, torch.nn.functional.layer_norm

    def attend(y: Any) -> Any:
        parts = linear(y, qkv_w, qkv_b).unflatten(-1, (3, heads, width // heads)).permute(2, 0, 3, 1, 4)
        found = torch.nn.functional.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        return linear(found.transpose(1, 2).flatten(2), out_w, out_b)

    def feed(y: Any) -> Any:
        y = linear(y, up_w, up_b)
        return linear(torch.nn.functional.gelu(y) if gelu else torch.relu(y), down_w, down_b)

    if norm_first:
        x = x + attend(norm(x, (width,), norm_w1, norm_b1, eps))
        return x + feed(norm(x, (width,), norm_w2, norm_b2, eps))
    x = norm(x + attend(x), (width,), norm_w1, norm_b1, eps)
    return norm(x + feed(x), (width,), norm_w2, norm_b2, eps)


# What is better kept whole: it has a lowering that says more than its parts.
KEPT = ["_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_efficient_attention", "silu", "leaky_relu", "elu", "hardtanh", "logsumexp", "mish", "atan2",
        "_softmax", "_log_softmax"]


@functools.cache
def decompositions() -> dict[Any, Any]:
    """PyTorch's to core ATen, but for attention on the CPU. There it decomposes the forward op, which then leaves the weights
    where the backward op, which it does not decompose, expects logarithms of sums: gradients would be wrong."""
    table = dict(core_aten_decompositions())
    for name in KEPT:
        packet = getattr(aten, name, None)
        if packet is not None and packet.default in TABLE:
            table.pop(packet.default, None)
    table[aten._scaled_dot_product_flash_attention_for_cpu_backward.default] = attention_cpu_backward
    table[aten._scaled_dot_product_flash_attention_backward.default] = attention_flash_backward
    table[aten._scaled_dot_product_efficient_attention_backward.default] = attention_efficient_backward
    table[aten._transformer_encoder_layer_fwd.default] = encoder_layer
    return table
