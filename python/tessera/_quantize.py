"""Calibration and quantization (docs/quantization.md)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ._arguments import wrong
from ._errors import Error
from ._runnable import Inputs, Model, Path, Progress, number, path_text
from ._tessera import Datum, Profile, QuantizeOptions, QuantizeReport
from ._tessera import calibrate as _calibrate
from ._tessera import quantize as _quantize

MOST_THREADS = 4096


def _samples(model: Model, samples: Iterable[Inputs]) -> list[dict[str, Datum]]:
    ports = model.inputs
    one = isinstance(samples, np.ndarray) and len(ports) == 1 and ports[0].ranked and samples.ndim <= len(ports[0].dims)
    if one or isinstance(samples, Mapping) or not isinstance(samples, Iterable):
        got = "one array" if one else f"a {type(samples).__name__}"
        raise Error("E0501", f"samples: expected a sequence with the inputs of each run, got {got}",
                    hint="put the inputs of one run into a list: [x]")
    return [model._data(sample) for sample in samples]


def calibrate_model(model: Model, samples: Iterable[Inputs], optimize: bool, threads: int, progress: Progress | None) -> Profile:
    return _calibrate(model._held, _samples(model, samples), optimize, number("threads", threads, 0, MOST_THREADS), progress)


def quantize_model(model: Model, profile: Profile | Path | None, samples: Iterable[Inputs], *, scheme: str, percentile: float,
                   activations: str, symmetric: bool, power_of_two: bool, per_channel: bool, weight_scheme: str,
                   bias_correction: bool, products: bool, format: str, keep: Sequence[str], optimize: bool, threads: int,
                   progress: Progress | None) -> tuple[Model, QuantizeReport]:
    if isinstance(profile, (str, os.PathLike)):
        profile = Profile.load(path_text(profile))
    elif profile is not None and not isinstance(profile, Profile):
        raise wrong("profile", "a tessera.Profile, a path or None", profile, hint="samples are given by name: samples=[x]")
    options = QuantizeOptions()
    options.scheme, options.percentile, options.activations = scheme, percentile, activations
    options.symmetric, options.power_of_two, options.per_channel = symmetric, power_of_two, per_channel
    options.weight_scheme, options.bias_correction, options.products = weight_scheme, bias_correction, products
    options.format = format
    options.keep = [keep] if isinstance(keep, str) else list(keep)
    options.optimize = optimize
    options.samples = _samples(model, samples)
    options.set_threads(number("threads", threads, 0, MOST_THREADS))
    done = _quantize(model._held, profile, options, progress)
    return Model(done.model), done.report
