"""torch.compile by backend: eager mode, Inductor and Tessera on the same models, in one process, runs interleaved.

    build/torch-venv/bin/python bench/torch_compile.py                       # those that need nothing beside PyTorch
    ... bench/torch_compile.py --models resnet18,bert --training --threads 1 --clock processor
    ... bench/torch_compile.py --device cuda --json results.json

Prints, for each model, the median time of a run by each backend, the first call's time (which compiles), the speed-up over
Inductor, and how far results are from float64. Models of torchvision and transformers have random weights and take part
where these packages are installed. `--clock processor` counts the process's CPU time, which other processes disturb less."""

from __future__ import annotations

import argparse
import copy
import importlib.util
import json
import math
import statistics
import sys
import time
import warnings

import torch
from torch import nn


def mlp():
    return nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 64)), (torch.randn(32, 256),)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


def transformer():
    return nn.Sequential(*[Block(256, 4) for _ in range(4)]), (torch.randn(2, 128, 256),)


def convolutions():
    layers, width = [], 3
    for wider in (32, 64, 128):
        layers += [nn.Conv2d(width, wider, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(wider), nn.ReLU(),
                   nn.Conv2d(wider, wider, 3, padding=1, groups=wider), nn.Conv2d(wider, wider, 1), nn.ReLU()]
        width = wider
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)), (torch.randn(4, 3, 96, 96),)


def vision(name, size=96, batch=2):
    def make():
        import torchvision
        return torchvision.models.get_model(name, weights=None), (torch.randn(batch, 3, size, size),)
    return make


def language(config, model, **sizes):
    def make():
        import transformers
        made = getattr(transformers, model)(getattr(transformers, config)(**sizes))
        return made, (torch.randint(0, 100, (2, 32)),)
    return make


SMALL = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, vocab_size=200)
VISION = ["resnet18", "mobilenet_v3_small", "efficientnet_b0", "convnext_tiny", "regnet_y_400mf", "shufflenet_v2_x0_5", "densenet121",
          "squeezenet1_1", "mnasnet0_5", "mobilenet_v2", "resnext50_32x4d", "wide_resnet50_2", "vgg11_bn", "resnet50"]
LARGE_IMAGES = ["alexnet", "vit_b_16", "swin_t", "googlenet", "maxvit_t", "swin_v2_t"]
MODELS = {"mlp": mlp, "transformer": transformer, "convolutions": convolutions}
if importlib.util.find_spec("torchvision"):
    MODELS |= {name: vision(name) for name in VISION} | {name: vision(name, 224, 1) for name in LARGE_IMAGES}
if importlib.util.find_spec("transformers"):
    MODELS |= {
        "bert": language("BertConfig", "BertModel", **SMALL),
        "distilbert": language("DistilBertConfig", "DistilBertModel", dim=64, n_layers=2, n_heads=4, hidden_dim=128, vocab_size=200),
        "roberta": language("RobertaConfig", "RobertaModel", **SMALL),
        "gpt2": language("GPT2Config", "GPT2Model", n_embd=64, n_layer=2, n_head=4, vocab_size=200),
        "llama": language("LlamaConfig", "LlamaModel", **SMALL, num_key_value_heads=2),
        "qwen2": language("Qwen2Config", "Qwen2Model", **SMALL, num_key_value_heads=2),
        "mistral": language("MistralConfig", "MistralModel", **SMALL, num_key_value_heads=2),
        "opt": language("OPTConfig", "OPTModel", hidden_size=64, num_hidden_layers=2, num_attention_heads=4, ffn_dim=128, vocab_size=200,
                        word_embed_proj_dim=64),
        "electra": language("ElectraConfig", "ElectraModel", **SMALL, embedding_size=64),
        "albert": language("AlbertConfig", "AlbertModel", **SMALL, embedding_size=32),
        "gpt_neox": language("GPTNeoXConfig", "GPTNeoXModel", **SMALL),
        "phi": language("PhiConfig", "PhiModel", **SMALL),
        "gemma": language("GemmaConfig", "GemmaModel", **SMALL, num_key_value_heads=2, head_dim=16),
        "bloom": language("BloomConfig", "BloomModel", hidden_size=64, n_layer=2, n_head=4, vocab_size=200),
        "mpnet": language("MPNetConfig", "MPNetModel", **SMALL),
        "t5_encoder": language("T5Config", "T5EncoderModel", d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, vocab_size=200),
    }


def first_tensor(value):
    return next(v for v in torch.utils._pytree.tree_leaves(value) if isinstance(v, torch.Tensor) and v.is_floating_point())


class Run:
    """One model by one backend."""

    def __init__(self, model, inputs, backend, training, device):
        self.model, self.inputs, self.training, self.device = model, inputs, training, device
        self.call = model if backend == "eager" else torch.compile(model, backend=backend)

    def __call__(self):
        if self.training:
            for p in self.model.parameters():
                p.grad = None
            loss = first_tensor(self.call(*self.inputs)).square().mean()
            loss.backward()
            found = [loss.detach(), *(p.grad for p in self.model.parameters() if p.grad is not None)]
        else:
            with torch.no_grad():
                found = [first_tensor(self.call(*self.inputs))]
        if self.device == "cuda":
            torch.cuda.synchronize()
        return found


def error_of(found, exact):
    """The largest difference of a tensor, relative to that tensor's largest value, over those that are not all but zero."""
    worst, top = 0.0, max(e.abs().max().item() for e in exact if e.numel())
    for a, e in zip(found, exact):
        size = e.abs().max().item() if e.numel() else 0
        if size > 1e-5 * top:
            worst = max(worst, (a.double().cpu() - e.double().cpu()).abs().max().item() / size)
    return worst


def graph_counts(model, inputs, training):
    from tessera.torch import explain
    report = explain(model, *inputs, backward=training)
    return sum(report.breaks.values()), report.fallbacks


def measure(name, options):
    torch.manual_seed(0)
    made, inputs = MODELS[name]()
    made = made.train() if options.training else made.eval()
    for m in made.modules():  # random numbers would differ by backend
        if isinstance(m, (nn.Dropout, nn.Dropout1d, nn.Dropout2d)) or type(m).__name__ == "StochasticDepth":
            m.p = 0.0
    clock = time.process_time if options.clock == "processor" else time.perf_counter
    inputs = tuple(x.to(options.device) for x in inputs)
    double = tuple(x.double() if x.is_floating_point() else x for x in inputs)
    exact = Run(copy.deepcopy(made).double().to(options.device), double, "eager", options.training, options.device)()
    result, runs = {"model": name}, {}
    for backend in options.backends.split(","):
        torch._dynamo.reset()
        model = copy.deepcopy(made).to(options.device)
        run = Run(model, inputs, backend, options.training, options.device)
        began = clock()
        try:
            with torch.no_grad() if not options.training else torch.enable_grad():
                found = run()
        except Exception as e:
            result[backend] = {"error": f"{type(e).__name__}: {e}".splitlines()[0][:200]}
            continue
        result[backend] = {"first_s": clock() - began, "error_to_f64": error_of(found, exact)}
        runs[backend] = run
    times = {backend: [] for backend in runs}
    for _ in range(2 if options.runs else 0):
        for run in runs.values():
            run()
    for _ in range(options.runs):
        for backend, run in runs.items():
            began = clock()
            run()
            times[backend].append(clock() - began)
    for backend, values in times.items():
        if values:
            result[backend]["median_ms"] = 1e3 * statistics.median(values)
    if options.graphs:
        breaks, fallbacks = graph_counts(copy.deepcopy(made).to(options.device), inputs, options.training)
        result["breaks"], result["fallbacks"] = breaks, fallbacks
    return result


def line_of(result, options):
    parts = [f"{result['model']:20}"]
    for backend in options.backends.split(","):
        r = result[backend]
        if "median_ms" in r:
            parts.append(f"{backend} {r['median_ms']:9.3f} ms, first {r['first_s']:5.1f} s, error {r['error_to_f64']:.1e}")
        elif "first_s" in r:
            parts.append(f"{backend} first {r['first_s']:5.1f} s, error {r['error_to_f64']:.1e}")
        else:
            parts.append(f"{backend} FAILED {r['error']}")
    if "breaks" in result:
        parts.append(f"{result['breaks']} breaks, eager: {result['fallbacks'] or 'none'}")
    return " | ".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", help="names, or parts of them; all without it")
    parser.add_argument("--backends", default="eager,inductor,tessera")
    parser.add_argument("--training", action="store_true", help="forward and backward, not inference")
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--threads", type=int, default=0, help="0: PyTorch's choice")
    parser.add_argument("--clock", choices=["wall", "processor"], default="wall")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--graphs", action="store_true", help="also count graph breaks and ops in eager mode")
    parser.add_argument("--json", help="write results here")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.threads:
        torch.set_num_threads(options.threads)
    wanted = options.models.split(",") if options.models else list(MODELS)
    results = []
    for name in wanted:
        if name not in MODELS:
            print(f"there is no model {name}; there are {', '.join(MODELS)}", file=sys.stderr)
            return 1
        try:
            results.append(measure(name, options))
        except Exception as e:
            print(f"{name:20} FAILED {type(e).__name__}: {e}".splitlines()[0], flush=True)
            continue
        print(line_of(results[-1], options), flush=True)
    for other in ("inductor", "eager"):
        ratios = [r[other]["median_ms"] / r["tessera"]["median_ms"] for r in results
                  if "median_ms" in r.get("tessera", {}) and "median_ms" in r.get(other, {})]
        if ratios:
            mean = math.exp(statistics.fmean(map(math.log, ratios)))
            print(f"{other} / tessera: geometric mean {mean:.2f} over {len(ratios)} models, lowest {min(ratios):.2f}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"options": vars(options), "torch": torch.__version__, "results": results}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
