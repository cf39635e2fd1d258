"""Functions of libdevice: bits, directed rounding, conversions, and special functions, beside exact arithmetic and series."""

import math
from fractions import Fraction

import numpy as np
import pytest
from cases import kernel, numbers

import tessera.tile.language as tl

N = 64


def run(text, *arrays, dtype=None):
    arrays = (*arrays, *[arrays[0]] * (3 - len(arrays)))
    z = np.zeros(N, dtype or arrays[0].dtype)
    kernel("""
        def function(x, y, w, z, N: tl.constexpr):
            at = tl.arange(0, N)
            a = tl.load(x + at)
            b = tl.load(y + at)
            c = tl.load(w + at)
            tl.store(z + at, tl.extra.libdevice.TEXT)
        """, TEXT=text)[(1,)](*arrays, z, N=N)
    return z


def rounded(exact, how):
    """A fraction as float32, to the nearest or in a direction."""
    nearest = np.float32(float(exact))
    around = sorted({nearest, np.nextafter(nearest, np.float32(np.inf)), np.nextafter(nearest, np.float32(-np.inf))})
    if how == "rn":
        return min(around, key=lambda f: (abs(Fraction(float(f)) - exact), int(f.view(np.int32)) & 1))
    toward_zero = how == "rd" if exact > 0 else how == "ru"
    if how == "rz" or toward_zero:
        return max((f for f in around if abs(Fraction(float(f))) <= abs(exact)), key=abs)
    return min((f for f in around if abs(Fraction(float(f))) >= abs(exact)), key=abs)


EXACT = {"add": lambda a, b, c: a + b, "sub": lambda a, b, c: a - b, "mul": lambda a, b, c: a * b, "div": lambda a, b, c: a / b,
         "fma": lambda a, b, c: a * b + c, "rcp": lambda a, b, c: 1 / a}


@pytest.mark.parametrize("how", ["rn", "rz", "rd", "ru"])
@pytest.mark.parametrize("name", list(EXACT))
def test_directed_rounding(name, how):
    x, y, w = (numbers(N, "float32", seed) * np.float32(10.0) ** (seed * 4) for seed in range(3))
    y[:4], x[:4] = 3, [1, -1, 6, 2.5]
    args = {"rcp": "a", "fma": "a, b, c"}.get(name, "a, b")
    wanted = [rounded(EXACT[name](*(Fraction(float(v)) for v in row)), how) for row in zip(x, y, w)]
    np.testing.assert_array_equal(run(f"{name}_{how}({args})", x, y, w), np.array(wanted, np.float32))


@pytest.mark.parametrize("how", ["rz", "rd", "ru"])
def test_roots_in_a_direction(how):
    x = np.abs(numbers(N, "float32"))
    x[:2] = [4, 2]
    made = run(f"sqrt_{how}(a)", x).astype(np.float64)
    exact = np.sqrt(x.astype(np.float64))
    assert (made >= exact - 1e-16).all() if how == "ru" else (made <= exact + 1e-16).all()
    assert (np.abs(made - exact) <= np.spacing(np.float32(1)) * exact).all() and made[0] == 2


@pytest.mark.parametrize("dtype, name", [("int32", "int"), ("uint32", "uint"), ("int64", "ll"), ("uint64", "ull")])
@pytest.mark.parametrize("how", ["rn", "rz", "rd", "ru"])
def test_integers_as_floats(dtype, name, how):
    x = numbers(N, dtype, 3)
    x[:3] = [0, 7, 2**24 + 1]
    np.testing.assert_array_equal(run(f"{name}2float_{how}(a)", x, dtype=np.float32),
                                  [rounded(Fraction(int(v)), how) if v else 0 for v in x])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("to, short", [("int32", "int"), ("int64", "ll"), ("uint32", "uint")])
@pytest.mark.parametrize("how, wanted", [("rn", np.rint), ("rz", np.trunc), ("rd", np.floor), ("ru", np.ceil)])
def test_floats_as_integers(dtype, to, short, how, wanted):
    x = np.abs(numbers(N, dtype) * 100) if to[0] == "u" else numbers(N, dtype) * 100
    x[:3] = [0.5, 1.5, 2.5]
    np.testing.assert_array_equal(run(f"{'float' if dtype == 'float32' else 'double'}2{short}_{how}(a)", x, dtype=to), wanted(x).astype(to))


@pytest.mark.parametrize("text, wanted", [
    ("popc(a)", lambda a, b: bin(a % 2**32).count("1")), ("clz(a)", lambda a, b: 32 - (a % 2**32).bit_length()),
    ("brev(a)", lambda a, b: int(f"{a % 2**32:032b}"[::-1], 2)), ("hadd(a, b)", lambda a, b: (a + b) >> 1),
    ("rhadd(a, b)", lambda a, b: (a + b + 1) >> 1), ("mulhi(a, b)", lambda a, b: (a * b) >> 32),
    ("byte_perm(a, b, 0x7160)", lambda a, b: int.from_bytes(bytes((*(a % 2**32).to_bytes(4, "little"), *(b % 2**32).to_bytes(4, "little"))[i]
                                                                 for i in (0, 6, 1, 7)), "little")),
    ("mul24(a, b)", lambda a, b: (((a << 40) % 2**64 - (2**64 if a & 2**23 else 0)) >> 40) * (((b << 40) % 2**64 - (2**64 if b & 2**23 else 0)) >> 40)),
    ("ffs(a)", lambda a, b: (a & -a).bit_length()),
])
def test_bits(text, wanted):
    x, y = numbers(N, "int32", 1), numbers(N, "int32", 2)
    x[:4] = [0, 1, -1, -2**31]
    right = np.array([wanted(int(a), int(b)) % 2**32 for a, b in zip(x, y)], np.uint64).astype(np.uint32).view(np.int32)
    np.testing.assert_array_equal(run(text, x, y), right)


def test_words_of_floats():
    x = numbers(N, "float32")
    np.testing.assert_array_equal(run("float_as_int(a)", x, dtype=np.int32), x.view(np.int32))
    np.testing.assert_array_equal(run("int_as_float(a)", x.view(np.int32), dtype=np.float32), x)
    d = numbers(N, "float64")
    np.testing.assert_array_equal(run("hiloint2double(tl.extra.libdevice.double2hiint(a), tl.extra.libdevice.double2loint(a))", d), d)


@pytest.mark.parametrize("text, wanted", [
    ("nextafter(a, b)", np.nextafter), ("ldexp(a, 3)", lambda a, b: np.ldexp(a, 3)), ("logb(a)", lambda a, b: np.floor(np.log2(np.abs(a)))),
    ("ilogb(a)", lambda a, b: np.floor(np.log2(np.abs(a)))), ("remainder(a, b)", lambda a, b: [math.remainder(p, q) for p, q in zip(a, b)]),
    ("llrint(a)", lambda a, b: np.rint(a)), ("llround(a)", lambda a, b: np.sign(a) * np.floor(np.abs(a) + 0.5)),
])
def test_exponents_and_remainders(text, wanted):
    x, y = numbers(N, "float64", 1) * 8, numbers(N, "float64", 2)
    np.testing.assert_array_equal(run(text, x, y), wanted(x, y))


def series(n, x, sign):
    """J_n or I_n of small numbers."""
    return math.fsum(sign**k * (x / 2)**(2 * k + n) / (math.factorial(k) * math.factorial(k + n)) for k in range(60))


def neumann(n, x):
    """Y_0 and Y_1, by sums of J."""
    gamma = math.log(x / 2) + 0.5772156649015329
    if n == 0:
        return 2 / math.pi * gamma * series(0, x, -1) - 4 / math.pi * math.fsum((-1)**k * series(2 * k, x, -1) / k for k in range(1, 30))
    slope = math.fsum((-1)**k * (series(2 * k - 1, x, -1) - series(2 * k + 1, x, -1)) / 2 / k for k in range(1, 30))
    return -(2 / math.pi * (series(0, x, -1) / x - gamma * series(1, x, -1)) - 4 / math.pi * slope)


@pytest.mark.parametrize("text, wanted", [
    ("j0(a)", lambda x: series(0, x, -1)), ("j1(a)", lambda x: series(1, x, -1)), ("cyl_bessel_i0(a)", lambda x: series(0, x, 1)),
    ("cyl_bessel_i1(a)", lambda x: series(1, x, 1)), ("jn(tl.full((N,), 3, tl.int32), a)", lambda x: series(3, x, -1)),
    ("y0(a)", lambda x: neumann(0, x)), ("y1(a)", lambda x: neumann(1, x)),
    ("yn(tl.full((N,), 2, tl.int32), a)", lambda x: 2 / x * neumann(1, x) - neumann(0, x)),
    ("erfc(a)", math.erfc), ("erfcx(a)", lambda x: math.exp(x * x) * math.erfc(x) if x < 20 else 1 / (x * math.sqrt(math.pi))),
    ("lgamma(a)", math.lgamma), ("tgamma(a)", math.gamma), ("normcdf(-a)", lambda x: math.erfc(x / math.sqrt(2)) / 2),
    ("norm3d(a, a, a)", lambda x: x * math.sqrt(3)), ("rhypot(a, a)", lambda x: 1 / math.hypot(x, x)),
])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_special_functions(text, wanted, dtype):
    x = np.linspace(0.05, 8, N).astype(dtype)
    right = np.array([wanted(float(v)) for v in x])
    np.testing.assert_allclose(run(text, x), right, rtol=2e-7 if dtype == "float32" else 1e-11, atol=1e-11 if dtype == "float64" else 1e-7)


@pytest.mark.parametrize("text, back", [("erfinv(a)", math.erf), ("erfcinv(a + 1)", math.erfc),
                                        ("normcdfinv((a + 1) / 2)", lambda y: math.erfc(-y / math.sqrt(2)) / 2)])
def test_inverses(text, back):
    x = np.linspace(-0.999, 0.999, N)
    given = {"erfinv(a)": x, "erfcinv(a + 1)": x + 1}.get(text, (x + 1) / 2)
    np.testing.assert_allclose([back(y) for y in run(text, x)], given, rtol=1e-12, atol=1e-14)


def test_far_away():
    """Where the expansion for large arguments begins, both ways agree; and it falls as it should."""
    x = np.linspace(24.9, 25.1, N)
    for name in ("j0", "j1", "y0", "y1"):
        assert np.abs(np.diff(run(f"{name}(a)", x), 2)).max() < 1e-5
    far = run("j0(a)", np.linspace(100, 1000, N))
    assert (np.abs(far) <= np.sqrt(2 / (math.pi * np.linspace(100, 1000, N))) * 1.001).all()


def test_names_are_there():
    assert len(tl.extra.libdevice.__all__) > 190 and all(callable(getattr(tl.extra.libdevice, n)) for n in tl.extra.libdevice.__all__)
    assert tl.extra.cuda.libdevice is tl.extra.libdevice and "fast_tanhf" in tl.extra.libdevice.__all__
