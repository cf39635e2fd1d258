"""A transposed copy: `tessera tile --emit=layouts tutorial/tile/layout.py` draws which threads hold which elements."""

import numpy as np

import tessera.tile as triton
import tessera.tile.language as tl


@triton.jit
def transposed(x, y, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    v = tl.load(x + rows[:, None] * COLUMNS + columns[None, :])
    tl.store(y + columns[:, None] * ROWS + rows[None, :], tl.trans(v))


x = np.random.rand(16, 32).astype(np.float32)
y = np.empty((32, 16), np.float32)
transposed[(1,)](x, y, ROWS=16, COLUMNS=32, num_warps=2)
assert np.array_equal(y, x.T)
print("transposed")
