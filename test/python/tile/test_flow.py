"""Control flow: loops, branches, returns, functions of functions, tuples, and what is known when a kernel is compiled."""

import collections

import numpy as np
import pytest
from cases import kernel

import tessera.tile as triton
import tessera.tile.language as tl


def made(launched, *args, dtype=np.int32, size=8, **kwargs):
    z = np.zeros(size, dtype)
    launched[(1,)](z, *args, **kwargs)
    return z


@triton.jit
def counts_down(z, n):
    i = n
    steps = 0
    while i > 0:
        i -= 2
        steps += 1
    tl.store(z, steps)
    tl.store(z + 1, i)


@pytest.mark.parametrize("n", [0, 1, 7, 100])
def test_while(n):
    z = made(counts_down, n)
    assert (z[0], z[1]) == ((n + 1) // 2, -(n % 2))


@triton.jit
def nested_whiles(z, x, n):
    i = 0
    total = tl.zeros((4,), tl.int32)
    while i < n:
        j = 0
        while j < tl.load(x + i):
            total += tl.arange(0, 4)
            j += 1
        i += 1
    tl.store(z + tl.arange(0, 4), total)


def test_whiles_in_whiles_and_conditions_that_load():
    x = np.array([3, 0, 5, 2], np.int32)
    np.testing.assert_array_equal(made(nested_whiles, x, 4)[:4], np.arange(4) * 10)


@triton.jit
def collatz(z, N: tl.constexpr):
    for i in range(N):
        n = i + 1
        steps = 0
        while n != 1:
            if n % 2 == 0:
                n = n // 2
            else:
                n = 3 * n + 1
            steps += 1
        tl.store(z + i, steps)


def test_while_with_branches_in_a_loop():
    def steps(n):
        return 0 if n == 1 else 1 + steps(n // 2 if n % 2 == 0 else 3 * n + 1)
    np.testing.assert_array_equal(made(collatz, N=8), [steps(n + 1) for n in range(8)])


@triton.jit
def never(z):
    i = 0
    while i > 0:
        i += 1
        tl.store(z, 1)
    tl.store(z + 1, i)


def test_while_that_does_not_begin():
    assert made(never)[:2].tolist() == [0, 0]


@triton.jit
def ranges(z, a, b, STEP: tl.constexpr):
    n = 0
    last = -1000
    for i in range(a, b, STEP):
        n += 1
        last = i
    tl.store(z, n)
    tl.store(z + 1, last)


@pytest.mark.parametrize("a, b, step", [(0, 10, 1), (3, 17, 4), (10, 0, -1), (10, 1, -3), (5, 5, 1), (7, 3, 2), (-4, 4, 3)])
def test_ranges(a, b, step):
    steps = list(range(a, b, step))
    assert made(ranges, a, b, STEP=step)[:2].tolist() == [len(steps), steps[-1] if steps else -1000]


@triton.jit
def wide_range(z, n):
    total = tl.zeros((), tl.int64)
    for i in range(n, n + 5):
        total += i - n
    tl.store(z, total)


def test_loops_over_64_bits():
    assert made(wide_range, 2**40, dtype=np.int64)[0] == 10


@triton.jit
def options(z, N: tl.constexpr):
    total = 0
    for i in tl.range(0, N, num_stages=3, loop_unroll_factor=2, flatten=True, warp_specialize=False, disallow_acc_multi_buffer=True):
        total += i
    for i in tl.static_range(N):
        tl.store(z + i, total + i)


def test_ranges_with_options():
    assert made(options, N=4)[:4].tolist() == [6, 7, 8, 9]


@triton.jit
def chosen(x):
    if x > 10:
        return x * 2
    elif x > 5:
        return x + 100
    else:
        return x


@triton.jit
def early(x, n):
    if x > n:
        if x > 2 * n:
            return x - 2 * n
        return x - n
    y = x * 2
    return y


@triton.jit
def calls(z, n):
    tl.store(z, chosen(n))
    tl.store(z + 1, early(n, 3))
    tl.store(z + 2, early(n=n, x=chosen(n)))
    if n == 3:
        return
    tl.store(z + 3, 1)


@pytest.mark.parametrize("n", [2, 3, 4, 6, 7, 20])
def test_returns(n):
    def chosen_of(x): return x * 2 if x > 10 else x + 100 if x > 5 else x
    def early_of(x, m): return x - 2 * m if x > 2 * m else x - m if x > m else 2 * x
    assert made(calls, n)[:4].tolist() == [chosen_of(n), early_of(n, 3), early_of(chosen_of(n), n), int(n != 3)]


@triton.jit(noinline=True)
def apart(x, y):
    return x + y, x - y


@triton.jit
def defaults(x, SCALE: tl.constexpr = 3, shift=2):
    return x * SCALE + shift


@triton.jit
def calls_apart(z, n):
    a, b = apart(n, 3)
    tl.store(z, a)
    tl.store(z + 1, b)
    tl.store(z + 2, defaults(n))
    tl.store(z + 3, defaults(n, 5, shift=n))


def test_functions_with_defaults_and_tuples():
    assert made(calls_apart, 10)[:4].tolist() == [13, 7, 32, 60]


@triton.jit
def ternary(z, x, n):
    a = tl.load(x) if n > 2 else 7
    tl.store(z, a)
    tl.store(z + 1, (n > 1) and (n < 5))
    tl.store(z + 2, n < 0 or n == 4)
    tl.store(z + 3, not n)
    if not (n > 2):
        tl.store(z + 4, 1)


@pytest.mark.parametrize("n", [0, 4, 9])
def test_choices(n):
    x = np.array([42], np.int32)
    assert made(ternary, x, n)[:5].tolist() == [42 if n > 2 else 7, 1 < n < 5, n < 0 or n == 4, not n, n <= 2]


Pair = collections.namedtuple("Pair", ["first", "second"])
LIMIT = tl.constexpr(5)


@triton.jit
def tuples(z, args, pair, N: tl.constexpr):
    x, (y, n), empty = args
    tl.static_assert(len(args) == 3)
    tl.static_assert(len(empty) == 0)
    tl.store(z, tl.load(x) + tl.load(y) * n)
    t = (n, n + 1, N)
    for i in range(3):
        t = (t[1], t[0] + 1, t[2])
    tl.store(z + 1, t[0])
    tl.store(z + 2, t[1])
    tl.store(z + 3, pair.first * pair.second)
    u = t + (7,)
    tl.store(z + 4, u[-1] + u[2])
    for v in (1, 2, 3):
        tl.store(z + 4 + v, v)


def test_tuples():
    x, y = np.array([5], np.int32), np.array([7], np.int32)
    z = made(tuples, (x, (y, 3), ()), Pair(6, 7), N=2)
    a, b = 3, 4
    for _ in range(3):
        a, b = b, a + 1
    assert z.tolist() == [26, a, b, 42, 9, 1, 2, 3]


@triton.constexpr_function
def power(a, b): return a**b


@triton.jit
def known(z, x, N: tl.constexpr, F: tl.constexpr, NAME: tl.constexpr):
    size: tl.constexpr = power(2, N) + LIMIT
    tl.store(z, size)
    if NAME == "sum" or NAME is None:
        tl.store(z + 1, F(3, 4))
    if x is None:
        tl.store(z + 2, 1)
    else:
        tl.store(z + 2, tl.load(x))
    if hasattr(x, "dtype") and isinstance(x.dtype, tl.pointer_type):
        tl.store(z + 3, 9)
    blocks: tl.constexpr = triton.cdiv(N, 2) + triton.next_power_of_2(N)
    tl.store(z + 4, blocks)
    tl.store(z + 5, tl.cdiv(N, 2) if N > 3 else -1)
    tl.static_print("N is", N)


@triton.jit
def added(a, b):
    return a + b


@pytest.mark.parametrize("x", [None, np.array([8], np.int32)])
def test_what_is_known(x):
    z = made(known, x, N=3, F=added, NAME="sum")
    assert z[:6].tolist() == [13, 7, 1 if x is None else 8, 0 if x is None else 9, 6, -1]


@triton.jit
def specialised(z, n, m):
    tl.store(z, n)
    tl.store(z + 1, m)


@pytest.mark.parametrize("n", [1, 2, -1, 2**31, 2**40, -2**40, 2**63, 2**64 - 1, True])
def test_numbers_as_arguments(n):
    z = made(specialised, n, 1, dtype=np.int64)
    assert z[0] == np.array([n & 2**64 - 1], np.uint64).astype(np.int64)[0] and z[1] == 1


def test_a_number_that_is_too_large():
    with pytest.raises(OverflowError):
        made(specialised, 2**64, 1)


@triton.jit
def declared(z, a: tl.int64, b: "u8", c: "fp16", d: tl.float64):  # noqa: F821
    tl.static_assert(a.dtype == tl.int64)
    tl.static_assert(b.dtype == tl.uint8)
    tl.static_assert(c.dtype == tl.float16)
    tl.static_assert(d.dtype == tl.float64)
    tl.store(z, a + b + c + d)


def test_declared_types_of_numbers():
    assert made(declared, 1, 2, 0.5, 0.25, dtype=np.float64)[0] == 3.75


@triton.jit
def compared(a, b):
    if a < b:
        return -1
    elif a == b:
        return 0
    else:
        return 1


@triton.jit
def maps(x, y, z, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(z + at, tl.map_elementwise(compared, tl.load(x + at), tl.load(y + at)))


def test_functions_of_single_elements():
    x, y, z = (np.random.default_rng(s).integers(0, 4, 32) for s in range(3))
    maps[(1,)](x, y, z, N=32)
    np.testing.assert_array_equal(z, np.sign(x - y))


@triton.jit
def in_pairs(a, b, x, y):
    if a > b:
        return a - b, b, x + y, 0
    return a, b - a, x * y, 1


@triton.jit
def maps_pairs(x, y, z, w, N: tl.constexpr):
    at = tl.arange(0, N)
    first, second = tl.map_elementwise(in_pairs, tl.load(x + at), tl.load(y + at), pack=2)
    tl.store(z + at, first)
    tl.store(w + at, second)


def test_functions_of_several_elements_at_once():
    x, y, z, w = (np.random.default_rng(s).integers(0, 9, 32) for s in range(4))
    maps_pairs[(1,)](x, y, z, w, N=32)
    a, b, c, d = x[::2], x[1::2], y[::2], y[1::2]
    np.testing.assert_array_equal(z, np.stack([np.where(a > b, a - b, a), np.where(a > b, b, b - a)], 1).ravel())
    np.testing.assert_array_equal(w, np.stack([np.where(a > b, c + d, c * d), (a <= b)], 1).ravel())


@triton.jit
def looks_up(z, x, NAME: tl.constexpr, TILE: tl.constexpr):
    t = tl.load(x + tl.arange(0, 4))
    tl.store(z, getattr(tl, NAME)(t))
    tl.store(z + 1, getattr(t, TILE)(axis=0))
    tl.store(z + 2, tl.sum(t, keep_dims=True).item())
    tl.store(tl.where(t > 1, z + 3, z + 4)[None, None, :], t[None, None, :], mask=(t == 2)[None, None, :])
    kind: tl.constexpr = t.dtype
    tl.static_assert(tl.float16.exponent_bias == 15)
    tl.static_assert(kind.primitive_bitwidth == 32)


def test_names_that_are_known():
    assert made(looks_up, np.array([3, 1, 2, 0], np.int32), NAME="sum", TILE="max")[:5].tolist() == [6, 3, 6, 2, 0]
    assert tl.constexpr(3).type == tl.constexpr_type(3) and tl.random.rand is tl.rand


@pytest.mark.parametrize("text, message", [
    ("for i in range(n):\n    a = a + 1.5", "Loop-carried variable a has initial type i32"),
    ("while a < n:\n    a = a * 1.5", "Loop-carried variable a has initial type i32"),
    ("if n > 2:\n    a = 1.0\nelse:\n    a = 1", "Mismatched type for a between then block"),
    ("a = 1 if n > 2 else 1.5", "Ternary expression with dynamic condition has inconsistent types"),
    ("for i in range(n):\n    if i > 2:\n        return", "Cannot have `return` statements inside"),
    ("a = missing", "missing is not defined"), ("tl.static_assert(False, 'never')", "never"),
    ("assert 1 == 2, 'unequal'", "unequal"), ("b: tl.constexpr = a.nothing", "nothing"),
    ("a = tl.arange(0, 3)", "power of two"), ("a = tl.program_id(3)", "must be 0, 1, or 2"),
    ("a = tl.sum(tl.arange(0, 4) + tl.arange(0, 8))", "Cannot make_shape_compatible"), ("a = tl.load(n)", "integers are not"),
    ("a = tl.inline_asm_elementwise('x', '=r', [a], tl.int32, True, 1)", "inline GPU assembly is not supported"),
])
def test_mistakes_are_marked(text, message):
    wrong = kernel("""
        def wrong(z, n):
            a = 0
            BODY
            tl.store(z, a)
        """, BODY=text)
    with pytest.raises(triton.CompilationError, match=message) as e:
        made(wrong, 3)
    assert "^" in str(e.value)


@triton.jit
def returns_early(x, KNOWN: tl.constexpr):
    y = x
    if KNOWN:
        if x > 10:
            return x - 10
        y = x + 1
    if x == 5:
        return 50
    y *= 2
    return y


@triton.jit
def stores_early(z, n, KNOWN: tl.constexpr):
    tl.store(z, returns_early(n, KNOWN))
    if KNOWN:
        tl.store(z + 1, 1)
        if n == 7:
            return
        if n == 8:
            tl.store(z + 2, 8)
            return
        else:
            tl.store(z + 2, 3)
    tl.store(z + 3, 4)
    if not KNOWN:
        if n == 3:
            return
    tl.store(z + 4, 5)


@pytest.mark.parametrize("n", [1, 3, 5, 7, 8, 12])
@pytest.mark.parametrize("known", [True, False])
def test_returns_within_branches_that_are_known(n, known):
    def wanted(x):
        if known and x > 10:
            return x - 10
        return 50 if x == 5 else 2 * (x + known)
    rest = [1, 0, 0, 0] if known and n == 7 else [1, 8, 0, 0] if known and n == 8 else [1, 3, 4, 5] if known else [0, 0, 4, 0 if n == 3 else 5]
    assert made(stores_early, n, KNOWN=known)[:5].tolist() == [wanted(n), *rest]


@triton.jit
def finds(x, n):
    for i in tl.static_range(4):
        if tl.load(x + i) == n:
            return i
    return -1


@triton.jit
def only_if(x):
    if x > 3:
        return x * 2


@triton.jit
def sets(z, v): tl.store(z, v)


@triton.jit
def partly_returns(z, x, n):
    tl.store(z, finds(x, n))
    if n > 3:
        tl.store(z + 1, only_if(n))
    sets(z + 2, 7) if n > 3 else sets(z + 3, 8)


@pytest.mark.parametrize("n", [4, 2, 9])
def test_returns_of_unrolled_loops_and_of_one_side(n):
    x = np.array([9, 5, 4, 4], np.int32)
    z = made(partly_returns, x, n)
    assert z[:4].tolist() == [x.tolist().index(n) if n in x else -1, 2 * n if n > 3 else 0, 7 * (n > 3), 8 * (n <= 3)]


@triton.jit
def same_on_both_sides(z, n):
    a = n * 2
    b = n + 1
    if n > 3:
        a = b
    else:
        c = b + 0
        a = b
    tl.store(z, a)


@triton.jit
def never_runs(x, z):
    at = tl.arange(0, 8)
    v = tl.load(x + at)
    for i in range(0):
        for j in range(2):
            v = tl.cumsum(v, 0)


def test_branches_that_assign_the_same_value():
    assert [made(same_on_both_sides, n)[0] for n in (2, 5)] == [3, 6]


def test_loops_without_iterations(monkeypatch):
    for how in ("", "1", "gpu"):
        monkeypatch.setenv("TESSERA_INTERPRET", how)
        never_runs[(1,)](np.arange(8, dtype=np.int32), np.zeros(8, np.int32))


@triton.jit
def row_of(x, TILE: tl.constexpr, SCALE: tl.constexpr): return tl.sum(x * TILE, axis=1) * SCALE


@triton.jit
def passes_tiles(z, N: tl.constexpr):
    at = tl.arange(0, N)
    x = at[:, None] * N + at[None, :]
    tl.store(z + at, row_of(x, at[None, :], 2))


def test_tiles_for_parameters_that_are_constexpr():
    x = np.arange(16).reshape(4, 4)
    np.testing.assert_array_equal(made(passes_tiles, N=4)[:4], 2 * (x * np.arange(4)).sum(1))


def replaced(scale):
    return kernel("""
        def inner(x):
            return x * SCALE
        """, SCALE=scale)


inner = replaced(2)


@triton.jit
def middle(x): return inner(x) + 1


@triton.jit
def outermost(z, n): tl.store(z, middle(n))


def test_code_of_functions_that_were_replaced():
    global inner
    key = outermost.cache_key
    assert [made(outermost, 10)[0] for _ in range(3)] == [21] * 3
    before, inner = inner, replaced(5)
    try:
        assert [made(outermost, 10)[0] for _ in range(3)] == [51] * 3
        assert outermost.cache_key != key
        inner._unsafe_update_src(inner.src.replace("5", "7"))
        assert [made(outermost, 10)[0] for _ in range(3)] == [71] * 3
    finally:
        inner = before
    assert made(outermost, 10)[0] == 21 and outermost.cache_key == key


@triton.jit
def stores_const(x: tl.const, z, c: tl.const, choose, HOW: tl.constexpr):
    v = tl.load(x)
    if HOW == "direct":
        tl.store(c, v)
    elif HOW == "moved":
        tl.store(tl.broadcast_to(c[None], (4,)) + tl.arange(0, 4), v)
    elif HOW == "atomic":
        tl.atomic_add(c, v)
    elif HOW == "ternary":
        tl.store(c if choose else z, v)
    elif HOW == "if":
        if choose:
            to = c
        else:
            to = z
        tl.store(to, v)
    else:
        tl.store(z, v)


@pytest.mark.parametrize("how, message", [
    ("direct", "Cannot store to a constant pointer"), ("moved", "Cannot store to a constant pointer"),
    ("atomic", "Cannot store to a constant pointer"), ("ternary", "Ternary expression with dynamic condition has inconsistent type"),
    ("if", "Mismatched type for to"), ("not", None)])
def test_nothing_is_stored_through_pointers_that_are_const(how, message):
    x, z, c = (np.full(4, i, np.int32) for i in (5, 0, 0))
    if message is None:
        stores_const[(1,)](x, z, c, 2, HOW=how)
        assert z[0] == 5
        return
    with pytest.raises(triton.CompilationError, match=message):
        stores_const[(1,)](x, z, c, 2, HOW=how)
