"""Chains of convolutions for bench/cliffs.py: what is chosen for one op is not always best for what follows it.

Cases are plain data, as those of bench/cliff_cases.py."""
from cliff_cases import between, case, chance, node, pick, size, tensor, with_symbols

KINDS = ("conv, conv", "conv, conv", "conv, resize, conv", "conv, pool, conv", "depthwise, pointwise",
         "depthwise, pointwise", "residual", "residual", "concat", "squeeze", "norm")


class Chain:
    """Nodes one after the other, from "x"; `at` is the last result, and `channels` its number of channels."""

    def __init__(self, random, rank, channels):
        self.random, self.rank, self.channels, self.at = random, rank, channels, "x"
        self.inputs, self.nodes, self.flops = {}, [], 0

    def add(self, op, *more, **attrs):
        out = f"t{len(self.nodes)}"
        self.nodes.append(node(op, [self.at, *more], [out], **attrs))
        self.at = out
        return out

    def weights(self, shape):
        name = f"w{len(self.inputs)}"
        self.inputs[name] = tensor("f32", shape, constant=True, scale=0.1)
        return name

    def conv(self, cout, kernel, stride=1, group=1, dilation=1):
        w = self.weights([cout, self.channels // group, *[kernel] * self.rank])
        names = [w] + ([self.weights([cout])] if chance(self.random, 0.7) else [])
        self.flops += 2 * cout * self.channels // group * kernel**self.rank
        self.channels = cout
        pads = [(kernel - 1) * dilation // 2] * (2 * self.rank)
        return self.add("Conv", *names, strides=[stride] * self.rank, dilations=[dilation] * self.rank, pads=pads,
                        group=group, kernel_shape=[kernel] * self.rank)

    def activate(self, probability=0.8):
        if chance(self.random, probability):
            kind = pick(self.random, "Relu", "Relu", "Relu", "LeakyRelu", "Sigmoid", "HardSwish", "Clip")
            self.add(kind, *(["=f32:0.0", "=f32:6.0"] if kind == "Clip" else []))

    def resize(self):
        sizes = ",".join(["1.0", "1.0"] + ["2.0"] * self.rank)
        self.add("Resize", "", f"=f32:{sizes}", mode=pick(self.random, "nearest", "nearest", "linear"),
                 coordinate_transformation_mode=pick(self.random, "half_pixel", "asymmetric"))

    def pool(self):
        kernel = pick(self.random, 2, 2, 3)
        self.add(pick(self.random, "MaxPool", "MaxPool", "AveragePool"), kernel_shape=[kernel] * self.rank,
                 strides=[2] * self.rank, pads=[kernel // 3] * (2 * self.rank))


def draw_chain(random):
    kind = pick(random, *KINDS)
    rank = 2 if "resize" in kind else pick(random, 1, 2, 2, 2, 2)
    cin, hidden, cout = (size(random, 3, 128) for _ in range(3))
    kernel = pick(random, 1, 3, 3, 3, 5)
    c = Chain(random, rank, cin)
    if kind == "depthwise, pointwise":
        if chance(random, 0.4):
            c.conv(hidden, 1)
            c.activate()
        c.conv(c.channels, pick(random, 3, 3, 5, 7), pick(random, 1, 1, 2), group=c.channels)
        c.activate()
        c.conv(cout, 1)
        c.activate(0.3)
    elif kind == "residual":
        c.conv(hidden, pick(random, 1, 3))
        c.activate(1)
        c.conv(cin, 3, dilation=pick(random, 1, 1, 1, 2))
        c.add("Add", "x")
        c.activate()
    elif kind == "concat":
        c.conv(hidden, kernel)
        c.activate()
        c.add("Concat", "x", axis=1)
        c.channels += cin
        c.conv(cout, 3)
    elif kind == "squeeze":
        first = c.conv(hidden, kernel)
        c.add("GlobalAveragePool")
        c.conv(max(1, hidden // 4), 1)
        c.add("Relu")
        c.conv(hidden, 1)
        c.add("Sigmoid")
        c.add("Mul", first)
    else:
        c.conv(hidden, kernel, pick(random, 1, 1, 1, 2))
        if kind == "norm":
            names = [c.weights([hidden]), c.weights([hidden])]
            c.add("InstanceNormalization", *names)
        c.activate()
        if "resize" in kind:
            c.resize()
        if "pool" in kind:
            c.pool()
        c.conv(cout, pick(random, 1, 3, 3), dilation=pick(random, 1, 1, 1, 2))
        c.activate(0.4)
    side = max(6.0, min(400.0 if rank == 2 else 20000.0, (between(random, 4e6, 1.5e8) / c.flops) ** (1 / rank)))
    sides = [max(6, int(side * random.uniform(0.7, 1.4))) for _ in range(rank)]
    inputs = {"x": tensor("f32", [pick(random, 1, 1, 1, 2), cin, *sides]), **c.inputs}
    c.nodes[-1]["outputs"] = ["y"]
    with_symbols(random, inputs, [[("x", d)] for d in (0, *range(2, rank + 2))])
    return case(f"chain {kind}", c.nodes, inputs)


FAMILIES = [(draw_chain, 8)]  # beside the 100 of bench/cliff_cases.py
