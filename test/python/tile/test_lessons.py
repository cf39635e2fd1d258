"""Whole kernels as scripts for Triton write them: attention over descriptors, persistent and block-scaled products, libdevice."""

import ml_dtypes
import numpy as np
import pytest
from cases import numbers

import tessera.tile as triton
import tessera.tile.language as tl
from tessera.tile.language.extra import libdevice
from tessera.tile.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def as_descriptor(given, shape, strides, block_shape):
    if isinstance(given, tl.tensor_descriptor):
        return given
    else:
        return tl.make_tensor_descriptor(given, shape, strides, block_shape)


@triton.jit
def attends(acc, l_i, m_i, q, keys, values, base, start_m, scale, BM: tl.constexpr, BN: tl.constexpr, STAGE: tl.constexpr,
            rows: tl.constexpr, columns: tl.constexpr, LENGTH: tl.constexpr, SPECIAL: tl.constexpr):
    if STAGE == 1:
        low, high = 0, start_m * BM
    elif STAGE == 2:
        low, high = start_m * BM, (start_m + 1) * BM
        low = tl.multiple_of(low, BM)
    else:
        low, high = 0, LENGTH
    at = base + low
    for start_n in tl.range(low, high, BN, warp_specialize=SPECIAL):
        start_n = tl.multiple_of(start_n, BN)
        s = tl.dot(q, keys.load([at, 0]).T)
        if STAGE == 2:
            mask = rows[:, None] >= (start_n + columns[None, :])
            s = s * scale + tl.where(mask, 0, -1.0e6)
            m = tl.maximum(m_i, tl.max(s, 1))
            s -= m[:, None]
        else:
            m = tl.maximum(m_i, tl.max(s, 1) * scale)
            s = s * scale - m[:, None]
        p = tl.math.exp2(s)
        alpha = tl.math.exp2(m_i - m)
        acc = acc * alpha[:, None]
        acc = tl.dot(p.to(tl.float16), values.load([at, 0]), acc)
        l_i = l_i * alpha + tl.sum(p, 1)
        m_i = m
        at += BN
    return acc, l_i, m_i


@triton.jit
def attention(sm_scale, M, Z, H, q_desc, k_desc, v_desc, o_desc, LENGTH, HEAD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
              STAGE: tl.constexpr, SPECIAL: tl.constexpr):
    tl.static_assert(BN <= HEAD)
    start_m, head = tl.program_id(0), tl.program_id(1)
    total = Z * H * LENGTH
    q_desc = as_descriptor(q_desc, shape=[total, HEAD], strides=[HEAD, 1], block_shape=[BM, HEAD])
    k_desc = as_descriptor(k_desc, shape=[total, HEAD], strides=[HEAD, 1], block_shape=[BN, HEAD])
    v_desc = as_descriptor(v_desc, shape=[total, HEAD], strides=[HEAD, 1], block_shape=[BN, HEAD])
    o_desc = as_descriptor(o_desc, shape=[total, HEAD], strides=[HEAD, 1], block_shape=[BM, HEAD])
    base = (head // H) * (LENGTH * H) + (head % H) * LENGTH
    first = base + start_m * BM
    rows, columns = start_m * BM + tl.arange(0, BM), tl.arange(0, BN)
    m_i = tl.zeros([BM], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([BM], dtype=tl.float32) + 1.0
    acc = tl.zeros([BM, HEAD], dtype=tl.float32)
    scale = sm_scale * 1.44269504
    q = q_desc.load([first, 0])
    if STAGE & 1:
        acc, l_i, m_i = attends(acc, l_i, m_i, q, k_desc, v_desc, base, start_m, scale, BM, BN, 4 - STAGE, rows, columns, LENGTH, SPECIAL)
    if STAGE & 2:
        acc, l_i, m_i = attends(acc, l_i, m_i, q, k_desc, v_desc, base, start_m, scale, BM, BN, 2, rows, columns, LENGTH, SPECIAL)
    m_i += tl.math.log2(l_i)
    acc = acc / l_i[:, None]
    tl.store(M + head * LENGTH + rows, m_i)
    o_desc.store([first, 0], acc.to(tl.float16))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("on_host", [False, True])
def test_attention_over_descriptors(causal, on_host):
    z, h, n, d, bm, bn = 1, 2, 64, 32, 32, 16
    q, k, v = (numbers((z, h, n, d), "float16", seed) for seed in (1, 2, 3))
    o, m = np.zeros_like(q), np.zeros((z, h, n), np.float32)

    def given(x, rows):
        return TensorDescriptor(x.reshape(-1, d), [z * h * n, d], [d, 1], [rows, d]) if on_host else x
    attention[(n // bm, z * h, 1)](0.5, m, z, h, given(q, bm), given(k, bn), given(v, bn), given(o, bm), LENGTH=n, HEAD=d, BM=bm, BN=bn,
                                   STAGE=3 if causal else 1, SPECIAL=True)
    s = (q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2)) * 0.5
    s = np.where(np.tril(np.ones((n, n), bool)), s, -np.inf) if causal else s
    p = np.exp(s - s.max(-1, keepdims=True))
    np.testing.assert_allclose(o, p / p.sum(-1, keepdims=True) @ v.astype(np.float64), atol=1e-2)


@triton.jit
def arcs(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, libdevice.asin(x), mask=at < n)


def test_functions_of_a_library():
    x = np.random.default_rng(1).random(98).astype(np.float32)
    y = np.zeros_like(x)
    arcs[lambda meta: (triton.cdiv(98, meta["BLOCK"]),)](x, y, 98, BLOCK=64, extern_libs={"libdevice": "nowhere.bc"})
    np.testing.assert_allclose(y, np.arcsin(x.astype(np.float64)), rtol=1e-6)


@triton.jit
def tile_of(tile_id, num_pid_in_group, num_pid_m, GROUP: tl.constexpr):
    group_id = tile_id // num_pid_in_group
    first = group_id * GROUP
    size = min(num_pid_m - first, GROUP)
    return first + (tile_id % size), (tile_id % num_pid_in_group) // size


@triton.jit
def persistent(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
               SUBTILE: tl.constexpr, INSTANCES: tl.constexpr, SPECIAL: tl.constexpr, FLATTEN: tl.constexpr):
    start_pid = tl.program_id(axis=0)
    num_pid_m, num_pid_n, k_tiles = tl.cdiv(M, BM), tl.cdiv(N, BN), tl.cdiv(K, BK)
    a_desc = tl.make_tensor_descriptor(a_ptr, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
    b_desc = tl.make_tensor_descriptor(b_ptr, shape=[N, K], strides=[K, 1], block_shape=[BN, BK])
    c_desc = tl.make_tensor_descriptor(c_ptr, shape=[M, N], strides=[N, 1], block_shape=[BM, BN if not SUBTILE else BN // 2])
    stored = start_pid - INSTANCES
    in_group = GROUP * num_pid_n
    for tile_id in tl.range(start_pid, num_pid_m * num_pid_n, INSTANCES, flatten=FLATTEN, warp_specialize=SPECIAL):
        pid_m, pid_n = tile_of(tile_id, in_group, num_pid_m, GROUP)
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for ki in range(k_tiles):
            a = a_desc.load([pid_m * BM, ki * BK])
            b = b_desc.load([pid_n * BN, ki * BK])
            acc = tl.dot(a, b.T, acc)
        stored += INSTANCES
        pid_m, pid_n = tile_of(stored, in_group, num_pid_m, GROUP)
        if SUBTILE:
            acc = tl.permute(tl.reshape(acc, (BM, 2, BN // 2)), (0, 2, 1))
            left, right = tl.split(acc)
            c_desc.store([pid_m * BM, pid_n * BN], left.to(tl.float16))
            c_desc.store([pid_m * BM, pid_n * BN + BN // 2], right.to(tl.float16))
        else:
            c_desc.store([pid_m * BM, pid_n * BN], acc.to(tl.float16))


@pytest.mark.parametrize("subtile", [False, True])
def test_persistent_products(subtile):
    m, n, k = 96, 80, 48
    a, b = numbers((m, k), "float16", 1), numbers((n, k), "float16", 2)
    c = np.zeros((m, n), np.float16)
    persistent[(3,)](a, b, c, m, n, k, BM=32, BN=32, BK=16, GROUP=2, SUBTILE=subtile, INSTANCES=3, SPECIAL=True, FLATTEN=True)
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32).T, atol=5e-2, rtol=1e-2)


@triton.jit
def block_scaled(a_desc, a_scale_desc, b_desc, b_scale_desc, c_desc, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
                 ELEMENTS_A: tl.constexpr, ELEMENTS_B: tl.constexpr, VEC: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                 REP_M: tl.constexpr, REP_N: tl.constexpr, REP_K: tl.constexpr, NUM_STAGES: tl.constexpr):
    pid = tl.program_id(axis=0)
    pid_m, pid_n = pid % tl.cdiv(M, BM), pid // tl.cdiv(M, BM)
    scale_m, scale_n = pid_m * REP_M, pid_n * REP_N
    k_a, k_b, k_scale = 0, 0, 0
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in tl.range(0, tl.cdiv(K, BK), num_stages=NUM_STAGES):
        a, b = a_desc.load([pid_m * BM, k_a]), b_desc.load([pid_n * BN, k_b])
        scale_a = a_scale_desc.load([0, scale_m, k_scale, 0, 0])
        scale_b = b_scale_desc.load([0, scale_n, k_scale, 0, 0])
        scale_a = scale_a.reshape(REP_M, REP_K, 32, 4, 4).trans(0, 3, 2, 1, 4).reshape(BM, BK // VEC)
        scale_b = scale_b.reshape(REP_N, REP_K, 32, 4, 4).trans(0, 3, 2, 1, 4).reshape(BN, BK // VEC)
        acc = tl.dot_scaled(a, scale_a, "e2m1", b.T, scale_b, "e2m1", acc)
        k_a += BK // ELEMENTS_A
        k_b += BK // ELEMENTS_B
        k_scale += REP_K
    c_desc.store([pid_m * BM, pid_n * BN], acc.to(tl.float16))


@pytest.mark.parametrize("form", ["nvfp4", "mxfp4"])
def test_block_scaled_products(form):
    m, n, k, vec, bk = 128, 128, 256, 16 if form == "nvfp4" else 32, 128
    rng = np.random.default_rng(3)
    values = np.array([0, .5, 1, 1.5, 2, 3, 4, 6])

    def drawn(rows):
        halves = rng.integers(0, 16, (rows, k)).astype(np.uint8)
        scales = rng.uniform(0.2, 2, (rows, k // vec)) if form == "nvfp4" else 2.0 ** rng.integers(-2, 3, (rows, k // vec))
        kept = scales.astype(ml_dtypes.float8_e4m3fn) if form == "nvfp4" else (np.log2(scales) + 127).astype(np.uint8)
        exact = kept.astype(float) if form == "nvfp4" else scales
        number = values[halves & 7] * np.where(halves & 8, -1, 1) * np.repeat(exact, vec, 1)
        blocks = kept.reshape(rows // 128, 4, 32, k // vec // 4, 4).transpose(0, 3, 2, 1, 4)  # 128 rows of 4 scales side by side
        return halves[:, ::2] | halves[:, 1::2] << 4, np.ascontiguousarray(blocks).reshape(1, rows // 128, k // vec // 4, 2, 256), number

    (a, sa, x), (b, sb, y) = drawn(m), drawn(n)
    c = np.zeros((m, n), np.float16)
    rep_k = bk // vec // 4
    scales = [1, 1, rep_k, 2, 256]
    block_scaled[(1,)](TensorDescriptor.from_tensor(a, [128, bk // 2]), TensorDescriptor.from_tensor(sa, scales),
                       TensorDescriptor.from_tensor(b, [128, bk // 2]), TensorDescriptor.from_tensor(sb, scales),
                       TensorDescriptor.from_tensor(c, [128, 128]), M=m, N=n, K=k, ELEMENTS_A=2, ELEMENTS_B=2, VEC=vec, BM=128, BN=128,
                       BK=bk, REP_M=1, REP_N=1, REP_K=rep_k, NUM_STAGES=3)
    np.testing.assert_allclose(c, x @ y.T, rtol=2e-3, atol=0.3)
