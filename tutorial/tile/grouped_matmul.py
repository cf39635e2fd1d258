"""Grouped matrix products: products of different sizes in one launch with a fixed number of instances.

The tiles of all products are numbered consecutively, and each instance computes every n-th tile, where n is the number
of instances.
"""

import numpy as np

import tessera.tile as tile
import tessera.tile.language as tl


@tile.jit
def grouped(a, b, c, sizes, places, count, INSTANCES: tl.constexpr, B: tl.constexpr):
    number = tl.program_id(0)
    done = 0
    for g in range(count):
        m, n, k = tl.load(sizes + g * 3), tl.load(sizes + g * 3 + 1), tl.load(sizes + g * 3 + 2)
        from_a, from_b = a + tl.load(places + g * 3), b + tl.load(places + g * 3 + 1)
        to_c = c + tl.load(places + g * 3 + 2)
        columns = tl.cdiv(n, B)
        tiles = tl.cdiv(m, B) * columns
        # The first tile of this product that this instance computes.
        first = (number - done % INSTANCES + INSTANCES) % INSTANCES
        for t in range(first, tiles, INSTANCES):
            rows, cols, along = t // columns * B + tl.arange(0, B), t % columns * B + tl.arange(0, B), tl.arange(0, B)
            sums = tl.zeros((B, B), tl.float32)
            for step in range(0, k, B):
                kk = step + along
                x = tl.load(from_a + rows[:, None] * k + kk[None, :], mask=(rows[:, None] < m) & (kk[None, :] < k), other=0.0)
                y = tl.load(from_b + kk[:, None] * n + cols[None, :], mask=(kk[:, None] < k) & (cols[None, :] < n), other=0.0)
                sums = tl.dot(x, y, sums)
            tl.store(to_c + rows[:, None] * n + cols[None, :], sums, mask=(rows[:, None] < m) & (cols[None, :] < n))
        done += tiles


def main() -> None:
    rng = np.random.default_rng(0)
    shapes = [(64, 96, 32), (33, 70, 129), (128, 16, 64), (1, 200, 77)]
    pairs = [(rng.standard_normal((m, k), dtype=np.float32), rng.standard_normal((k, n), dtype=np.float32)) for m, n, k in shapes]
    a, b = (np.concatenate([p[i].ravel() for p in pairs]) for i in (0, 1))
    ends = np.cumsum([(m * k, k * n, m * n) for m, n, k in shapes], axis=0)
    places = np.concatenate([np.zeros((1, 3)), ends[:-1]]).astype(np.int32)
    c = np.zeros(ends[-1, 2], np.float32)
    grouped[(6,)](a, b, c, np.array(shapes, np.int32), places, len(shapes), INSTANCES=6, B=32)
    for (x, y), at, (m, n, _) in zip(pairs, places[:, 2], shapes):
        np.testing.assert_allclose(c[at:at + m * n].reshape(m, n), x.astype(np.float64) @ y, rtol=1e-3, atol=1e-4)
    print(len(shapes), "products agree")


if __name__ == "__main__":
    main()
