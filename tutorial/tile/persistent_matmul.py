"""A persistent matrix product with tensor descriptors: one instance for each worker, which computes several tiles.

A descriptor has the bounds of the matrix: loads beyond them give 0, and stores beyond them are dropped.
"""

import numpy as np

import tessera.tile as tile
import tessera.tile.language as tl


@tile.jit
def persistent(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WORKERS: tl.constexpr):
    of_a = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    of_b = tl.make_tensor_descriptor(b, [K, N], [N, 1], [BK, BN])
    of_c = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    columns = tl.cdiv(N, BN)
    for t in range(tl.program_id(0), tl.cdiv(M, BM) * columns, WORKERS):
        row, column = t // columns * BM, t % columns * BN
        sums = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            sums = tl.dot(of_a.load([row, k]), of_b.load([k, column]), sums)
        of_c.store([row, column], sums)


def main() -> None:
    m, n, k = 150, 210, 90
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k), dtype=np.float32), rng.standard_normal((k, n), dtype=np.float32)
    c = np.zeros((m, n), np.float32)
    persistent[(4,)](a, b, c, m, n, k, BM=32, BN=64, BK=32, WORKERS=4)
    wanted = a.astype(np.float64) @ b
    print("largest difference:", np.abs(c - wanted).max())
    np.testing.assert_allclose(c, wanted, rtol=1e-3, atol=1e-4)


if __name__ == "__main__":
    main()
