#!/usr/bin/env python3
"""Training steps against PyTorch, eager and compiled: the same model, batch, loss and AdamW, in one process, in turn. Each step takes
its batch from host memory. On a GPU, the peers are PyTorch's fused AdamW and Inductor with CUDA graphs (mode "reduce-overhead").

Run it with a Python that has tessera and onnx (make python), and torch for the comparison. --clock processor is for one thread
where others are busy. A model that cannot be differentiated is listed with the reason."""
import argparse
import math
import statistics
import time

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import tessera


class Builder:
    """An ONNX graph, node by node; weights are drawn from a seed."""

    def __init__(self):
        self.nodes, self.weights, self.draw, self.count = [], [], np.random.default_rng(0), 0

    def op(self, kind, *inputs, outputs=1, **attributes):
        self.count += 1
        names = [f"v{self.count}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def weight(self, name, *shape, fan=None, value=None):
        array = np.full(shape, value, np.float32) if value is not None else (self.draw.standard_normal(shape) / math.sqrt(fan or shape[0])).astype(np.float32)
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def ints(self, *values):
        self.count += 1
        self.weights.append(numpy_helper.from_array(np.array(values, np.int64), f"c{self.count}"))
        return f"c{self.count}"

    def linear(self, x, name, a, b):
        return self.op("Add", self.op("MatMul", x, self.weight(f"{name}.weight", a, b)), self.weight(f"{name}.bias", b, value=0))

    def norm(self, x, name, width):
        return self.op("LayerNormalization", x, self.weight(f"{name}.weight", width, value=1), self.weight(f"{name}.bias", width, value=0), axis=-1)

    def model(self, x, shape, y, out):
        self.nodes.append(helper.make_node("Identity", [y], ["y"]))
        info = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        graph = helper.make_graph(self.nodes, "g", [info(x, shape)], [info("y", out)], initializer=self.weights)
        return tessera.from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]))


def mlp():
    b, x = Builder(), "x"
    for i, (m, n) in enumerate(((784, 1024), (1024, 1024), (1024, 10))):
        x = b.linear(x, f"fc{i}", m, n)
        x = b.op("Relu", x) if i < 2 else x
    model = b.model("x", (64, 784), x, (64, 10))

    def peer(nn):
        return nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    return model, peer, (64, 784), 10


def lstm():
    b, t, n, width, hidden = Builder(), 32, 16, 64, 128
    w, r = b.weight("lstm.w", 1, 4 * hidden, width, fan=width), b.weight("lstm.r", 1, 4 * hidden, hidden, fan=hidden)
    y, h, c = b.op("LSTM", b.op("Transpose", "x", perm=[1, 0, 2]), w, r, b.weight("lstm.b", 1, 8 * hidden, value=0), outputs=3, hidden_size=hidden)
    model = b.model("x", (n, t, width), b.linear(b.op("Squeeze", h, b.ints(0)), "out", hidden, 10), (n, 10))

    def peer(nn):
        class Last(nn.Module):
            def __init__(self):
                super().__init__()
                self.lstm, self.out = nn.LSTM(width, hidden, batch_first=True), nn.Linear(hidden, 10)

            def forward(self, x):
                return self.out(self.lstm(x)[0][:, -1])
        return Last()
    return model, peer, (n, t, width), 10


def transformer(n=8, s=128, d=256, heads=4, layers=4):
    b = Builder()
    split = lambda x: b.op("Transpose", b.op("Reshape", x, b.ints(n, s, heads, d // heads)), perm=[0, 2, 1, 3])
    x = b.linear("x", "embed", 64, d)
    for i in range(layers):
        y = b.norm(x, f"l{i}.n1", d)
        q, k, v = (split(b.linear(y, f"l{i}.{c}", d, d)) for c in "qkv")
        scale = b.weight(f"l{i}.scale", value=1 / math.sqrt(d // heads))
        p = b.op("Softmax", b.op("Mul", b.op("MatMul", q, b.op("Transpose", k, perm=[0, 1, 3, 2])), scale), axis=-1)
        y = b.op("Reshape", b.op("Transpose", b.op("MatMul", p, v), perm=[0, 2, 1, 3]), b.ints(n, s, d))
        x = b.op("Add", x, b.linear(y, f"l{i}.o", d, d))
        y = b.linear(b.norm(x, f"l{i}.n2", d), f"l{i}.f1", d, 4 * d)
        x = b.op("Add", x, b.linear(b.op("Relu", y), f"l{i}.f2", 4 * d, d))
    y = b.linear(b.op("ReduceMean", b.norm(x, "norm", d), b.ints(1), keepdims=0), "out", d, 10)
    model = b.model("x", (n, s, 64), y, (n, 10))

    def peer(nn):
        class Whole(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.norm, self.out = nn.Linear(64, d), nn.LayerNorm(d), nn.Linear(d, 10)
                self.layers = nn.ModuleList(nn.TransformerEncoderLayer(d, heads, 4 * d, dropout=0.0, batch_first=True, norm_first=True) for _ in range(layers))

            def forward(self, x):
                x = self.embed(x)
                for layer in self.layers:
                    x = layer(x)
                return self.out(self.norm(x).mean(1))
        return Whole()
    return model, peer, (n, s, 64), 10


def bert():
    """An encoder of the size of BERT-base, without its embedding."""
    return transformer(n=32, d=768, heads=12, layers=12)


def resnet18(n=8):
    b = Builder()

    def conv(x, name, a, c, k, stride):
        y = b.op("Conv", x, b.weight(f"{name}.weight", c, a, k, k, fan=a * k * k / 2), strides=[stride] * 2, pads=[k // 2] * 4)
        return b.op("BatchNormalization", y, b.weight(f"{name}.scale", c, value=1), b.weight(f"{name}.bias", c, value=0),
                    b.weight(f"{name}.mean", c, value=0), b.weight(f"{name}.var", c, value=1))
    x = b.op("MaxPool", b.op("Relu", conv("x", "stem", 3, 64, 7, 2)), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    width = 64
    for stage, c in enumerate((64, 128, 256, 512)):
        for block in range(2):
            stride = 2 if stage and not block else 1
            y = conv(b.op("Relu", conv(x, f"s{stage}b{block}.1", width, c, 3, stride)), f"s{stage}b{block}.2", c, c, 3, 1)
            x = b.op("Relu", b.op("Add", y, x if stride == 1 and width == c else conv(x, f"s{stage}b{block}.d", width, c, 1, stride)))
            width = c
    y = b.linear(b.op("Flatten", b.op("GlobalAveragePool", x)), "fc", 512, 1000)
    model = b.model("x", (n, 3, 224, 224), y, (n, 1000))

    def peer(nn):
        class Block(nn.Module):
            def __init__(self, a, c, stride):
                super().__init__()
                self.body = nn.Sequential(nn.Conv2d(a, c, 3, stride, 1, bias=False), nn.BatchNorm2d(c), nn.ReLU(), nn.Conv2d(c, c, 3, 1, 1, bias=False), nn.BatchNorm2d(c))
                self.down = nn.Identity() if stride == 1 and a == c else nn.Sequential(nn.Conv2d(a, c, 1, stride, bias=False), nn.BatchNorm2d(c))

            def forward(self, x):
                return (self.body(x) + self.down(x)).relu()
        sizes = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]
        return nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
                             *[Block(*s) for s in sizes], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))
    return model, peer, (n, 3, 224, 224), 1000


def resnet18_64():
    return resnet18(64)


MODELS = {"mlp": mlp, "lstm": lstm, "transformer": transformer, "resnet18": resnet18}
LARGE = {"resnet18_64": resnet18_64, "bert": bert}


def torch_step(peer, x, labels, args, compiled):
    import torch
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    cuda = args.device == "cuda"
    module = peer(torch.nn).to(args.device)
    optimizer = torch.optim.AdamW(module.parameters(), 1e-3, fused=True if cuda else None)
    forward = torch.compile(module, mode="reduce-overhead" if cuda else None) if compiled else module
    x, labels = torch.from_numpy(x), torch.from_numpy(labels)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(args.device, torch.bfloat16, enabled=args.precision == "bf16"):
            loss = torch.nn.functional.cross_entropy(forward(x.to(args.device)), labels.to(args.device))
        loss.backward()
        optimizer.step()
        return loss.item()
    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", choices=[[], *MODELS, *LARGE], help=f"of {', '.join(MODELS)} (all these), {', '.join(LARGE)}")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=("f32", "bf16"), default="f32", help="of products; autocast of PyTorch (%(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="(%(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="(%(default)s)")
    parser.add_argument("--steps", type=int, default=3, help="of a round (%(default)s)")
    parser.add_argument("--clock", choices=("wall", "processor"), default="wall")
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--no-inductor", action="store_true", help="leave torch.compile out")
    args = parser.parse_args()
    clock = time.process_time if args.clock == "processor" else time.perf_counter
    ratios = []
    for name in args.models or MODELS:
        model, peer, shape, classes = {**MODELS, **LARGE}[name]()
        draw = np.random.default_rng(1)
        x, labels = draw.standard_normal(shape).astype(np.float32), draw.integers(0, classes, shape[0])
        begin = time.perf_counter()
        try:
            ours = tessera.training(model, "cross_entropy", tessera.AdamW(1e-3), precision=args.precision, threads=args.threads, cache="",
                                    target="host" if args.device == "cpu" else "cuda")
        except tessera.Error as e:
            print(f"{name}: {str(e).splitlines()[0]}")
            continue
        ours(x, labels)
        first = time.perf_counter() - begin
        steps = {"tessera": lambda: ours(x, labels)}
        if not args.no_torch:
            steps["eager"] = torch_step(peer, x, labels, args, False)
            if not args.no_inductor:
                steps["inductor"] = torch_step(peer, x, labels, args, True)
        times = {which: [] for which in steps}
        for round in range(args.rounds + 1):
            for which, step in steps.items():
                start = clock()
                for _ in range(args.steps):
                    step()
                times[which].append((clock() - start) / args.steps)
        losses = {which: step() for which, step in steps.items()}
        found = {which: statistics.median(t[1:]) * 1e3 for which, t in times.items()}
        line = f"{name}: " + ", ".join(f"{which} {ms:.2f} ms" for which, ms in found.items()) + f"; first step {first:.1f} s; losses " + ", ".join(f"{v:.4g}" for v in losses.values())
        if len(found) > 1:
            best = found["inductor" if "inductor" in found else "eager"]
            ratios.append(best / found["tessera"])
            line += f"; {ratios[-1]:.2f} times as fast"
        print(line, flush=True)
    if ratios:
        print(f"geometric mean {statistics.geometric_mean(ratios):.2f}, {args.threads} thread{'s' if args.threads > 1 else ''}, {args.clock} clock")


if __name__ == "__main__":
    main()
