"""Timing of kernels."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any


def do_bench(fn: Callable[[], Any], warmup: float = 25, rep: float = 100, quantiles: list[float] | None = None,
             return_mode: str = "mean", **_: Any) -> Any:
    """Milliseconds that a call takes, measured for about `rep` milliseconds after `warmup` milliseconds."""
    began = time.perf_counter()
    fn()
    while (time.perf_counter() - began) * 1e3 < warmup:
        fn()
    times: list[float] = []
    began = time.perf_counter()
    while (time.perf_counter() - began) * 1e3 < rep or len(times) < 3:
        start = time.perf_counter()
        fn()
        times.append((time.perf_counter() - start) * 1e3)
    if quantiles is not None:
        ordered = sorted(times)
        picked = [ordered[min(len(ordered) - 1, int(q * len(ordered)))] for q in quantiles]
        return picked[0] if len(picked) == 1 else picked
    modes: dict[str, Callable[[list[float]], Any]] = {"mean": statistics.fmean, "median": statistics.median, "min": min,
                                                      "max": max, "all": list}
    return modes[return_mode](times)
