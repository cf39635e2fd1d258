"""Makes cases.npz, what ONNX Runtime answers for operators of com.microsoft: make_cases.py (it needs onnxruntime).

Each case is a model of one node with its inputs and outputs, as "<name>/model", "<name>/in/<input>", "<name>/out/<i>"."""

import pathlib

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

RANDOM = np.random.default_rng(11)
CASES = {}


def f32(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def integers(dtype, *shape):
    info = np.iinfo(dtype)
    return RANDOM.integers(max(info.min, -128), min(info.max, 255) + 1, shape).astype(dtype)


def scalar(value, dtype=np.float32):
    return np.array(value, dtype)


def case(name, op, inputs, outputs=1, constant=(), domain="com.microsoft", version=17, **attributes):
    """`inputs`: by name, None where one is not given; those of `constant` are initialisers."""
    given = {k: v for k, v in inputs.items() if v is not None and k not in constant}
    names = ["" if v is None else k for k, v in inputs.items()]
    results = [f"out{i}" for i in range(outputs)] if isinstance(outputs, int) else list(outputs)
    node = helper.make_node(op, names, results, domain=domain, **attributes)
    graph = helper.make_graph(
        [node], name,
        [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in given.items()],
        [onnx.ValueInfoProto(name=r) for r in results if r],
        [numpy_helper.from_array(inputs[k], k) for k in constant])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version), helper.make_opsetid("com.microsoft", 1),
                                                    helper.make_opsetid("ai.onnx.ml", 3)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    answers = session.run(None, given)
    CASES[f"{name}/model"] = np.frombuffer(model.SerializeToString(), np.uint8)
    for k, v in given.items():
        CASES[f"{name}/in/{k}"] = v
    for i, v in enumerate(answers):
        CASES[f"{name}/out/{i}"] = np.asarray(v)


def fused():
    x, bias = f32(2, 3, 8), f32(8)
    case("gelu", "Gelu", {"x": x})
    case("bias_gelu", "BiasGelu", {"x": x, "b": bias})
    case("fast_gelu", "FastGelu", {"x": x, "b": bias})
    case("fast_gelu_plain", "FastGelu", {"x": x})
    case("quick_gelu", "QuickGelu", {"x": x}, alpha=1.5)
    case("fused_matmul", "FusedMatMul", {"x": f32(2, 5, 3), "y": f32(2, 4, 5)}, transA=1, transB=1, alpha=0.5)
    case("fused_matmul_batch", "FusedMatMul", {"x": f32(3, 2, 4), "y": f32(2, 4, 5)}, transBatchA=1)
    case("fused_gemm", "FusedGemm", {"a": f32(3, 4), "b": f32(5, 4), "c": f32(5)}, transB=1, alpha=0.5, beta=2.0,
         activation="LeakyRelu", activation_alpha=0.2)
    case("fused_conv", "FusedConv", {"x": f32(1, 3, 6, 6), "w": f32(4, 3, 3, 3), "b": f32(4)}, activation="Relu",
         pads=[1, 1, 1, 1])
    case("fused_conv_sum", "FusedConv", {"x": f32(1, 3, 6, 6), "w": f32(4, 3, 3, 3), "b": f32(4), "z": f32(1, 4, 4, 4)},
         activation="Clip", activation_params=[0.0, 1.5])
    case("nhwc_max_pool", "NhwcMaxPool", {"x": integers(np.uint8, 1, 6, 6, 3)}, kernel_shape=[3, 3], strides=[2, 2],
         pads=[1, 1, 1, 1])
    skip, gamma, beta = f32(2, 3, 8), f32(8), f32(8)
    case("skip_layer_norm", "SkipLayerNormalization", {"x": x, "s": skip, "g": gamma, "b": beta}, epsilon=1e-5)
    case("skip_layer_norm_all", "SkipLayerNormalization", {"x": x, "s": skip, "g": gamma, "b": beta, "c": bias},
         ["y", "", "", "sum"], epsilon=1e-5)
    case("skip_rms_norm", "SkipSimplifiedLayerNormalization", {"x": x, "s": skip, "g": gamma}, ["y", "", "", "sum"],
         epsilon=1e-5)
    case("rms_norm", "SimplifiedLayerNormalization", {"x": x, "g": gamma}, domain="", axis=-1, epsilon=1e-5)
    ids = RANDOM.integers(0, 10, (2, 4)).astype(np.int32)
    segments, mask = RANDOM.integers(0, 2, (2, 4)).astype(np.int32), np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)
    tables = {"w": f32(10, 8), "p": f32(6, 8), "t": f32(2, 8), "g": gamma, "b": beta}
    case("embed_layer_norm", "EmbedLayerNormalization", {"i": ids, "s": segments, **tables, "m": mask}, 2, epsilon=1e-5)
    case("embed_layer_norm_plain", "EmbedLayerNormalization",
         {"i": ids, "s": None, "w": tables["w"], "p": tables["p"], "t": None, "g": gamma, "b": beta}, 2)
    case("inverse", "Inverse", {"x": f32(2, 4, 4)})
    case("trilu", "Trilu", {"x": f32(3, 4), "k": scalar(1, np.int64)}, upper=0)
    case("cdist", "CDist", {"x": f32(3, 4), "y": f32(5, 4)}, metric="euclidean")
    case("expand_dims", "ExpandDims", {"x": f32(3, 4), "a": scalar(1, np.int32)})
    case("grid_sample", "GridSample", {"x": f32(1, 2, 5, 5), "g": f32(1, 3, 3, 2)}, mode="bilinear")


def quantized():
    def q(prefix, x, scale, zero):
        return {prefix: x, prefix + "_scale": scalar(scale), prefix + "_zero": scalar(zero, x.dtype)}

    a, b = integers(np.uint8, 3, 8), integers(np.int8, 8, 5)
    case("matmul_integer_to_float", "MatMulIntegerToFloat",
         {"a": a, "b": b, "as": scalar(0.02), "bs": (0.01 + np.abs(f32(5)) * 0.01), "az": scalar(120, np.uint8),
          "bz": integers(np.int8, 5), "bias": f32(5)})
    case("dynamic_quantize_matmul", "DynamicQuantizeMatMul",
         {"a": f32(3, 8), "b": b, "bs": scalar(0.03), "bz": scalar(3, np.int8), "bias": f32(5)})
    hidden, size = 6, 4
    w, r = integers(np.int8, 2, size, 4 * hidden), integers(np.int8, 2, hidden, 4 * hidden)
    case("dynamic_quantize_lstm", "DynamicQuantizeLSTM",
         {"x": f32(5, 2, size), "w": w, "r": r, "b": f32(2, 8 * hidden) * 0.1, "l": None, "h": None, "c": None, "p": None,
          "ws": np.array([0.004, 0.005], np.float32), "wz": np.zeros(2, np.int8),
          "rs": np.array([0.003, 0.004], np.float32), "rz": np.zeros(2, np.int8)}, 3, constant=("w", "r", "ws", "wz", "rs", "rz"),
         direction="bidirectional", hidden_size=hidden)
    case("qgemm", "QGemm", {"a": a, "as": scalar(0.02), "az": scalar(120, np.uint8), "b": b, "bs": scalar(0.01),
                            "bz": scalar(2, np.int8), "c": RANDOM.integers(-500, 500, 5).astype(np.int32),
                            "ys": scalar(0.05), "yz": scalar(100, np.uint8)})
    case("qgemm_float", "QGemm", {"a": a, "as": scalar(0.02), "az": scalar(120, np.uint8), "b": b.T.copy(),
                                  "bs": np.abs(f32(5)) * 0.01, "bz": integers(np.int8, 5)}, transB=1, alpha=0.5)
    x, y = integers(np.uint8, 2, 3, 4, 4), integers(np.uint8, 2, 3, 4, 4)
    out = {"ys": scalar(0.03), "yz": scalar(110, np.uint8)}
    for name in ("Add", "Mul"):
        case("qlinear_" + name.lower(), "QLinear" + name, {**q("a", x, 0.02, 120), **q("b", y, 0.03, 100), **out})
    case("qlinear_sigmoid", "QLinearSigmoid", {**q("x", x, 0.02, 120), "ys": scalar(0.004), "yz": scalar(0, np.uint8)},
         constant=("x_scale", "x_zero", "ys", "yz"))
    case("qlinear_leaky_relu", "QLinearLeakyRelu", {**q("x", x, 0.02, 120), **out}, alpha=0.1,
         constant=("x_scale", "x_zero", "ys", "yz"))
    case("qlinear_softmax", "QLinearSoftmax", {**q("x", integers(np.uint8, 3, 7), 0.02, 120), "ys": scalar(1 / 256),
                                               "yz": scalar(0, np.uint8)}, axis=-1, opset=13,
         constant=("x_scale", "x_zero", "ys", "yz"))
    case("qlinear_average_pool", "QLinearAveragePool", {**q("x", x, 0.02, 120), **out}, kernel_shape=[2, 2],
         strides=[2, 2])
    case("qlinear_global_average_pool", "QLinearGlobalAveragePool", {**q("x", x, 0.02, 120), **out})
    case("qlinear_global_average_pool_last", "QLinearGlobalAveragePool", {**q("x", x, 0.02, 120), **out}, channels_last=1)
    case("qlinear_concat", "QLinearConcat", {**out, **q("a", x, 0.02, 120), **q("b", y, 0.03, 100)}, axis=1)
    weights = integers(np.uint8, 5, 2, 16)
    scales = np.abs(f32(5, 2)) * 0.1
    case("matmul_nbits", "MatMulNBits", {"a": f32(3, 64), "b": weights, "s": scales.reshape(-1)}, constant=("b", "s"), K=64,
         N=5, bits=4, block_size=32)
    case("matmul_nbits_zeros", "MatMulNBits",
         {"a": f32(3, 50), "b": weights, "s": scales.reshape(-1), "z": integers(np.uint8, 5)}, constant=("b", "s", "z"), K=50,
         N=5, bits=4, block_size=32)
    case("matmul_8bits", "MatMulNBits", {"a": f32(3, 64), "b": integers(np.uint8, 5, 2, 32), "s": scales.reshape(-1)},
         constant=("b", "s"), K=64, N=5, bits=8, block_size=32)


def attention():
    x, w, b = f32(2, 4, 8), f32(8, 24) * 0.5, f32(24)
    lengths = np.array([4, 2], np.int32)
    case("attention", "Attention", {"x": x, "w": w, "b": b}, num_heads=2)
    case("attention_lengths", "Attention", {"x": x, "w": w, "b": b, "m": lengths}, num_heads=2)
    case("attention_mask", "Attention", {"x": x, "w": w, "b": b, "m": np.array([[1, 1, 1, 1], [1, 1, 0, 0]], np.int32)},
         num_heads=2)
    case("attention_past", "Attention", {"x": x, "w": w, "b": b, "m": None, "p": f32(2, 2, 2, 3, 4)}, 2, num_heads=2,
         unidirectional=1)
    case("attention_sizes", "Attention", {"x": x, "w": f32(8, 28) * 0.5, "b": f32(28)}, num_heads=2, scale=0.3,
         qkv_hidden_sizes=[8, 8, 12])
    case("qattention", "QAttention",
         {"x": integers(np.uint8, 2, 4, 8), "w": integers(np.int8, 8, 24), "b": b, "xs": scalar(0.01), "ws": scalar(0.01),
          "m": lengths, "xz": scalar(120, np.uint8), "wz": scalar(0, np.int8)}, num_heads=2)
    q, k, v = f32(2, 4, 8), f32(2, 6, 8), f32(2, 6, 12)
    case("multi_head", "MultiHeadAttention", {"q": q, "k": k, "v": v}, num_heads=2)
    case("multi_head_bias", "MultiHeadAttention", {"q": q, "k": k, "v": v, "b": f32(28)}, num_heads=2)
    case("multi_head_mask", "MultiHeadAttention",
         {"q": q, "k": k, "v": v, "b": None, "m": np.array([[1] * 6, [1, 1, 1, 0, 0, 0]], np.int32)}, num_heads=2)
    case("multi_head_added", "MultiHeadAttention", {"q": q, "k": k, "v": v, "b": None, "m": None, "a": f32(1, 2, 4, 6)},
         num_heads=2, scale=0.2)
    case("multi_head_past", "MultiHeadAttention",
         {"q": q, "k": f32(2, 4, 8), "v": f32(2, 4, 8), "b": None, "m": None, "a": None, "pk": f32(2, 2, 3, 4),
          "pv": f32(2, 2, 3, 4)}, 3, num_heads=2, unidirectional=1)
    angles = np.outer(np.arange(16), 1 / 10000 ** (np.arange(2) / 2)).astype(np.float32)
    cos, sin = np.cos(angles), np.sin(angles)
    case("rotary", "RotaryEmbedding", {"x": f32(2, 3, 8), "p": np.array([[0, 1, 2], [3, 4, 5]]), "c": cos, "s": sin})
    case("rotary_from", "RotaryEmbedding", {"x": f32(2, 3, 8), "p": np.array([4]), "c": cos, "s": sin}, interleaved=1)
    case("rotary_heads", "RotaryEmbedding", {"x": f32(2, 2, 3, 4), "p": np.array([2]), "c": cos, "s": sin})
    angles = np.outer(np.arange(16), 1 / 10000 ** (np.arange(8) / 8)).astype(np.float32)
    cos, sin = np.cos(angles), np.sin(angles)
    heads = {"num_heads": 4, "kv_num_heads": 2}

    def group(name, batch, new, past, last, **attributes):
        extra = {"c": cos, "s": sin} if attributes.get("do_rotary") else {}
        case(name, "GroupQueryAttention",
             {"q": f32(batch, new, 64), "k": f32(batch, new, 32), "v": f32(batch, new, 32), "pk": f32(batch, 2, past, 16),
              "pv": f32(batch, 2, past, 16), "l": np.array(last, np.int32),
              "t": np.array(max(last) + 1, np.int32), **extra}, 3, **heads, **attributes)

    group("group_query", 1, 3, 0, [2])
    group("group_query_past", 2, 1, 5, [5, 5])
    group("group_query_rows", 2, 1, 5, [5, 3])
    group("group_query_rotary", 1, 1, 5, [5], do_rotary=1)
    group("group_query_rotary_first", 2, 4, 0, [3, 3], do_rotary=1, rotary_interleaved=1)
    group("group_query_window", 1, 6, 0, [5], local_window_size=3)
    group("group_query_capped", 1, 1, 5, [5], softcap=2.0, scale=0.5)
    case("group_query_packed", "GroupQueryAttention",
         {"q": f32(1, 3, 128), "k": None, "v": None, "pk": f32(1, 2, 0, 16), "pv": f32(1, 2, 0, 16),
          "l": np.array([2], np.int32), "t": np.array(3, np.int32)}, 3, **heads)


def classical():
    def ml(name, op, inputs, outputs=1, **attributes):
        case(name, op, inputs, outputs, domain="ai.onnx.ml", **attributes)

    x = f32(6, 4)
    holes = x.copy()
    holes[1, 2] = holes[3, 0] = np.nan
    ml("imputer", "Imputer", {"x": holes}, imputed_value_floats=[1.0, 2.0, 3.0, 4.0], replaced_value_float=float("nan"))
    ml("imputer_int", "Imputer", {"x": np.array([[1, 2], [3, 1]])}, imputed_value_int64s=[9], replaced_value_int64=1)
    ml("scaler", "Scaler", {"x": x}, offset=[0.5, 1.0, -1.0, 0.0], scale=[2.0, 1.0, 0.5, 3.0])
    ml("scaler_int", "Scaler", {"x": np.array([[1, 2], [3, 4]])}, offset=[1.0], scale=[0.5])
    for norm in ("MAX", "L1", "L2"):
        ml("normalizer_" + norm.lower(), "Normalizer", {"x": x}, norm=norm)
    ml("feature_vectorizer", "FeatureVectorizer", {"x": x, "y": f32(6, 2)}, inputdimensions=[4, 2])
    ml("one_hot_encoder", "OneHotEncoder", {"x": np.array([1, 5, 3, 2])}, cats_int64s=[1, 2, 3], zeros=1)
    weights = [float(v) for v in f32(12)]
    ml("linear_regressor", "LinearRegressor", {"x": x}, coefficients=weights, intercepts=[0.1, 0.2, 0.3], targets=3)
    for how in ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"):
        ml("linear_classifier_" + how.lower(), "LinearClassifier", {"x": x}, 2, coefficients=weights,
           intercepts=[0.1, 0.2, 0.3], classlabels_ints=[7, 8, 9], post_transform=how, multi_class=1)
        if how != "SOFTMAX_ZERO" and how != "SOFTMAX":
            ml("linear_classifier_two_" + how.lower(), "LinearClassifier", {"x": x}, 2, coefficients=weights[:4],
               intercepts=[0.1], classlabels_ints=[0, 1], post_transform=how)
    for kind, parameters in (("LINEAR", [0.0, 0.0, 0.0]), ("RBF", [0.3, 0.0, 0.0]), ("POLY", [0.5, 1.0, 2.0])):
        ml("svm_regressor_" + kind.lower(), "SVMRegressor", {"x": x}, kernel_type=kind, kernel_params=parameters,
           coefficients=weights[:3], support_vectors=weights, rho=[0.2], n_supports=3)
    # Two trees of five nodes: 0 -> (1 -> (3, 4), 2).
    nodes = {"nodes_treeids": [0] * 5 + [1] * 5, "nodes_nodeids": list(range(5)) * 2,
             "nodes_featureids": [0, 1, 0, 0, 0, 2, 3, 0, 0, 0], "nodes_truenodeids": [1, 3, 0, 0, 0] * 2,
             "nodes_falsenodeids": [2, 4, 0, 0, 0] * 2, "nodes_modes": ["BRANCH_LEQ", "BRANCH_LT", "LEAF", "LEAF", "LEAF"] * 2,
             "nodes_values": [0.1, -0.2, 0, 0, 0, 0.3, 0.0, 0, 0, 0], "nodes_hitrates": [1.0] * 10,
             "nodes_missing_value_tracks_true": [0] * 10}
    leaves = {"treeids": [0, 0, 0, 1, 1, 1], "nodeids": [2, 3, 4, 2, 3, 4]}

    def leaf(prefix, ids, values):
        every = [(t, n, i) for t, n in zip(leaves["treeids"], leaves["nodeids"]) for i in ids]
        return {f"{prefix}_treeids": [e[0] for e in every], f"{prefix}_nodeids": [e[1] for e in every],
                f"{prefix}_ids": [e[2] for e in every], f"{prefix}_weights": [float(v) for v in values[:len(every)]]}

    mixed, positive = f32(18), np.abs(f32(18)) * 0.3
    ml("tree_regressor", "TreeEnsembleRegressor", {"x": x}, **nodes, **leaf("target", [0], mixed), n_targets=1,
       base_values=[0.5])
    ml("tree_regressor_two", "TreeEnsembleRegressor", {"x": holes}, **nodes, **leaf("target", [0, 1], mixed), n_targets=2,
       aggregate_function="AVERAGE")
    for how in ("NONE", "SOFTMAX", "LOGISTIC"):
        ml("tree_classifier_" + how.lower(), "TreeEnsembleClassifier", {"x": x}, 2, **nodes,
           **leaf("class", [0, 1, 2], positive), classlabels_int64s=[3, 4, 5], post_transform=how)
        if how == "SOFTMAX":
            continue
        ml("tree_classifier_two_" + how.lower(), "TreeEnsembleClassifier", {"x": x}, 2, **nodes,
           **leaf("class", [0], mixed), classlabels_int64s=[0, 1], post_transform=how)
        ml("tree_classifier_both_" + how.lower(), "TreeEnsembleClassifier", {"x": x}, 2, **nodes,
           **leaf("class", [0, 1], positive), classlabels_int64s=[0, 1], post_transform=how)
    ml("tree_classifier_sure", "TreeEnsembleClassifier", {"x": x}, 2, **nodes, **leaf("class", [1], positive),
       classlabels_int64s=[0, 1])
    ml("tree_classifier_base", "TreeEnsembleClassifier", {"x": x}, 2, **nodes, **leaf("class", [0], mixed),
       classlabels_int64s=[0, 1], base_values=[0.4], post_transform="LOGISTIC")


if __name__ == "__main__":
    for family in (fused, quantized, attention, classical):
        family()
    np.savez_compressed(pathlib.Path(__file__).with_name("cases.npz"), **CASES)
    print(sum(k.endswith("/model") for k in CASES), "cases")
