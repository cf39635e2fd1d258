"""Random numbers: Philox in words of 32 and 64 bits, as its authors define it."""

import numpy as np
import pytest

import tessera.tile as triton
import tessera.tile.language as tl

KEYS = {32: (0x9E3779B9, 0xBB67AE85), 64: (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)}
FACTORS = {32: (0xD2511F53, 0xCD9E8D57), 64: (0xD2E7470EE14C6C93, 0xCA5A826395121157)}


def philox(seed, counter, bits, rounds=10):
    mask = (1 << bits) - 1
    c, k = [*counter, 0, 0, 0][:4], [seed & mask, (seed >> bits) & mask]
    for _ in range(rounds):
        p, q = c[0] * FACTORS[bits][0], c[2] * FACTORS[bits][1]
        c = [(q >> bits) ^ c[1] ^ k[0], q & mask, (p >> bits) ^ c[3] ^ k[1], p & mask]
        k = [(k[0] + KEYS[bits][0]) & mask, (k[1] + KEYS[bits][1]) & mask]
    return c


@triton.jit
def draws(z, seed, N: tl.constexpr, WIDE: tl.constexpr, ROUNDS: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    place = at.to(tl.int64) * 1234567891011 - 5 if WIDE else at
    a, b, c, d = tl.randint4x(seed, place, ROUNDS)
    tl.store(z + at * 4, a)
    tl.store(z + at * 4 + 1, b)
    tl.store(z + at * 4 + 2, c)
    tl.store(z + at * 4 + 3, d)


@pytest.mark.parametrize("seed", [0, 42, 124, 54, 0xFFFFFFFF, 0xDEADBEEFCAFEB0BA, 2**40])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("rounds", [10, 7])
def test_philox(seed, wide, rounds):
    z = np.zeros((64, 4), np.uint32)
    draws[(2,)](z, seed, N=32, WIDE=wide, ROUNDS=rounds)
    # Offsets of 64 bits are two words of the counter.
    places = [(i * 1234567891011 - 5 if wide else i) % 2**64 for i in range(64)]
    np.testing.assert_array_equal(z, np.array([philox(seed, (p & 0xFFFFFFFF, p >> 32), 32, rounds) for p in places], z.dtype))


@triton.jit
def wide_words(z, seed):
    at = tl.arange(0, 32).to(tl.uint64)
    words = tl.philox(seed, at, at * 0, at * 0, at * 0)
    tl.static_assert(words[0].dtype == tl.uint64)
    for i in tl.static_range(4):
        tl.store(z + at * 4 + i, words[i])


@triton.jit
def one_word(z, w, u, n, seed, place):
    tl.store(z, tl.randint(seed, place))
    tl.store(u, tl.rand(seed, place))
    tl.store(n, tl.randn(seed, place))
    a, b, c, d = tl.rand4x(seed, place)
    tl.store(w, a)
    tl.store(w + 1, b)
    tl.store(w + 2, c)
    tl.store(w + 3, d)


def test_words_of_64_bits():
    z = np.zeros((32, 4), np.uint64)
    wide_words[(1,)](z, 0xDEADBEEFCAFEB0BA)
    np.testing.assert_array_equal(z, np.array([philox(0xDEADBEEFCAFEB0BA, (i,), 64) for i in range(32)], z.dtype))


@pytest.mark.parametrize("place", [0, 7, 2**31 - 1, 2**32 + 3, 2**40, -1, -2**40])
def test_all_draws_are_of_the_same_words(place):
    z, w, u, n = np.zeros(1, np.uint32), np.zeros(4, np.float32), np.zeros(1, np.float32), np.zeros(1, np.float32)
    one_word[(1,)](z, w, u, n, 42, place)
    low, high = (place & 0xFFFFFFFF, place % 2**64 >> 32 if not -2**31 <= place < 2**31 else 0)
    words = philox(42, (low, high), 32)
    uniform_of = [np.float32(np.float32(x if x < 2**31 else 2**32 - 1 - x) * np.float32(4.6566127342e-10)) for x in words]
    assert z[0] == words[0] and u[0] == w[0]
    np.testing.assert_array_equal(w, uniform_of)
    np.testing.assert_allclose(n[0], np.sqrt(-2 * np.log(max(1e-7, uniform_of[0]))) * np.cos(2 * np.pi * uniform_of[1]), rtol=1e-4, atol=1e-5)


@triton.jit
def uniform(z, w, seed, N: tl.constexpr, WIDE: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    place = at.to(tl.int64) if WIDE else at
    tl.store(z + at, tl.rand(seed, place))
    tl.store(w + at, tl.randn(seed, place))


@pytest.mark.parametrize("seed", [0, 42, 124])
@pytest.mark.parametrize("wide", [False, True])
def test_distributions(seed, wide):
    n = 1 << 16
    z, w = np.zeros(n, np.float32), np.zeros(n, np.float32)
    uniform[(n // 1024,)](z, w, seed, N=1024, WIDE=wide)
    assert 0 <= z.min() and z.max() < 1 and abs(z.mean() - 0.5) < 0.01 and abs(z.std() - 12**-0.5) < 0.01
    assert abs(w.mean()) < 0.02 and abs(w.std() - 1) < 0.02
    steps = np.abs(np.sort(z) - np.arange(n) / n).max()  # of Kolmogorov and Smirnov
    assert steps < 1.63 / n**0.5


@triton.jit
def limits(z):
    tl.store(z, tl.uint_to_uniform_float(tl.full((), 0xFFFFFFFF, tl.uint32)))
    tl.store(z + 1, tl.uint_to_uniform_float(tl.full((), 0x80000000, tl.uint32)))
    tl.store(z + 2, tl.uint_to_uniform_float(tl.full((), 0x7FFFFFFF, tl.uint32)))


def test_limits():
    z = np.full(3, -1, np.float32)
    limits[(1,)](z)
    assert z.min() >= 0 and z.max() < 1
