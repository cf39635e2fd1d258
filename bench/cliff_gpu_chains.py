"""Chains of layers for bench/cliffs_gpu.py: torch modules with kinds, sizes and order drawn from a seed.

`draw(seed)` gives a module in f32, its inputs, the element type to run it in, and one line that describes it."""
import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from cliff_cases import between, chance, pick, size

ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu,
               "sigmoid": torch.sigmoid, "tanh": torch.tanh, "hardswish": F.hardswish, "leaky_relu": F.leaky_relu}
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}


class Step(nn.Module):
    """A function of one tensor with a name."""

    def __init__(self, name, function, **parts):
        super().__init__()
        self.name, self.function = name, function
        for part, module in parts.items():
            setattr(self, part, module)

    def forward(self, x):
        return self.function(self, x)


class Chain(nn.Module):
    def __init__(self, steps):
        super().__init__()
        self.steps = nn.ModuleList(steps)

    def forward(self, x):
        for step in self.steps:
            x = step(x)
        return x


class RmsNorm(nn.Module):
    """As transformers writes it: in f32, and rounded before the scale."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(width))

    def forward(self, x):
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


def rotated(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


class Attention(nn.Module):
    def __init__(self, random, width, length):
        super().__init__()
        self.head = pick(random, 16, 32, 32, 64, 64, 80, 128, 256)
        self.heads = max(1, min(16, width // self.head))
        self.keys = pick(random, *[h for h in (1, 2, 4, self.heads) if self.heads % h == 0])
        self.causal, self.biased, self.rotary = (chance(random, p) for p in (0.4, 0.3, 0.3))
        self.joined = self.keys == self.heads and chance(random, 0.5)
        inner, shared = self.heads * self.head, self.keys * self.head
        self.project = nn.Linear(width, inner + 2 * shared, bias=chance(random, 0.5))
        self.out = nn.Linear(inner, width, bias=chance(random, 0.5))
        self.sizes = [inner, shared, shared]
        if self.biased:
            self.bias = nn.Parameter(torch.randn(1, self.heads, length, length))
        if self.rotary:
            angles = torch.arange(length)[:, None] * torch.exp(-torch.arange(self.head // 2) / self.head)[None]
            angles = torch.cat((angles, angles), -1)
            self.register_buffer("cos", angles.cos())
            self.register_buffer("sin", angles.sin())

    def describe(self):
        kinds = [word for word, on in (("causal", self.causal), ("bias", self.biased), ("rope", self.rotary)) if on]
        return " ".join([f"{self.heads}:{self.keys}x{self.head}", *kinds])

    def forward(self, x):
        batch, length, _ = x.shape
        if self.joined:
            q, k, v = self.project(x).view(batch, length, 3, self.heads, self.head).permute(2, 0, 3, 1, 4).unbind(0)
        else:
            q, k, v = (t.view(batch, length, -1, self.head).transpose(1, 2)
                       for t in self.project(x).split(self.sizes, -1))
        if self.rotary:
            q, k = (rotated(t, self.cos.to(t.dtype), self.sin.to(t.dtype)) for t in (q, k))
        if self.keys != self.heads:
            k, v = (t.repeat_interleave(self.heads // self.keys, 1) for t in (k, v))
        if self.biased:
            weights = q @ k.transpose(-2, -1) * self.head**-0.5 + self.bias
            if self.causal:
                mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
                weights = weights.masked_fill(~mask, torch.finfo(weights.dtype).min)
            found = torch.softmax(weights, -1) @ v
        else:
            found = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(found.transpose(1, 2).reshape(batch, length, -1))


class Windows(nn.Module):
    """Attention within windows of an image that lies as a sequence, some of them rolled."""

    def __init__(self, random, width, side, window):
        super().__init__()
        self.side, self.window = side, window
        self.shift = window // 2 if chance(random, 0.5) else 0
        self.inner = Attention(random, width, window * window)

    def describe(self):
        return f"{self.side}/{self.window}{' rolled' if self.shift else ''} {self.inner.describe()}"

    def forward(self, x):
        batch, _, width = x.shape
        count = self.side // self.window
        image = x.view(batch, self.side, self.side, width)
        if self.shift:
            image = image.roll((-self.shift, -self.shift), (1, 2))
        parts = image.view(batch, count, self.window, count, self.window, width).transpose(2, 3)
        parts = self.inner(parts.reshape(-1, self.window * self.window, width))
        image = parts.view(batch, count, count, self.window, self.window, width).transpose(2, 3)
        image = image.reshape(batch, self.side, self.side, width)
        if self.shift:
            image = image.roll((self.shift, self.shift), (1, 2))
        return image.reshape(batch, -1, width)


def activation(random):
    name = pick(random, *ACTIVATIONS)
    return Step(name, lambda s, x: ACTIVATIONS[name](x))


def residual(step):
    return Step(f"+({step.name})", lambda s, x: x + s.inner(x), inner=step)


def norm(random, width):
    if chance(random, 0.5):
        made = nn.LayerNorm(width)
        nn.init.normal_(made.weight, 1, 0.1)
        nn.init.normal_(made.bias, 0, 0.1)
        return Step(f"layer_norm({width})", lambda s, x: s.norm(x), norm=made)
    return Step(f"rms_norm({width})", lambda s, x: s.norm(x), norm=RmsNorm(width))


def linear(random, width, to):
    return Step(f"linear({width},{to})", lambda s, x: s.linear(x), linear=nn.Linear(width, to, bias=chance(random, 0.6)))


def gated(random, width):
    hidden = size(random, 32, 4 * width)
    name = pick(random, "silu", "gelu", "sigmoid")
    both = nn.Linear(width, 2 * hidden, bias=False)
    joined = chance(random, 0.5)
    parts = {"both": both} if joined else {"gate": nn.Linear(width, hidden, bias=False),
                                           "up": nn.Linear(width, hidden, bias=False)}

    def run(s, x):
        gate, up = s.both(x).chunk(2, -1) if joined else (s.gate(x), s.up(x))
        return s.down(ACTIVATIONS[name](gate) * up)

    return Step(f"gated_{name}({width},{hidden})", run, down=nn.Linear(hidden, width, bias=False), **parts)


def of_tokens(random):
    """Steps over [batch, length, width]."""
    window = pick(random, 4, 7, 8)
    side = window * pick(random, 1, 2, 4, 7, 8)
    windows = chance(random, 0.3) and side <= 56
    batch = pick(random, 1, 1, 2, 4, 8, 16)
    length = side * side if windows else pick(random, 49, 64, 100, 128, 197, 256, 384, 512, 777, 1024, 2048)
    while batch * length > 16384:
        batch = max(1, batch // 2)
    width = start = pick(random, 96, 128, 192, 256, 384, 512, 640, 768, 1000, 1024, 2048)
    steps = []
    for _ in range(int(random.integers(2, 7))):
        kind = pick(random, "norm", "norm", "linear", "linear", "activation", "gated", "attention", "attention", "mix",
                    "softmax", "scale")
        if kind == "norm":
            steps.append(norm(random, width))
        elif kind == "linear":
            to = pick(random, width, 4 * width, max(8, width // 4), size(random, 16, 3000))
            to = to if batch * length * to < 1 << 25 else width
            steps.append(linear(random, width, to))
            width = to
        elif kind == "activation":
            steps.append(activation(random))
        elif kind == "gated":
            steps.append(residual(gated(random, width)) if chance(random, 0.7) else gated(random, width))
        elif kind == "attention":
            made = Windows(random, width, side, window) if windows else Attention(random, width, length)
            step = Step(f"{'windows' if windows else 'attention'}({made.describe()})", lambda s, x: s.inner(x), inner=made)
            steps.append(residual(step) if chance(random, 0.6) else step)
        elif kind == "mix":
            mixed = nn.Linear(length, length)
            steps.append(Step(f"mix({length})", lambda s, x: s.linear(x.transpose(1, 2)).transpose(1, 2), linear=mixed)
                         if length <= 1024 else activation(random))
        elif kind == "softmax":
            axis = pick(random, -1, -1, 1)
            steps.append(Step(f"softmax({axis})", lambda s, x, axis=axis: torch.softmax(x, axis)))
            steps.append(norm(random, width))
        else:
            steps.append(Step("scale", lambda s, x: x * s.factor.weight[0], factor=nn.Embedding(1, width)))
    if chance(random, 0.3):
        axis = pick(random, 1, 1, 2)
        reduce = pick(random, "mean", "sum", "amax")
        steps.append(Step(f"{reduce}({axis})", lambda s, x: getattr(x, reduce)(axis)))
    return Chain(steps), torch.randn(batch, length, start)


def convolution(random, channels, side):
    kind = pick(random, "1x1", "1x1", "3x3", "3x3", "3x3", "depthwise", "depthwise", "grouped", "large")
    to = pick(random, channels, 2 * channels, size(random, 8, 512))
    kernel, groups = {"1x1": 1, "3x3": 3, "depthwise": pick(random, 3, 3, 5, 7), "grouped": 3,
                      "large": pick(random, 5, 7)}[kind], 1
    if kind == "depthwise":
        to = groups = channels
    elif kind == "grouped":
        groups = math.gcd(channels, pick(random, 2, 4, 8, 16, 32))
        to = max(groups, to // groups * groups)
    elif kind == "large":
        to = min(to, 128)
    stride = pick(random, 1, 1, 1, 2) if side >= 8 else 1
    dilation = pick(random, 1, 1, 1, 2) if stride == 1 and kernel > 1 else 1
    made = nn.Conv2d(channels, to, kernel, stride, (kernel - 1) * dilation // 2, dilation, groups,
                     bias=chance(random, 0.5))
    words = [f"conv{kernel}({channels},{to})"] + [f"{n}={v}" for n, v in (("stride", stride), ("groups", groups),
                                                                          ("dilation", dilation)) if v > 1]
    return Step(" ".join(words), lambda s, x: s.conv(x), conv=made), to, (side + stride - 1) // stride


def batch_norm(channels):
    made = nn.BatchNorm2d(channels)
    with torch.no_grad():
        for t, (mean, deviation) in ((made.weight, (1, 0.1)), (made.bias, (0, 0.1)), (made.running_mean, (0, 0.1))):
            t.normal_(mean, deviation)
        made.running_var.uniform_(0.5, 1.5)
    return Step("batch_norm", lambda s, x: s.norm(x), norm=made)


def squeeze(channels):
    few = max(4, channels // 8)

    def run(s, x):
        weight = torch.sigmoid(s.up(F.relu(s.down(x.mean((2, 3), keepdim=True)))))
        return x * weight

    return Step("squeeze", run, down=nn.Conv2d(channels, few, 1), up=nn.Conv2d(few, channels, 1))


def of_images(random):
    """Steps over [batch, channels, side, side]."""
    batch = pick(random, 1, 1, 2, 4, 8, 16)
    channels = start = pick(random, 3, 16, 24, 32, 40, 64, 96, 128, 192, 256)
    first = side = pick(random, 7, 14, 14, 28, 28, 56, 56, 112, 80, 33)
    while batch * channels * side * side > 1 << 23:
        batch, side = max(1, batch // 2), side if batch > 1 else side // 2
        first = side
    steps = []
    for _ in range(int(random.integers(2, 7))):
        kind = pick(random, "conv", "conv", "conv", "conv", "norm", "activation", "activation", "pool", "squeeze",
                    "channels_last", "shuffle", "upsample", "concat", "group_norm")
        elements = batch * channels * side * side
        if kind == "conv":
            step, channels, side = convolution(random, channels, side)
            steps.append(step)
        elif kind == "norm":
            steps.append(batch_norm(channels))
        elif kind == "activation":
            steps.append(activation(random))
        elif kind == "pool" and side >= 4:
            pool = pick(random, "max", "avg")
            function = F.max_pool2d if pool == "max" else F.avg_pool2d
            kernel = pick(random, 2, 2, 3)
            steps.append(Step(f"{pool}_pool{kernel}", lambda s, x, f=function, k=kernel: f(x, k, 2, k // 3)))
            side = (side + 2 * (kernel // 3) - kernel) // 2 + 1
        elif kind == "squeeze":
            steps.append(squeeze(channels))
        elif kind == "channels_last":
            inner = norm(random, channels)
            widened = linear(random, channels, channels) if chance(random, 0.5) else activation(random)
            steps.append(Step(f"last({inner.name},{widened.name})",
                              lambda s, x: s.b(s.a(x.permute(0, 2, 3, 1))).permute(0, 3, 1, 2), a=inner, b=widened))
        elif kind == "shuffle" and channels % 2 == 0:
            steps.append(Step("shuffle", lambda s, x: x.view(x.shape[0], 2, x.shape[1] // 2, *x.shape[2:]).transpose(
                1, 2).reshape(x.shape)))
        elif kind == "upsample" and elements < 1 << 21:
            mode = pick(random, "nearest", "bilinear")
            steps.append(Step(f"up_{mode}", lambda s, x, m=mode: F.interpolate(x, scale_factor=2, mode=m)))
            side *= 2
        elif kind == "concat" and elements < 1 << 22:
            other = nn.Conv2d(channels, channels, 1)
            steps.append(Step("concat", lambda s, x: torch.cat((x, F.relu(s.conv(x))), 1), conv=other))
            channels *= 2
        elif kind == "group_norm":
            groups = math.gcd(channels, 8)
            steps.append(Step(f"group_norm({groups})", lambda s, x: s.norm(x), norm=nn.GroupNorm(groups, channels)))
    if not steps:
        steps.append(activation(random))
    if chance(random, 0.2):
        steps.append(Step("mean(2,3)", lambda s, x: x.mean((2, 3))))
    return Chain(steps), torch.randn(batch, start, first, first)


def of_rows(random, kinds=("softmax", "log_softmax", "layer_norm", "rms_norm")):
    """One norm or softmax of rows that are 32 to 64k long."""
    length = between(random, 32, 65536)
    length = length // 8 * 8 if chance(random, 0.5) else length | 1
    rows = max(1, min(1 << 20, between(random, 1 << 18, 1 << 26) // length))
    kind = pick(random, *kinds)
    if kind.endswith("norm"):
        made = nn.LayerNorm(length) if kind == "layer_norm" else RmsNorm(length)
        step = Step(f"{kind}({length})", lambda s, x: s.norm(x), norm=made)
    else:
        step = Step(kind, lambda s, x: getattr(torch, kind)(x, -1))
    return Chain([step]), torch.randn(rows, length)


def draw(kind, seed):
    random = np.random.default_rng(seed)
    torch.manual_seed(seed % (1 << 31))
    dtype = pick(random, "f16", "f16", "bf16", "bf16", "f32")
    make = of_rows if kind == "rows" else pick(random, of_tokens, of_tokens, of_images)
    model, x = make(random)
    text = f"{dtype} {'x'.join(map(str, x.shape))}: {' > '.join(step.name for step in model.steps)}"
    return model.eval(), x, DTYPES[dtype], text
