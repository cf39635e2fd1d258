"""Attention in one kernel: softmax(q k^T) v without materializing the scores.

The kernel keeps a running maximum and a running sum for each row of queries (online softmax). If a later tile of keys
has a larger score, the accumulated sums are scaled down.
"""

import numpy as np

import tessera.tile as tile
import tessera.tile.language as tl


@tile.jit
def attention(q, k, v, out, scale, length, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr):
    start = tl.program_id(0) * BM
    head = tl.program_id(1) * length * D
    rows, columns, d = start + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    queries = tl.load(q + head + rows[:, None] * D + d[None, :], mask=rows[:, None] < length, other=0.0)
    largest = tl.full([BM], float("-inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    sums = tl.zeros([BM, D], tl.float32)
    end = min(start + BM, length) if CAUSAL else length
    for begin in range(0, end, BN):
        at = begin + columns
        keys = tl.load(k + head + at[None, :] * D + d[:, None], mask=at[None, :] < length, other=0.0)
        scores = tl.dot(queries, keys) * scale
        seen = at[None, :] < length
        if CAUSAL:
            seen = seen & (at[None, :] <= rows[:, None])
        scores = tl.where(seen, scores, float("-inf"))
        now = tl.maximum(largest, tl.max(scores, 1))
        p = tl.exp(scores - now[:, None])
        shrink = tl.exp(largest - now)
        total = total * shrink + tl.sum(p, 1)
        values = tl.load(v + head + at[:, None] * D + d[None, :], mask=at[:, None] < length, other=0.0)
        sums = tl.dot(p.to(values.dtype), values, sums * shrink[:, None])
        largest = now
    tl.store(out + head + rows[:, None] * D + d[None, :], sums / total[:, None], mask=rows[:, None] < length)


def main() -> None:
    heads, length, size = 4, 200, 32
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((heads, length, size), dtype=np.float32) for _ in range(3))
    out = np.empty_like(q)
    for causal in (False, True):
        attention[(tile.cdiv(length, 32), heads)](q, k, v, out, size**-0.5, length, D=size, BM=32, BN=64, CAUSAL=causal)
        scores = q.astype(np.float64) @ k.astype(np.float64).transpose(0, 2, 1) * size**-0.5
        if causal:
            scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
        e = np.exp(scores - scores.max(-1, keepdims=True))
        wanted = e / e.sum(-1, keepdims=True) @ v
        print(f"causal={causal}: largest difference {np.abs(out - wanted).max():.2g}")
        np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    main()
