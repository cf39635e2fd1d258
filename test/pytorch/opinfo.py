"""PyTorch's own samples of its ops, compiled and compared with eager mode, forward and backward.

    python test/pytorch/opinfo.py                  # core ATen ops, all samples
    python test/pytorch/opinfo.py --all --limit 4  # every op of op_db, four samples each
    python test/pytorch/opinfo.py --every 25 --limit 2 --expect test/pytorch/opinfo_expected.txt

Prints one line for each op that is not both right and compiled whole, and a summary. --expect compares these lines with a file,
in which each line says op, variant, element type, what happens and why; a difference fails."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import warnings

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

import tessera.torch.pieces as pieces
from tessera.torch.backend import tessera_backend
from tessera.torch.report import Report

UNDEFINED = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"}
DTYPES = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
          "i32": torch.int32, "bool": torch.bool}
TOLERANCE = {torch.float32: (1e-4, 1e-5), torch.float64: (1e-7, 1e-9), torch.float16: (1e-2, 1e-2), torch.bfloat16: (2e-2, 2e-2)}


class TooLong(BaseException):
    """A sample took longer than it may."""


def is_core(info):
    packet = getattr(torch.ops.aten, info.aten_name or info.name, None)
    if packet is None:
        return False
    return any(torch.Tag.core in getattr(packet, name).tags for name in packet.overloads())


def leaves(value):
    return [v for v in tree_leaves(value) if isinstance(v, torch.Tensor)]


def gradients(outputs, inputs):
    outs = [v for v in leaves(outputs) if v.requires_grad]
    if not outs or not inputs:
        return []
    generator = torch.Generator().manual_seed(1)
    seeds = [torch.randn(v.shape, generator=generator, dtype=torch.float64).to(v.dtype) for v in outs]
    return list(torch.autograd.grad(outs, inputs, seeds, allow_unused=True))


def check(info, sample, dtype, backward):
    """Nothing where the sample is right and compiled whole; else what happens, and why."""
    def call(x, args, kwargs):
        return info.op(x, *args, **kwargs)

    def run(f):
        torch.manual_seed(0)
        fresh = tree_map(lambda v: v.detach().clone().requires_grad_(v.requires_grad) if isinstance(v, torch.Tensor) else v,
                         (sample.input, sample.args, sample.kwargs))
        inputs = [v for v in leaves(fresh) if v.requires_grad]
        out = f(*fresh)
        return out, gradients(out, inputs) if backward else []

    try:
        want = run(call)
    except Exception:  # not a sample for eager mode either
        return None
    report = Report()

    def backend(gm, examples, **rest):
        return tessera_backend(gm, examples, options={"fallback": "quiet", "report": report})
    torch._dynamo.reset()
    try:
        got = run(torch.compile(call, backend=backend, dynamic=False))
        rtol, atol = TOLERANCE.get(dtype, (None, None))  # else by the element types of results
        torch.testing.assert_close(got, want, rtol=rtol, atol=atol, equal_nan=True, check_stride=False)
    except Exception as e:
        return "wrong", " ".join(f"{type(e).__name__}: {e}".split())[:160]
    if report.fallbacks:
        reasons = {op: why for g in report.graphs for op, why in g.fallbacks}
        return "falls back", "; ".join(sorted(f"{op}: {why}" for op, why in reasons.items()))[:160]
    return None


def check_op(info, dtype, limit, backward, seconds):
    backward = backward and dtype.is_floating_point and info.supports_autograd
    found, count = None, 0
    try:
        samples = list(info.sample_inputs("cpu", dtype, requires_grad=backward))
    except Exception as e:
        return ("no samples", type(e).__name__), 0
    step = max(1, len(samples) // limit) if limit else 1
    for sample in samples[::step][: limit or None]:
        signal.alarm(seconds)
        try:
            bad = check(info, sample, dtype, backward)
        except TooLong:
            bad = "wrong", "takes too long"
        finally:
            signal.alarm(0)
        count += 1
        if bad and (found is None or bad[0] == "wrong"):
            found = bad
        if found and found[0] == "wrong":
            break
    return found, count


def too_long(*_):
    raise TooLong


def evaluate_instead():
    """Runs pieces by the reference evaluator, which needs no machine code: the lowering alone is under test."""
    pieces.compile_model = lambda model, **options: model


def selected(options):
    infos = [info for info in op_db if info.name not in UNDEFINED and (options.all or is_core(info))]
    if options.only:
        infos = [info for info in infos if info.name in options.only.split(",")]
    return infos[options.begin :: options.every]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true", help="also ops that are not core ATen")
    parser.add_argument("--only", help="names of ops")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--begin", type=int, default=0)
    parser.add_argument("--limit", type=int, default=0, help="the most samples of an op; 0: all")
    parser.add_argument("--dtypes", default="f32,i64")
    parser.add_argument("--forward", action="store_true", help="no gradients")
    parser.add_argument("--evaluate", action="store_true", help="by the reference evaluator")
    parser.add_argument("--seconds", type=int, default=120, help="for one sample")
    parser.add_argument("--expect", help="the file of what is not right or falls back")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    torch._dynamo.config.recompile_limit = 1 << 30
    signal.signal(signal.SIGALRM, too_long)
    if options.evaluate:
        evaluate_instead()
    lines, ops, samples, wrong, fallback = [], 0, 0, 0, 0
    keys = set()
    for info in selected(options):
        for name in options.dtypes.split(","):
            dtype = DTYPES[name]
            if dtype not in info.supported_dtypes("cpu"):
                continue
            bad, count = check_op(info, dtype, options.limit, not options.forward, options.seconds)
            ops += 1
            samples += count
            key = f"{info.name} {info.variant_test_name or '-'} {name}"
            keys.add(key)
            if bad:
                wrong += bad[0] == "wrong"
                fallback += bad[0] == "falls back"
                lines.append(f"{key}: {bad[0]}: {bad[1]}")
                print(lines[-1], flush=True)
    whole = ops - len(lines)
    print(f"{ops} ops and types, {samples} samples: {whole} right and compiled whole ({100 * whole / max(ops, 1):.1f} %), "
          f"{fallback} fall back, {wrong} wrong")
    if not options.expect:
        return 0
    with open(options.expect) as file:
        expected = {line.split(":")[0]: line.split(":")[1].strip() for line in file if ":" in line and not line.startswith("#")}
    seen = {line.split(":")[0]: line.split(":")[1].strip() for line in lines}
    known = {key: what for key, what in expected.items() if key in keys}
    news = {k: v for k, v in seen.items() if known.get(k) != v}
    fixed = {k: v for k, v in known.items() if k not in seen}
    print(f"new: {news or 'none'}; fixed: {fixed or 'none'}")
    # With a limit, the sample that falls back may not have been tried.
    return 1 if news or (fixed and not options.limit) else 0


if __name__ == "__main__":
    sys.exit(main())
