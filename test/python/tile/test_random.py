"""Random numbers: Philox in words of 32 and 64 bits, as its authors define it."""

import numpy as np
import pytest

import tessera.tile as triton
import tessera.tile.language as tl

KEYS = {32: (0x9E3779B9, 0xBB67AE85), 64: (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)}
FACTORS = {32: (0xD2511F53, 0xCD9E8D57), 64: (0xD2E7470EE14C6C93, 0xCA5A826395121157)}


def philox(seed, counter, bits, rounds=10):
    mask = (1 << bits) - 1
    c, k = [counter & mask, 0, 0, 0], [seed & mask, (seed >> bits) & mask]
    for _ in range(rounds):
        p, q = c[0] * FACTORS[bits][0], c[2] * FACTORS[bits][1]
        c = [(q >> bits) ^ c[1] ^ k[0], q & mask, (p >> bits) ^ c[3] ^ k[1], p & mask]
        k = [(k[0] + KEYS[bits][0]) & mask, (k[1] + KEYS[bits][1]) & mask]
    return c


@triton.jit
def draws(z, seed, N: tl.constexpr, WIDE: tl.constexpr, ROUNDS: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    place = at.to(tl.int64) if WIDE else at
    a, b, c, d = tl.randint4x(seed, place, ROUNDS)
    tl.store(z + at * 4, a)
    tl.store(z + at * 4 + 1, b)
    tl.store(z + at * 4 + 2, c)
    tl.store(z + at * 4 + 3, d)


@pytest.mark.parametrize("seed", [0, 42, 124, 54, 0xFFFFFFFF, 0xDEADBEEFCAFEB0BA, 2**40])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("rounds", [10, 7])
def test_philox(seed, wide, rounds):
    bits = 64 if wide else 32
    z = np.zeros((64, 4), np.uint64 if wide else np.uint32)
    draws[(2,)](z, seed, N=32, WIDE=wide, ROUNDS=rounds)
    np.testing.assert_array_equal(z, np.array([philox(seed, i, bits, rounds) for i in range(64)], z.dtype))


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
