"""Loads, stores, block pointers, descriptors of arrays, pointers as numbers, and updates that nothing comes between."""

import os

import numpy as np
import pytest
from cases import NUMBERS, np_dtype, numbers, sample, wide

import tessera
import tessera.tile as triton
import tessera.tile.language as tl
from tessera.tile.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def masked(x, z, n, OTHER: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    if OTHER is None:
        v = tl.load(x + at, mask=at < n)
    else:
        v = tl.load(x + at, mask=at < n, other=OTHER, cache_modifier=".cg", eviction_policy="evict_first", volatile=True)
    tl.store(z + at, v, mask=at >= 2, cache_modifier=".wb")


@pytest.mark.parametrize("dtype, n, other", sample(40, ["bool", *NUMBERS], [0, 1, 17, 64], [None, 0, 1, 7]))
def test_masks(dtype, n, other):
    x = numbers(64, dtype)
    z = np.full(64, 5, np_dtype(dtype))
    masked[(1,)](x[:n].copy() if n else np.zeros(1, x.dtype), z, n, OTHER=other, N=64)
    wanted = np.where(np.arange(64) < n, wide(x), np.array(other or 0).astype(np_dtype(dtype)).astype(wide(x).dtype))
    wanted[:2] = wide(np.full(1, 5, np_dtype(dtype)))[0]
    np.testing.assert_array_equal(wide(z)[2:], wanted[2:])
    np.testing.assert_array_equal(wide(z)[:2], wide(np.full(2, 5, np_dtype(dtype))))


@triton.jit
def strided(x, z, a, b, c, d, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    tl.store(z + i * c + j * d, tl.load(x + i * a + j * b))


@pytest.mark.parametrize("dtype", ["float32", "int8", "float16"])
@pytest.mark.parametrize("turned", [False, True])
def test_strides(dtype, turned):
    base = numbers((64, 64), dtype)
    x = base[::2, ::4].T if turned else base[::2, ::4]
    z = np.zeros((*x.shape, 3), dtype)[..., 1]
    strides = [s // x.itemsize for s in (*x.strides, *z.strides)]
    strided[(1,)](x, z, *strides, M=x.shape[0], N=x.shape[1])
    np.testing.assert_array_equal(z, x)


@triton.jit
def blocks(x, z, m, n, sm, sn, M: tl.constexpr, N: tl.constexpr, CHECK: tl.constexpr, PAD: tl.constexpr, ORDER: tl.constexpr):
    source = tl.make_block_ptr(x, (m, n), (sm, sn), (0, 0), (M, N), ORDER)
    target = tl.make_block_ptr(base=z, shape=(M * 2, N * 2), strides=(N * 2, 1), offsets=(0, 0), block_shape=(M, N), order=(1, 0))
    for i in range(2):
        for j in range(2):
            v = tl.load(tl.advance(source, (i * M, j * N)), boundary_check=CHECK, padding_option=PAD)
            tl.store(target.advance((i * M, j * N)) if i == 5 else tl.advance(target, (i * M, j * N)), v, boundary_check=(0, 1))


@pytest.mark.parametrize("dtype, pad, turned", sample(30, ["float32", "float16", "int32", "int8", "bfloat16"], ["zero", "nan"], [False, True]))
def test_block_pointers(dtype, pad, turned):
    m, n, M, N = 21, 27, 16, 16
    x = numbers((m, n), dtype)
    if turned:
        x = np.asfortranarray(x)
    z = np.zeros((2 * M, 2 * N), np_dtype(dtype))
    arguments = (x, z, m, n, *(s // x.itemsize for s in x.strides))
    options = dict(M=M, N=N, CHECK=(0, 1), PAD=pad, ORDER=(0, 1) if turned else (1, 0))
    if pad == "nan" and np_dtype(dtype).kind in "iu":
        with pytest.raises(triton.CompilationError, match="nan"):
            blocks[(1,)](*arguments, **options)
        return
    blocks[(1,)](*arguments, **options)
    wanted = np.full(z.shape, np.nan if pad == "nan" else 0, wide(x).dtype)
    wanted[:m, :n] = wide(x)
    np.testing.assert_array_equal(wide(z), wanted)


@triton.jit
def through_descriptors(x, z, m, n, M: tl.constexpr, N: tl.constexpr, PAD: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [m, n], [n, 1], [M, N], padding_option=PAD)
    target = tl.make_tensor_descriptor(z, [m, n], [n, 1], [M, N])
    i, j = tl.program_id(0) * M, tl.program_id(1) * N
    tl.static_assert(source.dtype == x.dtype.element_ty)
    tl.static_assert(source.block_shape == [M, N])
    tl.store_tensor_descriptor(target, [i, j], tl.load_tensor_descriptor(source, [i, j]) * 2)


@triton.jit
def through_arguments(source, target, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.program_id(0) * M, tl.program_id(1) * N
    target.store([i, j], source.load([i, j]) * 2)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8", "bfloat16"])
@pytest.mark.parametrize("pad", ["zero", "nan"])
def test_descriptors(dtype, pad):
    m, n, M, N = 37, 50, 16, 16
    x = numbers((m, n), dtype, 0, *((0, 100) if np_dtype(dtype).kind in "iu" else ()))
    z = np.zeros_like(x)
    if pad == "nan" and np_dtype(dtype).kind in "iu":
        pytest.skip("of floats")
    through_descriptors[(3, 4)](x, z, m, n, M=M, N=N, PAD=pad)
    np.testing.assert_array_equal(wide(z), wide(x) * 2)
    z = np.zeros_like(x)
    through_arguments[(3, 4)](TensorDescriptor.from_tensor(x, [M, N]), TensorDescriptor.from_tensor(z, [M, N]), M=M, N=N)
    np.testing.assert_array_equal(wide(z), wide(x) * 2)


@triton.jit
def descriptor_updates(z, HOW: tl.constexpr, N: tl.constexpr):
    target = tl.make_tensor_descriptor(z, [N + 3], [1], [N])
    v = (tl.arange(0, N) + tl.program_id(0)).to(z.dtype.element_ty)
    if HOW == "add":
        target.atomic_add([4], v)
    elif HOW == "max":
        target.atomic_max([4], v)
    else:
        target.atomic_or([4], v)


@pytest.mark.parametrize("how", ["add", "max", "or"])
def test_updates_through_descriptors(how):
    z = np.zeros(35, np.int32)
    descriptor_updates[(10,)](z, HOW=how, N=32)
    v = np.arange(31)[None] + np.arange(10)[:, None]
    wanted = {"add": v.sum(0), "max": v.max(0), "or": np.bitwise_or.reduce(v, 0)}[how]
    np.testing.assert_array_equal(z[4:], wanted)
    assert not z[:4].any()


@triton.jit
def gathers(x, rows, z, w, m, n, K: tl.constexpr, N: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [m, n], [n, 1], [1, N])
    index = tl.load(rows + tl.arange(0, K))
    v = source.gather(index, 8)
    tl.store(z + tl.arange(0, K)[:, None] * N + tl.arange(0, N)[None, :], v)
    tl.make_tensor_descriptor(w, [m, n], [n, 1], [1, N]).scatter(v, index, 16)


def test_rows_through_descriptors():
    x, rows = numbers((40, 64), "float32"), np.array([3, 39, 0, 12, 7, 20, 31, 5], np.int32)
    z, w = np.zeros((8, 16), np.float32), np.zeros((40, 64), np.float32)
    gathers[(1,)](x, rows, z, w, 40, 64, K=8, N=16)
    np.testing.assert_array_equal(z, x[rows, 8:24])
    np.testing.assert_array_equal(w[rows, 16:32], x[rows, 8:24])


@triton.jit
def chooses(x, y, c, z, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(z + at, tl.load(tl.where(tl.load(c + at), x + at, y + at)))


@triton.jit
def either(x, y, z, flag, N: tl.constexpr):
    if flag > 2:
        p = x
    else:
        p = y
    for i in range(2):
        p = x if i == flag else p
    tl.store(z + tl.arange(0, N), tl.load(p + tl.arange(0, N)))


@pytest.mark.parametrize("dtype", NUMBERS)
def test_pointers_into_one_of_two_arrays(dtype):
    x, y, c = numbers(64, dtype), numbers(64, dtype, 1), numbers(64, "bool", 2)
    z = np.zeros_like(x)
    chooses[(1,)](x, y, c, z, N=64)
    np.testing.assert_array_equal(wide(z), np.where(c, wide(x), wide(y)))
    for flag in (0, 1, 2, 3):
        either[(1,)](x, y, z, flag, N=64)
        np.testing.assert_array_equal(wide(z), wide(y if flag == 2 else x))


@triton.jit
def through_addresses(table, z, k, N: tl.constexpr):
    at = tl.arange(0, N)
    for i in range(k):
        p = tl.load(table + i).to(tl.pointer_type(tl.float32))
        tl.store(z + i * N + at, tl.load(p + at))
    tl.store(table, z.to(tl.int64))
    tl.store(table + 1, (z + 3).to(tl.int64, bitcast=True) - z.to(tl.int64))


def test_pointers_that_are_loaded():
    x, y = numbers(32, "float32"), numbers(32, "float32", 1)
    table, z = np.array([x.ctypes.data, y.ctypes.data], np.int64), np.zeros((2, 32), np.float32)
    through_addresses[(1,)](table, z, 2, N=32)
    np.testing.assert_array_equal(z, [x, y])
    assert table.tolist() == [z.ctypes.data, 12]


@triton.jit
def as_bytes(x, z, N: tl.constexpr):
    p = x.to(tl.pointer_type(tl.uint8))
    tl.store(z + tl.arange(0, N), tl.load(p + tl.arange(0, N)))


def test_pointers_to_other_elements():
    x, z = numbers(8, "float32"), np.zeros(32, np.uint8)
    as_bytes[(1,)](x, z, N=32)
    np.testing.assert_array_equal(z, x.view(np.uint8))


@triton.jit
def copies(x, z, N: tl.constexpr):
    v = tl.load(x + tl.arange(0, N))
    tl.store(z + tl.arange(0, N), (v + 1).to(z.dtype.element_ty))


def test_arrays_of_two_types_in_one_memory():
    x = np.arange(64, dtype=np.float32)
    copies[(1,)](x, x.view(np.int32), N=64)
    np.testing.assert_array_equal(x.view(np.int32), np.arange(64) + 1)


@triton.jit
def updates(z, old, v, HOW: tl.constexpr, N: tl.constexpr, MASK: tl.constexpr):
    at = tl.arange(0, N)
    b = tl.load(v + tl.program_id(0) * N + at)
    m = at < N - 1 if MASK else None
    if HOW == "add":
        o = tl.atomic_add(z + at, b, mask=m, sem="relaxed", scope="gpu")
    elif HOW == "max":
        o = tl.atomic_max(z + at, b, mask=m)
    elif HOW == "min":
        o = tl.atomic_min(z + at, b, mask=m, sem="acq_rel")
    elif HOW == "and":
        o = tl.atomic_and(z + at, b, mask=m)
    elif HOW == "or":
        o = tl.atomic_or(z + at, b, mask=m)
    elif HOW == "xor":
        o = tl.atomic_xor(z + at, b, mask=m)
    else:
        o = tl.atomic_xchg(z + at, b, mask=m)
    tl.store(old + tl.program_id(0) * N + at, o)


INTS = ["int32", "int64", "uint32", "uint64"]


@pytest.mark.parametrize("how, dtype, masked", [c for c in sample(200, ["add", "max", "min", "and", "or", "xor", "xchg"],
                                                [*INTS, "float16", "float32", "float64", "bfloat16"], [False, True])
                                                if c[1] in INTS or c[0] not in ("and", "or", "xor")])
def test_updates(how, dtype, masked):
    n, instances = 16, 30
    v = numbers((instances, n), dtype) if np_dtype(dtype).kind in "iu" else np.round(wide(numbers((instances, n), dtype)) * 4).astype(np_dtype(dtype))
    z, old = np.zeros(n, np_dtype(dtype)), np.zeros((instances, n), np_dtype(dtype))
    updates[(instances,)](z, old, v, HOW=how, N=n, MASK=masked)
    a = wide(v)
    if how == "xchg":
        for i in range(n - masked):
            assert sorted([*wide(old)[:, i].tolist(), wide(z)[i].item()]) == sorted([*a[:, i].tolist(), 0])
        return
    with np.errstate(all="ignore"):
        wanted = {"add": lambda: a.sum(0, dtype=a.dtype), "max": lambda: np.maximum(a.max(0), 0), "min": lambda: np.minimum(a.min(0), 0),
                  "and": lambda: np.zeros(n, a.dtype), "or": lambda: np.bitwise_or.reduce(a, 0), "xor": lambda: np.bitwise_xor.reduce(a, 0)}[how]()
    if masked:
        wanted[-1] = 0
    np.testing.assert_array_equal(wide(z), wanted)


@pytest.mark.parametrize("how", ["max", "min"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_updates_keep_nan(how, dtype):
    v = np.array([[1, np.nan, 2, np.inf], [3, 4, -np.inf, np.nan]], np_dtype(dtype))
    z, old = np.zeros(4, np_dtype(dtype)), np.zeros((2, 4), np_dtype(dtype))
    updates[(2,)](z, old, v, HOW=how, N=4, MASK=False)
    both = np.concatenate([np.zeros((1, 4)), wide(v)])
    np.testing.assert_array_equal(wide(z), (np.maximum if how == "max" else np.minimum).reduce(both, 0))


@triton.jit
def locks(lock, z, N: tl.constexpr):
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    at = z + tl.arange(0, N)
    tl.store(at, tl.load(at) + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


def test_locks_by_while():
    lock, z = np.zeros(1, np.int32), np.zeros(64, np.int32)
    locks[(100,)](lock, z, N=64)
    assert (z == 100).all() and lock[0] == 0


@triton.jit
def exchanges(x, y, z, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(z + at, tl.atomic_cas(x + at, tl.load(y + at), at.to(x.dtype.element_ty)))


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "float32"])
def test_compare_and_swap(dtype):
    x = np.arange(32).astype(dtype) % 4
    y, z = np.where(np.arange(32) % 2, x, x + 1).astype(dtype), np.zeros(32, dtype)
    before = x.copy()
    exchanges[(1,)](x, y, z, N=32)
    np.testing.assert_array_equal(z, before)
    np.testing.assert_array_equal(x, np.where(before == y, np.arange(32), before))


@triton.jit
def changes_its_index(index, x, z, N: tl.constexpr):
    p = x + tl.load(index)
    tl.store(index, 5)
    tl.store(z, tl.load(p))
    q = x + tl.load(index + tl.arange(0, N))
    for i in range(2):
        tl.store(index + tl.arange(0, N), i)
        tl.store(z + i * N + 1 + tl.arange(0, N), tl.load(q))


def test_a_pointer_stays_where_its_index_was():
    index, x, z = np.array([2, 3], np.int32), np.arange(8, dtype=np.float32), np.zeros(5, np.float32)
    changes_its_index[(1,)](index, x, z, N=2)
    assert z.tolist() == [2, 5, 3, 5, 3] and index.tolist() == [1, 1]


@triton.jit
def twice_removed(table, out, N: tl.constexpr, BLOCK: tl.constexpr):
    rows = table.to(tl.pointer_type(tl.pointer_type(tl.float32)))
    tl.static_assert(rows.dtype == tl.pointer_type(tl.pointer_type(tl.float32)))
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for i in range(N):
        row = tl.load(rows + i)
        tl.static_assert(row.dtype == tl.pointer_type(tl.float32))
        total += tl.load(row + at)
    first, last = tl.load(rows), tl.load(rows + N - 1)
    tl.store(rows, last)
    tl.store(rows + N - 1, first)
    each = tl.load(rows + tl.arange(0, N))
    tl.store(out + at, total + tl.sum(tl.load(each), axis=0))


def test_pointers_to_pointers():
    rows = [np.arange(8, dtype=np.float32) * i + i for i in range(4)]
    table = np.array([r.ctypes.data for r in rows], np.int64)
    before, out = table.copy(), np.empty(8, np.float32)
    twice_removed[(1,)](table, out, N=4, BLOCK=8)
    np.testing.assert_array_equal(out, sum(rows) + sum(r[0] for r in rows))
    np.testing.assert_array_equal(table, before[[3, 1, 2, 0]])


@triton.jit
def doubled(x, y, stride, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0) * stride
    tl.store(y + row + at, tl.load(x + row + at, mask=at < n) * 2, mask=at < n)


@pytest.mark.skipif("TESSERA_INTERPRET" in os.environ, reason="large arrays take the interpreter minutes")
@pytest.mark.parametrize("skipped", [0, 4, 1])
def test_more_than_caches_hold(skipped):
    """Results that may be stored past the caches, at places of any alignment."""
    rows, n = 8192, 4096
    x = (np.arange(rows * n + skipped) % 1000).astype(np.float32)[skipped:].reshape(rows, n)
    y = np.zeros(rows * n + skipped, np.float32)[skipped:].reshape(rows, n)
    doubled[(rows,)](x, y, n, n - 3, BLOCK=n)
    np.testing.assert_array_equal(y[:, : n - 3], 2 * x[:, : n - 3])
    assert not y[:, n - 3 :].any()


@triton.jit
def copied(z, x, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(z + i, tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def added_to(z, x, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.atomic_add(z + i, tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def copied_as_block(z, x, B: tl.constexpr):
    z.store([0], tl.load(x + tl.arange(0, B)))


@pytest.mark.parametrize("kernel", [copied, added_to], ids=["store", "atomic"])
def test_arrays_that_are_read_only(tmp_path, kernel):
    """They can be read, as a file that is mapped; where a kernel would write, nothing is launched, the second time too."""
    np.save(tmp_path / "x.npy", np.arange(16, dtype=np.float32))
    x, z = np.load(tmp_path / "x.npy", mmap_mode="r"), np.zeros(16, np.float32)
    for _ in range(2):
        z[:] = 0
        kernel[(1,)](z, x, 16, B=16)
        np.testing.assert_array_equal(z, x)
        with pytest.raises(tessera.Error, match="Cannot store to a constant pointer: of a read-only array"):
            kernel[(1,)](x, z, 16, B=16)


def test_a_descriptor_of_an_array_that_is_read_only():
    x, z = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    copied_as_block[(1,)](TensorDescriptor.from_tensor(z, [16]), x, B=16)
    np.testing.assert_array_equal(z, x)
    z.flags.writeable = False
    with pytest.raises(tessera.Error, match="Cannot store to a constant pointer"):
        copied_as_block[(1,)](TensorDescriptor.from_tensor(z, [16]), x, B=16)
