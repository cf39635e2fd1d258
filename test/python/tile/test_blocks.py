"""Tile kernels as a GPU runs them, without one: thread by thread in the interpreter, and as PTX.

Runs a sample of the language's tests. All of them: TESSERA_INTERPRET=gpu pytest test/python/tile
"""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import tessera.tile as triton
import tessera.tile.language as tl

HERE = pathlib.Path(__file__).parent
GROUPS = ["test_reductions.py::test_scans", "test_shapes.py::test_sort", "test_products.py::test_batches"]


@pytest.mark.skipif(os.environ.get("TESSERA_INTERPRET") == "gpu" or os.environ.get("TESSERA_TILE_DEVICE") == "cuda",
                    reason="all tests run so")
@pytest.mark.parametrize("group", GROUPS)
def test_language_in_threads(group):
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / group)], text=True,
                          capture_output=True, env={**os.environ, "TESSERA_INTERPRET": "gpu"}, check=False)
    assert done.returncode in (0, 5), done.stdout[-3000:]  # 5: there is no such test


@triton.jit
def softmax(z, x, stride, n, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + columns, mask=columns < n, other=float("-inf"))
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(z + row * stride + columns, e / tl.sum(e, axis=0), mask=columns < n)


@pytest.mark.parametrize("warps", [1, 4, 8])
def test_ptx(warps):
    x = np.zeros((4, 512), np.float32)
    made = triton.compile(softmax, x, x.copy(), 512, 512, BLOCK=512, num_warps=warps)
    text = made.emit("ptx")
    assert ".entry" in text and f".maxntid 4, 8, {warps}" in text
    assert "shfl.sync.bfly" in text
    assert "on thread.z" in made.emit("blocks")


@pytest.mark.skipif(os.environ.get("TESSERA_TILE_DEVICE") == "cuda", reason="all arrays are there")
def test_two_devices_at_once():
    class OnGpu:
        __cuda_array_interface__ = {"shape": (4,), "typestr": "<f4", "data": (4096, False), "version": 3}

    with pytest.raises(Exception, match="E0701"):
        softmax[(1,)](OnGpu(), np.zeros(4, np.float32), 4, 4, BLOCK=4)
