"""A matrix product with a fused activation and autotuned tile sizes.

Consecutive instances compute output tiles that share rows and columns (grouped ordering), so that operands are reused
in the cache.
"""

import numpy as np

import tessera.tile as tile
import tessera.tile.language as tl


@tile.jit
def leaky_relu(x):
    return tl.where(x >= 0, x, 0.01 * x)


@tile.autotune([tile.Config({"BM": m, "BN": n, "BK": k, "GROUP": 8}) for m, n, k in [(32, 64, 32), (64, 64, 64), (128, 128, 64), (256, 128, 128), (256, 256, 256), (128, 512, 256)]],
               key=["M", "N", "K"])
@tile.jit
def matmul(a, b, c, M, N, K, sam, sak, sbk, sbn, scm, scn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
           GROUP: tl.constexpr, ACTIVATION: tl.constexpr):
    pid = tl.program_id(0)
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    first = pid // (GROUP * columns) * GROUP
    height = min(rows - first, GROUP)
    row = first + pid % (GROUP * columns) % height
    column = pid % (GROUP * columns) // height

    m = (row * BM + tl.arange(0, BM)) % M
    n = (column * BN + tl.arange(0, BN)) % N
    k = tl.arange(0, BK)
    from_a = a + m[:, None] * sam + k[None, :] * sak
    from_b = b + k[:, None] * sbk + n[None, :] * sbn
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(0, tl.cdiv(K, BK)):
        x = tl.load(from_a, mask=k[None, :] < K - step * BK, other=0.0)
        y = tl.load(from_b, mask=k[:, None] < K - step * BK, other=0.0)
        sums = tl.dot(x, y, sums)
        from_a += BK * sak
        from_b += BK * sbk
    if ACTIVATION == "leaky_relu":
        sums = leaky_relu(sums)
    m, n = row * BM + tl.arange(0, BM), column * BN + tl.arange(0, BN)
    tl.store(c + scm * m[:, None] + scn * n[None, :], sums, mask=(m[:, None] < M) & (n[None, :] < N))


def main() -> None:
    rng = np.random.default_rng(0)
    m, n, k = 193, 300, 129
    for dtype in (np.float32, np.float16):
        a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
        c = np.empty((m, n), dtype)
        grid = lambda meta: (tile.cdiv(m, meta["BM"]) * tile.cdiv(n, meta["BN"]),)  # noqa: E731
        matmul[grid](a, b, c, m, n, k, k, 1, n, 1, n, 1, ACTIVATION="leaky_relu")
        product = a.astype(np.float64) @ b.astype(np.float64)
        wanted = np.where(product >= 0, product, 0.01 * product)
        print(f"{np.dtype(dtype)}: {matmul.best_config}; largest difference {np.abs(c - wanted).max():.2g}")
        np.testing.assert_allclose(c, wanted, rtol=2e-3 if dtype is np.float16 else 1e-4, atol=2e-2 if dtype is np.float16 else 1e-3)


if __name__ == "__main__":
    main()
