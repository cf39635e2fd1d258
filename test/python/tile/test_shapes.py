"""Shapes: broadcasting, reshaping, transposing, joining, splitting, gathering, sorting."""

import itertools

import numpy as np
import pytest
from cases import NUMBERS, close, kernel, np_dtype, numbers, sample, wide

import tessera.tile as triton
import tessera.tile.language as tl


def run(text, *arrays, shape, dtype=None):
    """A kernel that makes one tile of others, which are loaded whole."""
    def places(of):
        parts = []
        for axis, size in enumerate(of):
            keys = ", ".join(":" if a == axis else "None" for a in range(len(of)))
            at = f"tl.arange(0, {size})" + (f"[{keys}]" if len(of) > 1 else "")
            parts.append(f"{at} * {int(np.prod(of[axis + 1:], dtype=int))}" if size > 1 else "0")
        return " + ".join(parts) or "0"
    lines = []
    for name, array in zip("xyw", arrays):
        place = places(array.shape)
        full = f"tl.broadcast_to({place}, {list(array.shape)})" if array.ndim else "0"
        lines.append(f"{name} = tl.load({name}_ + {full})")
    lines.append(text if "\n" in text or "z =" in text else f"z = {text}")
    lines.append(f"tl.store(z_ + {'tl.broadcast_to(' + places(shape) + ', ' + str(list(shape)) + ')' if shape else '0'}, z)")
    made = kernel("""
        def made(x_, y_, w_, z_):
            BODY
        """, BODY="\n".join(lines))
    z = np.zeros(shape, np_dtype(dtype) if dtype else arrays[0].dtype)
    made[(1,)](*arrays, *[None] * (3 - len(arrays)), z)
    return z


@pytest.mark.parametrize("dtype", sample(4, NUMBERS))
@pytest.mark.parametrize("a, b", [((8, 1), (1, 16)), ((16,), (8, 16)), ((8, 1), (8, 16)), ((), (8, 16)), ((2, 1, 4), (1, 8, 1))])
def test_broadcasting(a, b, dtype):
    x, y = numbers(a, dtype, 0, *((0, 50) if dtype not in ("bfloat16",) and np.dtype(dtype).kind in "iu" else ())), numbers(b, dtype, 1, *(
        (0, 50) if dtype not in ("bfloat16",) and np.dtype(dtype).kind in "iu" else ()))
    wanted = wide(x) + wide(y)
    close(run("x + y", x, y, shape=wanted.shape), wanted.astype(x.dtype), dtype)
    close(run("a, b = tl.broadcast(x, y)\nz = a + b", x, y, shape=wanted.shape), wanted.astype(x.dtype), dtype)


@pytest.mark.parametrize("text, made", [
    ("tl.expand_dims(x, 0)", (1, 8, 4)), ("tl.expand_dims(x, -1)", (8, 4, 1)), ("tl.expand_dims(x, (0, 1))", (1, 1, 8, 4)),
    ("tl.expand_dims(x, (0, -1))", (1, 8, 4, 1)), ("x[None, :, :]", (1, 8, 4)), ("x[:, None, :]", (8, 1, 4)),
    ("x[:, :, None]", (8, 4, 1)), ("tl.reshape(x, (4, 8))", (4, 8)), ("tl.reshape(x, 2, 16)", (2, 16)), ("tl.view(x, (32,))", (32,)),
    ("tl.ravel(x)", (32,)), ("x.reshape(2, 2, 8)", (2, 2, 8)), ("x.unsqueeze(0)", (1, 8, 4)), ("x.expand_dims(1)", (8, 1, 4)),
    ("tl.squeeze(x[None, :, :], 0)", (8, 4)),
])
def test_the_same_elements_in_another_shape(text, made):
    x = numbers((8, 4), "int32")
    np.testing.assert_array_equal(run(text, x, shape=made).ravel(), x.ravel())


@pytest.mark.parametrize("axes", [(0, 0), (3,), (-4,), (0, -4)])
def test_axes_that_are_not_there(axes):
    with pytest.raises(triton.CompilationError, match="axes|axis"):
        run(f"tl.expand_dims(x, {axes})", numbers((8, 4), "int32"), shape=(1, 8, 4))


@pytest.mark.parametrize("order", sample(12, list(itertools.permutations(range(4)))))
@pytest.mark.parametrize("dtype", ["int32", "int8", "float16"])
def test_permutations(order, dtype):
    x = numbers((2, 4, 8, 4), dtype)
    wanted = x.transpose(order)
    for text in (f"tl.permute(x, {order})", f"tl.trans(x, {order})", f"x.permute({', '.join(map(str, order))})"):
        np.testing.assert_array_equal(run(text, x, shape=wanted.shape), wanted)


def test_transposes():
    x, y = numbers((8, 16), "float32"), numbers((2, 4, 8), "float32")
    np.testing.assert_array_equal(run("tl.trans(x)", x, shape=(16, 8)), x.T)
    np.testing.assert_array_equal(run("x.T", x, shape=(16, 8)), x.T)
    np.testing.assert_array_equal(run("tl.trans(x)", y, shape=(2, 8, 4)), y.transpose(0, 2, 1))
    np.testing.assert_array_equal(run("tl.reshape(tl.trans(x), (4, 32))", x, shape=(4, 32)), x.T.reshape(4, 32))


@pytest.mark.parametrize("shape", [(8,), (4, 4), ()])
def test_joins_and_splits(shape):
    x, y = numbers(shape, "int32"), numbers(shape, "int32", 1)
    both = np.stack([x, y], -1)
    np.testing.assert_array_equal(run("tl.join(x, y)", x, y, shape=both.shape), both)
    np.testing.assert_array_equal(run("tl.interleave(x, y)", x, y, shape=(*shape[:-1], 2 * (shape[-1] if shape else 1))),
                                  both.reshape(*shape[:-1], -1) if shape else both)
    np.testing.assert_array_equal(run("a, b = tl.split(x)\nz = a * 3 + b", both, shape=shape), x * 3 + y)


def test_concatenation():
    x, y = numbers((16, 2), "int32"), numbers((16, 2), "int32", 1)
    np.testing.assert_array_equal(run("tl.cat(x, y, can_reorder=True)", x[:, 0].copy(), y[:, 0].copy(), shape=(32,)),
                                  np.concatenate([x[:, 0], y[:, 0]]))
    np.testing.assert_array_equal(run("tl.cat(x, y)", x, y, shape=(32, 2)), np.concatenate([x, y]))
    np.testing.assert_array_equal(run("tl.cat(x, y, dim=1)", x, y, shape=(16, 4)), np.concatenate([x, y], 1))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("rows, columns", [(4, 4), (8, 32), (64, 16)])
def test_gather(axis, rows, columns):
    x = numbers((rows, columns), "float32")
    index = np.random.default_rng(0).integers(0, x.shape[axis], (16, columns) if axis == 0 else (rows, 16)).astype(np.int32)
    np.testing.assert_array_equal(run(f"tl.gather(x, y, {axis})", x, index, shape=index.shape), np.take_along_axis(x, index, axis))


@pytest.mark.parametrize("dtype", sample(5, NUMBERS))
@pytest.mark.parametrize("shape", [(16,), (4, 8), (2, 64), (1, 512), (8, 2), (2, 2, 16)])
@pytest.mark.parametrize("down", [False, True])
def test_sort(dtype, shape, down):
    x = numbers(shape, dtype)
    wanted = np.sort(wide(x), -1)
    wanted = wanted[..., ::-1] if down else wanted
    close(run(f"tl.sort(x, descending={down})", x, shape=shape), wanted.astype(x.dtype), dtype)


@pytest.mark.parametrize("shape", [(16,), (4, 8), (2, 64)])
@pytest.mark.parametrize("down", [False, True])
def test_bitonic_merge(shape, down):
    x = np.sort(numbers(shape, "int32"), -1)
    half = shape[-1] // 2
    x[..., half:] = x[..., half:][..., ::-1].copy()  # rises, then falls
    made = run(f"tl.bitonic_merge(x, descending={down})", x, shape=shape)
    np.testing.assert_array_equal(made, np.sort(x, -1)[..., ::-1] if down else np.sort(x, -1))


@pytest.mark.parametrize("dtype", ["int32", "float32", "float16"])
@pytest.mark.parametrize("shape, k", [((8,), 4), ((4, 16), 2), ((2, 128), 16), ((1, 64), 64)])
def test_topk(dtype, shape, k):
    x = numbers(shape, dtype)
    wanted = np.sort(x, -1)[..., ::-1][..., :k]
    np.testing.assert_array_equal(run(f"tl.topk(x, {k})", x, shape=wanted.shape), wanted)


@pytest.mark.parametrize("shape, axis", [((16,), 0), ((8, 16), 0), ((8, 16), 1), ((2, 4, 8), 1), ((2, 4, 8), -1)])
def test_flip(shape, axis):
    x = numbers(shape, "int16")
    np.testing.assert_array_equal(run(f"tl.flip(x, {axis})", x, shape=shape), np.flip(x, axis))


@pytest.mark.parametrize("bins", [2, 8, 256])
@pytest.mark.parametrize("count", [32, 1024])
@pytest.mark.parametrize("masked", [False, True])
def test_histogram(bins, count, masked):
    x = np.random.default_rng(0).integers(0, bins, count).astype(np.int32)
    text = f"tl.histogram(x, {bins}{', mask=x % 2 == 0' if masked else ''})"
    kept = x[x % 2 == 0] if masked else x
    np.testing.assert_array_equal(run(text, x, shape=(bins,)), np.bincount(kept, minlength=bins))


def test_swizzles():
    made = np.zeros((2, 5, 7), np.int32)
    swizzles[(1,)](made, 5, 7, GROUP=2)
    places = {(i, j) for i, j in zip(made[0].ravel(), made[1].ravel())}
    assert len(places) == 35 and made[:, 0, 1].tolist() == [1, 0]


@triton.jit
def swizzles(z, h, w, GROUP: tl.constexpr):
    for i in range(h):
        for j in range(w):
            a, b = tl.swizzle2d(i, j, h, w, GROUP)
            tl.store(z + i * w + j, a)
            tl.store(z + (h + i) * w + j, b)


def test_makers():
    np.testing.assert_array_equal(run("tl.full((4, 8), 7, tl.int32) + x * 0", numbers((), "int32"), shape=(4, 8)), np.full((4, 8), 7))
    np.testing.assert_array_equal(run("tl.zeros_like(x) + 1", numbers((8,), "int32"), shape=(8,)), np.ones(8))
    np.testing.assert_array_equal(run("tl.full((4,), x, tl.int32)", np.array(9, np.int32), shape=(4,)), np.full(4, 9))
    np.testing.assert_array_equal(run("tl.arange(3, 7) + x * 0", numbers((), "int32"), shape=(4,)), np.arange(3, 7))
