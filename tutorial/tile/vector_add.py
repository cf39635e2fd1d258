"""Adds two vectors: instances, tiles and masks.

Each instance of the kernel processes one tile of elements. The last tile may extend beyond the end of the vectors; a
mask selects the elements to load and store.
"""

import numpy as np

import tessera.tile as tile
import tessera.tile.language as tl


@tile.jit
def add(x, y, z, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(z + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


def main() -> None:
    n = 98_432
    rng = np.random.default_rng(0)
    x, y = rng.random(n, dtype=np.float32), rng.random(n, dtype=np.float32)
    z = np.empty_like(x)
    add[(tile.cdiv(n, 1024),)](x, y, z, n, BLOCK=1024)
    print("largest difference:", np.abs(z - (x + y)).max())
    assert np.array_equal(z, x + y)


if __name__ == "__main__":
    main()
