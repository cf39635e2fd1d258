"""Models for training.py whose kinds guided nobody: a mixer, a decoder with grouped heads, a ConvNeXt, a VGG. Each gives
the model, its PyTorch peer, the shape of its input and the number of classes."""
from onnx import TensorProto


def mixer(b, n=64, s=196, d=512, tokens=256, layers=8):
    """An MLP-Mixer on embedded patches."""
    x = b.linear("x", "embed", 192, d)
    for i in range(layers):
        y = b.op("Transpose", b.norm(x, f"l{i}.n1", d), perm=[0, 2, 1])
        y = b.linear(b.op("Gelu", b.linear(y, f"l{i}.t1", s, tokens)), f"l{i}.t2", tokens, s)
        x = b.op("Add", x, b.op("Transpose", y, perm=[0, 2, 1]))
        y = b.op("Gelu", b.linear(b.norm(x, f"l{i}.n2", d), f"l{i}.c1", d, 4 * d))
        x = b.op("Add", x, b.linear(y, f"l{i}.c2", 4 * d, d))
    y = b.linear(b.op("ReduceMean", b.norm(x, "norm", d), b.ints(1), keepdims=0), "head", d, 1000)
    model = b.model("x", (n, s, 192), y, (n, 1000))

    def peer(nn):
        class Layer(nn.Module):
            def __init__(self):
                super().__init__()
                self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
                self.tokens = nn.Sequential(nn.Linear(s, tokens), nn.GELU(), nn.Linear(tokens, s))
                self.channels = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

            def forward(self, x):
                x = x + self.tokens(self.n1(x).transpose(1, 2)).transpose(1, 2)
                return x + self.channels(self.n2(x))

        class Whole(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.norm, self.head = nn.Linear(192, d), nn.LayerNorm(d), nn.Linear(d, 1000)
                self.layers = nn.Sequential(*[Layer() for _ in range(layers)])

            def forward(self, x):
                return self.head(self.norm(self.layers(self.embed(x))).mean(1))
        return Whole()
    return model, peer, (n, s, 192), 1000


def decoder(b, n=8, s=512, d=1024, heads=16, shared=4, hidden=2816, layers=6, words=32000):
    """RMS norms, causal attention whose key heads queries share, gated SiLU."""
    size = d // heads

    def split(x, count):
        return b.op("Transpose", b.op("Reshape", x, b.ints(n, s, count, size)), perm=[0, 2, 1, 3])

    def product(x, name, a, c):
        return b.op("MatMul", x, b.weight(name, a, c))

    def norm(x, name):
        return b.op("RMSNormalization", x, b.weight(name, d, value=1), axis=-1)
    x = b.op("Gather", b.weight("embed", words, d, fan=2500), "x", axis=0)
    for i in range(layers):
        y = norm(x, f"l{i}.n1")
        q, k, v = (split(product(y, f"l{i}.{c}", d, size * h), h) for c, h in zip("qkv", (heads, shared, shared)))
        y = b.op("Transpose", b.op("Attention", q, k, v, is_causal=1), perm=[0, 2, 1, 3])
        x = b.op("Add", x, product(b.op("Reshape", y, b.ints(n, s, d)), f"l{i}.o", d, d))
        y = norm(x, f"l{i}.n2")
        gate = product(y, f"l{i}.gate", d, hidden)
        y = b.op("Mul", b.op("Mul", gate, b.op("Sigmoid", gate)), product(y, f"l{i}.up", d, hidden))
        x = b.op("Add", x, product(y, f"l{i}.down", hidden, d))
    model = b.model("x", (n, s), product(norm(x, "norm"), "head", d, words), (n, s, words), TensorProto.INT64)

    def peer(nn):
        import torch.nn.functional as F

        class Layer(nn.Module):
            def __init__(self):
                super().__init__()
                self.n1, self.n2 = nn.RMSNorm(d, eps=1e-5), nn.RMSNorm(d, eps=1e-5)
                self.q, self.o = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
                self.k, self.v = nn.Linear(d, size * shared, bias=False), nn.Linear(d, size * shared, bias=False)
                self.gate, self.up, self.down = nn.Linear(d, hidden, bias=False), nn.Linear(d, hidden, bias=False), nn.Linear(hidden, d, bias=False)

            def forward(self, x):
                y = self.n1(x)
                q, k, v = (f(y).view(n, s, -1, size).transpose(1, 2) for f in (self.q, self.k, self.v))
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
                x = x + self.o(y.transpose(1, 2).reshape(n, s, d))
                y = self.n2(x)
                return x + self.down(F.silu(self.gate(y)) * self.up(y))

        class Whole(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.norm, self.head = nn.Embedding(words, d), nn.RMSNorm(d, eps=1e-5), nn.Linear(d, words, bias=False)
                self.layers = nn.Sequential(*[Layer() for _ in range(layers)])

            def forward(self, x):
                return self.head(self.norm(self.layers(self.embed(x)))).flatten(0, 1)
        return Whole()
    return model, peer, (n, s), words


def convnext(b, n=32, widths=(96, 192), blocks=3):
    """Depthwise convolutions of 7 x 7, layer norms over channels, pointwise layers."""
    x = b.op("Conv", "x", b.weight("stem", widths[0], 3, 4, 4, fan=48), strides=[4, 4])
    for stage, c in enumerate(widths):
        if stage:
            x = b.op("Conv", x, b.weight(f"s{stage}.down", c, widths[stage - 1], 2, 2, fan=4 * widths[stage - 1]), strides=[2, 2])
        for i in range(blocks):
            y = b.op("Conv", x, b.weight(f"s{stage}b{i}.dw", c, 1, 7, 7, fan=49), group=c, pads=[3] * 4)
            y = b.norm(b.op("Transpose", y, perm=[0, 2, 3, 1]), f"s{stage}b{i}.n", c)
            y = b.linear(b.op("Gelu", b.linear(y, f"s{stage}b{i}.1", c, 4 * c)), f"s{stage}b{i}.2", 4 * c, c)
            x = b.op("Add", x, b.op("Transpose", y, perm=[0, 3, 1, 2]))
    y = b.linear(b.op("Flatten", b.op("GlobalAveragePool", x)), "head", widths[-1], 1000)
    model = b.model("x", (n, 3, 224, 224), y, (n, 1000))

    def peer(nn):
        class Block(nn.Module):
            def __init__(self, c):
                super().__init__()
                self.dw, self.n = nn.Conv2d(c, c, 7, padding=3, groups=c, bias=False), nn.LayerNorm(c)
                self.rest = nn.Sequential(nn.Linear(c, 4 * c), nn.GELU(), nn.Linear(4 * c, c))

            def forward(self, x):
                return x + self.rest(self.n(self.dw(x).permute(0, 2, 3, 1))).permute(0, 3, 1, 2)
        parts = [nn.Conv2d(3, widths[0], 4, 4, bias=False)]
        for stage, c in enumerate(widths):
            if stage:
                parts.append(nn.Conv2d(widths[stage - 1], c, 2, 2, bias=False))
            parts += [Block(c) for _ in range(blocks)]
        return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 1000))
    return model, peer, (n, 3, 224, 224), 1000


def vgg(b, n=32, widths=(64, 128, 256, 512)):
    """Convolutions of 3 x 3 with a bias and ReLU, and pools; no norm."""
    x, before = "x", 3
    for stage, c in enumerate(widths):
        for i in range(2):
            w, bias = b.weight(f"s{stage}c{i}.weight", c, before, 3, 3, fan=9 * before / 2), b.weight(f"s{stage}c{i}.bias", c, value=0)
            x, before = b.op("Relu", b.op("Conv", x, w, bias, pads=[1] * 4)), c
        x = b.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    y = b.linear(b.op("Flatten", b.op("GlobalAveragePool", x)), "head", widths[-1], 1000)
    model = b.model("x", (n, 3, 224, 224), y, (n, 1000))

    def peer(nn):
        parts, before = [], 3
        for c in widths:
            for _ in range(2):
                parts += [nn.Conv2d(before, c, 3, padding=1), nn.ReLU()]
                before = c
            parts.append(nn.MaxPool2d(2))
        return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 1000))
    return model, peer, (n, 3, 224, 224), 1000


OTHERS = {"mixer": mixer, "decoder": decoder, "convnext": convnext, "vgg": vgg}
