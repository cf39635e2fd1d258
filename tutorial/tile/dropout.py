"""Dropout that stores a seed instead of a mask.

Random numbers are a function of a seed and an offset (Philox), so the backward pass recomputes the same mask.
"""

import numpy as np

import tessera.tile as tile
import tessera.tile.language as tl


@tile.jit
def dropout(x, y, n, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    v = tl.load(x + at, mask=inside)
    tl.store(y + at, tl.where(tl.rand(seed, at) > p, v / (1 - p), 0.0), mask=inside)


def main() -> None:
    n, p = 10_000, 0.25
    x = np.ones(n, np.float32)
    first, again, other = np.empty_like(x), np.empty_like(x), np.empty_like(x)
    for y, seed in ((first, 123), (again, 123), (other, 512)):
        dropout[(tile.cdiv(n, 1024),)](x, y, n, p, seed, BLOCK=1024)
    print("kept:", np.count_nonzero(first) / n)
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    assert abs(np.count_nonzero(first) / n - (1 - p)) < 0.02


if __name__ == "__main__":
    main()
