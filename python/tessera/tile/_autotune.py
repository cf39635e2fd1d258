"""Kernels that choose their own parameters."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from .._errors import Error
from . import testing
from ._errors import CompileTimeAssertionFailure, OutOfResources
from .language._core import value_of


_PLAIN = frozenset({int, float, bool, str, type(None)})  # arguments that have no element type


class Config:
    """One choice of parameters."""

    def __init__(self, kwargs: dict[str, Any], num_warps: int = 4, num_stages: int = 3, num_ctas: int = 1,
                 maxnreg: int | None = None, pre_hook: Any = None, ir_override: Any = None):
        self.kwargs, self.num_warps, self.num_stages, self.num_ctas = kwargs, num_warps, num_stages, num_ctas
        self.maxnreg, self.pre_hook = maxnreg, pre_hook

    def all_kwargs(self) -> dict[str, Any]:
        options = {n: getattr(self, n) for n in ("num_warps", "num_ctas", "num_stages", "maxnreg")}
        return {**self.kwargs, **{n: v for n, v in options.items() if v is not None}}
    def launched(self) -> dict[str, Any]: return {**self.kwargs, "num_warps": self.num_warps, "num_stages": self.num_stages}
    def __str__(self) -> str:
        options = {n: getattr(self, n) for n in ("num_warps", "num_ctas", "num_stages", "maxnreg")}
        return ", ".join(f"{k}: {v}" for k, v in {**self.kwargs, **options}.items())
    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Config) and self.all_kwargs() == other.all_kwargs() and self.pre_hook == other.pre_hook
    def __hash__(self) -> int: return hash((tuple(sorted(self.all_kwargs().items(), key=lambda e: e[0])), self.pre_hook))
    def __repr__(self) -> str: return f"Config({self.kwargs})"


class _Wrapper:
    def __init__(self, fn: Any):
        self.fn, self.arg_names = fn, fn.arg_names

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return functools.partial(self.run, grid=grid)

    def run(self, *args: Any, grid: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def inline(self, args: list[Any], kwargs: dict[str, Any]) -> Any: return self.fn.inline(args, kwargs)


class Autotuner(_Wrapper):
    """Times each configuration once for each value of the key, and takes the fastest from then on."""

    def __init__(self, fn: Any, configs: list[Config], key: list[str], prune_configs_by: dict[str, Any] | None = None,
                 reset_to_zero: list[str] | None = None, restore_value: list[str] | None = None, warmup: float = 5,
                 rep: float = 20, do_bench: Any = None, pre_hook: Any = None, post_hook: Any = None, **_: Any):
        super().__init__(fn)
        self.configs = configs or [Config({})]
        self.keys, self.prune = key, prune_configs_by or {}
        never = len(self.arg_names)  # the place of what is only given by name
        self._key_places = [(k, self.arg_names.index(k) if k in self.arg_names else never) for k in key]
        self.zeroed, self.restored = reset_to_zero or [], restore_value or []
        self.warmup, self.rep, self.do_bench = warmup or 5, rep or 20, do_bench
        # Around each call that is timed: with the arguments, and with what it raised.
        self.pre_hook, self.post_hook = pre_hook, post_hook
        self.base_fn = fn
        while hasattr(self.base_fn, "fn") and hasattr(self.base_fn.fn, "fn"):
            self.base_fn = self.base_fn.fn
        self.cache: dict[Any, Config] = {}
        self.best_config: Config | None = None

    def run(self, *args: Any, grid: Any, **kwargs: Any) -> Any:
        given, count = [], len(args)
        for name, place in self._key_places:
            value = args[place] if place < count else kwargs.get(name)
            given.append(value if type(value) is int else value_of(value))
        for value in (*args, *kwargs.values()) if kwargs else args:
            given.append(None if type(value) in _PLAIN else getattr(value, "dtype", None))
        key = tuple(given)
        config = self.cache.get(key)
        if config is None:
            named = {**dict(zip(self.arg_names, args)), **kwargs}
            config = self.cache[key] = self._choose(named, args, grid, kwargs)
        self.best_config = config
        if kwargs and not kwargs.keys().isdisjoint(config.kwargs):
            raise ValueError(f"Conflicting meta-parameters: {', '.join(sorted(kwargs.keys() & config.kwargs.keys()))}. They are "
                             "chosen by autotune, and are not given beside it.")
        if config.pre_hook:
            config.pre_hook({**dict(zip(self.arg_names, args)), **kwargs, **config.all_kwargs()})
        words = config.launched()
        return self.fn[grid](*args, **({**kwargs, **words} if kwargs else words))

    def _choose(self, named: dict[str, Any], args: Any, grid: Any, kwargs: dict[str, Any]) -> Config:
        configs = self.configs
        early = self.prune.get("early_config_prune")
        if early:
            configs = early(configs, named, **kwargs)
        if not configs:
            raise ValueError("no configuration is left to choose from")
        model, top = self.prune.get("perf_model"), self.prune.get("top_k", len(configs))
        if isinstance(top, float):
            top = max(1, int(len(configs) * top))
        if model and len(configs) > top:
            configs = sorted(configs, key=lambda c: model(**{**named, **c.all_kwargs()}))[:top]
        if len(configs) == 1 or os.environ.get("TESSERA_INTERPRET") == "1":  # times of the interpreter say nothing
            return configs[0]
        kept = {n: named[n].copy() if hasattr(named[n], "copy") else named[n].clone() for n in self.restored}

        def once(config: Config) -> None:
            for n in self.zeroed:
                named[n][...] = 0
            if config.pre_hook:
                config.pre_hook({**named, **config.all_kwargs()})
            if self.pre_hook:
                self.pre_hook(named)
            raised = None
            try:
                self.fn.run(*args, grid=grid, **{**kwargs, **config.launched()})
            except Exception as e:
                raised = e
                raise
            finally:
                if self.post_hook:
                    self.post_hook(named, exception=raised)

        bench = self.do_bench or (lambda f, quantiles=None: testing.do_bench(f, self.warmup, self.rep, quantiles or [0.5]))
        times = {}
        failure = None
        for config in configs:
            try:
                times[config] = bench(lambda: once(config))
            except Error as e:
                # Other than that the device has too little for it, or that the kernel itself refuses it.
                if e.code != "E0604" and not isinstance(e, (CompileTimeAssertionFailure, OutOfResources)):
                    raise
                times[config], failure = float("inf"), e
            for n, value in kept.items():
                named[n][...] = value
        if failure and all(t == float("inf") for t in times.values()):
            raise failure
        self.configs_timings = times
        for n in self.zeroed:
            named[n][...] = 0
        return min(times, key=lambda c: times[c] if not isinstance(times[c], list) else times[c][0])


class Heuristics(_Wrapper):
    """Computes parameters from the arguments."""

    def __init__(self, fn: Any, values: dict[str, Callable[[dict[str, Any]], Any]]):
        super().__init__(fn)
        self.values = values

    def run(self, *args: Any, grid: Any, **kwargs: Any) -> Any:
        named = {**dict(zip(self.arg_names, args)), **kwargs}
        for name, compute in self.values.items():
            named[name] = kwargs[name] = compute(named)
        return self.fn[grid](*args, **kwargs)


def autotune(configs: list[Config], key: list[str], **options: Any) -> Callable[[Any], Autotuner]:
    return lambda fn: Autotuner(fn, configs, key, **options)


def heuristics(values: dict[str, Callable[[dict[str, Any]], Any]]) -> Callable[[Any], Heuristics]:
    return lambda fn: Heuristics(fn, values)
