"""A fused softmax of each row in one pass over memory.

A row is loaded once and stays in a tile while its maximum and its sum are computed.
"""

import numpy as np

import tessera.tile as tile
import tessera.tile.language as tl


@tile.jit
def softmax(z, x, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + columns, mask=columns < n, other=float("-inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(z + row * stride + columns, e / tl.sum(e, axis=0), mask=columns < n)


def main() -> None:
    rows, n = 512, 781
    x = np.random.default_rng(0).standard_normal((rows, n), dtype=np.float32)
    z = np.empty_like(x)
    softmax[(rows,)](z, x, n, n, BLOCK=tile.next_power_of_2(n))
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    wanted = e / e.sum(1, keepdims=True)
    print("largest difference:", np.abs(z - wanted).max())
    np.testing.assert_allclose(z, wanted, rtol=1e-5)


if __name__ == "__main__":
    main()
