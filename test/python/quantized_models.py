"""Small float models and what the tests of quantization share."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper


def _float(name, array):
    return numpy_helper.from_array(np.asarray(array, np.float32), name)


def model_of(nodes, inputs, outputs, weights, opset=17):
    graph = helper.make_graph(nodes, "test", [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs],
                              [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10).SerializeToString()


def cnn(seed=0, opset=17):
    """Convolutions with batch normalization, Relu, a residual, a depthwise one, pools, HardSwish and a classifier."""
    r = np.random.default_rng(seed)
    node = helper.make_node
    weights = [_float("w1", r.standard_normal((8, 3, 3, 3)) * 0.3), _float("g", r.uniform(0.5, 1.5, 8)), _float("b", r.standard_normal(8) * 0.2),
               _float("m", r.standard_normal(8) * 0.1), _float("v", r.uniform(0.5, 1.5, 8)),
               _float("w2", r.standard_normal((8, 8, 3, 3)) * 0.15), _float("b2", r.standard_normal(8) * 0.2),
               _float("w3", r.standard_normal((8, 1, 3, 3)) * 0.4), _float("w4", r.standard_normal((10, 8)) * 0.5), _float("b4", r.standard_normal(10))]
    nodes = [node("Conv", ["x", "w1"], ["c1"], "conv1", pads=[1, 1, 1, 1]),
             node("BatchNormalization", ["c1", "g", "b", "m", "v"], ["n1"]),
             node("Relu", ["n1"], ["r1"]),
             node("Conv", ["r1", "w2", "b2"], ["c2"], "conv2", pads=[1, 1, 1, 1]),
             node("Add", ["c2", "r1"], ["a"], "residual"),
             node("Relu", ["a"], ["r2"]),
             node("MaxPool", ["r2"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
             node("Conv", ["p", "w3"], ["c3"], "depthwise", pads=[1, 1, 1, 1], group=8),
             node("HardSwish", ["c3"], ["h"]),
             node("GlobalAveragePool", ["h"], ["gap"]),
             node("Flatten", ["gap"], ["f"]),
             node("Gemm", ["f", "w4", "b4"], ["y"], "classifier", transB=1)]
    return model_of(nodes, [("x", ["N", 3, 16, 16])], [("y", ["N", 10])], weights, opset)


def block(seed=0):
    """A transformer's feed-forward block and an attention product, with normalizations and residuals."""
    r = np.random.default_rng(seed)
    node = helper.make_node
    weights = [_float("g", r.uniform(0.5, 1.5, 32)), _float("b", r.standard_normal(32) * 0.1), _float("q", r.standard_normal((32, 32)) * 0.2),
               _float("k", r.standard_normal((32, 32)) * 0.2), _float("u", r.standard_normal((32, 64)) * 0.2), _float("ub", r.standard_normal(64) * 0.1),
               _float("d", r.standard_normal((64, 32)) * 0.2)]
    nodes = [node("LayerNormalization", ["x", "g", "b"], ["n"]),
             node("MatMul", ["n", "q"], ["qx"], "query"), node("MatMul", ["n", "k"], ["kx"], "key"),
             node("Transpose", ["kx"], ["kt"], perm=[0, 2, 1]), node("MatMul", ["qx", "kt"], ["s"], "scores"),
             node("Softmax", ["s"], ["p"]), node("MatMul", ["p", "n"], ["o"], "mix"), node("Add", ["x", "o"], ["x2"]),
             node("MatMul", ["x2", "u"], ["m1"], "up"), node("Add", ["m1", "ub"], ["m2"]), node("Relu", ["m2"], ["m3"]),
             node("MatMul", ["m3", "d"], ["m4"], "down"), node("Add", ["x2", "m4"], ["y"])]
    return model_of(nodes, [("x", ["N", 12, 32])], [("y", ["N", 12, 32])], weights)


def images(count, seed=1):
    return [np.random.default_rng(seed + i).standard_normal((1, 3, 16, 16)).astype(np.float32) for i in range(count)]


def tokens(count, seed=1):
    return [np.random.default_rng(seed + i).standard_normal((1, 12, 32)).astype(np.float32) for i in range(count)]


def snr(want, got):
    want, got = np.asarray(want, np.float64), np.asarray(got, np.float64)
    return 10 * np.log10(np.sum(want**2) / np.sum((want - got) ** 2))
