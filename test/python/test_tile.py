"""The tile language: every group of functions against NumPy, on the processor and in the interpreter."""

import itertools
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import tessera
import tessera.tile as tile
import tessera.tile.language as tl

INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]


@pytest.fixture(params=["compiled", "interpreted"], autouse=True)
def way(request, monkeypatch):
    monkeypatch.setenv("TESSERA_INTERPRET", "1" if request.param == "interpreted" else "0")
    return request.param


def numbers(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(max(info.min, -100), min(info.max, 100), shape, dtype=dtype, endpoint=True)


@tile.jit
def binary(x, y, z, N: tl.constexpr, OP: tl.constexpr):
    at = tl.arange(0, N)
    a = tl.load(x + at)
    b = tl.load(y + at)
    if OP == "+":
        c = a + b
    elif OP == "-":
        c = a - b
    elif OP == "*":
        c = a * b
    elif OP == "/":
        c = a / b
    elif OP == "//":
        c = a // b
    elif OP == "%":
        c = a % b
    elif OP == "<":
        c = a < b
    elif OP == "==":
        c = a == b
    elif OP == "&":
        c = a & b
    elif OP == "^":
        c = a ^ b
    elif OP == "<<":
        c = a << b
    elif OP == ">>":
        c = a >> b
    else:
        c = tl.maximum(a, b)
    tl.store(z + at, c)


def promoted(a, b):
    """The type that two arrays are computed in."""
    a, b = np.dtype(a), np.dtype(b)
    if "f" in a.kind + b.kind:
        return max((t for t in (a, b) if t.kind == "f"), key=lambda t: t.itemsize)
    if a.kind == b.kind:
        return max(a, b, key=lambda t: t.itemsize)
    unsigned, signed = (a, b) if a.kind == "u" else (b, a)
    return unsigned if unsigned.itemsize >= signed.itemsize else signed


@pytest.mark.parametrize("op", ["+", "-", "*", "<", "==", "max"])
@pytest.mark.parametrize("a, b", [*itertools.product(["int8", "int32", "uint8", "uint32", "float16", "float32"], repeat=2),
                                  ("int64", "int16"), ("float64", "float32"), ("uint64", "int64")])
def test_binary(op, a, b):
    x, y = numbers(64, a), numbers(64, b, 1)
    common = promoted(a, b)
    xc, yc = x.astype(common), y.astype(common)
    wanted = {"+": lambda: xc + yc, "-": lambda: xc - yc, "*": lambda: xc * yc, "<": lambda: xc < yc, "==": lambda: xc == yc,
              "max": lambda: np.maximum(xc, yc)}[op]()
    z = np.zeros(64, wanted.dtype)
    binary[(1,)](x, y, z, N=64, OP=op)
    np.testing.assert_allclose(z, wanted, rtol=1e-3 if common == np.float16 else 1e-6)


@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize("op", ["//", "%", "&", "^", "<<", ">>"])
def test_integers(op, dtype):
    x, y = numbers(128, dtype), numbers(128, dtype, 1)
    y = np.where(y == 0, np.array(3, dtype), y).astype(dtype)
    if op in ("<<", ">>"):
        y = (np.abs(y.astype(np.int64)) % 7).astype(dtype)
    def quotient():
        return np.trunc(x.astype(np.float64) / y.astype(np.float64))

    wanted = {"//": quotient, "%": lambda: x - quotient() * y, "&": lambda: x & y, "^": lambda: x ^ y,
              "<<": lambda: x << y, ">>": lambda: x >> y}[op]()
    z = np.zeros(128, dtype)
    binary[(1,)](x, y, z, N=128, OP=op)
    np.testing.assert_array_equal(z, wanted.astype(dtype))


def test_division_of_integers_is_true_division():
    x, y, z = numbers(32, "int32"), np.full(32, 7, np.int32), np.zeros(32, np.float32)
    binary[(1,)](x, y, z, N=32, OP="/")
    np.testing.assert_allclose(z, x / y, rtol=1e-6)


def test_signs_are_not_divided():
    x, y = numbers(32, "int32"), numbers(32, "uint32")
    with pytest.raises(tile.CompilationError, match="one has a sign") as e:
        binary[(1,)](x, y, np.zeros(32, np.int32), N=32, OP="//")
    assert "c = a // b" in str(e.value)


@tile.jit
def unary(x, z, N: tl.constexpr, F: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(z + at, F(tl.load(x + at)))


@pytest.mark.parametrize("name, wanted", [("exp", np.exp), ("log", np.log), ("sin", np.sin), ("cos", np.cos),
                                          ("sqrt", np.sqrt), ("exp2", np.exp2), ("log2", np.log2), ("floor", np.floor),
                                          ("ceil", np.ceil), ("abs", np.abs), ("rsqrt", lambda x: 1 / np.sqrt(x)),
                                          ("sigmoid", lambda x: 1 / (1 + np.exp(-x)))])
def test_functions(name, wanted):
    x = np.abs(numbers(256, "float32")) + 0.01
    z = np.zeros_like(x)
    unary[(1,)](x, z, N=256, F=getattr(tl, name))
    np.testing.assert_allclose(z, wanted(x.astype(np.float64)), rtol=2e-6, atol=1e-6)


@tile.jit
def casts(x, z, N: tl.constexpr, TO: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(z + at, tl.load(x + at).to(TO))


@pytest.mark.parametrize("a, b", [("float32", "int32"), ("float32", "float16"), ("int32", "int8"), ("int8", "uint32"),
                                  ("int64", "float32"), ("float64", "float32"), ("uint8", "int64"), ("float16", "int16")])
def test_casts(a, b):
    x = numbers(64, a)
    z = np.zeros(64, b)
    kinds = {"float16": tl.float16, "float32": tl.float32, "int8": tl.int8, "int16": tl.int16, "int32": tl.int32,
             "int64": tl.int64, "uint32": tl.uint32}
    casts[(1,)](x, z, N=64, TO=kinds[b])
    np.testing.assert_array_equal(z, x.astype(b))


@tile.jit
def reduces(x, z, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr, F: tl.constexpr):
    tile_of_x = tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    made = F(tile_of_x, axis=AXIS)
    if AXIS is None:
        tl.store(z, made)
    else:
        tl.store(z + tl.arange(0, N if AXIS == 0 else M), made)


@pytest.mark.parametrize("dtype", ["int32", "float32", "int8", "uint16", "float16"])
@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize("name", ["sum", "max", "min", "argmax", "argmin", "xor_sum"])
def test_reductions(name, axis, dtype):
    if name == "xor_sum" and "float" in dtype or name.startswith("arg") and axis is None:
        pytest.skip("not of these")
    x = numbers((16, 64), dtype)
    wanted = np.bitwise_xor.reduce(x, axis) if name == "xor_sum" and axis is not None else \
        np.bitwise_xor.reduce(x.ravel()) if name == "xor_sum" else \
        getattr(x.astype(np.float64 if "float" in dtype else np.int64), name)(axis)
    kind = np.int32 if name.startswith("arg") else np.float32 if "float" in dtype else np.int64
    z = np.zeros(np.shape(wanted) or (1,), kind)
    reduces[(1,)](x, z, M=16, N=64, AXIS=axis, F=getattr(tl, name))
    np.testing.assert_allclose(z.reshape(np.shape(wanted)), wanted, rtol=1e-2 if dtype == "float16" else 1e-4, atol=1e-2 if dtype == "float16" else 1e-4)


@tile.jit
def larger_of(a, b):
    return tl.where(a > b, a, b)


@tile.jit
def custom(x, z, s, N: tl.constexpr):
    at = tl.arange(0, N)
    a = tl.load(x + at)
    tl.store(z, tl.reduce(a, 0, larger_of))
    tl.store(s + at, tl.associative_scan(a, 0, larger_of))


def test_functions_of_the_user_combine():
    x = numbers(128, "float32")
    z, s = np.zeros(1, np.float32), np.zeros(128, np.float32)
    custom[(1,)](x, z, s, N=128)
    assert z[0] == x.max()
    np.testing.assert_array_equal(s, np.maximum.accumulate(x))


@tile.jit
def scans(x, z, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr, REVERSE: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(z + at, tl.cumsum(tl.load(x + at), AXIS, reverse=REVERSE))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("reverse", [False, True])
def test_scans(axis, reverse):
    x = numbers((8, 32), "int32")
    z = np.zeros_like(x)
    scans[(1,)](x, z, M=8, N=32, AXIS=axis, REVERSE=reverse)
    wanted = np.flip(np.cumsum(np.flip(x, axis), axis), axis) if reverse else np.cumsum(x, axis)
    np.testing.assert_array_equal(z, wanted)


@tile.jit
def sorts(x, z, M: tl.constexpr, N: tl.constexpr, DOWN: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(z + at, tl.sort(tl.load(x + at), descending=DOWN))


@pytest.mark.parametrize("n", [2, 8, 64])
@pytest.mark.parametrize("down", [False, True])
def test_sort(n, down):
    x = numbers((4, n), "float32")
    z = np.zeros_like(x)
    sorts[(1,)](x, z, M=4, N=n, DOWN=down)
    np.testing.assert_array_equal(z, -np.sort(-x) if down else np.sort(x))


@tile.jit
def counts(x, z, k, N: tl.constexpr, BINS: tl.constexpr, K: tl.constexpr):
    a = tl.load(x + tl.arange(0, N))
    tl.store(z + tl.arange(0, BINS), tl.histogram(a, BINS))
    tl.store(k + tl.arange(0, K), tl.topk(a, K))


def test_histogram_and_topk():
    x = np.random.default_rng(0).integers(0, 16, 256, dtype=np.int32)
    z, k = np.zeros(16, np.int32), np.zeros(8, np.int32)
    counts[(1,)](x, z, k, N=256, BINS=16, K=8)
    np.testing.assert_array_equal(z, np.bincount(x, minlength=16))
    np.testing.assert_array_equal(k, np.sort(x)[::-1][:8])


@tile.jit
def shapes(x, t, r, j, a, b, f, g, M: tl.constexpr, N: tl.constexpr):
    rows, columns = tl.arange(0, M), tl.arange(0, N)
    v = tl.load(x + rows[:, None] * N + columns[None, :])
    tl.store(t + columns[:, None] * M + rows[None, :], tl.trans(v))
    tl.store(r + tl.arange(0, M * N), tl.reshape(v, [M * N]))
    both = tl.join(v, v + 1)
    tl.store(j + (rows[:, None, None] * N + columns[None, :, None]) * 2 + tl.arange(0, 2)[None, None, :], both)
    left, right = tl.split(tl.reshape(v, [M, N // 2, 2]))
    half = rows[:, None] * (N // 2) + tl.arange(0, N // 2)[None, :]
    tl.store(a + half, left)
    tl.store(b + half, right)
    tl.store(f + rows[:, None] * N + columns[None, :], tl.flip(v, 1))
    index = (columns[None, :] + rows[:, None]) % N
    tl.store(g + rows[:, None] * N + columns[None, :], tl.gather(v, index, 1))


def test_shapes():
    m, n = 8, 16
    x = numbers((m, n), "float32")
    t, r, j = np.zeros((n, m), np.float32), np.zeros(m * n, np.float32), np.zeros((m, n, 2), np.float32)
    a, b = np.zeros((m, n // 2), np.float32), np.zeros((m, n // 2), np.float32)
    f, g = np.zeros_like(x), np.zeros_like(x)
    shapes[(1,)](x, t, r, j, a, b, f, g, M=m, N=n)
    np.testing.assert_array_equal(t, x.T)
    np.testing.assert_array_equal(r, x.ravel())
    np.testing.assert_array_equal(j, np.stack([x, x + 1], -1))
    np.testing.assert_array_equal(a, x[:, ::2])
    np.testing.assert_array_equal(b, x[:, 1::2])
    np.testing.assert_array_equal(f, x[:, ::-1])
    np.testing.assert_array_equal(g, np.take_along_axis(x, (np.arange(n)[None] + np.arange(m)[:, None]) % n, 1))


@tile.jit
def product(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, ADD: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + m[:, None] * K + k[None, :])
    y = tl.load(b + k[:, None] * N + n[None, :])
    at = c + m[:, None] * N + n[None, :]
    if ADD:
        tl.store(at, tl.dot(x, y, tl.load(at)))
    else:
        tl.store(at, tl.dot(x, y))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("m, n, k", [(16, 16, 16), (32, 64, 16), (64, 16, 128), (16, 32, 1), (1, 4, 8)])
@pytest.mark.parametrize("add", [False, True])
def test_dot(dtype, m, n, k, add):
    a, b = numbers((m, k), dtype), numbers((k, n), dtype, 1)
    kind = np.int32 if dtype == "int8" else np.float32
    c = numbers((m, n), kind, 2)
    wanted = a.astype(np.float64) @ b.astype(np.float64) + (c if add else 0)
    product[(1,)](a, b, c, M=m, N=n, K=k, ADD=add)
    np.testing.assert_allclose(c, wanted, rtol=1e-4, atol=1e-4)


@tile.jit
def flow(x, y, n, flag, N: tl.constexpr):
    pid = tl.program_id(0)
    if pid >= n:
        return
    total = 0.0
    steps = 0
    for i in range(0, pid + 1):
        v = tl.load(x + i)
        if v > 0:
            total += v
        else:
            total -= v
            steps += 1
    if flag:
        total = total * 2
    tl.store(y + pid * 2, total)
    tl.store(y + pid * 2 + 1, steps)


@pytest.mark.parametrize("flag", [False, True])
def test_branches_and_loops(flag):
    x = numbers(16, "float32")
    y = np.zeros((16, 2), np.float32)
    flow[(16,)](x, y, 10, flag, N=16)
    sums, steps = np.cumsum(np.abs(x)), np.cumsum(x <= 0)
    wanted = np.stack([sums * (2 if flag else 1), steps], 1)
    wanted[10:] = 0
    np.testing.assert_allclose(y, wanted, rtol=1e-5)


@tile.jit
def swapped(x, y, n):
    a, b = 1, 2
    for i in range(n):
        a, b = b, a + b
    tl.store(x, a)
    tl.store(y, b)


def test_values_that_a_loop_exchanges():
    x, y = np.zeros(1, np.int32), np.zeros(1, np.int32)
    swapped[(1,)](x, y, 10)
    assert (x[0], y[0]) == (144, 233)


@tile.jit
def grid(x, W: tl.constexpr, H: tl.constexpr):
    i, j, k = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    tl.store(x + (k * H + j) * W + i, i + 10 * j + 100 * k + 1000 * tl.num_programs(0))


def test_grids():
    x = np.zeros((2, 3, 4), np.int32)
    grid[(4, 3, 2)](x, W=4, H=3)
    wanted = np.arange(4)[None, None] + 10 * np.arange(3)[None, :, None] + 100 * np.arange(2)[:, None, None] + 4000
    np.testing.assert_array_equal(x, wanted)


@tile.jit
def in_place(x, y, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(y + (N - 1 - at), tl.load(x + at))


def test_arrays_that_share_memory():
    x = numbers(64, "float32")
    wanted = x[::-1].copy()
    in_place[(1,)](x, x, N=64)
    np.testing.assert_array_equal(x, wanted)
    x = numbers(96, "float32")
    wanted = x.copy()
    wanted[32:] = x[:64][::-1]
    in_place[(1,)](x, x[32:], N=64)
    np.testing.assert_array_equal(x, wanted)


@tile.jit
def blocks(x, y, m, n, M: tl.constexpr, N: tl.constexpr):
    source = tl.make_block_ptr(x, (m, n), (n, 1), (0, 0), (M, N), (1, 0))
    target = tl.make_tensor_descriptor(y, [m, n], [n, 1], [M, N])
    for j in range(0, n, N):
        target.store([0, j], tl.load(source, boundary_check=(0, 1)) * 2)
        source = tl.advance(source, (0, N))


def test_block_pointers_and_descriptors():
    x = numbers((13, 45), "float32")
    y = np.zeros_like(x)
    blocks[(1,)](x, y, 13, 45, M=16, N=16)
    np.testing.assert_array_equal(y, x * 2)


@tile.jit
def random(x, y, seed, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(x + at, tl.rand(seed, at))
    tl.store(y + at, tl.randint(seed, at))


def test_philox():
    x, y = np.zeros(1024, np.float32), np.zeros(1024, np.uint32)
    random[(1,)](x, y, 42, N=1024)
    assert 0 <= x.min() and x.max() < 1 and abs(x.mean() - 0.5) < 0.05
    # Philox4x32-10 of counter (0, 0, 0, 0) and key (42, 0).
    c, k = [0, 0, 0, 0], [42, 0]
    for _ in range(10):
        p0, p1 = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k[1], p0 & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    assert y[0] == c[0]


@tile.autotune([tile.Config({"N": 64}), tile.Config({"N": 256})], key=["n"])
@tile.jit
def tuned(x, y, n, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(y + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


@tile.heuristics({"N": lambda args: tile.next_power_of_2(args["n"])})
@tile.jit
def guessed(x, y, n, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(y + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


def test_choosing_parameters():
    x, y = numbers(1000, "float32"), np.zeros(1000, np.float32)
    tuned[lambda meta: (tile.cdiv(1000, meta["N"]),)](x, y, 1000)
    np.testing.assert_array_equal(y, x + 1)
    assert tuned.best_config.kwargs["N"] in (64, 256)
    y[:] = 0
    guessed[(1,)](x, y, 1000)
    np.testing.assert_array_equal(y, x + 1)


def test_choices_that_a_device_cannot_run_are_passed_over():
    if os.environ.get("TESSERA_INTERPRET"):
        pytest.skip("nothing is timed there")

    def times(call, quantiles=None):
        tried.append(call)
        if len(tried) != 2:
            raise tessera.Error("E0604", "too much for this device")
        call()
        return 1.0

    x, y = numbers(100, "float32"), np.zeros(100, np.float32)
    configs = [tile.Config({"N": n}) for n in (64, 128, 256)]
    tried = []
    chosen = tile.autotune(configs, key=["n"], do_bench=times)(tuned.fn)
    chosen[lambda meta: (tile.cdiv(100, meta["N"]),)](x, y, 100)
    np.testing.assert_array_equal(y, x + 1)
    assert len(tried) == 3 and chosen.best_config is configs[1]
    tried = [None, None]
    with pytest.raises(tessera.Error, match="too much for this device"):
        tile.autotune(configs, key=["n"], do_bench=times)(tuned.fn)[(2,)](x, y, 100)


@tile.jit
def updates(x, old, HOW: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    v = at + tl.program_id(0)
    if HOW == "add":
        o = tl.atomic_add(x + at, v, mask=at < N - 1)
    elif HOW == "max":
        o = tl.atomic_max(x + at, v, mask=at < N - 1)
    else:
        o = tl.atomic_xchg(x + at, v, mask=at < N - 1)
    tl.store(old + tl.program_id(0) * N + at, o)


@pytest.mark.parametrize("dtype", ["int32", "float32", "int64", "float16", "uint32", "float64"])
@pytest.mark.parametrize("how", ["add", "max", "xchg"])
def test_atomics(how, dtype):
    n, instances = 16, 50
    x, old = np.zeros(n, dtype), np.zeros((instances, n), dtype)
    updates[(instances,)](x, old, HOW=how, N=n)
    v = np.arange(n)[None] + np.arange(instances)[:, None]
    if how == "xchg":
        # Each value was taken out once, but the one that is still there; 0 was there at first.
        for i in range(n - 1):
            assert sorted([*old[:, i], x[i]]) == sorted([*v[:, i], 0])
        assert x[-1] == 0
        return
    wanted = v.sum(0) if how == "add" else v.max(0)
    wanted[-1] = 0
    np.testing.assert_array_equal(x, wanted)


@tile.jit
def compares(x, old):
    tl.store(old + tl.program_id(0), tl.atomic_cas(x, 0, tl.program_id(0) + 1))


def test_compare_and_swap():
    x, old = np.zeros(1, np.int32), np.zeros(20, np.int32)
    compares[(20,)](x, old)
    assert 1 <= x[0] <= 20 and np.count_nonzero(old == 0) == 1 and set(old) == {0, x[0]}


@tile.jit
def scaled(x, y, n, factor, HOW: tl.constexpr, SHIFT: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    v = tl.load(x + at, mask=at < n, other=0)
    tl.store(y + at, v * factor + SHIFT if HOW == "add" else v * factor - SHIFT, mask=at < n)


def test_launches_like_others_and_unlike():
    """The second launch of a kind takes another way than the first: types, numbers, constants, shared memory."""
    for _ in range(3):
        for dtype in ("float32", "int32", "float16"):
            for n, factor, how, shift in ((16, 3, "add", 1), (9, -2, "add", 1), (1, 1, "sub", 2), (np.int64(5), 2.5, "su" + "b", 0.5)):
                x, y = numbers(32, dtype)[::2].copy(), np.zeros(16, np.float32)
                scaled[(1,)](x, y, n, factor, HOW=how, SHIFT=shift, N=16)
                wanted = (x * np.float32(factor) + (shift if how == "add" else -shift)).astype(np.float32)
                wanted[int(n):] = 0
                np.testing.assert_allclose(y, wanted, rtol=2e-3)
        x = numbers(16, "float32")
        wanted = x * 3 + 1
        scaled[(1,)](x, x, 16, 3, HOW="add", SHIFT=1, N=16)
        np.testing.assert_allclose(x, wanted, rtol=1e-6)


SIZE = tl.constexpr(16)
MODE = tl.constexpr("b")


@tile.jit
def pair(a, b, SWAP: tl.constexpr = False):
    if SWAP:
        return b, a
    return a, b


@tile.jit
def clipped(x):
    if x > 5:
        return 5
    else:
        return x


@tile.jit
def early(x, n):
    if x > n:
        return x - n
    y = x * 2
    return y


@tile.jit
def statements(out, n, flag: tl.constexpr = None, OPT: tl.constexpr = (1, 2, 3)):
    i = tl.arange(0, SIZE)
    a, b = pair(i, i * 2)
    c, d = pair(a, b, SWAP=True)
    if flag is None:
        e = c + d
    else:
        e = c - d
    tl.store(out + i, e)
    s = 0
    for k in range(10, 0, -3):
        s += k
    tl.store(out + 16, s)
    for k in tl.static_range(3):
        tl.store(out + 17 + k, OPT[k])
    x = 3 if n > 4 else 7
    tl.store(out + 20, x)
    if n > 100:
        v = 1
    elif n > 10:
        v = 2
    elif n > 3:
        v = 3
    else:
        v = 4
    tl.store(out + 21, v)
    tl.store(out + 22, clipped(n))
    tl.store(out + 23, early(n, 3))
    tl.store(out + 24, (n > 3) and (n < 10) or not (n == 8))
    tl.static_assert(SIZE == 16)
    assert SIZE == 16, "size"
    m = min(n, 4) + max(n, 9)
    tl.store(out + 25, m)
    row = tl.sum(tl.reshape(i, (4, 4)), axis=1)[:, None] + tl.zeros((4, 4), tl.int32)
    tl.store(out + 26 + tl.arange(0, 4)[:, None] * 4 + tl.arange(0, 4)[None, :], row)
    t = (n, n + 1)
    for q in range(2):
        t = (t[0] + 1, t[1] * 2)
    tl.store(out + 42, t[0])
    tl.store(out + 43, t[1])
    big: tl.constexpr = SIZE.value * 2 if MODE == "b" else 1
    tl.store(out + 44, big)
    z = tl.full((4,), 3, tl.int32)
    z += 1
    z *= 2
    tl.store(out + 45 + tl.arange(0, 4), z)
    for q in range(n):
        if q == 2:
            tl.store(out + 49, q)
    u = tl.where(i < 4, i, -1).to(tl.float32)
    tl.store(out + 50, tl.max(u, 0))
    tl.store(out + 51, -n // 2)
    tl.store(out + 52, (-n) % 3)
    tl.store(out + 53, 7 // 2 + 7 % 4 + 2 ** 3)
    w = 1.0 * n
    tl.store(out + 54, w / 2 * 10)


def test_statements():
    out = np.zeros(64, np.int32)
    statements[(1,)](out, 8)
    np.testing.assert_array_equal(out[:16], np.arange(16) * 3)
    wanted = [22, 1, 2, 3, 3, 3, 5, 5, 1, 13, *[6] * 4, *[22] * 4, *[38] * 4, *[54] * 4, 10, 36, 32, *[8] * 4, 2, 3, -4, -2, 14, 40]
    np.testing.assert_array_equal(out[16:16 + len(wanted)], wanted)


# What is wrong with a kernel is shown at its line.
@tile.jit
def wrong_type(x):
    tl.store(x, tl.sqrt(tl.program_id(0)))


@tile.jit
def wrong_shape(x):
    tl.store(x, tl.sum(tl.arange(0, 16) + tl.arange(0, 32), 0))


@tile.jit
def wrong_size(x):
    tl.store(x, tl.sum(tl.arange(0, 24), 0))


@tile.jit
def wrong_name(x):
    tl.store(x, nothing)  # noqa: F821


@tile.jit
def wrong_loop(x, n):
    a = 0
    for i in range(n):
        a = a + 1.5
    tl.store(x, a)


def check_mark(raised, marked):
    """The line of the kernel is shown, and the mark below it points at that text."""
    lines = str(raised.value).splitlines()
    mark = next(i for i, line in enumerate(lines) if line.strip() == "^")
    assert lines[mark - 1][lines[mark].index("^"):].startswith(marked)


@pytest.mark.parametrize("kernel, message, marked", [
    (wrong_type, "Expected dtype", "tl.sqrt("),
    (wrong_shape, "do not broadcast", "tl.arange(0, 16) +"),
    (wrong_size, "24 elements, not a power of two", "tl.arange(0, 24)"),
    (wrong_name, "nothing is not defined", "nothing"),
    (wrong_loop, "has initial type i32 but is re-assigned to f32", "for i in"),
])
def test_mistakes_are_marked(kernel, message, marked):
    x = np.zeros(1, np.float32)
    with pytest.raises(tile.CompilationError) as e:
        kernel[(1,)](x) if kernel is not wrong_loop else kernel[(1,)](x, 3)
    assert message in str(e.value)
    check_mark(e, marked)


@tile.jit
def reaches_too_far(x, y, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(y + at, tl.load(x + at))


def test_reading_outside_is_found(way):
    if way == "compiled":
        pytest.skip("machine code checks nothing")
    with pytest.raises(tessera.Error, match="element .60. of x") as e:
        reaches_too_far[(1,)](np.zeros(60, np.float32), np.zeros(64, np.float32), N=64)
    check_mark(e, "tl.load(x + at)")


@tile.jit
def races(x):
    tl.store(x, tl.program_id(0))


def test_races_are_found(way):
    if way == "compiled":
        pytest.skip("machine code checks nothing")
    with pytest.raises(tessera.Error, match="a race for element .0. of x") as e:
        races[(4,)](np.zeros(1, np.int32))
    check_mark(e, "tl.store(x, ")


def test_kernels_are_launched_not_called():
    with pytest.raises(tessera.Error, match="launch it over a grid"):
        races(np.zeros(1))


@pytest.mark.parametrize("lesson", sorted(p.name for p in (pathlib.Path(__file__).resolve().parents[2] / "tutorial" / "tile").glob("*.py")))
def test_tutorials(lesson, way):
    path = pathlib.Path(__file__).resolve().parents[2] / "tutorial" / "tile" / lesson
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
