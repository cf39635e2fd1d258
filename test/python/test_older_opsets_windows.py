"""Ops over windows and sequences, in the forms that they had at older opsets: as their newest form by ONNX's reference."""

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator
from test_older_opsets import check_form, info

RANDOM = np.random.default_rng(0)
CASES = {}


def floats(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def newest(op, inputs, outputs=1, slots=None, **attributes):
    names = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, slots or [*inputs], names, **attributes)
    graph = helper.make_graph([node], "g", [info(n, a) for n, a in inputs.items()],
                              [helper.make_tensor_value_info(n, 1, None) for n in names])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", onnx.defs.onnx_opset_version())])
    return ReferenceEvaluator(model).run(None, inputs)


def case(name, opset, op, outputs, inputs, constants=None, slots=None, **attributes):
    constants = constants or {}
    CASES[name] = opset, op, inputs, constants, slots or [*inputs, *constants], outputs, attributes


def same(op, opsets, inputs, outputs=1, slots=None, old=None, **attributes):
    """The same attributes at every opset, but for those in `old`."""
    want = newest(op, inputs, outputs, slots, **attributes)
    for opset in opsets:
        case(f"{op}_{opset}_{len(CASES)}", opset, op, want, inputs, None, slots, **{**attributes, **(old or {})})


X, W, B = floats(1, 4, 7, 6), floats(6, 2, 3, 2), floats(6)
same("Conv", (1, 7, 11), {"x": X, "w": W, "b": B}, group=2, strides=[2, 1], pads=[1, 0, 2, 1], dilations=[1, 2])
same("ConvTranspose", (1, 11), {"x": X, "w": floats(4, 2, 3, 3)}, strides=[2, 1], output_padding=[1, 0])
same("MaxPool", (1, 7), {"x": X}, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 0, 1])
same("MaxPool", (8, 11), {"x": X}, 2, kernel_shape=[3, 2], strides=[2, 2])
same("MaxPool", (10, 12), {"x": X}, kernel_shape=[2, 2], dilations=[2, 1], ceil_mode=1, strides=[2, 2])
same("AveragePool", (1, 7, 10), {"x": X}, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 0, 1])
same("AveragePool", (7, 11), {"x": X}, kernel_shape=[3, 2], pads=[1, 1, 1, 1], count_include_pad=1)
same("LpPool", (2, 11), {"x": X}, kernel_shape=[3, 2], p=3)
same("LpPool", (1,), {"x": X}, kernel_shape=[3, 2], p=3, old={"p": 3.0})
case("GlobalLpPool_1", 1, "GlobalLpPool", [np.sqrt((X * X).sum((2, 3), keepdims=True))], {"x": X}, p=2.0)
case("GlobalLpPool_2", 2, "GlobalLpPool", [np.abs(X).sum((2, 3), keepdims=True)], {"x": X}, p=1)
POOLED, AT = newest("MaxPool", {"x": X[:, :, :6]}, 2, kernel_shape=[2, 2], strides=[2, 2])
same("MaxUnpool", (9, 11), {"x": POOLED, "i": AT}, kernel_shape=[2, 2], strides=[2, 2])

A, C = floats(3, 4), floats(5)
same("Gemm", (7, 9, 11), {"a": A, "b": floats(5, 4), "c": C}, transB=1, alpha=0.5)
same("Gemm", (1, 6), {"a": A, "b": floats(4, 5), "c": C}, beta=2.0, old={"broadcast": 1})
same("Gemm", (11,), {"a": A, "b": floats(4, 5)})
same("Det", (11,), {"x": floats(2, 3, 3)})
same("Einsum", (12,), {"a": A, "b": floats(4, 5)}, equation="ij,jk->ki")

SCALES = np.array([1, 1, 2, 3], np.float32)
NOTHING = np.zeros(0, np.float32)
for mode in ("nearest", "linear"):
    want = newest("Resize", {"x": X, "s": SCALES}, slots=["x", "", "s"], mode=mode,
                  coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    case(f"Upsample_1_{mode}", 1, "Upsample", want, {"x": X}, height_scale=2.0, width_scale=3.0,
         mode=mode.replace("linear", "bilinear"))
    case(f"Upsample_7_{mode}", 7, "Upsample", want, {"x": X}, scales=[1.0, 1.0, 2.0, 3.0], mode=mode)
    case(f"Upsample_9_{mode}", 9, "Upsample", want, {"x": X}, {"s": SCALES}, mode=mode)
    case(f"Resize_10_{mode}", 10, "Resize", want, {"x": X}, {"s": SCALES}, mode=mode)
    case(f"Resize_11_{mode}", 11, "Resize", want, {"x": X}, {"r": NOTHING, "s": SCALES}, mode=mode,
         coordinate_transformation_mode="asymmetric", nearest_mode="floor")
SIZES = np.array([1, 4, 3, 9], np.int64)
want = newest("Resize", {"x": X, "n": SIZES}, slots=["x", "", "", "n"], mode="cubic")
case("Resize_11_sizes", 11, "Resize", want, {"x": X}, {"r": NOTHING, "s": NOTHING, "n": SIZES}, mode="cubic")
case("Resize_13_sizes", 13, "Resize", want, {"x": X}, {"n": SIZES}, ["x", "", "", "n"], mode="cubic")

GRID = RANDOM.uniform(-1.2, 1.2, (1, 3, 5, 2)).astype(np.float32)
same("GridSample", (16,), {"x": X, "g": GRID}, mode="linear", old={"mode": "bilinear"})
same("GridSample", (16,), {"x": X, "g": GRID}, mode="cubic", old={"mode": "bicubic"}, padding_mode="border")
SIGNAL = floats(2, 8, 3, 1)
for axis in (1, 2):
    want = newest("DFT", {"x": SIGNAL, "a": np.array(axis, np.int64)}, slots=["x", "", "a"])
    case(f"DFT_17_{axis}", 17, "DFT", want, {"x": SIGNAL}, axis=axis)
    if axis == 1:
        case("DFT_17", 17, "DFT", want, {"x": SIGNAL})

ROIS, IMAGES = np.array([[0, 0, 4, 3], [1, 1, 6, 6]], np.float32), np.zeros(2, np.int64)
same("RoiAlign", (16,), {"x": X, "r": ROIS, "i": IMAGES}, output_height=2, output_width=3)
same("RoiAlign", (10,), {"x": X, "r": ROIS, "i": IMAGES}, output_height=2, output_width=3,
     coordinate_transformation_mode="output_half_pixel")
for name in [n for n in CASES if n.startswith("RoiAlign_10")]:
    del CASES[name][-1]["coordinate_transformation_mode"]

STEPS = floats(4, 2, 3)
for op, gates in {"RNN": 1, "GRU": 3, "LSTM": 4}.items():
    weights = {"x": STEPS, "w": floats(1, gates * 5, 3), "r": floats(1, gates * 5, 5), "b": floats(1, gates * 10)}
    same(op, (7, 14), weights, 2, hidden_size=5)
    same(op, (1,), weights, 2, hidden_size=5, old={"output_sequence": 1})
    same(op, (14,), {**weights, "x": np.ascontiguousarray(STEPS.transpose(1, 0, 2))}, 2, hidden_size=5, layout=1)


@pytest.mark.parametrize("name", CASES)
def test_older_form(name):
    check_form(*CASES[name], tolerance=1e-4)
