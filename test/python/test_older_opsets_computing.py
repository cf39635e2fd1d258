"""Ops that compute, in the forms that they had at older opsets."""

import numpy as np
import pytest
from test_older_opsets import check_form

RANDOM = np.random.default_rng(0)
CASES = {}


def case(name, opset, op, outputs, inputs, **attributes):
    outputs = [np.asarray(y) for y in outputs]
    CASES[name] = opset, op, inputs, {}, [*inputs], outputs, attributes


def floats(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


X = floats(2, 3, 4, 5)


def softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def hardmax(x):
    return (np.arange(x.shape[1]) == x.argmax(1)[:, None]).astype(np.float32)


for op, function in {"Softmax": softmax, "LogSoftmax": lambda x: np.log(softmax(x)), "Hardmax": hardmax}.items():
    for axis in range(4):
        y = function(X.reshape(int(np.prod(X.shape[:axis])), -1)).reshape(X.shape)
        case(f"{op}_7_{axis}", 7, op, [y], {"x": X}, axis=axis)
        case(f"{op}_11_{axis}", 11, op, [y], {"x": X}, axis=axis - 4)
        if axis == 1:
            case(f"{op}_7", 7, op, [y], {"x": X})

for op, function in {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}.items():
    inner, last = np.abs(floats(3, 4)) + 1, np.abs(floats(5)) + 1
    for opset in (1, 6):
        case(f"{op}_{opset}_axis", opset, op, [function(X, inner[..., None])], {"x": X, "c": inner}, broadcast=1, axis=1)
        case(f"{op}_{opset}_last", opset, op, [function(X, last)], {"x": X, "c": last}, broadcast=1)
        case(f"{op}_{opset}_same", opset, op, [function(X, X + 9)], {"x": X, "c": X + 9})
case("Pow_1", 1, "Pow", [X * X], {"x": np.abs(X), "c": np.array([2], np.float32)}, broadcast=1)
case("Less_1", 1, "Less", [X < 0], {"x": X, "c": np.zeros(3, np.float32)}, broadcast=1, axis=1)
case("Greater_7", 7, "Greater", [X > 0], {"x": X, "c": np.zeros(1, np.float32)})
case("Sum_1", 1, "Sum", [X + X], {"x": X, "c": X}, consumed_inputs=[0, 0])
case("Max_6", 6, "Max", [np.abs(X)], {"x": X, "c": -X})

case("Relu_1", 1, "Relu", [np.maximum(X, 0)], {"x": X}, consumed_inputs=[0])
case("Clip_1", 1, "Clip", [np.minimum(X, np.float32(0.5))], {"x": X}, max=0.5, consumed_inputs=[0])
case("Clip_6", 6, "Clip", [np.clip(X, -0.5, 0.25)], {"x": X}, min=-0.5, max=0.25)
HALF = X.astype(np.float16)
case("Clip_6_half", 6, "Clip", [np.maximum(HALF, np.float16(-0.5))], {"x": HALF}, min=-0.5)
SLOPES = floats(3)
case("PRelu_6", 6, "PRelu", [np.where(X < 0, X * SLOPES[:, None, None], X)], {"x": X, "c": SLOPES})
case("Selu_1", 1, "Selu", [(1.0507 * np.where(X < 0, 1.6732 * np.expm1(X), X)).astype(np.float32)], {"x": X})

case("Cast_1", 1, "Cast", [(X * 3).astype(np.int32)], {"x": X * 3}, to="INT32")
case("Cast_6", 6, "Cast", [(X * 3).astype(np.int32)], {"x": X * 3}, to=6)
case("CastLike_15", 15, "CastLike", [X.astype(np.int64)], {"x": X, "c": np.ones(1, np.int64)})
case("ArgMax_7", 7, "ArgMax", [X.argmax(2)], {"x": X}, axis=2, keepdims=0)

POSITIVE = np.abs(X) + np.float32(0.1)
REDUCTIONS = {
    "ReduceSum": np.sum, "ReduceMean": np.mean, "ReduceMax": np.max, "ReduceMin": np.min, "ReduceProd": np.prod,
    "ReduceL1": np.sum, "ReduceL2": lambda x, **k: np.sqrt(np.sum(x * x, **k)),
    "ReduceLogSum": lambda x, **k: np.log(np.sum(x, **k)),
    "ReduceLogSumExp": lambda x, **k: np.log(np.sum(np.exp(x), **k)),
    "ReduceSumSquare": lambda x, **k: np.sum(x * x, **k),
}
for op, function in REDUCTIONS.items():
    for opset in (7, 11, 12 if op == "ReduceSum" else 17):
        case(f"{op}_{opset}", opset, op, [function(POSITIVE, axis=(1, 3))], {"x": POSITIVE}, axes=[1, 3], keepdims=0)
        case(f"{op}_{opset}_all", opset, op, [function(POSITIVE, axis=None, keepdims=True)], {"x": POSITIVE})

SCALE, BIAS, MEAN, VARIANCE = floats(3), floats(3), floats(3), np.abs(floats(3))
BATCH_MEAN, BATCH_VARIANCE = X.mean((0, 2, 3)), X.var((0, 2, 3))


def normalized(x, scale, bias, mean, variance):
    scale, bias, mean, variance = (np.expand_dims(v, (-1, -2)) for v in (scale, bias, mean, variance))
    return scale * (x - mean) / np.sqrt(variance + np.float32(1e-5)) + bias


def mixed(before, now):
    return np.float32(0.75) * before + np.float32(0.25) * now


BATCH = {"x": X, "s": SCALE, "b": BIAS, "m": MEAN, "v": VARIANCE}
FIXED, TRAINED = normalized(*BATCH.values()), normalized(X, SCALE, BIAS, BATCH_MEAN, BATCH_VARIANCE)
RUNNING = [TRAINED, mixed(MEAN, BATCH_MEAN), mixed(VARIANCE, BATCH_VARIANCE)]
case("BatchNormalization_1", 1, "BatchNormalization", [FIXED], BATCH, is_test=1, consumed_inputs=[0, 0, 0, 1, 1])
case("BatchNormalization_6", 6, "BatchNormalization", [FIXED], BATCH, is_test=1, spatial=1)
case("BatchNormalization_7", 7, "BatchNormalization", [FIXED], BATCH)
case("BatchNormalization_9_training", 9, "BatchNormalization", RUNNING, BATCH, momentum=0.75)
case("BatchNormalization_9_saved", 9, "BatchNormalization", [*RUNNING, BATCH_MEAN, BATCH_VARIANCE], BATCH, momentum=0.75)
case("BatchNormalization_14", 14, "BatchNormalization", RUNNING, BATCH, momentum=0.75, training_mode=1)
EACH = {"x": X, "s": floats(3, 4, 5), "b": floats(3, 4, 5), "m": floats(3, 4, 5), "v": np.abs(floats(3, 4, 5))}
EACH_Y = EACH["s"] * (X - EACH["m"]) / np.sqrt(EACH["v"] + np.float32(1e-5)) + EACH["b"]
case("BatchNormalization_7_positions", 7, "BatchNormalization", [EACH_Y], EACH, spatial=0)
GROUPED = floats(2, 4, 3, 3)
GROUPS = GROUPED.reshape(2, 2, -1)
CENTERED = (GROUPS - GROUPS.mean(-1, keepdims=True)) / np.sqrt(GROUPS.var(-1, keepdims=True) + np.float32(1e-5))
GROUP_SCALE, GROUP_BIAS = floats(2), floats(2)
case("GroupNormalization_18", 18, "GroupNormalization",
     [(CENTERED * GROUP_SCALE[:, None] + GROUP_BIAS[:, None]).reshape(GROUPED.shape)],
     {"x": GROUPED, "s": GROUP_SCALE, "b": GROUP_BIAS}, num_groups=2)

STEP, ZERO = np.float32(0.1), np.uint8(5)
QUANTIZED = np.clip(np.rint(X / STEP) + ZERO, 0, 255).astype(np.uint8)
case("QuantizeLinear_10", 10, "QuantizeLinear", [QUANTIZED], {"x": X, "s": np.array(STEP), "z": np.array(ZERO)})
case("QuantizeLinear_13", 13, "QuantizeLinear", [QUANTIZED],
     {"x": X, "s": np.full(5, STEP), "z": np.full(5, ZERO)}, axis=-1)
case("DequantizeLinear_10", 10, "DequantizeLinear", [(QUANTIZED.astype(np.float32) - 5) * STEP],
     {"x": QUANTIZED, "s": np.array(STEP), "z": np.array(ZERO)})


@pytest.mark.parametrize("name", CASES)
def test_older_form(name):
    check_form(*CASES[name], tolerance=1e-3 if "half" in name else 2e-5)
