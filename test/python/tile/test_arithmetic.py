"""Arithmetic, comparisons and bits: every pair of element types, beside NumPy."""

import re

import numpy as np
import pytest
from cases import (FLOATS, INTEGERS, INTS, NUMBERS, TILE, close, is_float, kernel, np_dtype, numbers, promoted, sample, wide)

import tessera.tile as triton
import tessera.tile.language as tl

N = 128


def of_two(op):
    return kernel("""
        def of_two(x, y, z, N: tl.constexpr):
            at = tl.arange(0, N)
            a = tl.load(x + at)
            b = tl.load(y + at)
            tl.store(z + at, OPERATION)
        """, OPERATION=op)


KERNELS = {}


def run(op, x, y, dtype):
    z = np.zeros(N, np_dtype(dtype))
    if op not in KERNELS:
        KERNELS[op] = of_two(op)
    KERNELS[op][(1,)](x, y, z, N=N)
    return z


def operands(a, b, nonzero=False):
    x, y = numbers(N, a), numbers(N, b, 1)
    if nonzero:
        y[y == 0] = 1
        if not is_float(b) and not is_float(a):
            y[(y == np.array(-1).astype(y.dtype))] = 1
    return x, y


@pytest.mark.parametrize("op, a, b", sample(120, ["+", "-", "*", "/", "%"], NUMBERS, NUMBERS))
def test_binary(op, a, b):
    x, y = operands(a, b, op in "/%")
    divided = op in "/%"
    if op in "/%" and not is_float(a) and not is_float(b) and np.dtype(a).kind != np.dtype(b).kind:
        with pytest.raises(triton.CompilationError, match="sign"):
            run(f"a {op} b", x, y, a)
        return
    common = promoted(a, b, divided)
    if op == "/" and not is_float(common):
        common = "float32"
    xc, yc = wide(x.astype(np_dtype(common))), wide(y.astype(np_dtype(common)))
    with np.errstate(all="ignore"):
        wanted = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "%": np.fmod}[op](xc, yc)
    made = run(f"a {op} b", x, y, common)
    if op == "%" and is_float(common):
        far = np.abs(xc / np.where(yc == 0, 1, yc)) < 1000
        made, wanted = made[far], wanted[far]
    close(made, wanted.astype(np_dtype(common)), common)


@pytest.mark.parametrize("a, b", sample(24, INTEGERS, INTEGERS))
def test_floor_division(a, b):
    x, y = operands(a, b, True)
    if np.dtype(a).kind != np.dtype(b).kind:
        with pytest.raises(triton.CompilationError, match="sign"):
            run("a // b", x, y, a)
        return
    common = promoted(a, b)
    wanted = [int(abs(int(p)) // abs(int(q)) * (1 if (p < 0) == (q < 0) else -1)) for p, q in zip(x, y)]
    np.testing.assert_array_equal(run("a // b", x, y, common), np.array(wanted, object).astype(common))


@pytest.mark.parametrize("op, a, b", sample(40, ["&", "|", "^"], NUMBERS, NUMBERS))
def test_bits(op, a, b):
    x, y = operands(a, b)
    if is_float(a) or is_float(b):
        with pytest.raises(triton.CompilationError):
            run(f"a {op} b", x, y, "int32")
        return
    common = promoted(a, b)
    wanted = {"&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor}[op](x.astype(common), y.astype(common))
    np.testing.assert_array_equal(run(f"a {op} b", x, y, common), wanted)


@pytest.mark.parametrize("op, a, b", sample(24, ["<<", ">>"], INTEGERS, INTEGERS))
def test_shifts(op, a, b):
    x, y = numbers(N, a), numbers(N, b, 1, 0, 100)
    y = (y % (8 * np.dtype(a).itemsize)).astype(b)
    common = promoted(a, b)
    if op == "<<":
        wanted = np.left_shift(x.astype(common), y.astype(common))
    else:  # the sign of the left operand says what comes in, whatever the type of both together is
        as_left = np.dtype(common.lstrip("u") if np.dtype(a).kind == "i" else "u" + common.lstrip("u"))
        wanted = np.right_shift(x.astype(common).view(as_left), y.astype(as_left)).view(common)
    np.testing.assert_array_equal(run(f"a {op} b", x, y, common), wanted)


@pytest.mark.parametrize("left, right, common", [("int32", "uint32", "uint32"), ("int16", "uint64", "uint64"), ("uint8", "int32", "int32"),
                                                 ("int8", "uint8", "uint8"), ("uint32", "int64", "int64")])
def test_shifts_of_both_signs(left, right, common):
    x = np.full(N, -5 if left[0] == "i" else 200, left)
    made = run("a >> b", x, np.ones(N, right), common)
    bits = 8 * np.dtype(common).itemsize
    assert (made == np.array((-5 >> 1) % 2**bits if left[0] == "i" else 100, "uint64").astype(common)).all()


@pytest.mark.parametrize("dtype, wanted", [("uint8", 200 >> 1), ("uint32", 0xFFFFFFFB >> 1), ("int32", -5 >> 1)])
def test_a_number_that_is_shifted_has_the_sign_of_its_distance(dtype, wanted):
    made = run(f"{200 if dtype == 'uint8' else 4294967291 if dtype == 'uint32' else -5} >> b", *[np.ones(N, dtype)] * 2, dtype)
    assert (made == np.array(wanted, "int64").astype(dtype)).all()


@pytest.mark.parametrize("op, a, b", sample(12, ["/", "//", "%"], ["bool"], INTS))
def test_bools_have_no_sign(op, a, b):
    for x, y in ((a, b), (b, a)):
        with pytest.raises(triton.CompilationError, match="Cannot use .* because they have different signedness"):
            run(f"a {op} b", np.ones(N, x), np.ones(N, y), "float32")


@pytest.mark.parametrize("op", ["&", "|", "^", "<<", ">>"])
@pytest.mark.parametrize("a, b", [("float32", "int32"), ("int8", "float16"), ("bfloat16", "bfloat16"), ("float64", "float32")])
def test_bits_of_floats(op, a, b):
    with pytest.raises(triton.TritonError, match="invalid operands of type") as e:
        run(f"a {op} b", *operands(a, b), "int32")
    assert e.value.error_message.startswith("invalid operands of type") and str(e.value.__cause__).startswith("invalid operands")


@pytest.mark.parametrize("a, b", [("float32", "int32"), ("float16", "float16")])
def test_floor_division_of_floats(a, b):
    with pytest.raises(triton.CompilationError, match="unexpected type"):
        run("a // b", *operands(a, b), "int32")


@pytest.mark.parametrize("text, wanted", [("a < 0.1", np.float32(0.1)), ("0.1 > a", np.float32(0.1)), ("a <= 0.1", np.float32(0.1))])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_numbers_of_the_source_are_compared_as_they_are(text, wanted, dtype):
    x = np.full(N, 0.1, np.float32).astype(np_dtype(dtype))
    held = wide(x) <= wanted if "=" in text else wide(x) < wanted
    np.testing.assert_array_equal(run(text, x, x, "bool"), held)


@pytest.mark.parametrize("text, wanted", [("a == 300", False), ("a < 300", True), ("a >= -200", True), ("-200 < a", True)])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_comparisons_with_numbers_that_the_type_does_not_hold(text, wanted, dtype):
    x = numbers(N, dtype)
    if "-200" in text and dtype == "uint8":
        wanted = False  # compared without a sign: -200 is large
        x = x.astype("uint32")
        dtype = "uint32"
    np.testing.assert_array_equal(run(text, x, x, "bool"), np.full(N, wanted))


def test_numbers_of_the_source_are_rounded_to_their_type():
    x = np.full(N, 3.171875, np_dtype("bfloat16"))
    made = run("a * 40000", x, x, "bfloat16")  # 40000 is 39936 in bfloat16
    np.testing.assert_array_equal(wide(made), wide((wide(x) * 39936).astype(np_dtype("bfloat16"))))


@pytest.mark.parametrize("text, dtype, wanted", [
    ("tl.maximum(a, b)", "bfloat16", "fp32"), ("tl.minimum(a, 1.5)", "float16", "fp32"), ("tl.maximum(a, 1)", "float16", "fp16"),
    ("tl.maximum(a, 1)", "int8", "int32"), ("tl.clamp(a, 0.0, 1.0)", "int32", "fp32"), ("tl.fdiv(a, b)", "float16", "fp16"),
    ("tl.sum(a)", "bool", "uint32"), ("tl.max(a)", "uint8", "int32"), ("tl.max(a, 0, return_indices=True)[0]", "int8", "int8"),
    ("tl.topk(a, 4)", "float16", "fp32"), ("a / b", "bfloat16", "fp32"), ("a << b", "bool", "int1"), ("a // b", "bool", "int1"),
    ("a + 2**63", "bfloat16", "bf16"), ("2**63 * a", "float16", "fp16"), ("a - 2**63", "float32", "fp32"), ("-a", "bool", "int1"),
    ("a.to(tl.bfloat16, fp_downcast_rounding='rtz')", "bfloat16", "bf16"), ("a.to(tl.int8, fp_downcast_rounding='rtne')", "int8", "int8"),
])
def test_types_of_results(text, dtype, wanted):
    x = np.ones(N, np_dtype(dtype))
    made = kernel("""
        def types_of(x, y, N: tl.constexpr, WANTED: tl.constexpr):
            at = tl.arange(0, N)
            a = tl.load(x + at)
            b = tl.load(y + at)
            r = TEXT
            tl.static_assert(str(r.dtype) == WANTED, str(r.dtype))
        """, TEXT=text)
    made.warmup(x, x, N, wanted, grid=(1,))


@pytest.mark.parametrize("text, message", [
    ("tl.umulhi(a, b)", "Expected dtype"), ("tl.exp(a)", "Expected dtype"), ("tl.div_rn(a, b)", "Expected dtype"),
    ("tl.fdiv(a, b)", "both operands of fdiv"), ("a.to(tl.int64, bitcast=True)", "Cannot bitcast data-type of size 8 to data-type of size 64"),
    ("a.to(tl.float8e5)", "cannot cast"), ("tl.where(a > 0, a, 300)", "out of range"), ("a[0]", "unsupported tensor index"),
    ("x + 1.5", "invalid operands of type"), ("x + y", "cannot add pointers together"), ("x * 2", "invalid operands of type"),
    ("-x", "wrong type argument to unary minus"), ("tl.load(a)", "Unsupported ptr type"), ("tl.zeros((3,), tl.int8)", "power of 2"),
    ("tl.broadcast_to(a, (4, 128))", "rank mismatch"), ("tl.full((4,), -1, tl.uint8)", "takes numbers"),
    ("tl.histogram(a.to(tl.float32), 4)", "histogram only supports integer"), ("tl.atomic_xchg(x + at, a)", "atomic_xchg does not support"),
    ("tl.atomic_cas(x + at, a, a)", "atomic_cas only supports"), ("tl.rand(x, at)", "the seed"), ("tl.rand(1.5, at)", "the seed"),
    ("a < None", "cannot convert None"), ("{1: 2}", "unsupported AST node type: Dict"), ("tl.trans(a)", "0- or 1-dimensional"),
])
def test_operands_that_are_refused(text, message):
    x = np.ones(N, np.int8)
    with pytest.raises(triton.CompilationError, match=message) as e:
        run(text, x, x, "int8")
    assert re.search(r"at \d+:\d+:", str(e.value))


COMPARE = {"==": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}


@pytest.mark.parametrize("op, a, b, nan", sample(80, list(COMPARE), NUMBERS, NUMBERS, ["", "x", "y", "both"]))
def test_comparisons(op, a, b, nan):
    x, y = operands(a, b)
    y[::3] = x[::3].astype(y.dtype) if not is_float(a) or is_float(b) else y[::3]
    if nan in ("x", "both") and is_float(a):
        x[::2] = np.nan
    if nan in ("y", "both") and is_float(b):
        y[::4] = np.nan
    common = promoted(a, b)
    wanted = COMPARE[op](wide(x.astype(np_dtype(common))), wide(y.astype(np_dtype(common))))
    np.testing.assert_array_equal(run(f"a {op} b", x, y, "bool"), wanted)


@pytest.mark.parametrize("op, dtype", sample(20, ["-a", "~a", "abs(a)", "tl.abs(a)", "not_a", "+a"], NUMBERS))
def test_unary(op, dtype):
    x, y = operands(dtype, dtype)
    if op == "~a" and is_float(dtype):
        with pytest.raises(triton.CompilationError):
            run(op, x, y, dtype)
        return
    if op == "not_a":
        if is_float(dtype):
            pytest.skip("of integers")
        np.testing.assert_array_equal(run("not a", x, y, "bool"), x == 0)
        return
    with np.errstate(all="ignore"):
        wanted = {"-a": lambda v: -v, "~a": np.invert, "+a": lambda v: v}.get(op, np.abs)(wide(x))
    close(run(op, x, y, dtype), wanted.astype(np_dtype(dtype)), dtype)


@pytest.mark.parametrize("dtype, number", sample(30, NUMBERS, [0, 1, 7, -3, 2.5, True, 100]))
@pytest.mark.parametrize("op", ["a + NUMBER", "NUMBER - a", "a * NUMBER"])
def test_numbers_of_the_source_take_the_type_of_tiles(op, dtype, number):
    if is_float(dtype) or not isinstance(number, float):
        common = dtype
    else:
        common = "float32"
    if not is_float(dtype) and np.dtype(dtype).kind == "u" and number == -3:
        with pytest.raises(triton.CompilationError, match="out of range"):
            run(op.replace("NUMBER", str(number)), *operands(dtype, dtype), dtype)
        return
    x, y = operands(dtype, dtype)
    with np.errstate(all="ignore"):
        c = np.array(number).astype(np_dtype(common)).astype(wide(np.zeros(1, np_dtype(common))).dtype)
        a = wide(x.astype(np_dtype(common)))
        wanted = eval(op, {"a": a, "NUMBER": c})
    close(run(op.replace("NUMBER", str(number)), x, y, common), wanted.astype(np_dtype(common)), common)


@pytest.mark.parametrize("op", ["min", "max"])
@pytest.mark.parametrize("dtype", sample(6, NUMBERS))
@pytest.mark.parametrize("nan", [False, True])
def test_minimum_and_maximum(op, dtype, nan):
    x, y = operands(dtype, dtype)
    if is_float(dtype):
        x[::5], y[::7] = np.nan, np.nan
    text = f"tl.{op}imum(a, b, propagate_nan=tl.PropagateNan.{'ALL' if nan else 'NONE'})"
    a, b = wide(x), wide(y)
    wanted = {("min", False): np.fmin, ("max", False): np.fmax, ("min", True): np.minimum, ("max", True): np.maximum}[op, nan](a, b)
    close(run(text, x, y, dtype), wanted.astype(np_dtype(dtype)), dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("nan", [False, True])
def test_clamp(dtype, nan):
    x, y = operands(dtype, dtype)
    x[::9] = np.nan
    made = run(f"tl.clamp(a, -0.5, 0.5, propagate_nan=tl.PropagateNan.{'ALL' if nan else 'NONE'})", x, y, dtype)
    wanted = np.clip(x, -0.5, 0.5) if nan else np.where(np.isnan(x), -0.5, np.clip(x, -0.5, 0.5)).astype(dtype)
    close(made, wanted, dtype)


@pytest.mark.parametrize("a, b", sample(12, ["int1", *NUMBERS], NUMBERS))
def test_where(a, b):
    x, y = numbers(N, "bool" if a == "int1" else a), numbers(N, b, 1)
    other = "bool" if a == "int1" else a
    common = b if a == "int1" else promoted(a, b)
    condition = numbers(N, "bool", 2)
    z = np.zeros(N, np_dtype(common))
    chooses[(1,)](condition, x, y, z, N=N)
    assert np_dtype(other) == x.dtype
    close(z, np.where(condition, wide(x.astype(np_dtype(common))), wide(y.astype(np_dtype(common)))).astype(np_dtype(common)), common)


@triton.jit
def chooses(c, x, y, z, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(z + at, tl.where(tl.load(c + at), tl.load(x + at), tl.load(y + at)))


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
def test_upper_half_of_products(dtype):
    x, y = numbers(N, dtype), numbers(N, dtype, 1)
    bits = 8 * np.dtype(dtype).itemsize
    wanted = [(int(a) % 2**bits * (int(b) % 2**bits)) >> bits for a, b in zip(x, y)]
    made = run("tl.umulhi(a, b)", x, y, dtype)
    np.testing.assert_array_equal(made.astype(f"uint{bits}"), np.array(wanted, f"uint{bits}"))


@pytest.mark.parametrize("a, b", sample(40, ["bool", *NUMBERS], ["bool", *NUMBERS]))
def test_casts(a, b):
    x = numbers(N, a) if is_float(a) or a == "bool" else numbers(N, a, 0, *((-100, 100) if a in INTS else (0, 100)))
    if is_float(a) and not is_float(b):
        x = (np.abs(wide(x)) * 20).astype(x.dtype)
    z = np.zeros(N, np_dtype(b))
    casts[(1,)](x, z, N=N, TO=TILE[b])
    wanted = wide(x) != 0 if b == "bool" else wide(x).astype(np_dtype(b))
    np.testing.assert_array_equal(wide(z), wide(wanted))


@triton.jit
def casts(x, z, N: tl.constexpr, TO: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(z + at, tl.load(x + at).to(TO))


@pytest.mark.parametrize("a, b", [(a, b) for a, b in sample(100, NUMBERS, NUMBERS) if np_dtype(a).itemsize == np_dtype(b).itemsize])
def test_the_same_bits(a, b):
    x = numbers(N, a)
    z = np.zeros(N, np_dtype(b))
    bits[(1,)](x, z, N=N, TO=TILE[b])
    wanted = x.view(np_dtype(b))
    usual = ~np.isnan(wide(wanted)) if is_float(b) else np.full(N, True)
    np.testing.assert_array_equal(z.view(f"uint{8 * z.itemsize}")[usual], wanted.view(f"uint{8 * z.itemsize}")[usual])


@triton.jit
def bits(x, z, N: tl.constexpr, TO: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(z + at, tl.load(x + at).to(TO, bitcast=True))


def test_a_number_that_a_type_cannot_hold_is_refused():
    x = np.zeros(N, np.uint8)
    with pytest.raises(triton.CompilationError, match="out of range"):
        run("a + 256", x, x, "uint8")


@triton.jit
def short_chain(x, y, z, w, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + at, mask=at < n), tl.load(y + at, mask=at < n)
    product = a * b
    tl.store(z + at, (product - a).to(tl.float32), mask=at < n)
    tl.store(w + at, tl.where(product + b > product, (-product + b - a).to(tl.float32), tl.maximum(a, b).to(tl.float32)), mask=at < n)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_short_floats_have_no_digits_between(dtype):
    """Each instruction gives a number of its type, also where the next takes it as one of more bits."""
    n, dtype = 300, np_dtype(dtype)
    rng = np.random.default_rng(4)
    a, b = ((rng.standard_normal(n) * 4).astype(dtype) for _ in "ab")
    a[:4], b[:6] = (np.nan, np.inf, 0, -0.0), (1, 2, np.inf, 3, 0, np.nan)
    z, w = np.zeros(n, np.float32), np.zeros(n, np.float32)
    short_chain[triton.cdiv(n, 128),](a, b, z, w, n, BLOCK=128)
    with np.errstate(all="ignore"):
        product = a * b
        np.testing.assert_array_equal(z, (product - a).astype(np.float32))
        wanted = np.where(product + b > product, -product + b - a, np.maximum(a, b)).astype(np.float32)
    numbers_only = ~np.isnan(a.astype(np.float32)) & ~np.isnan(b.astype(np.float32))
    np.testing.assert_array_equal(w[numbers_only], wanted[numbers_only])
