"""Ops in the forms that they had at older opsets, and parameters that are only known at run time."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import tessera

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
CASES = {}


def case(name, opset, op, outputs, inputs=None, constants=None, slots=None, **attributes):
    """One node. `slots` are its inputs' names ("" for none), by default the inputs' and then the constants'."""
    inputs, constants = inputs or {"x": X}, constants or {}
    CASES[name] = opset, op, inputs, constants, slots or [*inputs, *constants], outputs, attributes


def ints(*values):
    return np.array(values, np.int64)


def info(name, array):
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def with_element(array, at, value):
    changed = array.copy()
    changed[at] = value
    return changed


def blocks_to_space(x, b):
    n, c, h, w = x.shape
    apart = x.reshape(n, b, b, c // (b * b), h, w).transpose(0, 3, 4, 1, 5, 2)
    return apart.reshape(n, c // (b * b), h * b, w * b)


case("slice_1", 1, "Slice", [X[:, 0:2, 1:-1]], starts=[0, 1], ends=[2, -1], axes=[1, 2])
case("slice_9", 9, "Slice", [X[1:]], starts=[1], ends=[1000])
case("slice_10", 10, "Slice", [X[:, :, ::-1]], constants={"s": ints(-1), "e": ints(-100), "a": ints(2), "t": ints(-1)})
case("pad_1", 1, "Pad", [np.pad(X, [(0, 0), (0, 0), (1, 2)], mode="edge")], paddings=[0, 0, 1, 0, 0, 2], mode="edge")
case("pad_2", 2, "Pad", [np.pad(X, [(0, 1), (1, 0), (0, 0)], constant_values=2.5)], pads=[0, 1, 0, 1, 0, 0], value=2.5)
case("pad_10_f64", 10, "Pad", [np.pad(X.astype(np.float64), [(0, 1), (0, 0), (0, 0)], constant_values=2.5)],
     {"x": X.astype(np.float64)}, pads=[0, 0, 0, 1, 0, 0], value=2.5)
case("pad_11", 11, "Pad", [np.pad(X, [(0, 1), (0, 0), (0, 0)], constant_values=2.5)],
     constants={"p": ints(0, 0, 0, 1, 0, 0), "v": np.array(2.5, np.float32)})

TOP = np.argsort(-X, axis=-1, kind="stable")[..., :2].astype(np.int64)
case("top_k_1", 9, "TopK", [np.take_along_axis(X, TOP, -1), TOP], k=2)
case("top_k_10", 10, "TopK", [np.take_along_axis(X, TOP, -1), TOP], constants={"k": ints(2)})

UNEVEN, EVEN = [X[..., :1], X[..., 1:]], [X[..., :2], X[..., 2:]]
case("split_2", 2, "Split", UNEVEN, axis=2, split=[1, 3])
case("split_11", 11, "Split", EVEN, axis=-1)
case("split_13", 13, "Split", UNEVEN, constants={"s": ints(1, 3)}, axis=2)
case("split_13_even", 13, "Split", EVEN, axis=2)
case("split_18", 18, "Split", [X[..., :2], X[..., 2:4], X[..., 4:]], axis=2, num_outputs=3)

case("dropout_6", 6, "Dropout", [X], is_test=1, ratio=0.3)
case("dropout_7", 7, "Dropout", [X, np.ones_like(X)], ratio=0.3)
case("dropout_10", 10, "Dropout", [X, np.ones_like(X, dtype=bool)], ratio=0.3)
case("dropout_12", 12, "Dropout", [X, np.ones_like(X, dtype=bool)], constants={"r": np.array(0.2, np.float32)})

case("tile_1", 5, "Tile", [np.tile(X, (1, 3, 1))],
     constants={"t": np.array([3], np.float32), "a": np.array([1], np.float32)})
case("tile_6", 6, "Tile", [np.tile(X, (1, 3, 1))], constants={"r": ints(1, 3, 1)})
case("concat_1", 1, "Concat", [np.concatenate([X, X], 1)], slots=["x", "x"])
case("squeeze_1", 1, "Squeeze", [X[0]], {"x": X[:1]}, axes=[0])
case("squeeze_11", 11, "Squeeze", [X[0, 0]], {"x": X[:1, :1]})
case("unsqueeze_11", 11, "Unsqueeze", [X[None, ..., None]], axes=[0, -1])
case("reshape_1", 1, "Reshape", [X.reshape(2, 12)], shape=[0, -1])
case("flatten_1", 1, "Flatten", [X.reshape(2, 12)])
case("gather_1", 1, "Gather", [X[:, [2, 0]]], constants={"i": ints(2, 0)}, axis=1)
case("scatter_9", 9, "Scatter", [with_element(X, (0, 2, 0), 9)],
     constants={"i": ints(2).reshape(1, 1, 1), "u": np.full((1, 1, 1), 9, np.float32)}, axis=1)
case("scatter_nd_11", 11, "ScatterND", [with_element(X, (0, 2, 0), 9)],
     constants={"i": ints(0, 2, 0).reshape(1, 3), "u": np.array([9], np.float32)})
BLOCKS = np.arange(16, dtype=np.float32).reshape(1, 4, 2, 2)
case("depth_to_space_1", 1, "DepthToSpace", [blocks_to_space(BLOCKS, 2)], {"x": BLOCKS}, blocksize=2)

SUM = helper.make_graph([helper.make_node("Add", ["s", "e"], ["t"]), helper.make_node("Identity", ["t"], ["y"])], "sum",
                        [info("s", np.zeros(2, np.float32)), info("e", np.zeros(2, np.float32))],
                        [info("t", np.zeros(2, np.float32)), info("y", np.zeros(2, np.float32))])
STEPS, START = np.arange(12, dtype=np.float32).reshape(2, 3, 2), np.zeros((2, 2), np.float32)
SUMS, BACK = np.cumsum(STEPS, 1), np.cumsum(STEPS[:, ::-1], 1)
SHORT = SUMS.copy()
SHORT[1, 1:] = 0
case("scan_8", 8, "Scan", [BACK[:, 2], BACK], {"s": START, "x": STEPS}, slots=["", "s", "x"], body=SUM,
     num_scan_inputs=1, directions=[1])
case("scan_8_lengths", 8, "Scan", [np.stack([SUMS[0, 2], SUMS[1, 0]]), SHORT], {"s": START, "x": STEPS},
     {"n": ints(3, 1)}, slots=["n", "s", "x"], body=SUM, num_scan_inputs=1)

case("computed_slice", 13, "Slice", [X[:, 1:3]], {"x": X, "s": ints(1), "e": ints(3), "a": ints(1)})
case("computed_pad", 18, "Pad", [np.pad(X, [(0, 0), (0, 0), (1, 2)])], {"x": X, "p": ints(1, 2), "a": ints(-1)},
     slots=["x", "p", "", "a"])
case("computed_squeeze", 13, "Squeeze", [X[0]], {"x": X[:1], "a": ints(0)})
case("computed_unsqueeze", 13, "Unsqueeze", [X[:, None]], {"x": X, "a": ints(1)})
case("computed_reshape", 13, "Reshape", [X.reshape(4, 6)], {"x": X, "a": ints(4, -1)})
case("computed_expand", 13, "Expand", [np.broadcast_to(X[:1], (2, 3, 4))], {"x": X[:1], "a": ints(2, 1, 1)})
case("computed_split", 13, "Split", UNEVEN, {"x": X, "s": ints(1, 3)}, axis=2)
case("computed_tile", 13, "Tile", [np.tile(X, (2, 1, 1))], {"x": X, "r": ints(2, 1, 1)})


def check_form(opset, op, inputs, constants, slots, outputs, attributes, tolerance=0):
    """Reads the node, runs it, writes it at the same opset, and reads and runs that."""
    names = [f"y{i}" for i in range(len(outputs))]
    graph = helper.make_graph([helper.make_node(op, slots, names, **attributes)], "g",
                              [info(n, a) for n, a in inputs.items()], [info(n, a) for n, a in zip(names, outputs)],
                              [numpy_helper.from_array(a, n) for n, a in constants.items()])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    model = tessera.from_onnx(proto)
    written = onnx.load_from_string(model.to_onnx())
    onnx.checker.check_model(written, full_check=True)
    for form in (model, tessera.from_onnx(written)):
        for got, want in zip(form.run(inputs).values(), outputs):
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", CASES)
def test_older_form(name):
    check_form(*CASES[name])
