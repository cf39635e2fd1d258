"""Layer norm, forward and backward.

The gradient of the weights is a sum over all rows. Each instance sums a part of the rows, and a second kernel sums
these partial results, so that no locks or atomics are needed.
"""

import numpy as np

import tessera.tile as tile
import tessera.tile.language as tl


@tile.jit
def forward(x, y, w, b, mean, rstd, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < n
    v = tl.load(x + row * n + columns, mask=inside, other=0.0).to(tl.float32)
    m = tl.sum(v, axis=0) / n
    d = tl.where(inside, v - m, 0.0)
    r = 1 / tl.sqrt(tl.sum(d * d, axis=0) / n + eps)
    tl.store(mean + row, m)
    tl.store(rstd + row, r)
    scale, shift = tl.load(w + columns, mask=inside), tl.load(b + columns, mask=inside)
    tl.store(y + row * n + columns, d * r * scale + shift, mask=inside)


@tile.jit
def backward(dx, dy, dw_parts, db_parts, x, w, mean, rstd, rows, n, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    part = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < n
    scale = tl.load(w + columns, mask=inside, other=0.0)
    dw, db = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    for row in range(part, rows, PARTS):
        v = tl.load(x + row * n + columns, mask=inside, other=0.0)
        g = tl.load(dy + row * n + columns, mask=inside, other=0.0)
        r = tl.load(rstd + row)
        unit = tl.where(inside, (v - tl.load(mean + row)) * r, 0.0)
        scaled = g * scale
        c1, c2 = tl.sum(unit * scaled, axis=0) / n, tl.sum(scaled, axis=0) / n
        tl.store(dx + row * n + columns, (scaled - (unit * c1 + c2)) * r, mask=inside)
        dw += g * unit
        db += g
    tl.store(dw_parts + part * n + columns, dw, mask=inside)
    tl.store(db_parts + part * n + columns, db, mask=inside)


@tile.jit
def add_parts(parts, out, n, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.arange(0, PARTS)[:, None] * n + columns[None, :]
    tl.store(out + columns, tl.sum(tl.load(parts + at, mask=columns[None, :] < n, other=0.0), axis=0), mask=columns < n)


def main() -> None:
    rows, n, parts, eps = 151, 200, 8, 1e-5
    rng = np.random.default_rng(0)
    x, dy = rng.standard_normal((rows, n), dtype=np.float32), rng.standard_normal((rows, n), dtype=np.float32)
    w, b = rng.random(n, dtype=np.float32), rng.random(n, dtype=np.float32)
    y, dx = np.empty_like(x), np.empty_like(x)
    mean, rstd = np.empty(rows, np.float32), np.empty(rows, np.float32)
    dw_parts, db_parts = np.empty((parts, n), np.float32), np.empty((parts, n), np.float32)
    dw, db = np.empty_like(w), np.empty_like(b)
    block = tile.next_power_of_2(n)
    forward[(rows,)](x, y, w, b, mean, rstd, n, eps, BLOCK=block)
    backward[(parts,)](dx, dy, dw_parts, db_parts, x, w, mean, rstd, rows, n, PARTS=parts, BLOCK=block)
    for a, out in ((dw_parts, dw), (db_parts, db)):
        add_parts[(tile.cdiv(n, 128),)](a, out, n, PARTS=parts, BLOCK=128)

    x64, dy64 = x.astype(np.float64), dy.astype(np.float64)
    r64 = 1 / np.sqrt(x64.var(1, keepdims=True) + eps)
    unit = (x64 - x64.mean(1, keepdims=True)) * r64
    scaled = dy64 * w
    wanted = (scaled - unit * (unit * scaled).mean(1, keepdims=True) - scaled.mean(1, keepdims=True)) * r64
    for name, made, right in (("y", y, unit * w + b), ("dx", dx, wanted), ("dw", dw, (dy64 * unit).sum(0)), ("db", db, dy64.sum(0))):
        print(f"{name}: largest difference {np.abs(made - right).max():.2g}")
        np.testing.assert_allclose(made, right, rtol=1e-3, atol=1e-3)


if __name__ == "__main__":
    main()
