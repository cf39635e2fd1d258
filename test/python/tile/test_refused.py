"""What the language refuses, with the words that Triton has for it."""

import numpy as np
import pytest

import tessera.tile as triton
import tessera.tile.language as tl
from cases import kernel

SQUARE = "tl.full([16, 16], 1.0, tl.float32)"


@pytest.mark.parametrize("text, message", [
    (f"a = tl.dot({SQUARE}, tl.full([16, 16], 1.0, tl.float16))", "Both operands must be same dtype. Got fp32 and fp16"),
    (f"a = tl.dot({SQUARE}, tl.full([32, 16], 1.0, tl.float32))", "input and other must have equal reduction dimensions"),
    (f"a = tl.dot({SQUARE}, at)", "input and other must have equal ranks >= 2"),
    ("a = tl.dot(at * 0.5, at * 0.5)", "input and other must have equal ranks >= 2"),
    (f"a = tl.dot({SQUARE}[None], tl.full([2, 16, 16], 1.0, tl.float32))", "input and other must have equal batch shapes"),
    (f"a = tl.dot({SQUARE}, {SQUARE}, tl.full([16, 8], 1.0, tl.float32))", "accumulator shape is incompatible"),
    (f"a = tl.dot({SQUARE}, {SQUARE}, input_precision='ieee', allow_tf32=True)", "Only one of input_precision and allow_tf32"),
    ("a = tl.reshape(at, [4, 8])", "cannot change total number of elements"), ("a = at.view(2, 4)", "cannot change total number of elements"),
    ("a = tl.permute(at[:, None], 0, 0)", "permute dims must be a permutation of 0, 1, ..., n-1"),
    ("a = tl.sum(at, 1)", "invalid axis 1. Expected -1 <= axis < 1"), ("a = tl.sum(at[None, :], -3)", "invalid axis -3. Expected -2 <= axis < 2"),
    ("a = tl.argmax(at, 2)", "invalid axis 2"), ("a = tl.cumsum(at, 1)", "invalid axis 1"),
    ("a = tl.gather(at, at * 0.5, 0)", "index must be an integer tensor"), ("a = tl.gather(at, at[:, None], 0)", "must have the same rank"),
    ("a = tl.gather(at, at, 1)", "gather axis 1 must be < source rank"), ("a = tl.sort(at[:, None], 0)", "only minor dimension"),
    ("a = tl.histogram(at[:, None], 16)", "histogram only supports 1D input"),
    ("a = tl.full([16], 1.0, None)", "dtype must be specified when value is not a tensor"),
    ("a = z.to(tl.float32)", "cannot cast pointer<int32> to fp32"), ("a = n.to(tl.pointer_type(tl.int32), bitcast=True)", "cannot cast int32 to"),
    ("a = tl.where(n > 2, z, n)", "invalid operands of type pointer<int32> and int32"),
    ("a = tl.where(n > 2, z, z.to(tl.pointer_type(tl.int8)))", "invalid operands of type pointer<int32> and pointer<int8>"),
    ("a = (at * 0.5).to(tl.float16, fp_downcast_rounding='up')", "Invalid rounding mode: up"),
    ("a = (at * 0.5).to(tl.float64, fp_downcast_rounding='rtz')", "only for truncating fp conversions"),
    ("for i in range(1.5): a = i", "For loop bounds and step must all be ints"), ("for i in range(z): a = i", "bounds and step must all be ints"),
    ("for i in range(at): a = i", "For loop bounds and step must all be ints"),
    ("for i in tl.static_range(n): a = i", "is not a constexpr"), ("a = GLOBAL", "Cannot access global variable GLOBAL"),
    ("if at > 2: a = 3", "Boolean value of Tensor with more than one value is ambiguous"),
    ("a = 1 if at > 2 else 2", "Boolean value of Tensor with more than one value is ambiguous"),
    ("if n > 2: a = 1.5", "initial value for `a` is of type i32, but the then block redefines it as f32"),
    ("if n > 2:\n    pass\nelse:\n    a = 1.5", "initial value for `a` is of type i32, but the else block redefines it as f32"),
    ("a = tl.load(tl.make_block_ptr(z, (n,), (1,), (0,), (16,), (0,)), boundary_check=(1,))", "`boundary_check` must have dimensions below 1"),
    ("a = tl.load(tl.make_block_ptr(z, (n,), (1,), (0,), (16,), (0,)), boundary_check=(0, 0))", "Duplicate dimension in `boundary_check`"),
    ("a = tl.load(tl.make_block_ptr(z, (n,), (1,), (0,), (16,), (0,)), mask=n > 2)", "arguments cannot be specified for loading block pointers"),
    ("tl.store(tl.make_block_ptr(z, (n,), (1,), (0,), (16,), (0,)), tl.arange(0, 8))", r"Block shape\(\[16\]\) and value shape\(\[8\]\) mismatch"),
    ("tl.store(tl.make_block_ptr(z, (n,), (1,), (0,), (16,), (0,)), at * 0.5)", r"Block element type\(int32\) and value element type\(fp32\) mismatch"),
])
def test_refused(text, message):
    wrong = kernel("""
        def wrong(z, n):
            at = tl.arange(0, 16)
            a = 0
            BODY
            tl.store(z, 1)
        """, BODY=text)
    wrong.fn.__globals__["GLOBAL"] = 3
    with pytest.raises(triton.CompilationError, match=message) as e:
        wrong[(1,)](np.zeros(16, np.int32), 3)
    assert "^" in str(e.value)


@triton.jit
def returns_in_loops(z, n, NEVER: tl.constexpr):
    for i in range(n):
        if NEVER:
            return
        while n > 10:
            n -= 10
            if NEVER and True:
                return
            else:
                tl.store(z + 1, n)
        tl.store(z, i)
    tl.store(z + 2, n)


def test_returns_that_constants_rule_out():
    z = np.zeros(4, np.int32)
    returns_in_loops[(1,)](z, 34, NEVER=False)
    assert z.tolist() == [33, 4, 4, 0]
    with pytest.raises(triton.CompilationError, match="Cannot have `return` statements inside `while` or `for`"):
        returns_in_loops[(1,)](z, 34, NEVER=True)


@triton.jit
def unless(x):
    if x > 3:
        pass
    else:
        return x * 2


@triton.jit
def of_scalars(z, x, n):
    tl.store(z[None, None, :], tl.load(x[None, None, :]) + n)
    if n <= 3:
        tl.store(z + 1, unless(n))


def test_pointers_with_more_dimensions_and_returns_of_the_else_branch():
    z = np.zeros(2, np.int32)
    of_scalars[(1,)](z, np.array([40], np.int32), 2)
    assert z.tolist() == [42, 4]
