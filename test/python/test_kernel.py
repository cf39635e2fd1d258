"""Kernels and schedules from Python."""

import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

import tessera
import tessera.kernel as tk

ROOT = pathlib.Path(__file__).resolve().parents[2]


def matmul(m, n, k, *, known=False, dtype="f32"):
    c = tk.Compute("matmul")
    a = c.input("a", (m, k), dtype)
    b = c.input("b", (k, n), dtype, known=known)
    out = c.output("c", (m, n), dtype)
    i, j, l = tk.axis("m", m), tk.axis("n", n), tk.axis("k", k)
    c.stage("mm", out[i, j], tk.sum(a[i, l] * b[l, j], over=l))
    return c


def matmul_relu(m, n, k):
    c = tk.Compute("matmul_relu")
    a, b, bias = c.input("a", (m, k)), c.input("b", (k, n)), c.input("bias", (n,))
    out, t = c.output("c", (m, n)), c.buffer("t", (m, n))
    i, j, l = tk.axis("m", m), tk.axis("n", n), tk.axis("k", k)
    c.stage("mm", t[i, j], tk.sum(a[i, l] * b[l, j], over=l))
    c.stage("relu", out[i, j], tk.maximum(t[i, j] + bias[j], 0))
    return c


def numbers(*shape, dtype=np.float32):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(dtype)


def fast(s):
    """Vectors, registers, tiles: a little of everything."""
    out = s.cache_write("mm", "register")
    row_tile, column_tile, rows, columns = s.tile(f"{out}.m", f"{out}.n", 4, 8)
    s.compute_at("mm", column_tile)
    vectors, lane = s.split("mm.n", 4)
    s.reorder("mm.k", "mm.m", vectors, lane)
    s.vectorize(lane)
    s.unroll(vectors)
    s.unroll("mm.m")
    s.parallel(row_tile)


@pytest.mark.parametrize("m, n, k", [(37, 23, 41), (1, 1, 1), (1, 17, 3), (8, 8, 8), (65, 1, 7)])
@pytest.mark.parametrize("threads", [1, 2])
def test_results_are_those_of_numpy(m, n, k, threads):
    a, b = numbers(m, k), numbers(k, n)
    for schedule in (tk.Schedule(matmul(m, n, k)), tk.Schedule(matmul(m, n, k)), tk.default_schedule(matmul(m, n, k), threads)):
        if not schedule.trace():
            fast(schedule)
        c = np.full((m, n), np.nan, np.float32)
        assert schedule.build(threads=threads)(a, b, c) is None
        np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(schedule.build(threads=threads)(a, b), c)


def test_plain_loops_of_every_combination():
    c = tk.Compute()
    x = c.input("x", (5, 7), "f64")
    i, j = tk.axis("i", 5), tk.axis("j", 7)
    for name, combined in (("s", tk.sum), ("p", tk.product), ("big", tk.largest), ("small", tk.smallest)):
        out = c.output(name, (5,), "f64")
        c.stage(f"make_{name}", out[i], combined(x[i, j] * 2 - 0.5, over=j))
    v = numbers(5, 7, dtype=np.float64)
    s, p, big, small = tk.Schedule(c).build()(v)
    w = v * 2 - 0.5
    for got, expected in ((s, w.sum(1)), (p, w.prod(1)), (big, w.max(1)), (small, w.min(1))):
        np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_expressions():
    c = tk.Compute()
    x, out = c.input("x", (9,)), c.output("y", (9,))
    i = tk.axis("i", 9)
    before = tk.select(tk.all_of(i > 0, tk.not_(tk.equal(i, 4))), x[i - 1], -1.5)
    c.stage("y", out[i], tk.function("exp", x[i]) / (1 + x[i] ** 2) - tk.minimum(before, 1) + tk.cast(i // 2 + i % 2, "f32"))
    v = numbers(9)
    n = np.arange(9)
    shifted = np.where((n > 0) & (n != 4), np.roll(v, 1), -1.5)
    expected = np.exp(v) / (1 + v**2) - np.minimum(shifted, 1) + (n // 2 + n % 2)
    np.testing.assert_allclose(tk.Schedule(c).build()(v), expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(TypeError):
        bool(x[i] < 0)
    with pytest.raises(TypeError):
        i + 0.5
    with pytest.raises(IndexError):
        x[i, i]


def test_sizes_that_calls_give():
    c = tk.Compute()
    rows = c.size("M")
    x, out = c.input("x", (rows, 6)), c.output("y", (rows * 2, 6))
    i, j = tk.axis("i", rows * 2), tk.axis("j", 6)
    c.stage("twice", out[i, j], x[i // 2, j])
    f = tk.Schedule(c).build()
    for m in (0, 1, 5):
        y = np.zeros((2 * m, 6), np.float32)
        f(numbers(m, 6), y)
        np.testing.assert_array_equal(y, np.repeat(numbers(m, 6), 2, axis=0))
    with pytest.raises(tessera.Error) as e:
        f(numbers(3, 6), np.zeros((7, 6), np.float32))
    assert e.value.code == "E0405"


def test_what_is_known_is_prepared_once():
    m, n, k = 19, 21, 33
    a, b = numbers(m, k), numbers(k, n)
    s = tk.Schedule(matmul(m, n, k, known=True))
    packed = s.reindex("mm", 1)
    s.transform_layout(packed, f"n, k -> floordiv(n, 4), k, mod(n, 4) < {-(-n // 4)}, {k}, 4")
    ahead = s.build(known={"b": b})
    assert [x.name for x in ahead.arguments] == ["a", "c"]
    assert [x.written for x in ahead.arguments] == [False, True]
    np.testing.assert_allclose(ahead(a), a @ b, rtol=1e-4, atol=1e-4)
    each_time = s.build()
    np.testing.assert_allclose(each_time(a, 2 * b), a @ (2 * b), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(each_time(a, b), a @ b, rtol=1e-4, atol=1e-4)
    for known, code in (({"a": a}, "E0401"), ({"d": a}, "E0401"), ({"b": a}, "E0405")):
        with pytest.raises(tessera.Error) as e:
            s.build(known=known)
        assert e.value.code == code


def test_stages_move_into_each_other():
    m, n, k = 13, 18, 9
    a, b, bias = numbers(m, k), numbers(k, n), numbers(n)
    expected = np.maximum(a @ b + bias, 0)
    at = tk.Schedule(matmul_relu(m, n, k))
    assert at.stages == ["mm", "relu"]
    at.compute_at("mm", "relu.m")
    after = tk.Schedule(matmul_relu(m, n, k))
    after.reverse_compute_at("relu", "mm.m")
    for s in (tk.Schedule(matmul_relu(m, n, k)), at, after, tk.default_schedule(matmul_relu(m, n, k), 2)):
        np.testing.assert_allclose(s.build()(a, b, bias), expected, rtol=1e-4, atol=1e-4)


def test_a_refused_step_says_why_and_changes_nothing():
    s = tk.Schedule(matmul(16, 16, 16))
    s.split("mm.m", 4)
    trace = s.trace()
    for wrong in (lambda: s.split("mm.m", 2), lambda: s.split("mm.k", 0), lambda: s.parallel("mm.k"),
                  lambda: s.cache_read("mm", "d", "register"), lambda: s.cache_write("mm", "moon"),
                  lambda: s.compute_inline("mm"), lambda: s.apply("conjure", "mm"), lambda: s.apply("split", "mm.n"),
                  lambda: s.transform_layout("mm", "nonsense"), lambda: s.loops("other"),
                  lambda: tk.replay(matmul(2, 2, 2), "unroll(mm.x)")):
        with pytest.raises(tessera.Error) as e:
            wrong()
        assert e.value.code == "E0602"
    assert s.trace() == trace
    with pytest.raises(tessera.Error, match="there is no loop mm.m\n.*mm.m.o, mm.m.i"):
        s.split("mm.m", 2)


def test_a_trace_gives_the_same_loops_again():
    s = tk.Schedule(matmul(37, 23, 41))
    fast(s)
    again = tk.replay(matmul(37, 23, 41), s.trace())
    assert again.trace() == s.trace()
    assert again.lower() == s.lower()
    assert again.loops("mm") == s.loops("mm") == ["mm.k", "mm.m", "mm.n.o", "mm.n.i"]
    a, b = numbers(12, 5), numbers(5, 30)
    np.testing.assert_allclose(tk.replay(matmul(12, 30, 5), s.trace()).build()(a, b), a @ b, rtol=1e-4, atol=1e-4)


def test_copies_are_independent():
    s = tk.Schedule(matmul(8, 8, 8))
    t = s.copy()
    t.split("mm.m", 4)
    assert s.loops("mm") == ["mm.m", "mm.n", "mm.k"]
    assert t.extents("mm") == {"mm.m.o": "2", "mm.m.i": "4", "mm.n": "8", "mm.k": "8"}


def test_text_is_read_as_it_is_printed():
    text = str(matmul_relu(4, 5, 6))
    printed = tk.Schedule(text).compute()
    assert tk.Schedule(printed).compute() == printed
    assert "relu for m < 4, n < 5: c[m, n] = max(t[m, n] + bias[n], 0.0)" in printed
    assert "known b" in tk.Schedule(matmul(2, 2, 2, known=True)).compute()
    for wrong, code in ((text.replace("bias[n]", "bias[o]"), "E0302"), (text.replace("compute", "kernel"), "E0301"),
                        (text.replace(" over k < 6", ""), "E0301"), (text.replace("t[m, n] +=", "t[n, m] +="), "E0601"),
                        (text + "x", "E0301"), (text[:-3], "E0301")):
        with pytest.raises(tessera.Error) as e:
            tk.Schedule(wrong)
        assert e.value.code == code, wrong


def test_elements_that_are_not_there():
    for stage in ("y[i] = x[i + 1]", "y[i] = x[i - 1]", "y[i + 1] = x[i]", "y[i] += x[i + k] over k < 2",
                  "y[i] = select(x[i + 1] < 0.0, 1.0, 2.0)"):
        with pytest.raises(tessera.Error) as e:
            tk.Schedule(f"compute c() (x: f32[4], y: f32[4]) {{ s for i < 4: {stage} }}")
        assert e.value.code == "E0406", stage
    tk.Schedule("compute c() (x: f32[4], y: f32[4]) { s for i < 4: y[i] = select(i < 3, x[i + 1], 0.0) }")
    s = tk.Schedule(matmul_relu(9, 5, 7))
    for layout in ("m, n -> m, n < 2, 2", "m, n -> m, n < -9, 5", "m, n -> m, n < x, 5", "m, n -> n, m < 9, 5"):
        with pytest.raises(tessera.Error) as e:
            s.transform_layout("mm", layout)
        assert e.value.code == "E0602", layout
    s.transform_layout("mm", "m, n -> n, m < 5, 9")
    with pytest.raises(tessera.Error, match="out of range"):
        s.split("mm.m", 1 << 40)


def test_arguments_are_checked():
    f = tk.Schedule(matmul(4, 5, 6)).build()
    a, b, c = numbers(4, 6), numbers(6, 5), np.zeros((4, 5), np.float32)
    frozen = c.copy()
    frozen.flags.writeable = False
    square = np.zeros((5, 6), np.float32)
    for given, code in (((a,), "E0402"), ((a, b, c, c), "E0402"), ((a.astype(np.float64), b, c), "E0403"),
                        ((a[0], b, c), "E0404"), ((b, a, c), "E0405"), ((a, np.asfortranarray(b), c), "E0407"),
                        ((a, b, frozen), "E0407"), ((square[:4], b, square.reshape(-1)[:20].reshape(4, 5)), "E0407")):
        with pytest.raises(tessera.Error) as e:
            f(*given)
        assert e.value.code == code
    with pytest.raises(TypeError):
        f(a.tolist(), b, c)
    assert "kernel matmul" in f.emit("kernel") and "define" in f.emit("llvm")
    with pytest.raises(ValueError):
        tk.Compute("two words")
    with pytest.raises(ValueError):
        c = tk.Compute()
        c.input("a", (1,))
        c.output("a", (1,))


def test_every_primitive_has_a_method():
    table = (ROOT / "docs" / "schedules.md").read_text().split("## Primitives")[1].split("\n\n")[1]
    names = [name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert len(names) > 30
    for name in names:
        assert callable(getattr(tk.Schedule, name)), name


def test_the_tutorial():
    done = subprocess.run([sys.executable, str(ROOT / "tutorial" / "matmul.py"), "50", "--loops"], capture_output=True,
                          text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("GFLOP/s") == 8
    assert "mm_a = reindex(mm, 0)" in done.stdout and "vector mm.n.i < " in done.stdout
