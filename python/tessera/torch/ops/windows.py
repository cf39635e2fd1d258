"""Convolutions, pools, resizing; and what flows back through them."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..graph import GraphText, Unsupported, Value, static, static_shape
from .reductions import axes_of
from .registry import lowers
from .views import pad


def spread(value: Any, count: int, default: int = 0) -> list[int]:
    """One number for each spatial dimension."""
    given = list(value) if isinstance(value, (list, tuple)) else [value]
    given = given or [default]
    if any(isinstance(n, torch.SymInt) for n in given):
        raise Unsupported("windows of dynamic sizes")
    return given * count if len(given) == 1 else given


def convolve(g: GraphText, x: Value, w: Value, bias: Value | None, stride: Any, padding: Any, dilation: Any, transposed: bool,
             output_padding: Any, groups: int, shape: Any) -> Value:
    n = x.rank - 2
    pads = spread(padding, n)
    kernel = list(static_shape(w.shape[2:], "a kernel"))
    attributes = {"dilations": spread(dilation, n, 1), "group": groups, "kernel_shape": kernel,
                  "pads": pads + pads, "strides": spread(stride, n, 1)}
    if any(p < 0 for p in pads):
        raise Unsupported("negative padding")
    if transposed:
        attributes["output_padding"] = spread(output_padding, n)
    inputs = [x, w] if bias is None else [x, w, bias]
    return g.ops("conv_transpose" if transposed else "conv", inputs, [(x.dtype, shape)], attributes)[0]


@lowers("convolution")
def convolution(g: GraphText, meta: Any, x: Value, w: Value, bias: Value | None, stride: Any, padding: Any, dilation: Any,
                transposed: bool, output_padding: Any, groups: int) -> Value:
    return convolve(g, x, w, bias, stride, padding, dilation, transposed, output_padding, groups, meta.shape)


@lowers("convolution_backward")
def convolution_backward(g: GraphText, meta: Any, dy: Value, x: Value, w: Value, bias_sizes: Any, stride: Any, padding: Any,
                         dilation: Any, transposed: bool, output_padding: Any, groups: int, wanted: Any) -> list[Value | None]:
    y = None
    found: list[Value | None] = [None, None, None]
    for i, of in enumerate((x, w)):
        if wanted[i] and g.asked(i):
            y = y or convolve(g, x, w, None, stride, padding, dilation, transposed, output_padding, groups, dy.shape)
            found[i] = g.vjp(y, dy, [of])[0]
    if wanted[2] and g.asked(2):
        found[2] = g.reduce("reduce_sum", dy, [i for i in range(dy.rank) if i != 1], False)
    return found


def batched(g: GraphText, x: Value, n: int) -> Value:
    return x if x.rank == n + 2 else g.reshape(x, [1, *x.shape])


def max_pool(g: GraphText, x: Value, shape: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool,
             indices: bool) -> list[Value]:
    n = len(kernel) if isinstance(kernel, (list, tuple)) and len(kernel) > 1 else max(1, x.rank - 2)
    size = spread(kernel, n)
    pads = spread(padding, n)
    full = batched(g, x, n)
    shape = list(shape)
    whole = shape if len(shape) == n + 2 else [1, *shape]
    attributes = {"kernel_shape": size, "strides": spread(stride or size, n), "pads": pads + pads,
                  "dilations": spread(dilation, n, 1), "ceil_mode": int(ceil)}
    results: list[Any] = [(x.dtype, whole)] + ([(torch.int64, whole)] if indices else [])
    return [g.reshape(v, shape) for v in g.ops("max_pool", [full], results, attributes)]


def _max_pool(n: int) -> Any:
    def write(g: GraphText, meta: Any, x: Value, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
              ceil: bool = False) -> list[Value | None]:
        if not x.dtype.is_floating_point:
            raise Unsupported("pools of integers")
        found = max_pool(g, x, meta[0].shape, spread(kernel, n), stride, padding, dilation, ceil, g.asked(1))
        if len(found) == 1:
            return [found[0], None]
        plane = 1
        for k in static_shape(x.shape[-n:], "places of maxima"):
            plane *= k
        return [found[0], g.op("mod", found[1], g.const(plane, torch.int64))]

    return write


lowers("max_pool2d_with_indices")(_max_pool(2))
lowers("max_pool3d_with_indices")(_max_pool(3))


@lowers("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward")
def max_pool_backward(g: GraphText, meta: Any, dy: Value, x: Value, kernel: Any, stride: Any, padding: Any, dilation: Any,
                      ceil: bool, indices: Value) -> Value:
    n = 3 if len(kernel) == 3 else 2
    y = max_pool(g, x, dy.shape, spread(kernel, n), stride, padding, dilation, ceil, False)[0]
    return g.vjp(y, dy, [x])[0]


def average_pool(g: GraphText, n: int, x: Value, shape: Any, kernel: Any, stride: Any, padding: Any, ceil: bool,
                 with_padding: bool) -> Value:
    size, pads = spread(kernel, n), spread(padding, n)
    full, shape = batched(g, x, n), list(shape)
    whole = shape if len(shape) == n + 2 else [1, *shape]
    y = g.op("average_pool", full, shape=whole, kernel_shape=size, strides=spread(stride or size, n), pads=pads + pads,
             ceil_mode=int(ceil), count_include_pad=int(with_padding))
    return g.reshape(y, shape)


def sum_pool(g: GraphText, n: int, x: Value, shape: Any, kernel: Any, stride: Any, padding: Any, divisor: Any) -> Value:
    """The sums of windows over a divisor: averages over windows that are all inside, of what is padded as far as they reach."""
    size, pads = spread(kernel, n), spread(padding, n)
    steps = spread(stride or size, n)
    counts, sizes = static_shape(shape[-n:], "a pool"), static_shape(x.shape[-n:], "a pool")
    pairs: list[int] = []
    for k, s, p, out, width in zip(size, steps, pads, counts, sizes):
        pairs = [p, max(0, (out - 1) * s + k - width - p), *pairs]  # the last dimension first
    wide = [w + pairs[2 * (n - 1 - i)] + pairs[2 * (n - 1 - i) + 1] for i, w in enumerate(sizes)]
    padded = pad(g, x, pairs, 0, "constant", [*x.shape[:-n], *wide])
    y = average_pool(g, n, padded, shape, size, steps, 0, False, True)
    return g.op("mul", y, g.const(math.prod(size) / divisor, x.dtype))


def _average_pool(n: int) -> Any:
    def write(g: GraphText, meta: Any, x: Value, kernel: Any, stride: Any = (), padding: Any = 0, ceil: bool = False,
              with_padding: bool = True, divisor: Any = None) -> Value:
        if not x.dtype.is_floating_point:
            raise Unsupported("pools of integers")
        if divisor is not None:
            return sum_pool(g, n, x, meta.shape, kernel, stride, padding, divisor)
        return average_pool(g, n, x, meta.shape, kernel, stride, padding, ceil, with_padding)

    return write


def _average_pool_backward(n: int) -> Any:
    def write(g: GraphText, meta: Any, dy: Value, x: Value, kernel: Any, stride: Any = (), padding: Any = 0,
              ceil: bool = False, with_padding: bool = True, divisor: Any = None) -> Value:
        y = sum_pool(g, n, x, dy.shape, kernel, stride, padding, divisor) if divisor is not None else \
            average_pool(g, n, x, dy.shape, kernel, stride, padding, ceil, with_padding)
        return g.vjp(y, dy, [x])[0]

    return write


for _n in (1, 2, 3):
    lowers(f"avg_pool{_n}d")(_average_pool(_n))
    lowers(f"avg_pool{_n}d_backward")(_average_pool_backward(_n))


def averaging(size: int, parts: int) -> list[list[float]]:
    """The matrix that averages `size` elements to `parts`, of windows as PyTorch's adaptive pools choose them."""
    rows = []
    for i in range(parts):
        begin, end = i * size // parts, -(-(i + 1) * size // parts)
        rows.append([1.0 / (end - begin) if begin <= k < end else 0.0 for k in range(size)])
    return rows


def adaptive_average(g: GraphText, x: Value, parts: list[int]) -> Value:
    n = len(parts)
    if all(p == 1 for p in parts):
        return g.reduce("reduce_mean", x, axes_of(x, list(range(-n, 0))), True)
    sizes = static_shape(x.shape[-n:], "an adaptive pool")
    if all(s % p == 0 for s, p in zip(sizes, parts)):
        kernel = [s // p for s, p in zip(sizes, parts)]
        return average_pool(g, n, x, [*x.shape[:-n], *parts], kernel, kernel, 0, False, True)
    for d, (size, count) in enumerate(zip(sizes, parts)):
        axis = x.rank - n + d
        table = g.matrix(averaging(size, count), x.dtype)  # [count, size]
        order = [i for i in range(x.rank) if i != axis] + [axis]
        turned = g.transpose(x, order)
        shape = [*turned.shape[:-1], count]
        product = g.op("matmul", turned, g.transpose(table, [1, 0]), shape=shape)
        x = g.transpose(product, [order.index(i) for i in range(x.rank)])
    return x


@lowers("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_avg_pool1d")
def adaptive_avg_pool(g: GraphText, meta: Any, x: Value, size: Any) -> Value:
    return adaptive_average(g, x, list(static_shape(size)))


@lowers("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward")
def adaptive_avg_pool_backward(g: GraphText, meta: Any, dy: Value, x: Value) -> Value:
    n = 2 if x.rank <= 4 else 3
    return g.vjp(adaptive_average(g, x, list(static_shape(dy.shape[-n:]))), dy, [x])[0]


@lowers("adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(g: GraphText, meta: Any, x: Value, size: Any) -> list[Value | None]:
    n = len(size)
    sizes, parts = static_shape(x.shape[-n:], "an adaptive pool"), static_shape(size)
    if any(s % p for s, p in zip(sizes, parts)):
        raise Unsupported("an adaptive pool of uneven windows")
    kernel = [s // p for s, p in zip(sizes, parts)]
    return list(_max_pool(n)(g, meta, x, kernel, kernel))


def resize(g: GraphText, x: Value, shape: Any, mode: str, aligned: bool) -> Value:
    sizes = static_shape(shape, "resizing")
    return g.op("resize", x, None, None, g.ints(sizes), shape=shape, mode=mode, nearest_mode="floor",
                coordinate_transformation_mode="align_corners" if aligned else
                "asymmetric" if mode == "nearest" else "half_pixel", cubic_coeff_a=-0.75 if mode == "cubic" else None)


def _resize_backward(mode: str) -> Any:
    def write(g: GraphText, meta: Any, dy: Value, size: Any, input_size: Any, *given: Any) -> Value:
        scales = given[1:] if mode != "nearest" else given
        if any(s is not None for s in scales):
            # PyTorch computes places by the scales that were given, which need not be the sizes' ratio.
            for s, a, b in zip(scales, dy.shape[2:], input_size[2:]):
                if s is not None and s * (static(b) or 0) != static(a):
                    raise Unsupported("resizing by a scale that is not the sizes' ratio")
        x = g.full(input_size, 0, dy.dtype)  # what is resized has no part in the gradient
        aligned = bool(given[0]) if mode != "nearest" else False
        return g.vjp(resize(g, x, dy.shape, mode, aligned), dy, [x])[0]

    return write


lowers("upsample_nearest1d_backward", "upsample_nearest2d_backward", "upsample_nearest3d_backward")(_resize_backward("nearest"))
lowers("upsample_linear1d_backward", "upsample_bilinear2d_backward", "upsample_trilinear3d_backward")(_resize_backward("linear"))
lowers("upsample_bicubic2d_backward")(_resize_backward("cubic"))


def sample(g: GraphText, x: Value, grid: Value, shape: Any, mode: int, padding: int, aligned: bool) -> Value:
    if mode == 2 and padding == 1:
        raise Unsupported("cubic samples beside a border")  # PyTorch moves each tap inside, ONNX the point
    return g.op("grid_sample", x, grid, shape=shape, mode=("linear", "nearest", "cubic")[mode],
                padding_mode=("zeros", "border", "reflection")[padding], align_corners=int(aligned))


@lowers("grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(g: GraphText, meta: Any, x: Value, grid: Value, mode: int, padding: int, aligned: bool) -> Value:
    return sample(g, x, grid, meta.shape, mode, padding, aligned)


@lowers("grid_sampler_2d_backward", "grid_sampler_3d_backward")
def grid_sampler_backward(g: GraphText, meta: Any, dy: Value, x: Value, grid: Value, mode: int, padding: int, aligned: bool,
                          wanted: Any) -> list[Value | None]:
    y = sample(g, x, grid, dy.shape, mode, padding, aligned)
    return [g.vjp(y, dy, [v])[0] if wanted[i] and g.asked(i) else None for i, v in enumerate((x, grid))]
