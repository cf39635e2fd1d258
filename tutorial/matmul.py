"""Takes a matrix product from plain loops to near the CPU's peak, one schedule primitive after the other: the steps of
matmul.cpp, from Python. Each prints what changed, its loops, and its speed on one core:

    .venv/bin/python tutorial/matmul.py [size] [--loops]

The Compute specifies what is computed: c[m,n] = sum over k of a[m,k] * b[k,n]. It never changes. The Schedule specifies
how. Every primitive is checked when it is applied. The last lines are Tessera's default schedule, and NumPy.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is loaded: it uses one core too

import sys
import time
from collections.abc import Callable

import numpy as np

import tessera.kernel as tk

MACHINE = tk.processor()
LANES = MACHINE["vector_bytes"] // 4
# The register tile: as many accumulators as fit beside the operands.
ROWS = 12 if MACHINE["lane_multiply"] else 14 if MACHINE["vector_registers"] >= 32 else 6
COLUMNS = 2 * LANES


def matmul(m: int, n: int, k: int) -> tk.Compute:
    c = tk.Compute("matmul")
    a = c.input("a", (m, k))
    b = c.input("b", (k, n), known=True)  # weights: work on b alone is done at load time
    out = c.output("c", (m, n))
    i, j, l = tk.axis("m", m), tk.axis("n", n), tk.axis("k", k)
    c.stage("mm", out[i, j], tk.sum(a[i, l] * b[l, j], over=l))
    return c


def plain(s: tk.Schedule, n: int) -> None:
    """1. Plain loops: each element is a sum over a column of b, whose elements are far apart in memory."""


def along_rows(s: tk.Schedule, n: int) -> None:
    """2. reorder, split, vectorize: n is innermost, so that b and c are accessed in contiguous vectors. The init is now
    before k."""
    vectors, lane = s.split("mm.n", LANES)
    s.reorder("mm.m", "mm.k", vectors, lane)
    s.vectorize(lane)
    s.loop_partition(vectors)  # peels the last, incomplete vector


def in_registers(s: tk.Schedule, n: int) -> None:
    """3. cache_write, tile, compute_at, unroll: a tile of accumulators stays in registers for all of k, and is stored
    once."""
    out = s.cache_write("mm", "register")
    row_tile, column_tile, rows, columns = s.tile(f"{out}.m", f"{out}.n", 4, 4 * LANES)
    s.reorder(column_tile, row_tile)  # a strip of b is reused for all rows
    s.compute_at("mm", row_tile)
    vectors, lane = s.split("mm.n", LANES)
    s.reorder("mm.k", "mm.m", vectors, lane)
    s.vectorize(lane)
    s.unroll(vectors)
    s.unroll("mm.m")
    out_vectors, out_lane = s.split(columns, LANES)
    s.vectorize(out_lane)
    s.unroll(out_vectors)
    s.unroll(rows)


def panels(extent: int, depth: int, width: int) -> str:
    """Panels of `width` rows: the element (row, k) is at [row / width][k][row % width], so that a tile reads contiguous
    memory."""
    return f"r, k -> floordiv(r, {width}), k, mod(r, {width}) < {-(-extent // width)}, {depth}, {width}"


def packed(s: tk.Schedule, n: int) -> None:
    """4. reindex, pad, transform_layout: both operands are packed into panels, a for each task of rows, and b, which is
    constant, at load time. Panels are padded, so that the sums need no guards."""
    out = s.cache_write("mm", "register")
    a, b = s.reindex("mm", 0), s.reindex("mm", 1)
    s.pad("mm", ROWS, COLUMNS, 1)
    s.transform_layout(a, panels(n, n, ROWS))
    s.transform_layout(b, panels(n, n, COLUMNS))
    task, rows = s.split(f"{out}.m", 16 * ROWS)
    row_tile, row = s.split(rows, ROWS)
    column_tile, columns = s.split(f"{out}.n", COLUMNS)
    out_vectors, out_lane = s.split(columns, LANES)
    s.reorder(task, column_tile, row_tile, row, out_vectors, out_lane)
    s.vectorize(out_lane)
    s.unroll(out_vectors)
    s.unroll(row)
    s.compute_at("mm", row_tile)
    vectors, lane = s.split("mm.n", LANES)
    s.reorder("mm.k", "mm.m", vectors, lane)
    s.vectorize(lane)
    s.unroll(vectors)
    s.unroll("mm.m")
    s.compute_at(a, task)
    panel, within = s.split(f"{a}.m", ROWS)
    s.reorder(panel, f"{a}.k", within)
    s.unroll(within)


def finished(s: tk.Schedule, n: int) -> None:
    """5. loop_partition, annotate, cache_read: complete tiles are stored without guards; k is unrolled; on CPUs that
    multiply by lane, a's panel is loaded in vectors."""
    s.loop_partition("mm_out.m.i.i")
    s.annotate("mm.k", "unroll", 4)
    if MACHINE["lane_multiply"]:
        lanes_of_a = s.cache_read("mm", "mm_a", "register")
        s.compute_at(lanes_of_a, "mm.k")
        s.vectorize(f"{lanes_of_a}.m")


def in_parallel(s: tk.Schedule, n: int) -> None:
    """6. parallel: one task for each block of rows, divided among all cores (measured here on one core)."""
    s.parallel("mm_out.m.o")


def gflops(run: Callable[[], object], n: int) -> float:
    """The best of several runs, in this thread's CPU time."""
    best = float("inf")
    begin = time.thread_time()
    for _ in range(50):
        start = time.thread_time()
        run()
        best = min(best, time.thread_time() - start)
        if time.thread_time() - begin > 0.6:
            break
    return 2 * n**3 / max(best, 1e-9) * 1e-9


def main() -> None:
    n = next((max(1, int(argument)) for argument in sys.argv[1:] if argument.isdigit()), 768)
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((n, n), dtype=np.float32) for _ in range(2))
    expected = a @ b
    compute = matmul(n, n, n)

    def show(schedule: tk.Schedule, title: str | None) -> None:
        print(" ".join((title or "").split()))
        if "--loops" in sys.argv:
            print(f"\n{schedule.trace()}\n{schedule.lower()}")
        c = np.zeros((n, n), np.float32)
        function = schedule.build(threads=1, known={"b": b})
        speed = gflops(lambda: function(a, c), n)
        np.testing.assert_allclose(c, expected, rtol=1e-3, atol=1e-5 * n)
        print(f"   {speed:.1f} GFLOP/s\n")

    schedule = tk.Schedule(compute)
    for step in (plain, along_rows, in_registers, packed, finished, in_parallel):
        if step in (along_rows, in_registers, packed):
            schedule = tk.Schedule(compute)  # each of the first four starts anew; the last two continue from the fourth
        step(schedule, n)
        show(schedule, step.__doc__)
    show(tk.default_schedule(compute), "default_schedule: what Tessera chooses for this product.")
    print(f"NumPy\n   {gflops(lambda: np.matmul(a, b, out=expected), n):.1f} GFLOP/s")


if __name__ == "__main__":
    main()
