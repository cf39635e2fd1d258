"""Operators of com.microsoft, held against what ONNX Runtime answered (foreign/make_cases.py)."""

import pathlib

import numpy as np
import pytest

import tessera

with np.load(pathlib.Path(__file__).parent / "foreign" / "cases.npz") as file:
    CASES = {name: file[name] for name in file.files}
NAMES = sorted(name.split("/")[0] for name in CASES if name.endswith("/model"))
LOOSE = {"dynamic_quantize_lstm": 3e-2}  # ONNX Runtime rounds inputs and states to 8 bits in every step


def close(name, want, got):
    assert want.shape == got.shape and want.dtype == got.dtype
    if want.dtype.kind in "iu":  # one step of the quantization, where a value lies between two
        assert np.abs(want.astype(np.int64) - got.astype(np.int64)).max(initial=0) <= (want.dtype.itemsize == 1)
        return
    scale = max(np.abs(want).max(initial=0), 1e-2)
    assert np.abs(want - got).max(initial=0) / scale <= LOOSE.get(name, 2e-5)


@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_onnxruntime(name):
    model = tessera.from_onnx(CASES[f"{name}/model"].tobytes())
    inputs = {key.split("/in/")[1]: value for key, value in CASES.items() if key.startswith(f"{name}/in/")}
    wanted = [CASES[f"{name}/out/{i}"] for i in range(len(model.outputs))]
    for what in (model, tessera.optimize(model)[0], tessera.compile(model, cache="")):
        for want, got in zip(wanted, what.run(inputs).values(), strict=True):
            close(name, want, got)


def test_leaves_as_plain_onnx():
    onnx = pytest.importorskip("onnx")
    for name in NAMES:
        written = onnx.load_from_string(tessera.from_onnx(CASES[f"{name}/model"].tobytes()).to_onnx())
        assert {n.op_type for n in written.graph.node if n.domain} <= {"Inverse", "TreeEnsemble"}
