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
from training_others import OTHERS


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

    def scalar_int(self, value):
        self.count += 1
        self.weights.append(numpy_helper.from_array(np.array(value, np.int64), f"c{self.count}"))
        return f"c{self.count}"

    def linear(self, x, name, a, b):
        return self.op("Add", self.op("MatMul", x, self.weight(f"{name}.weight", a, b)), self.weight(f"{name}.bias", b, value=0))

    def norm(self, x, name, width):
        return self.op("LayerNormalization", x, self.weight(f"{name}.weight", width, value=1), self.weight(f"{name}.bias", width, value=0), axis=-1)

    def encoder_layer(self, x, name, n, s, d, heads, activation, causal=0):
        """Attention and two products, each after a norm and added to what came in."""
        split = lambda x: self.op("Transpose", self.op("Reshape", x, self.ints(n, s, heads, d // heads)), perm=[0, 2, 1, 3])
        y = self.norm(x, f"{name}.n1", d)
        q, k, v = (split(self.linear(y, f"{name}.{c}", d, d)) for c in "qkv")
        y = self.op("Transpose", self.op("Attention", q, k, v, is_causal=causal), perm=[0, 2, 1, 3])
        x = self.op("Add", x, self.linear(self.op("Reshape", y, self.ints(n, s, d)), f"{name}.o", d, d))
        y = self.op(activation, self.linear(self.norm(x, f"{name}.n2", d), f"{name}.f1", d, 4 * d))
        return self.op("Add", x, self.linear(y, f"{name}.f2", 4 * d, d))

    def model(self, x, shape, y, out, kind=TensorProto.FLOAT):
        self.nodes.append(helper.make_node("Identity", [y], ["y"]))
        graph = helper.make_graph(self.nodes, "g", [helper.make_tensor_value_info(x, kind, shape)],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, out)], initializer=self.weights)
        return tessera.from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)]))


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


def resnet_stem():
    """A builder, how it makes a normalized convolution, and what the first layers of a ResNet give."""
    b = Builder()

    def conv(x, name, a, c, k, stride):
        y = b.op("Conv", x, b.weight(f"{name}.weight", c, a, k, k, fan=a * k * k / 2), strides=[stride] * 2, pads=[k // 2] * 4)
        return b.op("BatchNormalization", y, b.weight(f"{name}.scale", c, value=1), b.weight(f"{name}.bias", c, value=0),
                    b.weight(f"{name}.mean", c, value=0), b.weight(f"{name}.var", c, value=1))
    x = b.op("MaxPool", b.op("Relu", conv("x", "stem", 3, 64, 7, 2)), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    return b, conv, x


def resnet18(n=8):
    b, conv, x = resnet_stem()
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


def resnet50(n=64):
    b, conv, x = resnet_stem()
    width, blocks = 64, [(c, 2 if stage and not i else 1, i) for stage, (c, count) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))) for i in range(count)]
    for c, stride, i in blocks:
        y = b.op("Relu", conv(x, f"c{c}b{i}.1", width, c, 1, 1))
        y = conv(b.op("Relu", conv(y, f"c{c}b{i}.2", c, c, 3, stride)), f"c{c}b{i}.3", c, 4 * c, 1, 1)
        x = b.op("Relu", b.op("Add", y, x if i else conv(x, f"c{c}b{i}.d", width, 4 * c, 1, stride)))
        width = 4 * c
    y = b.linear(b.op("Flatten", b.op("GlobalAveragePool", x)), "fc", 2048, 1000)
    model = b.model("x", (n, 3, 224, 224), y, (n, 1000))

    def peer(nn):
        class Block(nn.Module):
            def __init__(self, a, c, stride, down):
                super().__init__()
                self.body = nn.Sequential(nn.Conv2d(a, c, 1, bias=False), nn.BatchNorm2d(c), nn.ReLU(), nn.Conv2d(c, c, 3, stride, 1, bias=False), nn.BatchNorm2d(c), nn.ReLU(),
                                          nn.Conv2d(c, 4 * c, 1, bias=False), nn.BatchNorm2d(4 * c))
                self.down = nn.Sequential(nn.Conv2d(a, 4 * c, 1, stride, bias=False), nn.BatchNorm2d(4 * c)) if down else nn.Identity()

            def forward(self, x):
                return (self.body(x) + self.down(x)).relu()
        layers, width = [], 64
        for c, stride, i in blocks:
            layers.append(Block(width, c, stride, not i))
            width = 4 * c
        return nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *layers,
                             nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))
    return model, peer, (n, 3, 224, 224), 1000


def torch_layers(nn, d, heads, layers, causal):
    """Layers as Builder.encoder_layer has them."""
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.n1, self.n2, self.qkv, self.o = nn.LayerNorm(d), nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.f1, self.f2 = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

        def forward(self, x):
            n, s, _ = x.shape
            q, k, v = (y.view(n, s, heads, d // heads).transpose(1, 2) for y in self.qkv(self.n1(x)).split(d, -1))
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).reshape(n, s, d)
            x = x + self.o(y)
            return x + self.f2(nn.functional.gelu(self.f1(self.n2(x))))
    return nn.Sequential(*(Layer() for _ in range(layers)), nn.LayerNorm(d))


def gpt2(n=8, s=1024, d=768, heads=12, layers=12, vocabulary=50257):
    """GPT-2 small, its embedding of tokens the last product's matrix too."""
    b = Builder()
    table = b.weight("wte", vocabulary, d, fan=2500)
    x = b.op("Add", b.op("Gather", table, "x"), b.weight("wpe", s, d, fan=2500))
    for i in range(layers):
        x = b.encoder_layer(x, f"h{i}", n, s, d, heads, "Gelu", 1)
    y = b.op("MatMul", b.norm(x, "norm", d), b.op("Transpose", table, perm=[1, 0]))
    model = b.model("x", (n, s), y, (n, s, vocabulary), TensorProto.INT64)

    def peer(nn):
        class Whole(nn.Module):
            def __init__(self):
                super().__init__()
                self.wte, self.wpe, self.layers = nn.Embedding(vocabulary, d), nn.Embedding(s, d), torch_layers(nn, d, heads, layers, True)
                nn.init.normal_(self.wte.weight, std=0.02)
                nn.init.normal_(self.wpe.weight, std=0.02)

            def forward(self, x):
                return nn.functional.linear(self.layers(self.wte(x) + self.wpe.weight), self.wte.weight).flatten(0, 1)
        return Whole()
    return model, peer, (n, s), vocabulary


def vit(n=64, d=768, heads=12, layers=12):
    """ViT-B/16."""
    b = Builder()
    y = b.op("Conv", "x", b.weight("patch.weight", d, 3, 16, 16, fan=768), b.weight("patch.bias", d, value=0), strides=[16, 16])
    y = b.op("Transpose", b.op("Reshape", y, b.ints(n, d, 196)), perm=[0, 2, 1])
    x = b.op("Concat", b.op("Expand", b.weight("cls", 1, 1, d, value=0), b.ints(n, 1, d)), y, axis=1)
    x = b.op("Add", x, b.weight("positions", 1, 197, d, fan=2500))
    for i in range(layers):
        x = b.encoder_layer(x, f"h{i}", n, 197, d, heads, "Gelu")
    y = b.op("Gather", b.norm(x, "norm", d), b.scalar_int(0), axis=1)
    model = b.model("x", (n, 3, 224, 224), b.linear(y, "head", d, 1000), (n, 1000))

    def peer(nn):
        class Whole(nn.Module):
            def __init__(self):
                super().__init__()
                self.patch, self.layers, self.head = nn.Conv2d(3, d, 16, 16), torch_layers(nn, d, heads, layers, False), nn.Linear(d, 1000)
                self.cls, self.positions = nn.Parameter(self.head.weight.new_zeros(1, 1, d)), nn.Parameter(self.head.weight.new_zeros(1, 197, d))

            def forward(self, x):
                x = self.patch(x).flatten(2).transpose(1, 2)
                import torch
                return self.head(self.layers(torch.cat([self.cls.expand(n, -1, -1).to(x.dtype), x], 1) + self.positions)[:, 0])
        return Whole()
    return model, peer, (n, 3, 224, 224), 1000


MODELS = {"mlp": mlp, "lstm": lstm, "transformer": transformer, "resnet18": resnet18}
LARGE = {"resnet18_64": resnet18_64, "bert": bert, "resnet50": resnet50, "gpt2": gpt2, "vit": vit,
         **{name: (lambda make=make: make(Builder())) for name, make in OTHERS.items()}}


def torch_step(peer, x, labels, args, compiled):
    import torch
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    cuda = args.device == "cuda"
    module = peer(torch.nn).to(args.device)
    last = torch.channels_last if cuda and x.ndim == 4 else torch.contiguous_format
    module = module.to(memory_format=last)
    optimizer = torch.optim.AdamW(module.parameters(), 1e-3, fused=True if cuda else None)
    forward = torch.compile(module, mode="reduce-overhead" if cuda else None) if compiled else module
    x, labels = torch.from_numpy(x), torch.from_numpy(labels)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(args.device, torch.bfloat16, enabled=args.precision == "bf16"):
            loss = torch.nn.functional.cross_entropy(forward(x.to(args.device).contiguous(memory_format=last)), labels.to(args.device).flatten())
        loss.backward()
        optimizer.step()
        return loss.item()
    return step


def free_gigabytes(args):
    """Of the GPU, as its driver counts, with what PyTorch caches given back; 0 without PyTorch."""
    if args.no_torch or args.device != "cuda":
        return 0
    import torch
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info()[0] / 1e9


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
    alone = len(args.models) == 1 and args.device == "cuda" and not args.no_torch  # others leave memory behind
    for name in args.models or MODELS:
        model, peer, shape, classes = {**MODELS, **LARGE}[name]()
        draw = np.random.default_rng(1)
        tokens = len(shape) == 2 and model.inputs[0].dtype == "i64"
        x = draw.integers(0, classes, shape) if tokens else draw.standard_normal(shape).astype(np.float32)
        labels = draw.integers(0, classes, shape if tokens else shape[0])
        loss = tessera.Loss("cross_entropy", class_axis=-1) if tokens else "cross_entropy"
        free = free_gigabytes(args)
        begin = time.perf_counter()
        try:
            ours = tessera.training(model, loss, tessera.AdamW(1e-3), precision=args.precision, threads=args.threads, cache="",
                                    target="host" if args.device == "cpu" else "cuda")
        except tessera.Error as e:
            print(f"{name}: {str(e).splitlines()[0]}")
            continue
        ours(x, labels)
        first = {"tessera": time.perf_counter() - begin}
        memory = {"tessera": free - free_gigabytes(args)}
        steps = {"tessera": lambda: ours(x, labels)}
        if not args.no_torch:
            steps["eager"] = torch_step(peer, x, labels, args, False)
            if not args.no_inductor:
                steps["inductor"] = torch_step(peer, x, labels, args, True)
        for which in list(steps)[1:]:
            free, begin = free_gigabytes(args), time.perf_counter()
            steps[which]()
            first[which] = time.perf_counter() - begin
            for _ in range(3):  # CUDA graphs are recorded later
                steps[which]()
            memory[which] = free - free_gigabytes(args)
        times = {which: [] for which in steps}
        for round in range(args.rounds + 1):
            for which, step in steps.items():
                start = clock()
                for _ in range(args.steps):
                    step()
                times[which].append((clock() - start) / args.steps)
        losses = {which: step() for which, step in steps.items()}
        found = {which: statistics.median(t[1:]) * 1e3 for which, t in times.items()}
        line = f"{name}: " + ", ".join(f"{which} {ms:.2f} ms" for which, ms in found.items()) + "; first step " + ", ".join(f"{v:.1f}" for v in first.values()) + " s" + (
            "; then takes " + ", ".join(f"{v:.1f}" for v in memory.values()) + " GB" if alone else "") + "; losses " + ", ".join(f"{v:.4g}" for v in losses.values())
        if len(found) > 1:
            best = found["inductor" if "inductor" in found else "eager"]
            ratios.append(best / found["tessera"])
            line += f"; {ratios[-1]:.2f} times as fast"
        print(line, flush=True)
    if ratios:
        print(f"geometric mean {statistics.geometric_mean(ratios):.2f}, {args.threads} thread{'s' if args.threads > 1 else ''}, {args.clock} clock")


if __name__ == "__main__":
    main()
