"""Triton's switches, by its names: each is set here or by a variable of the environment. The hooks of `runtime` are called;
switches of other compilers can be set and change nothing."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

from ._runtime import on_launch

propagate_env = True  # what is set here is in the environment of processes that are started


def setenv(key: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(key, None)
    else:
        os.environ[key] = value


class env_base:
    """A switch that the environment sets where the program does not."""

    def __init__(self, key: str, default: Any = None):
        self.key, self.default = key, default

    def __set_name__(self, owner: Any, name: str) -> None: self.name = name
    def read(self, text: str) -> Any: return text
    def write(self, value: Any) -> str: return str(value)

    def __get__(self, group: Any, owner: Any = None) -> Any:
        if group is None:
            return self
        if self.name in vars(group):
            return vars(group)[self.name]
        text = os.environ.get(self.key)
        return self.default if text is None else self.read(text)

    def __set__(self, group: Any, value: Any) -> None:
        if propagate_env:
            setenv(self.key, None if value is None else self.write(value))
            vars(group).pop(self.name, None)
            if value is not None:
                return
        vars(group)[self.name] = value

    def __delete__(self, group: Any) -> None: vars(group).pop(self.name, None)


class env_str(env_base): pass
class env_opt_str(env_base): pass


class env_int(env_base):
    def __init__(self, key: str, default: int = 0): super().__init__(key, default)
    def read(self, text: str) -> int:
        try:
            return int(text)
        except ValueError:
            raise RuntimeError(f"Unable to use {self.key}={text}: expected int") from None


class env_bool(env_base):
    def __init__(self, key: str, default: bool = False): super().__init__(key, default)
    def read(self, text: str) -> bool: return text.lower() in ("1", "true", "yes", "on", "y")
    def write(self, value: Any) -> str: return "1" if value else "0"


class env_opt_bool(env_bool):
    def __init__(self, key: str): env_base.__init__(self, key, None)


class base_knobs:
    """A group of switches."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None

    @property
    def knob_descriptors(self) -> dict[str, env_base]:
        return {n: d for c in reversed(type(self).__mro__) for n, d in vars(c).items() if isinstance(d, env_base)}

    @property
    def knobs(self) -> dict[str, Any]: return {n: getattr(self, n) for n in self.knob_descriptors}

    def copy(self) -> "base_knobs":
        made = type(self)()
        vars(made).update(vars(self))
        return made

    def reset(self) -> "base_knobs":
        for name in self.knob_descriptors:
            vars(self).pop(name, None)
        return self

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """What is set within it is as it was afterwards."""
        before = dict(vars(self))
        environment = {d.key: os.environ.get(d.key) for d in self.knob_descriptors.values()}
        try:
            yield
        finally:
            vars(self).clear()
            vars(self).update(before)
            for key, value in environment.items():
                setenv(key, value)


class HookChain:
    """Functions that are called one after the other."""

    def __init__(self, reversed: bool = False, watches_launches: bool = False):
        self.calls: list[Callable[..., Any]] = []
        self.reversed, self._watches = reversed, watches_launches

    def add(self, func: Callable[..., Any]) -> None:
        if func not in self.calls:
            self.calls.append(func)
        if self._watches and _launched not in on_launch:
            on_launch.append(_launched)  # launches go through Python then

    def remove(self, func: Callable[..., Any]) -> None:
        if func in self.calls:
            self.calls.remove(func)
        if self._watches and not runtime.launch_enter_hook.calls and not runtime.launch_exit_hook.calls and _launched in on_launch:
            on_launch.remove(_launched)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        for call in self.calls[::-1] if self.reversed else list(self.calls):
            call(*args, **kwargs)


def _launched(*_: Any) -> None: pass


class build_knobs(base_knobs):
    cc = env_opt_str("CC")


class cache_knobs(base_knobs):
    dir = env_opt_str("TESSERA_CACHE")


class compilation_knobs(base_knobs):
    listener = None  # called with src, metadata, metadata_group, times and cache_hit of each kernel that is compiled
    always_compile = env_bool("TRITON_ALWAYS_COMPILE")
    dump_ir = env_bool("TRITON_KERNEL_DUMP")
    override = env_bool("TRITON_KERNEL_OVERRIDE")
    enable_asan = env_bool("TRITON_ENABLE_ASAN")
    disable_line_info = env_bool("TRITON_DISABLE_LINE_INFO")
    front_end_debugging = env_bool("TRITON_FRONT_END_DEBUGGING")
    instrumentation_mode = ""


class autotuning_knobs(base_knobs):
    cache = env_bool("TRITON_CACHE_AUTOTUNING")
    print = env_bool("TRITON_PRINT_AUTOTUNING")


class runtime_knobs(base_knobs):
    interpret = env_bool("TESSERA_INTERPRET")
    override_arch = env_opt_str("TRITON_OVERRIDE_ARCH")
    debug = env_bool("TRITON_DEBUG")
    jit_cache_hook = None          # before a kernel is compiled; where it gives True, that is not done
    jit_post_compile_hook = None   # after it

    def __init__(self) -> None:
        self.launch_enter_hook = HookChain(watches_launches=True)
        self.launch_exit_hook = HookChain(reversed=True, watches_launches=True)
        self.kernel_load_start_hook, self.kernel_load_end_hook = HookChain(), HookChain(reversed=True)


class language_knobs(base_knobs):
    fp32_default = env_opt_str("TRITON_F32_DEFAULT")
    default_fp_fusion = env_bool("TRITON_DEFAULT_FP_FUSION", True)


class nvidia_knobs(base_knobs):
    ptxas = env_opt_str("TRITON_PTXAS_PATH")
    libdevice_path = env_opt_str("TRITON_LIBDEVICE_PATH")


class amd_knobs(base_knobs): pass
class proton_knobs(base_knobs): pass


class redis_knobs(base_knobs):
    host = env_str("TRITON_REDIS_HOST", "localhost")
    port = env_int("TRITON_REDIS_PORT", 6379)


build, redis, cache, compilation, autotuning = build_knobs(), redis_knobs(), cache_knobs(), compilation_knobs(), autotuning_knobs()
runtime, language, nvidia, amd, proton = runtime_knobs(), language_knobs(), nvidia_knobs(), amd_knobs(), proton_knobs()


def refresh_knobs() -> None:
    """What was set here is forgotten."""
    for group in (build, redis, cache, compilation, autotuning, runtime, language, nvidia, amd, proton):
        group.reset()
