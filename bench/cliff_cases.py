"""Cases for bench/cliffs.py: one op, or a few, with attributes and shapes drawn at random; some dimensions are symbols.

A case is plain data, so that a list of them is a file. `draw(random)` gives one; bench/cliff_models.py makes its model."""
import numpy as np
from onnx import TensorProto

ONNX = {"f32": TensorProto.FLOAT, "f64": TensorProto.DOUBLE, "f16": TensorProto.FLOAT16, "i64": TensorProto.INT64,
        "i32": TensorProto.INT32, "u8": TensorProto.UINT8, "i8": TensorProto.INT8, "bool": TensorProto.BOOL}


def pick(random, *choices):
    return choices[random.integers(len(choices))]


def chance(random, probability):
    return bool(random.random() < probability)


def between(random, low, high):
    """A whole number, its logarithm uniform."""
    return int(round(np.exp(random.uniform(np.log(low), np.log(high)))))


def size(random, low, high):
    """Round numbers as often as odd ones."""
    n = between(random, low, high)
    return max(low, n // 8 * 8) if n > 8 and chance(random, 0.5) else n


def shape_of(random, rank, elements):
    """So many dimensions with about so many elements."""
    cuts = np.sort(random.random(rank - 1)) if rank > 1 else np.array([])
    parts = np.diff(np.concatenate([[0], cuts, [1]]))
    dims = [max(1, int(round(elements**p))) for p in parts]
    return [max(1, d // 8 * 8) if d > 8 and chance(random, 0.4) else d for d in dims]


def tensor(kind, shape, **more):
    """An input of the model, or with constant=True a weight. `low` and `high` bound whole numbers; symbols names the
    dimensions that the model leaves open."""
    return {"dtype": kind, "shape": [int(d) for d in shape], **more}


def case(family, nodes, inputs, **more):
    return {"family": family, "nodes": nodes, "inputs": inputs, **more}


def node(op, inputs, outputs=("y",), domain="", **attrs):
    return {"op": op, "inputs": list(inputs), "outputs": list(outputs), "attrs": attrs, "domain": domain}


def with_symbols(random, inputs, dims, probability=0.3):
    """Leaves some dimensions open; `dims` lists (input, dimension) of those that may be. Equal sizes of one list entry
    share a symbol: [("a", 0), ("b", 0)] is one dimension that two inputs have."""
    if not chance(random, probability):
        return
    for number, places in enumerate(dims):
        if chance(random, 0.6):
            for name, dim in places:
                inputs[name].setdefault("symbols", {})[str(dim)] = f"s{number}"


ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "HardSwish", "LeakyRelu", "Elu", "Softplus", "Clip6")


def activation(random, nodes, probability=0.4):
    if not chance(random, probability):
        return
    kind = pick(random, *ACTIVATIONS)
    nodes[-1]["outputs"][0] = "before"
    if kind == "Clip6":
        nodes.append(node("Clip", ["before", "=f32:0.0", "=f32:6.0"]))
    else:
        nodes.append(node(kind, ["before"]))


def window_sizes(random, rank, flops, channels, taps):
    """Spatial sizes for about so many operations."""
    places = max(4.0, flops / (2 * channels * taps))
    side = places ** (1 / rank)
    return [max(3, int(round(side * np.exp(random.uniform(-0.5, 0.5))))) for _ in range(rank)]


def draw_conv(random):
    rank = pick(random, 1, 1, 2, 2, 2, 2, 3)
    style = pick(random, "dense", "dense", "pointwise", "grouped", "depthwise", "depthwise", "few", "large")
    flops = between(random, 2e6, 1e8)
    group = 1
    cin, cout = size(random, 8, 256), size(random, 8, 256)
    kernel = [pick(random, 1, 2, 3, 3, 3, 4, 5, 7) for _ in range(rank)]
    if chance(random, 0.6):
        kernel = [kernel[0]] * rank
    if style == "pointwise":
        kernel = [1] * rank
    elif style == "depthwise":
        group = cin = size(random, 8, 512)
        cout = cin * pick(random, 1, 1, 1, 1, 2, 3)
    elif style == "grouped":
        group = pick(random, 2, 2, 3, 4, 8, 16)
        cin, cout = group * size(random, 2, 48), group * size(random, 2, 48)
    elif style == "few":
        cin = pick(random, 1, 1, 2, 3, 3, 4)
        cout = pick(random, 1, size(random, 2, 128), size(random, 8, 128))
    elif style == "large":
        if rank == 1:
            kernel = [between(random, 9, 512)]
            cin, cout = pick(random, 1, 1, 2, size(random, 4, 64)), size(random, 1, 256)
        else:
            kernel = [pick(random, 7, 9, 11, 13, 1) for _ in range(rank)]
            if rank == 3:
                kernel = [min(k, 7) for k in kernel]
            cin, cout = size(random, 1, 64), size(random, 1, 64)
    stride = [pick(random, 1, 1, 1, 2, 2, 3) for _ in range(rank)]
    if style == "large" and rank == 1:
        stride = [pick(random, 1, max(1, kernel[0] // 4), max(1, kernel[0] // 2), 160)]
    dilation = [pick(random, 1, 1, 1, 1, 2, 3, 4) if k > 1 else 1 for k in kernel]
    if chance(random, 0.6):
        stride, dilation = [stride[0]] * rank, [dilation[0] if k > 1 else 1 for k in kernel]
    taps = int(np.prod(kernel)) * cin // group
    places = window_sizes(random, rank, flops, cout, taps)
    spatial = [max(p * s, (k - 1) * d + 1) for p, s, k, d in zip(places, stride, kernel, dilation)]
    pads = [(k - 1) * d // 2 if chance(random, 0.7) else 0 for k, d in zip(kernel, dilation)]
    inputs = {"x": tensor("f32", [pick(random, 1, 1, 1, 2, 4), cin, *spatial]),
              "w": tensor("f32", [cout, cin // group, *kernel], constant=chance(random, 0.95))}
    names = ["x", "w"]
    if chance(random, 0.7):
        inputs["b"] = tensor("f32", [cout], constant=inputs["w"]["constant"])
        names.append("b")
    with_symbols(random, inputs, [[("x", d)] for d in (0, *range(2, rank + 2))])
    nodes = [node("Conv", names, strides=stride, dilations=dilation, pads=pads * 2, group=group, kernel_shape=kernel)]
    activation(random, nodes)
    return case(f"conv {style}", nodes, inputs)


def draw_conv_transpose(random):
    rank = pick(random, 1, 1, 2, 2, 2, 3)
    depthwise = chance(random, 0.15)
    group = pick(random, 1, 1, 1, 1, 2, 4)
    cin, cout = group * size(random, 2, 128 // group), group * size(random, 1, 128 // group)
    if depthwise:
        group = cin = cout = size(random, 4, 128)
    stride = [pick(random, 1, 2, 2, 2, 3, 4, 5, 8) for _ in range(rank)]
    if rank > 1:
        stride = [min(s, 4) for s in stride]
    if chance(random, 0.7):
        stride = [stride[0]] * rank
    kernel = [max(1, pick(random, s, s + 1, 2 * s, 2 * s + 1, 3)) for s in stride]
    flops = between(random, 2e6, 1e8)
    taps = int(np.prod(kernel)) * cin // group
    spatial = window_sizes(random, rank, flops, cout, taps)
    pads = [max(0, min((k - s) // 2 + pick(random, 0, 0, 1), (k - 1) // 2)) for k, s in zip(kernel, stride)]
    attrs = {"strides": stride, "pads": pads * 2, "group": group, "kernel_shape": kernel}
    if chance(random, 0.3):
        attrs["output_padding"] = [1 if s > 1 else 0 for s in stride]
    inputs = {"x": tensor("f32", [pick(random, 1, 1, 2), cin, *spatial]),
              "w": tensor("f32", [cin, cout // group, *kernel], constant=True)}
    names = ["x", "w"]
    if chance(random, 0.6):
        inputs["b"] = tensor("f32", [cout], constant=True)
        names.append("b")
    with_symbols(random, inputs, [[("x", d)] for d in (0, *range(2, rank + 2))])
    nodes = [node("ConvTranspose", names, **attrs)]
    activation(random, nodes, 0.25)
    return case("conv_transpose", nodes, inputs)


def draw_matmul(random):
    flops = between(random, 1e6, 1e8)
    kind = pick(random, "plain", "plain", "batched", "batched", "vector", "gemm", "transposed", "attention")
    constant = chance(random, 0.5)
    k = size(random, 1, 2048)
    n = size(random, 1, 2048)
    m = max(1, int(flops / (2 * k * n)))
    if m > 4096:
        m, n = 4096, max(1, int(flops / (2 * k * 4096)))
    if kind == "vector":
        m = 1
        n, k = size(random, 64, 4096), size(random, 64, 4096)
    if kind == "gemm":
        ta, tb = int(chance(random, 0.3)), int(chance(random, 0.6))
        inputs = {"a": tensor("f32", [k, m] if ta else [m, k]),
                  "b": tensor("f32", [n, k] if tb else [k, n], constant=constant)}
        names = ["a", "b"]
        if chance(random, 0.7):
            inputs["c"] = tensor("f32", pick(random, [n], [1, n], [m, n], [m, 1]))
            names.append("c")
        nodes = [node("Gemm", names, transA=ta, transB=tb, alpha=pick(random, 1.0, 0.5), beta=pick(random, 1.0, 2.0))]
        if "c" not in inputs or inputs["c"]["shape"][0] != m:
            with_symbols(random, inputs, [[("a", 1 if ta else 0)]])
        activation(random, nodes)
        return case("gemm", nodes, inputs)
    batch = []
    if kind in ("batched", "attention"):
        batch = [pick(random, 1, 2, 3, 4), pick(random, 2, 4, 8, 12)][2 - pick(random, 1, 2):]
        m = max(1, m // int(np.prod(batch)))
    a, b = [*batch, m, k], [k, n]
    if kind == "batched" and chance(random, 0.7) or kind == "attention":
        b = [*[d if chance(random, 0.8) else 1 for d in batch], k, n]
        constant = constant and chance(random, 0.3)
    if kind == "batched" and chance(random, 0.2):
        a = [m, k]
    inputs = {"a": tensor("f32", a), "b": tensor("f32", b, constant=constant)}
    nodes = []
    names = ["a", "b"]
    if kind == "transposed" or kind == "attention":
        which = pick(random, "a", "b", "b") if kind == "transposed" else "b"
        dims = inputs[which]["shape"]
        dims[-1], dims[-2] = dims[-2], dims[-1]
        perm = list(range(len(dims)))
        perm[-1], perm[-2] = perm[-2], perm[-1]
        nodes.append(node("Transpose", [which], ["t"], perm=perm))
        names[names.index(which)] = "t"
    nodes.append(node("MatMul", names))
    if kind in ("plain", "batched", "vector"):
        with_symbols(random, inputs, [[("a", len(a) - 2)], [("b", len(b) - 1)] if not constant else []])
    if chance(random, 0.3):
        nodes[-1]["outputs"] = ["mm"]
        inputs["bias"] = tensor("f32", [n], constant=True)
        if not inputs["b"].get("symbols"):
            nodes.append(node("Add", ["mm", "bias"]))
            activation(random, nodes)
        else:
            nodes.append(node("Relu", ["mm"]))
            del inputs["bias"]
    return case(f"matmul {kind}", nodes, inputs)


def draw_einsum(random):
    b, h, i, j, k = (size(random, 1, 8), size(random, 1, 12), size(random, 4, 128), size(random, 4, 128),
                     size(random, 4, 64))
    sizes = dict(zip("bhijk", (b, h, i, j, k)))
    text = pick(random, "bhik,bhjk->bhij", "bihk,bjhk->bhij", "bij,bjk->bik", "bhij,bjhk->bihk", "ij,jk->ik", "bik,kj->bij",
                "bij,bij->b", "ij,kj->ki", "bijk,k->bij")
    left, right = text.split("->")[0].split(",")
    inputs = {"a": tensor("f32", [sizes[c] for c in left]), "b": tensor("f32", [sizes[c] for c in right])}
    return case("einsum", [node("Einsum", ["a", "b"], equation=text)], inputs)


def draw_pool(random):
    rank = pick(random, 1, 2, 2, 2, 3)
    kind = pick(random, "MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool")
    channels = size(random, 1, 256)
    elements = between(random, 3e4, 2e6)
    side = max(4.0, elements / channels) ** (1 / rank)
    spatial = [max(4, int(side * np.exp(random.uniform(-0.5, 0.5)))) for _ in range(rank)]
    inputs = {"x": tensor("f32", [pick(random, 1, 1, 2), channels, *spatial])}
    with_symbols(random, inputs, [[("x", d)] for d in (0, *range(2, rank + 2))])
    if kind.startswith("Global"):
        return case("pool global", [node(kind, ["x"])], inputs)
    kernel = [min(pick(random, 2, 2, 3, 3, 5, 7, 13), s) for s in spatial]
    if chance(random, 0.6):
        kernel = [min(kernel[0], s) for s in spatial]
    stride = [pick(random, 1, 2, 2, k) for k in kernel]
    attrs = {"kernel_shape": kernel, "strides": stride}
    if chance(random, 0.5):
        attrs["pads"] = [k // 2 for k in kernel] * 2
    if kind != "LpPool" and chance(random, 0.3):
        attrs["ceil_mode"] = 1
    if kind == "AveragePool":
        attrs["count_include_pad"] = int(chance(random, 0.5))
    return case("pool", [node(kind, ["x"], **attrs)], inputs)


REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
              "ReduceSumSquare", "ReduceLogSumExp")


def draw_reduce(random):
    rank = pick(random, 1, 2, 3, 3, 4, 4, 5)
    shape = shape_of(random, rank, between(random, 2e4, 2e6))
    axes = [d for d in range(rank) if chance(random, 0.45)] or [int(random.integers(rank))]
    inputs = {"x": tensor("f32", shape)}
    with_symbols(random, inputs, [[("x", d)] for d in range(rank)])
    kind = pick(random, *REDUCTIONS)
    nodes = []
    name = "x"
    if chance(random, 0.2):
        nodes.append(node(pick(random, "Abs", "Exp", "Relu"), ["x"], ["e"]))
        name = "e"
    nodes.append(node(kind, [name, "=i64:" + ",".join(map(str, axes))], keepdims=int(chance(random, 0.5))))
    return case("reduce", nodes, inputs)


def draw_norm(random):
    kind = pick(random, "Softmax", "Softmax", "LogSoftmax", "LayerNormalization", "LayerNormalization",
                "InstanceNormalization", "BatchNormalization", "GroupNormalization", "LpNormalization",
                "MeanVarianceNormalization")
    rank = pick(random, 2, 3, 3, 4)
    if kind in ("InstanceNormalization", "GroupNormalization", "BatchNormalization"):
        rank = pick(random, 3, 4, 4, 5)
    if kind == "MeanVarianceNormalization":
        rank = 4
    shape = shape_of(random, rank, between(random, 2e4, 1e6))
    channels = shape[1] if rank > 1 else 1
    inputs = {"x": tensor("f32", shape)}
    names, attrs = ["x"], {}
    if kind in ("Softmax", "LogSoftmax"):
        attrs["axis"] = pick(random, -1, -1, -1, 0, 1)
    elif kind == "LayerNormalization":
        axis = pick(random, -1, -1, -1, rank - 2)
        attrs["axis"] = axis
        inputs["scale"] = tensor("f32", shape[axis:], constant=True)
        inputs["bias"] = tensor("f32", shape[axis:], constant=True)
        names += ["scale", "bias"]
    elif kind in ("InstanceNormalization", "BatchNormalization", "GroupNormalization"):
        if kind == "GroupNormalization":
            groups = pick(random, 1, 2, 4)
            channels = shape[1] = max(1, channels // groups) * groups
            attrs["num_groups"] = groups
            inputs["x"] = tensor("f32", shape)
        inputs["scale"] = tensor("f32", [channels], constant=True)
        inputs["bias"] = tensor("f32", [channels], constant=True)
        names += ["scale", "bias"]
        if kind == "BatchNormalization":
            inputs["mean"] = tensor("f32", [channels], constant=True)
            inputs["var"] = tensor("f32", [channels], constant=True, positive=True)
            names += ["mean", "var"]
    elif kind == "LpNormalization":
        attrs = {"axis": pick(random, -1, -1, 1, 0), "p": pick(random, 1, 2, 2)}
    elif kind == "MeanVarianceNormalization":
        attrs["axes"] = pick(random, [0, 2, 3], [2, 3], [1, 2, 3])
    open_dims = [0, rank - 1] if kind in ("Softmax", "LogSoftmax") else [0]
    if kind in ("InstanceNormalization", "BatchNormalization"):
        open_dims = [0, rank - 1]
    with_symbols(random, inputs, [[("x", d)] for d in open_dims])
    return case(f"norm {kind}", [node(kind, names, **attrs)], inputs)


BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu", "Pow")
UNARY = ("Exp", "Tanh", "Sigmoid", "Erf", "Relu", "Abs", "Neg", "Sqrt", "Log", "Sin", "Cos", "Floor", "Round", "Gelu",
         "HardSwish", "Softplus", "Reciprocal", "Elu", "Sign", "Mish", "Softsign", "Selu")


def draw_elementwise(random):
    rank = pick(random, 1, 2, 3, 4, 4)
    shape = shape_of(random, rank, between(random, 1e4, 2e6))
    inputs = {"x": tensor("f32", shape, positive=chance(random, 0.5))}
    nodes, last, count = [], "x", pick(random, 1, 1, 2, 3, 4)
    positive = inputs["x"]["positive"]
    for i in range(count):
        out = "y" if i + 1 == count else f"t{i}"
        if chance(random, 0.5):
            kind = pick(random, *UNARY)
            if kind in ("Sqrt", "Log", "Reciprocal") and not (positive and last == "x"):
                kind = "Sigmoid"
            if kind in ("Sin", "Cos", "Exp") and last != "x":
                kind = "Tanh"
            nodes.append(node(kind, [last], [out]))
        else:
            kind = pick(random, *BINARY)
            other = [d if chance(random, 0.6) else 1 for d in shape]
            if chance(random, 0.3):
                other = other[int(random.integers(rank + 1)):]
            if kind == "Pow":
                nodes.append(node("Pow", [last, "=f32:" + pick(random, "2.0", "3.0")], [out]))
            else:
                name = f"o{i}"
                inputs[name] = tensor("f32", other, positive=True, constant=chance(random, 0.3))
                nodes.append(node(kind, [last, name], [out]))
        last = out
    places = []
    for d in range(rank):
        group = [("x", d)]
        fits = True
        for name, spec in inputs.items():
            at = d - rank + len(spec["shape"])
            if name != "x" and at >= 0 and spec["shape"][at] != 1:
                fits &= not spec.get("constant")
                group.append((name, at))
        if fits and shape[d] > 1:
            places.append(group)
    with_symbols(random, inputs, places)
    return case("elementwise", nodes, inputs)


def draw_compare(random):
    rank = pick(random, 1, 2, 3, 4)
    shape = shape_of(random, rank, between(random, 1e4, 1e6))
    kind = pick(random, "Where", "Greater", "Cast", "Clip", "Equal", "IsNaN", "Mod", "IntAdd")
    inputs = {"x": tensor("f32", shape)}
    if kind == "Where":
        inputs["c"] = tensor("bool", [d if chance(random, 0.7) else 1 for d in shape])
        inputs["z"] = tensor("f32", [d if chance(random, 0.7) else 1 for d in shape])
        nodes = [node("Where", ["c", "x", "z"])]
    elif kind in ("Greater", "Equal"):
        inputs["z"] = tensor("f32", [d if chance(random, 0.7) else 1 for d in shape])
        nodes = [node(kind, ["x", "z"])]
    elif kind == "Cast":
        source, target = pick(random, ("f32", "f16"), ("f16", "f32"), ("f32", "i32"), ("i64", "f32"), ("u8", "f32"),
                              ("bool", "f32"), ("f32", "u8"), ("i32", "i64"))
        inputs = {"x": tensor(source, shape, low=0, high=100, positive=True)}
        nodes = [node("Cast", ["x"], to=int(ONNX[target]))]
    elif kind == "Clip":
        nodes = [node("Clip", ["x", "=f32:-0.5", "=f32:0.75"])]
    elif kind == "IsNaN":
        nodes = [node("IsNaN", ["x"])]
    elif kind == "Mod":
        inputs = {"x": tensor("i64", shape, low=0, high=1000)}
        nodes = [node("Mod", ["x", "=i64:7"])]
    else:
        inputs = {"x": tensor("i64", shape, low=0, high=1000), "z": tensor("i64", shape[-1:], low=0, high=1000)}
        nodes = [node(pick(random, "Add", "Mul", "Sub"), ["x", "z"])]
    return case("compare, cast, integers", nodes, inputs)


def draw_move(random):
    kind = pick(random, "Transpose", "Transpose", "Transpose", "Slice", "Slice", "Concat", "Concat", "Pad", "Pad",
                "Gather", "Gather", "GatherElements", "GatherND", "Expand", "Tile", "DepthToSpace", "SpaceToDepth", "Split",
                "Reverse", "Roll")
    rank = pick(random, 2, 3, 4, 4)
    if kind in ("DepthToSpace", "SpaceToDepth"):
        rank = 4
    shape = shape_of(random, rank, between(random, 2e4, 1e6))
    x = {"x": tensor("f32", shape)}
    axis = int(random.integers(rank))
    if kind == "Transpose":
        perm = [int(p) for p in random.permutation(rank)]
        with_symbols(random, x, [[("x", d)] for d in range(rank)])
        return case("move Transpose", [node("Transpose", ["x"], perm=perm)], x)
    if kind in ("Slice", "Reverse"):
        axes = [d for d in range(rank) if chance(random, 0.5)] or [axis]
        starts = [int(random.integers(0, max(1, shape[d] // 3))) for d in axes]
        ends = [max(s + 1, shape[d] - int(random.integers(0, max(1, shape[d] // 3)))) for s, d in zip(starts, axes)]
        steps = [pick(random, 1, 1, 1, 2, 3) for _ in axes]
        if kind == "Reverse":
            axes, starts, ends, steps = [axis], [-1], [-(2**62)], [-1]
        lists = ["=i64:" + ",".join(map(str, v)) for v in (starts, ends, axes, steps)]
        with_symbols(random, x, [[("x", d)] for d in range(rank) if d not in axes])
        return case("move Slice", [node("Slice", ["x", *lists])], x)
    if kind == "Concat":
        count = pick(random, 2, 2, 3, 5)
        inputs = {f"x{i}": tensor("f32", [max(1, int(d * random.uniform(0.3, 1))) if k == axis else d
                                           for k, d in enumerate(shape)]) for i in range(count)}
        return case("move Concat", [node("Concat", list(inputs), axis=axis)], inputs)
    if kind == "Pad":
        mode = pick(random, "constant", "constant", "reflect", "edge")
        pads = [int(random.integers(0, max(1, min(d - 1, 8)))) if chance(random, 0.6) else 0 for d in shape * 2]
        if mode == "constant":
            with_symbols(random, x, [[("x", d)] for d in range(rank)])
        return case("move Pad", [node("Pad", ["x", "=i64:" + ",".join(map(str, pads))], mode=mode)], x)
    if kind == "Gather":
        count = size(random, 1, 512)
        inputs = {**x, "i": tensor("i64", pick(random, [count], [max(1, count // 8), 8]), low=0, high=shape[axis])}
        return case("move Gather", [node("Gather", ["x", "i"], axis=axis)], inputs)
    if kind == "GatherElements":
        dims = [size(random, 1, d) if k == axis else d for k, d in enumerate(shape)]
        inputs = {**x, "i": tensor("i64", dims, low=0, high=shape[axis])}
        return case("move GatherElements", [node("GatherElements", ["x", "i"], axis=axis)], inputs)
    if kind == "GatherND":
        count = size(random, 16, 2048)
        inputs = {**x, "i": tensor("i64", [count, pick(random, 1, min(2, rank))], low=0, high=min(shape))}
        return case("move GatherND", [node("GatherND", ["x", "i"])], inputs)
    if kind == "Expand":
        inputs = {"x": tensor("f32", [d if chance(random, 0.5) else 1 for d in shape])}
        return case("move Expand", [node("Expand", ["x", "=i64:" + ",".join(map(str, shape))])], inputs)
    if kind == "Tile":
        repeats = [pick(random, 1, 1, 2, 3) for _ in shape]
        return case("move Tile", [node("Tile", ["x", "=i64:" + ",".join(map(str, repeats))])], x)
    if kind in ("DepthToSpace", "SpaceToDepth"):
        block = pick(random, 2, 2, 3, 4)
        c, h, w = (max(1, shape[1] // block**2), max(1, shape[2] // block), max(1, shape[3] // block))
        if kind == "DepthToSpace":
            inputs = {"x": tensor("f32", [shape[0], c * block**2, h * block, w * block])}
            nodes = [node(kind, ["x"], blocksize=block, mode=pick(random, "DCR", "CRD"))]
        else:
            inputs = {"x": tensor("f32", [shape[0], c, h * block, w * block])}
            nodes = [node(kind, ["x"], blocksize=block)]
        return case(f"move {kind}", nodes, inputs)
    if kind == "Split":
        parts = pick(random, 2, 3, 4)
        shape[axis] = max(1, shape[axis] // parts) * parts
        nodes = [node("Split", ["x"], [f"y{i}" for i in range(parts)], axis=axis, num_outputs=parts)]
        return case("move Split", nodes, {"x": tensor("f32", shape)}, outputs=[f"y{i}" for i in range(parts)])
    cut = max(1, shape[axis] // 3)
    nodes = [node("Slice", ["x", f"=i64:{cut}", f"=i64:{2**62}", f"=i64:{axis}"], ["a"]),
             node("Slice", ["x", "=i64:0", f"=i64:{cut}", f"=i64:{axis}"], ["b"]),
             node("Concat", ["a", "b"], axis=axis)]
    if shape[axis] < 2:
        return draw_move(random)
    return case("move Roll", nodes, x)


def draw_resize(random):
    kind = pick(random, "Resize", "Resize", "Resize", "GridSample", "ResizeConv")
    channels = size(random, 1, 128)
    side = max(4, int((between(random, 2e4, 4e5) / channels) ** 0.5))
    h, w = max(4, int(side * random.uniform(0.6, 1.5))), max(4, int(side * random.uniform(0.6, 1.5)))
    inputs = {"x": tensor("f32", [1, channels, h, w])}
    if kind == "GridSample":
        inputs["g"] = tensor("f32", [1, h, w, 2], scale=0.5)
        nodes = [node("GridSample", ["x", "g"], mode=pick(random, "linear", "nearest"),
                      padding_mode=pick(random, "zeros", "border"), align_corners=int(chance(random, 0.5)))]
        return case("grid_sample", nodes, inputs)
    factor = pick(random, "2.0", "2.0", "0.5", "1.5", "3.0", "4.0", "0.75")
    mode = pick(random, "nearest", "nearest", "linear", "linear", "cubic")
    attrs = {"mode": mode, "coordinate_transformation_mode":
             pick(random, "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")}
    if any(n * float(factor) % 1 for n in (h, w)) and attrs["coordinate_transformation_mode"] == "align_corners":
        attrs["coordinate_transformation_mode"] = "half_pixel"  # ONNX Runtime rounds the size first, against ONNX's tests
    if mode == "nearest":
        attrs["nearest_mode"] = pick(random, "floor", "round_prefer_floor")
    nodes = [node("Resize", ["x", "", f"=f32:1.0,1.0,{factor},{factor}"], **attrs)]
    if kind == "ResizeConv":
        cout = size(random, 4, 64)
        inputs["w"] = tensor("f32", [cout, channels, 3, 3], constant=True)
        nodes[0]["outputs"] = ["r"]
        nodes.append(node("Conv", ["r", "w"], pads=[1, 1, 1, 1]))
    with_symbols(random, inputs, [[("x", 0)], [("x", 2)], [("x", 3)]], 0.25)
    return case("resize" if kind == "Resize" else "resize, conv", nodes, inputs)


def draw_select(random):
    kind = pick(random, "ArgMax", "ArgMax", "ArgMin", "TopK", "TopK", "CumSum", "CumSum", "OneHot", "ScatterElements",
                "ScatterND", "NonZero", "Trilu")
    rank = pick(random, 2, 3, 3, 4)
    shape = shape_of(random, rank, between(random, 2e4, 5e5))
    axis = pick(random, rank - 1, rank - 1, int(random.integers(rank)))
    inputs = {"x": tensor("f32", shape)}
    if kind in ("ArgMax", "ArgMin"):
        with_symbols(random, inputs, [[("x", d)] for d in range(rank)])
        return case("arg", [node(kind, ["x"], axis=axis, keepdims=int(chance(random, 0.5)))], inputs)
    if kind == "TopK":
        k = min(shape[axis], pick(random, 1, 5, 10, 100))
        nodes = [node("TopK", ["x", f"=i64:{k}"], ["y", "i"], axis=axis, largest=int(chance(random, 0.8)))]
        return case("topk", nodes, inputs, outputs=["y", "i"])
    if kind == "CumSum":
        with_symbols(random, inputs, [[("x", d)] for d in range(rank)])
        nodes = [node("CumSum", ["x", f"=i64:{axis}"], reverse=int(chance(random, 0.2)), exclusive=int(chance(random, 0.2)))]
        return case("cumsum", nodes, inputs)
    if kind == "OneHot":
        count, depth = size(random, 16, 2048), size(random, 4, 512)
        inputs = {"i": tensor("i64", [count], low=0, high=depth)}
        return case("one_hot", [node("OneHot", ["i", f"=i64:{depth}", "=f32:0.0,1.0"], axis=-1)], inputs)
    if kind == "ScatterElements":
        dims = [max(1, d // 2) for d in shape]
        inputs["i"] = tensor("i64", dims, low=0, high=shape[axis])
        inputs["u"] = tensor("f32", dims)
        nodes = [node(kind, ["x", "i", "u"], axis=axis, reduction=pick(random, "none", "add"))]
        return case("scatter", nodes, inputs)
    if kind == "ScatterND":
        count = size(random, 4, 512)
        inputs["i"] = tensor("i64", [count, 1], low=0, high=shape[0])
        inputs["u"] = tensor("f32", [count, *shape[1:]])
        return case("scatter", [node(kind, ["x", "i", "u"], reduction=pick(random, "none", "add"))], inputs)
    if kind == "NonZero":
        return case("nonzero", [node("Relu", ["x"], ["r"]), node("NonZero", ["r"])], inputs)
    return case("trilu", [node("Trilu", ["x"], upper=int(chance(random, 0.5)))], inputs)


def draw_recurrent(random):
    kind, gates = pick(random, ("LSTM", 4), ("LSTM", 4), ("GRU", 3), ("RNN", 1))
    steps, batch = size(random, 1, 64), pick(random, 1, 1, 2, 4)
    features, hidden = size(random, 8, 256), size(random, 8, 256)
    both = chance(random, 0.4)
    directions = 2 if both else 1
    inputs = {"x": tensor("f32", [steps, batch, features]),
              "w": tensor("f32", [directions, gates * hidden, features], constant=True, scale=0.1),
              "r": tensor("f32", [directions, gates * hidden, hidden], constant=True, scale=0.1)}
    names = ["x", "w", "r"]
    if chance(random, 0.8):
        inputs["b"] = tensor("f32", [directions, 2 * gates * hidden], constant=True, scale=0.1)
        names.append("b")
    attrs = {"hidden_size": hidden, "direction": "bidirectional" if both else pick(random, "forward", "reverse")}
    if kind == "GRU":
        attrs["linear_before_reset"] = int(chance(random, 0.6))
    with_symbols(random, inputs, [[("x", 0)], [("x", 1)]], 0.4)
    return case("recurrent", [node(kind, names, **attrs)], inputs)


def draw_signal(random):
    if chance(random, 0.5):
        length = pick(random, 64, 128, 200, 256, 400, 512, 512, 1024)
        step = max(1, length // pick(random, 2, 3, 4))
        frames = pick(random, 8, 32, 100)
        inputs = {"x": tensor("f32", [pick(random, 1, 2), length + step * (frames - 1), 1]),
                  "w": tensor("f32", [length], constant=True, positive=True)}
        nodes = [node("STFT", ["x", f"=i64s:{step}", "w", f"=i64s:{length}"], onesided=1)]
        if chance(random, 0.5):
            nodes[0]["outputs"] = ["c"]
            nodes.append(node("ReduceSumSquare", ["c", "=i64:-1"], keepdims=0))
        with_symbols(random, inputs, [[("x", 1)]])
        return case("stft", nodes, inputs)
    length = pick(random, 16, 60, 64, 100, 128, 256, 400, 512, 1000, 1024, 2048)
    rows = max(1, between(random, 2e4, 4e5) // length)
    real = chance(random, 0.6)
    inputs = {"x": tensor("f32", [rows, length, 1 if real else 2])}
    attrs = {"onesided": 1} if real and chance(random, 0.6) else {}
    if not real and chance(random, 0.4):
        attrs["inverse"] = 1
    with_symbols(random, inputs, [[("x", 0)]])
    return case("dft", [node("DFT", ["x", "", "=i64s:1"], **attrs)], inputs)


def draw_quantized(random):
    kind = pick(random, "MatMulInteger", "QLinearMatMul", "QLinearConv", "ConvInteger", "QuantizeLinear",
                "DequantizeLinear", "DynamicQuantizeLinear", "QDQConv", "QDQMatMul", "DynamicMatMul")
    flops = between(random, 2e6, 1e8)
    k, n = size(random, 16, 1024), size(random, 16, 1024)
    m = max(1, min(2048, int(flops / (2 * k * n))))
    shape = shape_of(random, pick(random, 2, 3, 4), between(random, 2e4, 1e6))
    if kind == "QuantizeLinear":
        return case("quantize", [node(kind, ["x", "=f32s:0.02", "=u8s:128"])], {"x": tensor("f32", shape)})
    if kind == "DequantizeLinear":
        return case("quantize", [node(kind, ["x", "=f32s:0.02", "=u8s:128"])],
                    {"x": tensor("u8", shape, low=0, high=256)})
    if kind == "DynamicQuantizeLinear":
        return case("quantize", [node(kind, ["x"], ["y", "s", "z"])], {"x": tensor("f32", shape)}, outputs=["y", "s", "z"])
    if "MatMul" in kind:
        byte = pick(random, "u8", "i8")
        bounds = {"low": 0, "high": 256} if byte == "u8" else {"low": -128, "high": 128}
        b = tensor("i8", [k, n], low=-127, high=128, constant=True)
        if kind == "MatMulInteger":
            inputs = {"a": tensor("u8", [m, k], low=0, high=256), "b": b}
            with_symbols(random, inputs, [[("a", 0)]])
            return case("integer product", [node(kind, ["a", "b", "=u8s:121"])], inputs)
        if kind == "QLinearMatMul":
            zero = f"={byte}s:3"
            nodes = [node(kind, ["a", "=f32s:0.02", zero, "b", "=f32s:0.01", "=i8s:0", "=f32s:0.3", zero])]
            return case("quantized product", nodes, {"a": tensor(byte, [m, k], **bounds), "b": b})
        x = {"x": tensor("f32", [m, k]), "b": b}
        if kind == "DynamicMatMul":
            nodes = [node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]), node("MatMulInteger", ["q", "b", "z"], ["i"]),
                     node("Cast", ["i"], ["f"], to=int(TensorProto.FLOAT)), node("Mul", ["s", "=f32s:0.01"], ["t"]),
                     node("Mul", ["f", "t"])]
            return case("dynamically quantized product", nodes, x)
        nodes = [node("QuantizeLinear", ["x", "=f32s:0.03", "=u8s:120"], ["q"]),
                 node("DequantizeLinear", ["q", "=f32s:0.03", "=u8s:120"], ["xd"]),
                 node("DequantizeLinear", ["b", "=f32s:0.01", "=i8s:0"], ["bd"]), node("MatMul", ["xd", "bd"], ["f"]),
                 node("QuantizeLinear", ["f", "=f32s:0.3", "=u8s:128"], ["yq"]),
                 node("DequantizeLinear", ["yq", "=f32s:0.3", "=u8s:128"])]
        return case("QDQ product", nodes, x)
    depthwise = chance(random, 0.25)
    cin, cout = size(random, 4, 128), size(random, 4, 128)
    group = 1
    if depthwise:
        group = cout = cin
    kernel = pick(random, 1, 3, 3, 5)
    side = max(4, int((flops / (2 * cout * (cin // group) * kernel**2)) ** 0.5))
    side = min(side, 160)
    x_shape = [1, cin, side, side]
    w = tensor("i8", [cout, cin // group, kernel, kernel], low=-127, high=128, constant=True)
    attrs = {"pads": [kernel // 2] * 4, "strides": [pick(random, 1, 1, 2)] * 2, "group": group}
    if kind == "ConvInteger":
        inputs = {"x": tensor("u8", x_shape, low=0, high=256),
                  "w": tensor("u8", w["shape"], low=0, high=256, constant=True)}
        return case("integer conv", [node(kind, ["x", "w", "=u8s:121", "=u8s:127"], **attrs)], inputs)
    if kind == "QLinearConv":
        inputs = {"x": tensor("u8", x_shape, low=0, high=256), "w": w}
        nodes = [node(kind, ["x", "=f32s:0.02", "=u8s:121", "w", "=f32s:0.01", "=i8s:0", "=f32s:0.3", "=u8s:128"], **attrs)]
        return case("quantized conv", nodes, inputs)
    nodes = [node("QuantizeLinear", ["x", "=f32s:0.03", "=u8s:120"], ["q"]),
             node("DequantizeLinear", ["q", "=f32s:0.03", "=u8s:120"], ["xd"]),
             node("DequantizeLinear", ["w", "=f32s:0.01", "=i8s:0"], ["wd"]), node("Conv", ["xd", "wd"], ["f"], **attrs),
             node("QuantizeLinear", ["f", "=f32s:0.3", "=u8s:128"], ["yq"]),
             node("DequantizeLinear", ["yq", "=f32s:0.3", "=u8s:128"])]
    return case("QDQ conv", nodes, {"x": tensor("f32", x_shape), "w": w})


# How often each is drawn, of 100.
FAMILIES = [(draw_conv, 20), (draw_conv_transpose, 6), (draw_matmul, 12), (draw_einsum, 2), (draw_pool, 7),
            (draw_reduce, 9), (draw_norm, 9), (draw_elementwise, 9), (draw_compare, 3), (draw_move, 9), (draw_resize, 3),
            (draw_select, 4), (draw_recurrent, 2), (draw_signal, 2), (draw_quantized, 3)]


def draw(random, families=FAMILIES):
    weights = np.array([w for _, w in families], dtype=float)
    drawn = families[random.choice(len(families), p=weights / weights.sum())][0](random)
    drawn["seed"] = int(random.integers(2**31))
    return drawn
