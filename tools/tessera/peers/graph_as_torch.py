# An ONNX graph as a function of torch, one eager call for each node: what torch computes where no module is given.


def pooling(x, node, torch):
    functional, a = torch.nn.functional, node.attributes
    rank = x.dim() - 2
    begin, end = padding(a, rank)
    options = {"stride": a.get("strides", [1] * rank), "ceil_mode": bool(a.get("ceil_mode", 0))}
    if node.op_type == "MaxPool":
        if begin != end:
            x, begin = functional.pad(x, both_ends(begin, end), value=float("-inf")), [0] * rank
        pool = [functional.max_pool1d, functional.max_pool2d, functional.max_pool3d][rank - 1]
        return pool(x, a["kernel_shape"], padding=begin, dilation=a.get("dilations", [1] * rank), **options)
    if begin != end:
        raise NotImplementedError("AveragePool with uneven padding")
    pool = [functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d][rank - 1]
    return pool(x, a["kernel_shape"], padding=begin, count_include_pad=bool(a.get("count_include_pad", 0)), **options)


def padding(attributes, rank):
    if attributes.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
        raise NotImplementedError("auto_pad")
    pads = attributes.get("pads", [0] * (2 * rank))
    return list(pads[:rank]), list(pads[rank:])


def both_ends(begin, end):
    """As torch counts them: the last axis first."""
    return [p for pair in zip(reversed(begin), reversed(end)) for p in pair]


def convolution(x, weight, bias, node, torch):
    functional, a = torch.nn.functional, node.attributes
    rank = x.dim() - 2
    begin, end = padding(a, rank)
    if begin != end:
        x, begin = functional.pad(x, both_ends(begin, end)), [0] * rank
    call = [functional.conv1d, functional.conv2d, functional.conv3d][rank - 1]
    ones = [1] * rank
    return call(x, weight, bias, a.get("strides", ones), begin, a.get("dilations", ones), a.get("group", 1))


def gemm(a, b, c, node, torch):
    g = node.attributes
    a, b = a.t() if g.get("transA") else a, b.t() if g.get("transB") else b
    alpha, beta = g.get("alpha", 1.0), g.get("beta", 1.0)
    return alpha * (a @ b) if c is None else torch.addmm(c, a, b, beta=beta, alpha=alpha)


def axes_of(node, given, x):
    axes = node.attributes.get("axes") if given is None else given.tolist()
    return list(range(x.dim())) if axes is None else list(axes)


def reshape(x, shape, node):
    sizes = shape.tolist()
    if not node.attributes.get("allowzero"):
        sizes = [x.shape[i] if n == 0 else n for i, n in enumerate(sizes)]
    return x.reshape(sizes)


def gather(x, indices, node, torch):
    axis = node.attributes.get("axis", 0) % x.dim()
    indices = torch.where(indices < 0, indices + x.shape[axis], indices)
    picked = x.index_select(axis, indices.reshape(-1))
    return picked.reshape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])


def gather_nd(x, indices, node):
    if node.attributes.get("batch_dims", 0):
        raise NotImplementedError("GatherND with batch_dims")
    return x[tuple(indices.unbind(-1))]


def slices(x, begin, end, axes, steps):
    axes = range(len(begin)) if axes is None else axes.tolist()
    steps = [1] * len(begin) if steps is None else steps.tolist()
    if min(steps) < 1:
        raise NotImplementedError("Slice backwards")
    picks = [slice(None)] * x.dim()
    for axis, first, last, step in zip(axes, begin.tolist(), end.tolist(), steps):
        picks[axis] = slice(first, last, step)
    return x[tuple(picks)]


def layer_norm(x, scale, bias, node, torch):
    axis = node.attributes.get("axis", -1) % x.dim()
    return torch.nn.functional.layer_norm(x, x.shape[axis:], scale, bias, node.attributes.get("epsilon", 1e-5))


def split(x, sizes, node, outputs):
    axis = node.attributes.get("axis", 0)
    if sizes is not None:
        return x.split(sizes.tolist(), axis)
    return x.split(-(-x.shape[axis] // outputs), axis)


def unsqueeze(x, axes):
    rank = x.dim() + len(axes)
    for axis in sorted(a % rank for a in axes):
        x = x.unsqueeze(axis)
    return x


def operators(torch):
    """By op: what computes it, from the node and its inputs; None stands for an input that is not given."""
    functional = torch.nn.functional

    def onnx_type(number):
        import onnx

        return getattr(torch, str(onnx.helper.tensor_dtype_to_np_dtype(number)))

    def reduction(call):
        def run(node, x, axes=None):
            return call(x, axes_of(node, axes, x), bool(node.attributes.get("keepdims", 1)))

        return run

    def plain(call):
        return lambda node, *inputs: call(*inputs)

    table = {
        "Conv": lambda node, x, w, b=None: convolution(x, w, b, node, torch),
        "Gemm": lambda node, a, b, c=None: gemm(a, b, c, node, torch),
        "MaxPool": lambda node, x: pooling(x, node, torch),
        "AveragePool": lambda node, x: pooling(x, node, torch),
        "GlobalAveragePool": lambda node, x: x.mean(list(range(2, x.dim())), True),
        "BatchNormalization": lambda node, x, s, b, m, v: functional.batch_norm(
            x, m, v, s, b, eps=node.attributes.get("epsilon", 1e-5)
        ),
        "LayerNormalization": lambda node, x, s, b=None: layer_norm(x, s, b, node, torch),
        "Softmax": lambda node, x: x.softmax(node.attributes.get("axis", -1)),
        "Gelu": lambda node, x: functional.gelu(x, approximate=node.attributes.get("approximate", b"none").decode()),
        "Clip": lambda node, x, low=None, high=None: x if low is None and high is None else x.clamp(low, high),
        "HardSigmoid": lambda node, x: (
            x * node.attributes.get("alpha", 0.2) + node.attributes.get("beta", 0.5)
        ).clamp(0, 1),
        "Reshape": lambda node, x, shape: reshape(x, shape, node),
        "Flatten": lambda node, x: x.reshape(x.shape[: node.attributes.get("axis", 1)].numel(), -1),
        "Transpose": lambda node, x: x.permute(node.attributes.get("perm", list(range(x.dim()))[::-1])),
        "Concat": lambda node, *xs: torch.cat(xs, node.attributes["axis"]),
        "Split": lambda node, x, sizes=None: split(x, sizes, node, len(node.outputs)),
        "Slice": lambda node, x, begin, end, axes=None, steps=None: slices(x, begin, end, axes, steps),
        "Unsqueeze": lambda node, x, axes=None: unsqueeze(x, axes_of(node, axes, x)),
        "Squeeze": lambda node, x, axes=None: x.squeeze() if axes is None else x.squeeze(tuple(axes.tolist())),
        "Expand": lambda node, x, shape: x * torch.ones(shape.tolist(), dtype=x.dtype)
        if x.dtype != torch.bool
        else x & torch.ones(shape.tolist(), dtype=torch.bool),
        "Gather": lambda node, x, indices: gather(x, indices, node, torch),
        "GatherElements": lambda node, x, indices: x.gather(node.attributes.get("axis", 0), indices),
        "GatherND": lambda node, x, indices: gather_nd(x, indices, node),
        "Cast": lambda node, x: x.to(onnx_type(node.attributes["to"])),
        "Shape": lambda node, x: torch.tensor(x.shape[node.attributes.get("start", 0) : node.attributes.get("end")]),
        "Range": lambda node, a, b, step: torch.arange(a.item(), b.item(), step.item(), dtype=a.dtype),
        "ConstantOfShape": lambda node, shape: node.attributes["value"].expand(shape.tolist()).clone()
        if "value" in node.attributes
        else torch.zeros(shape.tolist()),
        "Pad": lambda node, x, pads, value=None: functional.pad(
            x, both_ends(*pads.reshape(2, -1).tolist()), value=0 if value is None else value.item()
        ),
        "Max": lambda node, *xs: xs[0] if len(xs) == 1 else torch.maximum(*xs),
        "Min": lambda node, *xs: xs[0] if len(xs) == 1 else torch.minimum(*xs),
        "Constant": lambda node: node.attributes["value"],
        "ReduceMean": reduction(lambda x, axes, keep: x.mean(axes, keep)),
        "ReduceSum": reduction(lambda x, axes, keep: x.sum(axes, keep)),
        "ReduceMax": reduction(lambda x, axes, keep: x.amax(axes, keep)),
        "Where": plain(torch.where),
        "Identity": plain(lambda x: x),
        "HardSwish": plain(functional.hardswish),
        "Reciprocal": plain(torch.reciprocal),
    }
    names = {
        "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Pow": "pow", "MatMul": "matmul", "Relu": "relu",
        "Sigmoid": "sigmoid", "Tanh": "tanh", "Erf": "erf", "Exp": "exp", "Log": "log", "Sqrt": "sqrt", "Neg": "neg",
        "Abs": "abs", "Not": "logical_not", "And": "logical_and", "Or": "logical_or", "Equal": "eq", "Less": "lt",
        "LessOrEqual": "le", "Greater": "gt", "GreaterOrEqual": "ge", "IsNaN": "isnan", "Sin": "sin", "Cos": "cos",
        "Floor": "floor",
    }  # fmt: skip
    return table | {op: plain(getattr(torch, name)) for op, name in names.items()}


class TorchNode:
    def __init__(self, node, torch):
        import onnx

        self.op_type, self.inputs, self.outputs = node.op_type, list(node.input), list(node.output)
        self.attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        for name, value in self.attributes.items():
            if isinstance(value, onnx.TensorProto):
                self.attributes[name] = torch.from_numpy(onnx.numpy_helper.to_array(value).copy())


def graph_as_torch(path):
    import onnx
    import torch

    graph = onnx.load(path).graph
    table = operators(torch)
    nodes = [TorchNode(n, torch) for n in graph.node]
    missing = sorted({n.op_type for n in nodes} - set(table))
    if missing:
        raise NotImplementedError(f"no torch form here for {', '.join(missing)}; name a module with --torch")
    constants = {t.name: torch.from_numpy(onnx.numpy_helper.to_array(t).copy()) for t in graph.initializer}
    names = [i.name for i in graph.input if i.name not in constants]
    wanted = [o.name for o in graph.output]
    last = {name: i for i, n in enumerate(nodes) for name in n.inputs if name not in constants}

    def run(*inputs):
        values = dict(constants)
        values.update(zip(names, inputs))
        for i, node in enumerate(nodes):
            results = table[node.op_type](node, *(values[n] if n else None for n in node.inputs))
            values.update(zip(node.outputs, results if isinstance(results, (tuple, list)) else [results]))
            for name in node.inputs:
                if last.get(name) == i and name not in wanted:
                    values.pop(name, None)
        return [values[n] for n in wanted]

    return run


