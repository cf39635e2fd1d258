"""Products with weights of four bits, and tables in place of chains of functions of one byte."""

import math
import re

import numpy as np
import pytest

import tessera

RANDOM = np.random.default_rng(3)


def listed(values):
    return "[" + ",".join(str(v) for v in np.asarray(values).reshape(-1).tolist()) + "]"


def product(k, n, block, level, zeros, rows="N"):
    """The text of a model, and its weights as floats."""
    blocks = -(-k // block)
    nibbles = RANDOM.integers(0, 16, (n, blocks, block))
    scales = RANDOM.uniform(0.01, 0.1, (n, blocks)).astype(np.float32)
    points = RANDOM.integers(0, 16, (n, blocks)) if zeros else np.full((n, blocks), 8)
    packed = nibbles[..., ::2] | nibbles[..., 1::2] << 4
    given = f"const z: f32[{n},{blocks}] = {listed(points.astype(np.float32))}" if zeros else "const z: f32[] = 8.0"
    text = f"""graph g(a: f32[{rows},{k}]) {{
  const b: u8[{n},{blocks},{block // 2}] = {listed(packed)}
  const s: f32[{n},{blocks}] = {listed(scales)}
  {given}
  %y = matmul_nbits(a, %b, %s, %z, accuracy_level={level}, bits=4, block_size={block}, k={k}, n={n})
  return %y
}}"""
    weights = (nibbles - points[..., None]) * scales[..., None].astype(np.float64)
    return text, weights.reshape(n, -1)[:, :k]


def in_bytes(a, block):
    """a, rounded to 8 bits block by block as the kernel does."""
    rows, k = a.shape
    x = np.pad(a, ((0, 0), (0, -k % block))).reshape(rows, -1, block)
    most = np.abs(x).max(-1, keepdims=True)
    factor = np.where(most > 0, np.float32(127) / np.where(most > 0, most, 1), 0).astype(np.float32)
    bytes_ = np.round(x * factor)
    return (bytes_.astype(np.float64) * (most * np.float32(1 / 127))).reshape(rows, -1)[:, :k]


@pytest.mark.parametrize("k,n,block", [(64, 64, 32), (50, 37, 16), (512, 70, 256), (96, 16, 32)])
@pytest.mark.parametrize("zeros", [False, True])
def test_four_bits(k, n, block, zeros):
    for level in (0, 4):
        text, weights = product(k, n, block, level, zeros)
        model = tessera.parse(text)
        compiled = tessera.compile(model, cache="")
        strict = tessera.compile(model, cache="", precision="strict")
        for rows in (1, 2, 3, 8, 15, 33):
            a = RANDOM.standard_normal((rows, k)).astype(np.float32)
            a[0, : min(block, k)] = 0
            exact = a.astype(np.float64) @ weights.T
            bound = 1e-5 * (np.abs(a) @ np.abs(weights).T).max()
            np.testing.assert_allclose(model.run({"a": a})["y"], exact, atol=bound)
            np.testing.assert_allclose(strict.run({"a": a})["y"], exact, atol=bound)
            got = compiled.run({"a": a})["y"]
            rounded = in_bytes(a, block) @ weights.T
            if level == 4 and np.abs(got - exact).max() > bound:  # where the machine multiplies bytes
                np.testing.assert_allclose(got, rounded, atol=bound)
            else:
                np.testing.assert_allclose(got, exact, atol=bound)


def test_weights_stay_four_bits():
    text, _ = product(256, 256, 32, 0, False)
    kernel = tessera.compile(tessera.parse(text), cache="").emit("kernel")
    sizes = {}
    for dtype, shape in re.findall(r"\b([iuf]\d+)\[([\d, ]+)\]", kernel):
        sizes.setdefault(dtype, set()).add(math.prod(map(int, shape.split(","))))
    assert 256 * 256 // 8 in sizes["i32"] and 256 * 256 not in sizes["f32"]


@pytest.mark.parametrize("dtype", ["u8", "i8"])
def test_tables_give_what_the_chain_gives(dtype):
    text = f"""graph g(x: {dtype}[N]) {{
  const z: {dtype}[] = 5
  const u: i8[] = -3
  %a = dequantize_linear(x, 0.05, %z)
  %b = div(%a, 1.5)
  %q = quantize_linear(%b, 0.04, %z)
  %c = dequantize_linear(%q, 0.04, %z)
  %e = erf(%c)
  %f = mul(%a, %e)
  %y = quantize_linear(%f, 0.03, %u)
  return %y
}}"""
    model = tessera.parse(text)
    compiled = tessera.compile(model, cache="", precision="strict")  # whose rewrites keep every bit
    assert "erf" not in compiled.emit("kernel")
    low = 0 if dtype == "u8" else -128
    for values in (np.arange(low, low + 256), RANDOM.integers(low, low + 256, 1001), np.array([low])):
        x = values.astype(np.uint8 if dtype == "u8" else np.int8)
        np.testing.assert_array_equal(compiled.run({"x": x})["y"], model.run({"x": x})["y"])
