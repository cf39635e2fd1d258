"""Cases for bench/cliffs.py: what exporters and quantizers write. Recurrent nets as loops, cells by hand, graphs as the
common quantizers leave them, trees and their pipelines, and the idioms of converters."""
import numpy as np
from onnx import TensorProto

from cliff_cases import between, case, chance, node, pick, size, tensor, with_symbols

FLOAT = int(TensorProto.FLOAT)
MICROSOFT, ML = "com.microsoft", "ai.onnx.ml"


def graph(nodes, inputs, outputs):
    """A nested graph: `inputs` and `outputs` are (name, type, shape or None)."""
    return {"graph": {"nodes": nodes, "inputs": inputs, "outputs": outputs}}


# Cells by their equations ---------------------------------------------------------------------------------------------

def lstm_cell(x, h, c, p=""):
    """tf2onnx's and Keras's: one product of both, then four gates."""
    return [node("Concat", [x, h], [p + "xh"], axis=-1), node("MatMul", [p + "xh", "w"], [p + "p"]),
            node("Add", [p + "p", "b"], [p + "g"]),
            node("Split", [p + "g"], [p + "i", p + "j", p + "f", p + "o"], axis=-1, num_outputs=4),
            node("Sigmoid", [p + "i"], [p + "is"]), node("Tanh", [p + "j"], [p + "jt"]),
            node("Add", [p + "f", "=f32s:1.0"], [p + "f1"]), node("Sigmoid", [p + "f1"], [p + "fs"]),
            node("Mul", [p + "fs", c], [p + "fc"]), node("Mul", [p + "is", p + "jt"], [p + "ij"]),
            node("Add", [p + "fc", p + "ij"], [p + "c"]), node("Tanh", [p + "c"], [p + "ct"]),
            node("Sigmoid", [p + "o"], [p + "os"]), node("Mul", [p + "ct", p + "os"], [p + "h"])]


def gru_cell(x, h, p=""):
    """torch's by hand: two products, gates by slices."""
    nodes = [node("MatMul", [x, "w"], [p + "gx"]), node("Gemm", [h, "r", "b"], [p + "gh"], transB=1)]
    for name in ("gx", "gh"):
        nodes.append(node("Split", [p + name], [p + name + g for g in "rzn"], axis=-1, num_outputs=3))
    return nodes + [node("Add", [p + "gxr", p + "ghr"], [p + "r0"]), node("Sigmoid", [p + "r0"], [p + "r1"]),
                    node("Add", [p + "gxz", p + "ghz"], [p + "z0"]), node("Sigmoid", [p + "z0"], [p + "z1"]),
                    node("Mul", [p + "r1", p + "ghn"], [p + "n0"]), node("Add", [p + "gxn", p + "n0"], [p + "n1"]),
                    node("Tanh", [p + "n1"], [p + "n2"]), node("Sub", [h, p + "n2"], [p + "d"]),
                    node("Mul", [p + "z1", p + "d"], [p + "zd"]), node("Add", [p + "n2", p + "zd"], [p + "h"])]


def weights_of(kind, features, hidden):
    if kind == "lstm":
        return {"w": tensor("f32", [features + hidden, 4 * hidden], constant=True, scale=0.1),
                "b": tensor("f32", [4 * hidden], constant=True, scale=0.1)}
    return {"w": tensor("f32", [features, 3 * hidden], constant=True, scale=0.1),
            "r": tensor("f32", [3 * hidden, hidden], constant=True, scale=0.1),
            "b": tensor("f32", [3 * hidden], constant=True, scale=0.1)}


def cell_of(kind, x, h, c, p):
    return lstm_cell(x, h, c, p) if kind == "lstm" else gru_cell(x, h, p)


def draw_loop(random):
    """x is [batch, steps, features] as Keras has it; the states' sizes follow from Shape."""
    kind, form = pick(random, "lstm", "gru"), pick(random, "loop", "loop", "sequence", "scan", "unrolled", "grow")
    batch, steps = pick(random, 1, 1, 2, 4), size(random, 3, 12 if form == "unrolled" else 48)
    features, hidden = size(random, 8, 128), size(random, 8, 128)
    inputs = {"x": tensor("f32", [batch, steps, features]), **weights_of(kind, features, hidden)}
    before = [node("Transpose", ["x"], ["t"], perm=[1, 0, 2]), node("Shape", ["t"], ["s"]),
              node("Gather", ["s", "=i64s:0"], ["n"]), node("Gather", ["s", "=i64:1"], ["rows"]),
              node("Concat", ["rows", f"=i64:{hidden}"], ["hs"], axis=0), node("ConstantOfShape", ["hs"], ["h0"])]
    states = ["h", "c"] if kind == "lstm" else ["h"]
    after = [node("Transpose", ["ys"], ["y"], perm=[1, 0, 2])]
    if form == "unrolled":
        nodes, h, c = before, "h0", "h0"
        for i in range(steps):
            nodes += [node("Gather", ["t", f"=i64s:{i}"], [f"x{i}"])] + cell_of(kind, f"x{i}", h, c, f"k{i}_")
            h, c = f"k{i}_h", f"k{i}_c"
        nodes += [node("Unsqueeze", [f"k{i}_h", "=i64:0"], [f"y{i}"]) for i in range(steps)]
        nodes += [node("Concat", [f"y{i}" for i in range(steps)], ["ys"], axis=0)] + after
        return case("cell by hand, unrolled", nodes, inputs)
    with_symbols(random, inputs, [[("x", 0)], [("x", 1)]], 0.7)
    if form == "scan":
        body = graph(cell_of(kind, "xt", "h_in", "c_in", "k_") + [node("Identity", ["k_h"], ["out"])],
                     [(s + "_in", "f32", None) for s in states] + [("xt", "f32", None)],
                     [("k_" + s, "f32", None) for s in states] + [("out", "f32", None)])
        loop = node("Scan", ["h0"] * len(states) + ["t"], [s + "_last" for s in states] + ["ys"], body=body,
                    num_scan_inputs=1)
        return case("cell by hand, Scan", before + [loop] + after, inputs)
    turned = form == "loop" and chance(random, 0.3)
    if turned:
        before += [node("Expand", ["n", "rows"], ["lengths"]),
                   node("ReverseSequence", ["t", "lengths"], ["tr"], time_axis=0, batch_axis=1)]
    step = [node("Identity", ["go"], ["go_on"]), node("Gather", ["tr" if turned else "t", "i"], ["xt"])]
    step += cell_of(kind, "xt", "h_in", "c_in", "k_")
    loop_inputs = [("i", "i64", []), ("go", "bool", [])] + [(s + "_in", "f32", None) for s in states]
    loop_outputs = [("go_on", "bool", [])] + [("k_" + s, "f32", None) for s in states]
    names = [s + "_last" for s in states]
    if form == "sequence":
        step.append(node("SequenceInsert", ["all", "k_h"], ["all_on"]))
        loop = node("Loop", ["n", ""] + ["h0"] * len(states) + ["none"], names + ["seq"], body=graph(
            step, loop_inputs + [("all", "seq f32", None)], loop_outputs + [("all_on", "seq f32", None)]))
        nodes = before + [node("SequenceEmpty", [], ["none"]), loop,
                          node("ConcatFromSequence", ["seq"], ["ys"], axis=0, new_axis=1)] + after
        return case("cell by hand, Loop over a sequence", nodes, inputs)
    if form == "grow":
        step += [node("Unsqueeze", ["k_h", "=i64:0"], ["u"]), node("Concat", ["all", "u"], ["all_on"], axis=0)]
        loop = node("Loop", ["n", ""] + ["h0"] * len(states) + ["none"], names + ["ys"], body=graph(
            step, loop_inputs + [("all", "f32", None)], loop_outputs + [("all_on", "f32", None)]))
        nodes = before + [node("Concat", ["=i64:0", "hs"], ["es"], axis=0), node("ConstantOfShape", ["es"], ["none"]),
                          loop] + after
        return case("cell by hand, Loop that appends", nodes, inputs)
    step.append(node("Identity", ["k_h"], ["out"]))
    loop = node("Loop", ["n", ""] + ["h0"] * len(states), names + ["ys"],
                body=graph(step, loop_inputs, loop_outputs + [("out", "f32", None)]))
    return case("cell by hand, Loop", before + [loop] + after, inputs)


# As quantizers write graphs -------------------------------------------------------------------------------------------

def dynamic_product(x, w, y, n, random, bias=True):
    """onnxruntime.quantization's dynamic form."""
    scale = ",".join(f"{0.005 + 0.01 * v:.4f}" for v in random.random(n)) if chance(random, 0.5) else "0.01"
    kind = pick(random, "i8", "u8")
    zero = "=i8s:0" if kind == "i8" else "=u8s:128"
    q = y + "_"
    nodes = [node("DynamicQuantizeLinear", [x], [q + "q", q + "s", q + "z"]),
             node("MatMulInteger", [q + "q", w, q + "z", zero], [q + "i"]), node("Cast", [q + "i"], [q + "f"], to=FLOAT),
             node("Mul", [q + "s", f"=f32:{scale}"], [q + "t"]), node("Mul", [q + "f", q + "t"], [q + "p" if bias else y])]
    return nodes + ([node("Add", [q + "p", q[:-1] + "_bias"], [y])] if bias else []), kind


def bytes_of(kind, shape):
    low, high = (-127, 128) if kind == "i8" else (1, 256)
    return tensor(kind, shape, low=low, high=high, constant=True)


def draw_dynamic_mlp(random):
    """Transformer-like: products side by side and in a row, each with its own DynamicQuantizeLinear."""
    rows, width, inner = size(random, 1, 128), size(random, 32, 384), size(random, 32, 1024)
    inputs = {"x": tensor("f32", [1, rows, width])}
    with_symbols(random, inputs, [[("x", 1)]], 0.6)
    nodes = []
    for x, y, w, (k, n) in (("x", "a", "wa", (width, inner)), ("g", "c", "wc", (inner, width))):
        more, kind = dynamic_product(x, w, y, n, random)
        nodes += more
        inputs[w] = bytes_of(kind, [k, n])
        inputs[y + "_bias"] = tensor("f32", [n], constant=True)
        if y == "a":
            nodes += [node("Div", ["a", "=f32s:1.41421"], ["e"]), node("Erf", ["e"], ["e1"]),
                      node("Add", ["e1", "=f32s:1.0"], ["e2"]), node("Mul", ["a", "e2"], ["e3"]),
                      node("Mul", ["e3", "=f32s:0.5"], ["g"])]
    return case("dynamically quantized MLP", nodes + [node("Add", ["c", "x"])], inputs)


def draw_dynamic_lstm(random):
    steps, batch = size(random, 1, 64), pick(random, 1, 1, 2, 4)
    features, hidden = size(random, 8, 256), size(random, 8, 256)
    directions = pick(random, 1, 2)
    inputs = {"x": tensor("f32", [steps, batch, features]),
              "w": tensor("i8", [directions, features, 4 * hidden], low=-127, high=128, constant=True),
              "r": tensor("i8", [directions, hidden, 4 * hidden], low=-127, high=128, constant=True),
              "b": tensor("f32", [directions, 8 * hidden], constant=True, scale=0.1)}
    scale, zero = ",".join(["0.001"] * directions), ",".join(["0"] * directions)
    nodes = [node("DynamicQuantizeLSTM", ["x", "w", "r", "b", "", "", "", "", f"=f32:{scale}", f"=i8:{zero}",
                                          f"=f32:{scale}", f"=i8:{zero}"], domain=MICROSOFT, hidden_size=hidden,
                  direction="bidirectional" if directions == 2 else "forward")]
    with_symbols(random, inputs, [[("x", 0)], [("x", 1)]], 0.4)
    return case("DynamicQuantizeLSTM", nodes, inputs)


class Quantized:
    """A static quantizer's graph: every tensor between DequantizeLinear and QuantizeLinear, weights per channel."""

    def __init__(self, random):
        self.random, self.nodes, self.inputs, self.count = random, [], {}, 0
        self.kind = pick(random, "u8", "u8", "i8")

    def name(self):
        self.count += 1
        return f"v{self.count}"

    def add(self, op, inputs, **attrs):
        self.nodes.append(node(op, inputs, [self.name()], **attrs))
        return f"v{self.count}"

    def pair(self, x):
        """QuantizeLinear, DequantizeLinear."""
        zero, scale = {"u8": "=u8s:118", "i8": "=i8s:-3"}[self.kind], f"=f32s:{0.02 + 0.05 * self.random.random():.4f}"
        return self.add("DequantizeLinear", [self.add("QuantizeLinear", [x, scale, zero]), scale, zero])

    def weight(self, shape, axis):
        n = shape[axis]
        scales = ",".join(f"{(0.3 + v) / (40 * np.prod(shape) / n) ** 0.5 / 8:.5f}" for v in self.random.random(n))
        name = f"w{self.count}"
        self.inputs[name] = bytes_of("i8", shape)
        return self.add("DequantizeLinear", [name, f"=f32:{scales}", "=i8:" + ",".join(["0"] * n)], axis=axis)

    def bias(self, n):
        name = f"b{self.count}"
        self.inputs[name] = tensor("i32", [n], low=-2000, high=2000, constant=True)
        return self.add("DequantizeLinear", [name, "=f32s:0.0005", "=i32s:0"])


def draw_qdq_net(random):
    q = Quantized(random)
    side, channels = size(random, 8, 64), size(random, 8, 96)
    q.inputs["x"] = tensor("f32", [1, channels, side, side])
    x = q.pair("x")
    for _ in range(pick(random, 1, 2, 3)):
        style, kept = pick(random, "pointwise", "dense", "inverted"), x
        if style == "inverted":
            wide = channels * pick(random, 2, 4, 6)
            x = q.pair(q.add("Clip", [q.add("Conv", [x, q.weight([wide, channels, 1, 1], 0), q.bias(wide)]), "=f32s:0",
                                      "=f32s:6"]))
            x = q.add("Conv", [x, q.weight([wide, 1, 3, 3], 0), q.bias(wide)], group=wide, pads=[1] * 4)
            x = q.pair(q.add("Clip", [x, "=f32s:0", "=f32s:6"]))
            x = q.pair(q.add("Conv", [x, q.weight([channels, wide, 1, 1], 0), q.bias(channels)]))
        else:
            k = 1 if style == "pointwise" else 3
            x = q.add("Conv", [x, q.weight([channels, channels, k, k], 0), q.bias(channels)], pads=[k // 2] * 4)
            x = q.pair(q.add("Relu", [x]) if chance(random, 0.7) else x)
        if chance(random, 0.6):
            x = q.pair(q.add("Add", [x, kept]))
    if chance(random, 0.5):
        x = q.pair(q.add("GlobalAveragePool", [x]))
        x = q.add("Flatten", [x])
        x = q.pair(q.add("Gemm", [x, q.weight([32, channels], 0), q.bias(32)], transB=1))
    q.nodes.append(node("Identity", [x]))
    return case("QDQ network", q.nodes, q.inputs)


# Trees and pipelines --------------------------------------------------------------------------------------------------

def tree_attributes(random, trees, depth, features, targets, name):
    """Trees of some depth, some branches shorter."""
    lists = {k: [] for k in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")}
    leaves = {k: [] for k in ("treeids", "nodeids", "ids", "weights")}
    for tree in range(trees):
        waiting, made = [(0, 0)], 1
        while waiting:
            number, level = waiting.pop()
            leaf = level >= depth or (level > 1 and random.random() < 0.15)
            row = {"treeids": tree, "nodeids": number, "featureids": 0, "modes": "LEAF", "values": 0.0, "truenodeids": 0,
                   "falsenodeids": 0}
            if not leaf:
                row |= {"featureids": int(random.integers(features)), "modes": "BRANCH_LEQ",
                        "values": float(random.standard_normal()), "truenodeids": made, "falsenodeids": made + 1}
                waiting += [(made, level + 1), (made + 1, level + 1)]
                made += 2
            for k, v in row.items():
                lists[k].append(v)
            for target in range(targets if leaf and name == "class" else 1 if leaf else 0):
                for k, v in (("treeids", tree), ("nodeids", number), ("weights", float(random.random() / trees)),
                             ("ids", target if name == "class" else tree % targets)):
                    leaves[k].append(v)
    return {**{f"nodes_{k}": v for k, v in lists.items()}, **{f"{name}_{k}": v for k, v in leaves.items()}}


def draw_trees(random):
    rows, features = pick(random, 1, 1, 10, 50, 300), size(random, 4, 200)
    classes, trees, depth = pick(random, 2, 3, 8), pick(random, 10, 50, 100), pick(random, 3, 5, 7)
    inputs = {"x": tensor("f32", [rows, features])}
    with_symbols(random, inputs, [[("x", 0)]], 0.7)
    x, nodes = "x", []
    if chance(random, 0.4):
        many = lambda v: [v] * features  # noqa: E731
        nodes, x = [node("Scaler", ["x"], ["scaled"], domain=ML, offset=many(0.1), scale=many(0.9))], "scaled"
    style = pick(random, "classifier", "classifier", "regressor", "boosted", "linear", "svm")
    if style == "linear":
        nodes.append(node("LinearClassifier", [x], ["label", "y"], domain=ML, classlabels_ints=list(range(classes)),
                          coefficients=[float(v) for v in random.standard_normal(classes * features)],
                          intercepts=[0.0] * classes, multi_class=1, post_transform="SOFTMAX"))
        return case("linear classifier", nodes, inputs, outputs=["label", "y"])
    if style == "svm":
        vectors = pick(random, 20, 100, 400)
        nodes.append(node("SVMRegressor", [x], ["y"], domain=ML, kernel_type="RBF", n_supports=vectors,
                          kernel_params=[0.5 / features, 0.0, 3.0], rho=[0.1],
                          coefficients=[float(v) for v in random.standard_normal(vectors)],
                          support_vectors=[float(v) for v in random.standard_normal(vectors * features)]))
        return case("support vectors", nodes, inputs)
    if style == "classifier":
        attrs = tree_attributes(random, trees, depth, features, classes, "class")
        nodes.append(node("TreeEnsembleClassifier", [x], ["label", "y"], domain=ML, post_transform="NONE",
                          classlabels_int64s=list(range(classes)), **attrs))
        return case("tree classifier", nodes, inputs, outputs=["label", "y"])
    targets = 1 if style == "regressor" else pick(random, 1, 3)
    attrs = tree_attributes(random, trees, depth, features, targets, "target")
    nodes.append(node("TreeEnsembleRegressor", [x], ["y"], domain=ML, n_targets=targets, post_transform="NONE", **attrs))
    return case("tree regressor", nodes, inputs)


# Idioms of converters -------------------------------------------------------------------------------------------------

def draw_nhwc(random):
    """Keras by tf2onnx: transposes around convolutions, batch norm as Mul and Add, SAME padding by Pad, dynamic batch."""
    side, cin, c = size(random, 8, 96), pick(random, 1, 3, size(random, 4, 64)), size(random, 4, 64)
    one = chance(random, 0.4)
    shape = [pick(random, 1, 1, 4), side * (4 if one else 1), *([] if one else [side]), cin]
    inputs = {"x": tensor("f32", shape), "k": tensor("f32", [c, cin, 1 if one else 3, 3], constant=True, scale=0.2),
              "m": tensor("f32", [1, c, 1, 1], constant=True), "a": tensor("f32", [1, c, 1, 1], constant=True)}
    with_symbols(random, inputs, [[("x", 0)]] + ([[("x", 1)]] if one else []), 0.7)
    nodes, x = [], "x"
    if one:  # Conv1D is a Conv2D of height 1
        nodes, x = [node("Unsqueeze", ["x", "=i64:1"], ["x4"])], "x4"
    nodes.append(node("Transpose", [x], ["t"], perm=[0, 3, 1, 2]))
    stride = pick(random, 1, 2)
    nodes += [node("Conv", ["t", "k"], ["cv"], auto_pad="SAME_UPPER", strides=[1 if one else stride, stride]),
              node("Mul", ["cv", "m"], ["cm"]), node("Add", ["cm", "a"], ["ca"]),
              node("LeakyRelu", ["ca"], ["cr"], alpha=0.2), node("Transpose", ["cr"], ["b"], perm=[0, 2, 3, 1])]
    if one:
        return case("Keras 1-D convolution", nodes + [node("Squeeze", ["b", "=i64:1"])], inputs)
    nodes += [node("Shape", ["b"], ["s"]), node("Slice", ["s", "=i64:0", "=i64:1"], ["n"]),
              node("Concat", ["n", "=i64:-1"], ["to"], axis=0), node("Reshape", ["b", "to"])]
    return case("Keras convolution", nodes, inputs)


def draw_spelled(random):
    """Norms, activations and attention in small ops, as exporters spell them."""
    rows, width, heads = size(random, 4, 128), 8 * size(random, 4, 48), pick(random, 1, 2, 4)
    form = pick(random, "norm", "gelu", "attention", "relative", "swish gate")
    inputs = {"x": tensor("f32", [1, rows, width])}
    with_symbols(random, inputs, [[("x", 1)]], 0.6)
    nodes = [node("ReduceMean", ["x", "=i64:-1"], ["m"]), node("Sub", ["x", "m"], ["d"]),
             node("Pow", ["d", "=f32s:2.0"], ["q"]), node("ReduceMean", ["q", "=i64:-1"], ["v"]),
             node("Add", ["v", "=f32s:0.00001"], ["ve"]), node("Sqrt", ["ve"], ["sd"]), node("Div", ["d", "sd"], ["n"])]
    inputs["w"] = tensor("f32", [width, width], constant=True, scale=0.1)
    nodes.append(node("MatMul", ["n", "w"], ["p"]))
    if form == "norm":
        return case("spelled norm", nodes + [node("Add", ["p", "x"])], inputs)
    if form == "gelu":
        return case("spelled gelu", nodes + [
            node("Pow", ["p", "=f32s:3.0"], ["c"]), node("Mul", ["c", "=f32s:0.044715"], ["c1"]),
            node("Add", ["p", "c1"], ["c2"]), node("Mul", ["c2", "=f32s:0.797885"], ["c3"]), node("Tanh", ["c3"], ["c4"]),
            node("Add", ["c4", "=f32s:1.0"], ["c5"]), node("Mul", ["p", "c5"], ["c6"]), node("Mul", ["c6", "=f32s:0.5"])],
            inputs)
    if form == "swish gate":
        return case("spelled gate", nodes + [
            node("Split", ["p"], ["u", "g"], axis=-1, num_outputs=2), node("Sigmoid", ["g"], ["gs"]),
            node("Mul", ["g", "gs"], ["g1"]), node("Mul", ["u", "g1"])], inputs)
    each = width // heads
    for name, perm in (("a", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("o", [0, 2, 1, 3])):
        inputs["w" + name] = tensor("f32", [width, width], constant=True, scale=0.1)
        nodes += [node("MatMul", ["n", "w" + name], [name + "0"]), node("Shape", ["x"], [name + "s"]),
                  node("Gather", [name + "s", "=i64:1"], [name + "l"]),
                  node("Concat", ["=i64:1", name + "l", f"=i64:{heads},{each}"], [name + "r"], axis=0),
                  node("Reshape", [name + "0", name + "r"], [name + "1"]),
                  node("Transpose", [name + "1"], [name + "2"], perm=perm)]
    nodes += [node("MatMul", ["a2", "k2"], ["sc"]), node("Div", ["sc", f"=f32s:{each**0.5:.4f}"], ["ss"])]
    if form == "relative":  # as in DeBERTa: scores against positions, gathered for each pair
        inputs["pos"] = tensor("f32", [1, heads, each, 2 * rows], constant=True, scale=0.1)
        inputs["where"] = tensor("i64", [1, heads, rows, rows], low=0, high=2 * rows, constant=True)
        inputs["x"].pop("symbols", None)
        nodes += [node("MatMul", ["a2", "pos"], ["rel"]), node("GatherElements", ["rel", "where"], ["rg"], axis=-1),
                  node("Add", ["ss", "rg"], ["sr"])]
    nodes += [node("Softmax", ["sr" if form == "relative" else "ss"], ["at"], axis=-1),
              node("MatMul", ["at", "o2"], ["av"]), node("Transpose", ["av"], ["ao"], perm=[0, 2, 1, 3]),
              node("Reshape", ["ao", f"=i64:0,0,{width}"])]
    return case("spelled attention" + (" with positions" if form == "relative" else ""), nodes, inputs)


def draw_paddle(random):
    """paddle2onnx: sizes of Resize and Reshape by Shape, HardSigmoid gates, depthwise convolutions."""
    side, c = 2 * size(random, 4, 40), size(random, 8, 96)
    inputs = {"x": tensor("f32", [1, c, side, side]), "z": tensor("f32", [1, c, side // 2, side // 2]),
              "k": tensor("f32", [c, 1, 5, 5], constant=True, scale=0.2), "kb": tensor("f32", [c], constant=True),
              "u": tensor("f32", [max(1, c // 4), c, 1, 1], constant=True, scale=0.2),
              "v": tensor("f32", [c, max(1, c // 4), 1, 1], constant=True, scale=0.2)}
    if chance(random, 0.7):
        for name, p in (("x", "a"), ("z", "b")):
            inputs[name]["symbols"] = {"2": p + "h", "3": p + "w"}
    nodes = [node("Conv", ["x", "k", "kb"], ["cv"], group=c, pads=[2] * 4), node("HardSwish", ["cv"], ["hs"]),
             node("GlobalAveragePool", ["hs"], ["g"]), node("Conv", ["g", "u"], ["g1"]), node("Relu", ["g1"], ["g2"]),
             node("Conv", ["g2", "v"], ["g3"]), node("HardSigmoid", ["g3"], ["g4"], alpha=0.2, beta=0.5),
             node("Mul", ["hs", "g4"], ["se"]), node("Shape", ["se"], ["s"]),
             node("Slice", ["s", "=i64:2", "=i64:4"], ["hw"]), node("Slice", ["s", "=i64:0", "=i64:2"], ["nc"]),
             node("Concat", ["nc", "hw"], ["to"], axis=0),
             node("Resize", ["z", "", "", "to"], ["up"], mode="nearest", coordinate_transformation_mode="asymmetric",
                  nearest_mode="floor"), node("Add", ["up", "se"])]
    return case("paddle2onnx neck", nodes, inputs)


def draw_decode(random):
    """What follows a network: CTC decoding, sums over the edges of a graph, the best boxes."""
    form = pick(random, "ctc", "edges", "top")
    if form == "ctc":
        steps, classes = size(random, 8, 200), size(random, 16, 6000)
        inputs = {"x": tensor("f32", [1, steps, classes])}
        with_symbols(random, inputs, [[("x", 1)]], 0.7)
        return case("CTC decoding", [
            node("Softmax", ["x"], ["p"], axis=-1), node("ArgMax", ["p"], ["a"], axis=-1, keepdims=0),
            node("ReduceMax", ["p", "=i64:-1"], ["m"], keepdims=0),
            node("Slice", ["a", "=i64:1", "=i64:100000", "=i64:1"], ["late"]),
            node("Slice", ["a", "=i64:0", "=i64:-1", "=i64:1"], ["early"]), node("Equal", ["late", "early"], ["same"]),
            node("Not", ["same"], ["other"]), node("Cast", ["other"], ["o8"], to=int(TensorProto.INT64)),
            node("Pad", ["o8", "=i64:0,1,0,0", "=i64s:1"], ["first"]), node("Equal", ["a", "=i64s:0"], ["blank"]),
            node("Not", ["blank"], ["says"]), node("Cast", ["first"], ["fb"], to=int(TensorProto.BOOL)),
            node("And", ["says", "fb"], ["kept"]), node("NonZero", ["kept"], ["nz"]), node("Transpose", ["nz"], ["at"]),
            node("GatherND", ["a", "at"], ["y"]), node("GatherND", ["m", "at"], ["score"])], inputs, outputs=["y", "score"])
    if form == "edges":
        count, edges, width = size(random, 20, 400), size(random, 40, 2000), size(random, 16, 128)
        inputs = {"x": tensor("f32", [count, width]), "from": tensor("i64", [edges], low=0, high=count),
                  "to": tensor("i64", [edges], low=0, high=count),
                  "w": tensor("f32", [2 * width, width], constant=True, scale=0.1)}
        with_symbols(random, inputs, [[("x", 0)], [("from", 0), ("to", 0)]], 0.7)
        return case("sums over edges", [
            node("Gather", ["x", "from"], ["xf"]), node("Gather", ["x", "to"], ["xt"]),
            node("Concat", ["xf", "xt"], ["e"], axis=1), node("MatMul", ["e", "w"], ["m"]), node("Relu", ["m"], ["r"]),
            node("Shape", ["r"], ["rs"]), node("Unsqueeze", ["to", "=i64:1"], ["t1"]), node("Expand", ["t1", "rs"], ["ti"]),
            node("Mul", ["x", "=f32s:0.0"], ["zero"]), node("ScatterElements", ["zero", "ti", "r"], axis=0, reduction="add")],
            inputs)
    count, classes = size(random, 100, 8000), pick(random, 1, 4, 20, 80)
    inputs = {"x": tensor("f32", [1, count, classes]), "b": tensor("f32", [1, count, 4])}
    with_symbols(random, inputs, [[("x", 1), ("b", 1)]], 0.4)
    best = min(count, pick(random, 10, 100))
    return case("best boxes", [
        node("Sigmoid", ["x"], ["p"]), node("ReduceMax", ["p", "=i64:-1"], ["m"], keepdims=0),
        node("TopK", ["m", f"=i64:{best}"], ["score", "at"]), node("Unsqueeze", ["at", "=i64:2"], ["a1"]),
        node("Tile", ["a1", "=i64:1,1,4"], ["a4"]), node("GatherElements", ["b", "a4"], axis=1)], inputs,
        outputs=["score", "y"])


# Beside the 100 of bench/cliff_cases.py.
FAMILIES = [(draw_loop, 6), (draw_dynamic_mlp, 3), (draw_dynamic_lstm, 2), (draw_qdq_net, 4), (draw_trees, 3),
            (draw_nhwc, 3), (draw_spelled, 4), (draw_paddle, 3), (draw_decode, 3)]
