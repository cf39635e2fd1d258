"""What the tests of the tile language share: element types, numbers of them, kernels from text, and samples of cases.

With TESSERA_ALL_CASES=1 every case runs; otherwise a sample of each group, the same each time.
"""

import hashlib
import itertools
import os
import textwrap

import ml_dtypes
import numpy as np

import tessera.tile as triton
import tessera.tile.language as tl

INTS = ["int8", "int16", "int32", "int64"]
UINTS = ["uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]
INTEGERS = [*INTS, *UINTS]
NUMBERS = [*INTEGERS, *FLOATS, "bfloat16"]
ALL = os.environ.get("TESSERA_ALL_CASES") == "1"
TILE = {**{n: getattr(tl, n) for n in NUMBERS}, "bool": tl.int1, "float8_e4m3fn": tl.float8e4nv, "float8_e5m2": tl.float8e5}


def sample(count, *lists):
    """The product of lists of values, or as many of it."""
    cases = [case if len(lists) > 1 else case[0] for case in itertools.product(*lists)]
    if ALL or len(cases) <= count:
        return cases
    return sorted(sorted(cases, key=lambda c: hashlib.md5(repr(c).encode()).digest())[:count], key=cases.index)


def np_dtype(name):
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) and not hasattr(np, name) else np.dtype(name)


def numbers(shape, dtype, seed=0, low=None, high=None):
    rng = np.random.default_rng(seed)
    kind = np_dtype(dtype)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if kind.kind in "iu":
        info = np.iinfo(kind)
        low, high = (info.min if low is None else low), (info.max if high is None else high)
        return rng.integers(low, high, shape, dtype=kind, endpoint=True)
    return rng.standard_normal(shape).astype(np.float32).astype(kind) if dtype != "float64" else rng.standard_normal(shape)


def is_float(dtype): return np_dtype(dtype).kind not in "iub"


def wide(x):
    """As what NumPy computes with."""
    return x.astype(np.float32) if x.dtype.kind == "V" or x.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2") else x


def promoted(a, b, divided=False):
    """The type in which two tiles are computed with."""
    order = ["float64", "float32", "float16", "bfloat16"]
    for t in order:
        if t in (a, b):
            if t == "float16" and divided:
                return "float32"
            if t == "bfloat16" and (a != b or divided):
                return "float32" if is_float(a) and is_float(b) or divided else "float32" if a != b else t
            return t
    x, y = np.dtype(a), np.dtype(b)
    if x.kind == y.kind:
        return a if x.itemsize > y.itemsize else b
    unsigned, signed = (x, y) if x.kind == "u" else (y, x)
    return (unsigned if unsigned.itemsize >= signed.itemsize else signed).name


def kernel(text, **names):
    """A kernel of the text of its function; names in it that are given are put in."""
    src = "@triton.jit\n" + textwrap.dedent(text).strip() + "\n"
    for name, value in names.items():
        lines = str(value).splitlines()
        src = src.replace(name, "\n    ".join(lines))
    scope = {"triton": triton, "tl": tl}
    exec(src, scope)
    return scope[src.split("def ")[1].split("(")[0]]


def close(made, wanted, dtype):
    made, wanted = wide(np.asarray(made)), wide(np.asarray(wanted))
    if np.asarray(made).dtype.kind in "iub":
        np.testing.assert_array_equal(made, wanted)
        return
    tolerance = {"float16": 1e-2, "bfloat16": 4e-2, "float32": 1e-5, "float64": 1e-10}[dtype]
    np.testing.assert_allclose(made.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance)
