"""A matrix product from plain loops to near the processor's peak, one schedule primitive after the other: the steps of
matmul.cpp, from Python. Each prints what changed, its loops, and how fast they run on one core:

    .venv/bin/python tutorial/matmul.py [size] [--loops]

The Compute says what is computed, once: c[m,n] = sum over k of a[m,k] * b[k,n]. It never changes. A Schedule says how;
every primitive is checked when it is applied. The last lines are the schedule that Tessera chooses itself, and NumPy.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is loaded: one core for it too

import sys
import time
from collections.abc import Callable

import numpy as np

import tessera.kernel as tk

MACHINE = tk.processor()
LANES = MACHINE["vector_bytes"] // 4
# The register tile: as many sums as fit, with room for the operands.
ROWS = 12 if MACHINE["lane_multiply"] else 14 if MACHINE["vector_registers"] >= 32 else 6
COLUMNS = 2 * LANES


def matmul(m: int, n: int, k: int) -> tk.Compute:
    c = tk.Compute("matmul")
    a = c.input("a", (m, k))
    b = c.input("b", (k, n), known=True)  # weights: what is done to b alone can be done ahead
    out = c.output("c", (m, n))
    i, j, l = tk.axis("m", m), tk.axis("n", n), tk.axis("k", k)
    c.stage("mm", out[i, j], tk.sum(a[i, l] * b[l, j], over=l))
    return c


def plain(s: tk.Schedule, n: int) -> None:
    """1. Plain loops: each element is a sum down a column of b, which lies far apart in memory."""


def along_rows(s: tk.Schedule, n: int) -> None:
    """2. reorder, split, vectorize: n innermost, so that b and c are read along, several at once. The init stands before
    k now."""
    vectors, lane = s.split("mm.n", LANES)
    s.reorder("mm.m", "mm.k", vectors, lane)
    s.vectorize(lane)
    s.loop_partition(vectors)  # the last vector apart, where it is not whole


def in_registers(s: tk.Schedule, n: int) -> None:
    """3. cache_write, tile, compute_at, unroll: a tile of sums stays in registers for all of k, and is stored once."""
    out = s.cache_write("mm", "register")
    row_tile, column_tile, rows, columns = s.tile(f"{out}.m", f"{out}.n", 4, 4 * LANES)
    s.reorder(column_tile, row_tile)  # a strip of b serves all rows
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
    """Of `width` rows: the element (row, k) stands at [row / width][k][row % width], so that a tile reads straight on."""
    return f"r, k -> floordiv(r, {width}), k, mod(r, {width}) < {-(-extent // width)}, {depth}, {width}"


def packed(s: tk.Schedule, n: int) -> None:
    """4. reindex, pad, transform_layout: both operands packed in panels, a task of rows at a time; b, which is known,
    ahead of time. Panels are whole, so that the sums need no guards."""
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
    """5. loop_partition, annotate, cache_read: whole tiles are stored without a question; k is unrolled; where the
    processor multiplies by one lane of a register, a's panel is loaded in vectors."""
    s.loop_partition("mm_out.m.i.i")
    s.annotate("mm.k", "unroll", 4)
    if MACHINE["lane_multiply"]:
        lanes_of_a = s.cache_read("mm", "mm_a", "register")
        s.compute_at(lanes_of_a, "mm.k")
        s.vectorize(f"{lanes_of_a}.m")


def in_parallel(s: tk.Schedule, n: int) -> None:
    """6. parallel: one task for each block of rows; all cores share them (measured here on one)."""
    s.parallel("mm_out.m.o")


def gflops(run: Callable[[], object], n: int) -> float:
    """The best of several runs, in this thread's processor time."""
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
            schedule = tk.Schedule(compute)  # each of the first is a new start; the last two go on from the fourth
        step(schedule, n)
        show(schedule, step.__doc__)
    show(tk.default_schedule(compute), "default_schedule: what Tessera chooses for this product.")
    print(f"NumPy\n   {gflops(lambda: np.matmul(a, b, out=expected), n):.1f} GFLOP/s")


if __name__ == "__main__":
    main()
