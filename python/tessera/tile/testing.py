"""Timing and comparing of kernels."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def _finish() -> None:
    """Waits for the GPU that PyTorch works on, where it does."""
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        cuda.synchronize()


def do_bench(fn: Callable[[], Any], warmup: float = 25, rep: float = 100, quantiles: list[float] | None = None,
             return_mode: str = "mean", grad_to_none: Any = None, **_: Any) -> Any:
    """Milliseconds that a call takes, measured for about `rep` milliseconds after `warmup` milliseconds. Gradients of
    `grad_to_none` are dropped before each call."""
    if return_mode not in _MODES:
        raise ValueError(f"return_mode is one of {', '.join(_MODES)}, not {return_mode}")

    def once() -> None:
        for x in grad_to_none or ():
            x.grad = None
        fn()

    began = time.perf_counter()
    once()
    while (time.perf_counter() - began) * 1e3 < warmup:
        once()
    _finish()
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    on_gpu = cuda is not None and cuda.is_initialized()
    times = _by_events(once, rep) if on_gpu else _by_clock(once, rep)
    if quantiles is not None:
        ordered = sorted(times)
        picked = [ordered[min(len(ordered) - 1, int(q * len(ordered)))] for q in quantiles]
        return picked[0] if len(picked) == 1 else picked
    return _MODES[return_mode](times)


_MODES: dict[str, Callable[[list[float]], Any]] = {"mean": statistics.fmean, "median": statistics.median, "min": min, "max": max,
                                                   "all": list}


def _by_clock(call: Callable[[], Any], rep: float) -> list[float]:
    times: list[float] = []
    began = time.perf_counter()
    while (time.perf_counter() - began) * 1e3 < rep or len(times) < 3:
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def _by_events(call: Callable[[], Any], rep: float) -> list[float]:
    """By the GPU's own events, and with nothing of the last call in its cache."""
    torch: Any = sys.modules["torch"]
    flushed = torch.empty(1 << 28, dtype=torch.int8, device="cuda")
    began = time.perf_counter()
    pairs: list[Any] = []
    while (time.perf_counter() - began) * 1e3 < rep or len(pairs) < 3:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in "be")
        flushed.zero_()
        begin.record()
        call()
        end.record()
        pairs.append((begin, end))
        if len(pairs) % 16 == 0:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    return [float(begin.elapsed_time(end)) for begin, end in pairs]


def assert_close(x: Any, y: Any, atol: float | None = None, rtol: float | None = None, err_msg: str = "") -> None:
    """Two arrays that are the same but for small errors."""
    x, y = (np.asarray(v.float() if hasattr(v, "float") and hasattr(v, "data_ptr") else v) for v in (x, y))
    np.testing.assert_allclose(x, y, atol=1e-2 if atol is None else atol, rtol=0.0 if rtol is None else rtol, err_msg=err_msg)


class Benchmark:
    """What is measured: a function of the arguments `x_names`, for each of `x_vals`, one column for each of `line_vals`."""

    def __init__(self, x_names: list[str], x_vals: list[Any], line_arg: str, line_vals: list[Any], line_names: list[str],
                 plot_name: str, args: dict[str, Any], xlabel: str = "", ylabel: str = "", x_log: bool = False,
                 y_log: bool = False, styles: Any = None):
        self.x_names, self.x_vals, self.line_arg, self.line_vals, self.line_names = x_names, x_vals, line_arg, line_vals, line_names
        self.plot_name, self.args = plot_name, args


class Mark:
    """A function that is measured; `run` prints a table."""

    def __init__(self, fn: Callable[..., Any], benchmarks: Benchmark | list[Benchmark]):
        self.fn = fn
        self.benchmarks = benchmarks if isinstance(benchmarks, list) else [benchmarks]

    def run(self, show_plots: bool = False, print_data: bool = False, save_path: str = "", return_df: bool = False, **kwargs: Any) -> None:
        for b in self.benchmarks:
            if print_data:
                print(f"{b.plot_name}:\n" + "  ".join([*b.x_names, *b.line_names]))
            for x in b.x_vals:
                given = dict(zip(b.x_names, x if isinstance(x, (list, tuple)) else [x] * len(b.x_names)))
                row = [self.fn(**given, **{b.line_arg: line}, **b.args, **kwargs) for line in b.line_vals]
                if print_data:
                    print("  ".join(str(v[0] if isinstance(v, tuple) else v) for v in [*given.values(), *row]))


def perf_report(benchmarks: Benchmark | list[Benchmark]) -> Callable[[Callable[..., Any]], Mark]:
    return lambda fn: Mark(fn, benchmarks)
