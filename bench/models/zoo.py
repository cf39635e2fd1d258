"""The benchmark models: built in code with seeded random weights, nothing downloaded.

A model whose sizes are fixed also goes by <name>_b<N>: the same weights, N images or sequences at a time."""
import dataclasses
import os
import re
from typing import Callable

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch  # noqa: E402
import torchvision  # noqa: E402
import transformers  # noqa: E402

import nas  # noqa: E402
from groups import MUTATE, SEARCH, SPEED  # noqa: E402

SEED = 20240
BATCH, LENGTH = 2, 64  # of the example inputs of the language models


@dataclasses.dataclass
class Example:
    """A model in eval mode with one set of inputs; `dynamic` names the axes that vary, by input."""

    model: torch.nn.Module
    inputs: dict[str, torch.Tensor]
    outputs: list[str]
    dynamic: dict[str, dict[int, str]]


class OneOutput(torch.nn.Module):
    """Gives one tensor of a transformers model's answer, and takes its inputs by position."""

    def __init__(self, model, names, output):
        super().__init__()
        self.model, self.names, self.output = model, names, output

    def forward(self, *args):
        return self.model(**dict(zip(self.names, args)), return_dict=True)[self.output]


def spread_constant_parameters(model):
    """Biases of 0 and scales of 1 would fold away for the wrong reason: no trained model has them."""
    with torch.no_grad():
        for p in model.parameters():
            if p.numel() > 1 and bool((p == p.flatten()[0]).all()):
                p.add_(torch.randn_like(p) * 0.05)


def images(count, size):
    """Noise of several scales. White noise alone leaves deep layers almost nothing to tell images apart by, and
    batch norms then magnify rounding."""
    result = torch.randn(count, 3, 1, 1) + 0.2 * torch.randn(count, 3, size, size)
    for cells in (2, 5, 16, 48):
        coarse = torch.randn(count, 3, cells, cells)
        result += 0.7 * torch.nn.functional.interpolate(coarse, size=(size, size), mode="bilinear")
    return result


def settle_batch_norms(model, batch):
    """Gives every batch norm the statistics of this batch, as training would."""
    norms = [m for m in model.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    for m in norms:
        m.momentum = None
        m.train()
    with torch.no_grad():
        model(batch)
    model.eval()


def pictured(make, size=224):
    def build(batch=1):
        model = make().eval()
        spread_constant_parameters(model)
        settle_batch_norms(model, images(4, size))
        return Example(model, {"image": images(batch, size)}, ["logits"], {})

    return build


def vision(name, size=224, **options):
    return pictured(lambda: torchvision.models.get_model(name, weights=None, **options), size)


def language(make, vocabulary, output, output_name, length=None):
    """With batch and length symbolic, or one sequence of a fixed length."""

    def build(batch=1):
        model = make().eval()
        spread_constant_parameters(model)
        sizes = (batch, length) if length else (BATCH, LENGTH)
        mask = torch.ones(sizes, dtype=torch.int64)
        mask[1:, sizes[1] * 3 // 4 :] = 0
        inputs = {"input_ids": torch.randint(0, vocabulary, sizes), "attention_mask": mask}
        axes = {} if length else {0: "batch", 1: "sequence"}
        return Example(
            OneOutput(model, list(inputs), output).eval(),
            inputs,
            [output_name],
            {n: dict(axes) for n in inputs if axes},
        )

    return build


def whisper_encoder():
    config = transformers.WhisperConfig()  # its defaults are the tiny size
    encoder = transformers.WhisperModel(config).get_encoder().eval()
    spread_constant_parameters(encoder)
    inputs = {"input_features": torch.randn(BATCH, config.num_mel_bins, 2 * config.max_source_positions)}
    return Example(
        OneOutput(encoder, list(inputs), "last_hidden_state").eval(),
        inputs,
        ["last_hidden_state"],
        {"input_features": {0: "batch"}},
    )


def hidden(make, vocabulary, length=None):
    return language(make, vocabulary, "last_hidden_state", "last_hidden_state", length)


def bert(length=None):
    return hidden(lambda: transformers.BertModel(transformers.BertConfig()), 30522, length)


def gpt2(length=None):
    config = transformers.GPT2Config(use_cache=False)
    return language(lambda: transformers.GPT2LMHeadModel(config), 50257, "logits", "logits", length)


def nasrnn(batch=1, steps=5, hidden=512):
    return Example(nas.NasRnn(hidden).eval(), {"sequence": torch.randn(batch, steps, hidden)}, ["state"], {})


class CsrNet(torch.nn.Module):
    """Counts crowds (Li, Zhang and Chen 2018): the front of VGG-16, then dilated convolutions."""

    def __init__(self):
        super().__init__()
        front = [64, 64, "pool", 128, 128, "pool", 256, 256, 256, "pool", 512, 512, 512]
        back = [512, 512, 512, 256, 128, 64]
        layers: list[torch.nn.Module] = []
        channels = 3
        for width, dilation in [(w, 1) for w in front] + [(w, 2) for w in back]:
            if width == "pool":
                layers.append(torch.nn.MaxPool2d(2))
                continue
            layers += [torch.nn.Conv2d(channels, width, 3, padding=dilation, dilation=dilation), torch.nn.ReLU()]
            channels = width
        self.layers = torch.nn.Sequential(*layers, torch.nn.Conv2d(channels, 1, 1))

    def forward(self, image):
        return self.layers(image)


def video(batch=1, frames=16, size=112):
    model = torchvision.models.video.r3d_18(weights=None).eval()
    spread_constant_parameters(model)
    return Example(model, {"clip": torch.randn(batch, 3, frames, size, size)}, ["logits"], {})


MODELS: dict[str, Callable[..., Example]] = {
    "resnet50": vision("resnet50"),
    "mobilenet_v3_small": vision("mobilenet_v3_small"),
    "densenet121": vision("densenet121"),
    "inception_v3": vision("inception_v3", size=299, init_weights=False, transform_input=False),
    "efficientnet_b0": vision("efficientnet_b0"),
    "vit_b_16": vision("vit_b_16"),
    "swin_t": vision("swin_t"),
    "bert": bert(),
    "distilbert": hidden(lambda: transformers.DistilBertModel(transformers.DistilBertConfig()), 30522),
    "gpt2": gpt2(),
    "t5_encoder": hidden(lambda: transformers.T5EncoderModel(transformers.T5Config()), 32128),
    "whisper_encoder": whisper_encoder,
}


def narrow_bert(layers):
    config = transformers.BertConfig(
        num_hidden_layers=layers, hidden_size=64, num_attention_heads=4, intermediate_size=128, vocab_size=1000
    )
    return hidden(lambda: transformers.BertModel(config), config.vocab_size)


# Exported only when named: one graph and another ten times as deep, to see how the time to optimize grows.
DEPTHS = {"bert_narrow_12": narrow_bert(12), "bert_narrow_120": narrow_bert(120)}

# Batch 1 and every size fixed, beside those of MODELS that have no others.
FIXED = {
    "mobilenet_v2": vision("mobilenet_v2"),
    "squeezenet1_1": vision("squeezenet1_1"),
    "vgg16": vision("vgg16"),
    "vgg19": vision("vgg19"),
    "resnext50": vision("resnext50_32x4d"),
    "nasnet_a": pictured(nas.NasNetA),
    "nasrnn": nasrnn,
    "resnet18": vision("resnet18"),
    "csrnet": pictured(CsrNet),
    "resnet3d_18": video,
    "bert_s128": bert(128),
    "gpt2_s128": gpt2(128),
}
ALL = MODELS | DEPTHS | FIXED
GROUPS = {"all": list(MODELS), "speed": SPEED, "search": SEARCH, "mutate": MUTATE, "depths": list(DEPTHS)}


def parts(name):
    """A name's model and batch, or nothing where there is no such model."""
    if name in ALL:
        return name, 1
    batched = re.fullmatch(r"(.+)_b([1-9][0-9]*)", name)
    return (batched[1], int(batched[2])) if batched and batched[1] in ALL else None


def build(name):
    model, batch = parts(name)
    torch.manual_seed(SEED)
    if batch == 1:
        return ALL[model]()
    example = ALL[model](batch)
    if example.dynamic:
        raise ValueError(f"the batch of {model} is symbolic")
    return example
