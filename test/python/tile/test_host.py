"""What scripts ask of kernels beside launching them: debugging, hooks, keys, caches, compiled kernels, and choosing between
configurations."""

import numpy as np
import pytest
from cases import kernel

import tessera.tile as triton
import tessera.tile.language as tl


@triton.jit
def checks(z, n, N: tl.constexpr):
    tl.device_assert(tl.arange(0, N) < n, "too many")
    tl.store(z, n)


@pytest.mark.parametrize("holds", [True, False])
@pytest.mark.parametrize("asked", [True, False, None])
@pytest.mark.parametrize("variable", [True, False])
@pytest.mark.parametrize("declared", [True, False])
def test_assertions_where_debugging_is_on(monkeypatch, holds, asked, variable, declared):
    monkeypatch.setenv("TRITON_DEBUG", str(int(variable)))
    on = variable or (declared if asked is None else asked)
    launched = triton.jit(checks.fn, debug=declared)
    options = {} if asked is None else {"debug": asked}
    for _ in range(2):
        if on and not holds:
            with pytest.raises(RuntimeError, match="device-side assert"):
                launched[(1,)](np.zeros(1, np.int32), 3, N=4, **options)
        else:
            launched[(1,)](np.zeros(1, np.int32), 4 if holds else 3, N=4, **options)


OF_TWO = """
    def of_two(x, y, z):
        tl.store(z, tl.load(x) OP tl.load(y))
    """


@pytest.mark.parametrize("op, a, b, dtype, overflows", [
    ("+", -2**31, -1, "int32", True), ("+", 2**31 - 1, 1, "int32", True), ("+", 2**31 - 1, 0, "int32", False), ("+", 200, 100, "uint8", True),
    ("-", 0, 1, "uint32", True), ("-", -2**31, 1, "int32", True), ("-", -2**31, -1, "int32", False), ("*", 2**16, 2**15, "int32", True),
    ("*", -2**16, 2**15, "int32", False), ("*", 2**62, 4, "int64", False), ("+", 127, 1, "int8", True), ("*", 3e38, 10, "float32", False)])
@pytest.mark.parametrize("debug", [True, False])
def test_integers_that_overflow(op, a, b, dtype, overflows, debug):
    x, y, z = np.array([a], dtype), np.array([b], dtype), np.zeros(1, dtype)
    launched = kernel(OF_TWO, OP=op)
    if debug and overflows:
        with pytest.raises(RuntimeError, match="overflow detected for operation"):
            launched[(1,)](x, y, z, debug=True)
        launched[(1,)](x, y, z, debug=True, sanitize_overflow=False)
    else:
        launched[(1,)](x, y, z, debug=debug)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(z, {"+": np.add, "-": np.subtract, "*": np.multiply}[op](x, y))


@triton.jit
def wraps_around(z, seed):
    at = tl.arange(0, 4)
    tl.store(z + at, tl.randint(seed, at) * 0 + at)
    tl.store(z + 5, tl.add(tl.load(z + 4), tl.load(z + 4), sanitize_overflow=False))


def test_functions_that_are_meant_to_wrap_around():
    z = np.array([0, 0, 0, 0, 2**31 - 1, 0], np.int32)
    wraps_around[(1,)](z, 42, debug=True)
    assert z.tolist() == [0, 1, 2, 3, 2**31 - 1, -2]


@triton.jit
def updates(z, HOW: tl.constexpr):
    d = tl.make_tensor_descriptor(z, shape=(8, 16), strides=(16, 1), block_shape=(8, 16))
    value = tl.full((8, 16), 3, d.dtype)
    if HOW == "add":
        d.atomic_add([0, 0], value)
    elif HOW == "max":
        d.atomic_max([0, 0], value)
    elif HOW == "and":
        d.atomic_and([0, 0], value)


@pytest.mark.parametrize("how, dtype, taken", [
    ("add", "int32", True), ("add", "int64", False), ("add", "uint64", True), ("add", "float32", True), ("add", "float64", False),
    ("add", "int16", False), ("max", "int64", True), ("max", "float32", False), ("max", "uint8", False), ("and", "uint32", True),
    ("and", "int64", True), ("and", "float32", False), ("and", "int16", False)])
def test_updates_through_descriptors(how, dtype, taken):
    z = np.full((8, 16), 5, dtype)
    if not taken:
        with pytest.raises((triton.CompilationError, TypeError), match="Unsupported dtype|takes numbers"):
            updates[(1,)](z, HOW=how)
        return
    updates[(1,)](z, HOW=how)
    assert (z == {"add": 8, "max": 5, "and": 1}[how]).all()


@triton.jit
def adds(x, z, n, N: tl.constexpr = 4):
    tl.store(z + tl.arange(0, N), tl.load(x + tl.arange(0, N)) + n)


def test_compiled_kernels():
    x, z = np.ones(4, np.int32), np.zeros(4, np.int32)
    made = adds[(1,)](x, z, 5, num_warps=8)
    assert made.name == "adds" and made.metadata.name == "adds" and made.metadata.num_warps == 8 and made.metadata.shared == 0
    made._init_handles()
    assert made.n_regs == 0 and made.metadata.target.backend in ("cpu", "cuda") and len(made.hash) == 64
    source = triton.compiler.ASTSource(adds, signature={"x": "*fp32", "z": "*fp32", "n": "i32", "N": "constexpr"}, constexprs={"N": 4})
    assert triton.compile(src=source).metadata.name == "adds"
    with_gpu = triton.compile(src=source, target=triton.backends.compiler.GPUTarget("cuda", 80, 32), options={"num_warps": 2})
    assert with_gpu.metadata.target.arch == 80 and with_gpu.metadata.num_warps == 2 and with_gpu.metadata.shared >= 0


def test_caches_of_kernels():
    x, z = np.ones(4, np.int32), np.zeros(4, np.int32)
    local = triton.jit(adds.fn)
    assert not local.device_caches[0][0]
    for n in (5, 6, 1):
        local[(1,)](x, z, n)
    assert len(local.device_caches[0][0]) == 2  # 1 is a constant
    local.device_caches[0][0].clear()
    assert not local.device_caches[0][0]
    local[(1,)](x, z, 7)
    assert z[0] == 8 and len(local.device_caches[0][0]) == 1


def test_hooks():
    x, z = np.ones(4, np.int32), np.zeros(4, np.int32)
    local, said = triton.jit(adds.fn), []
    switches = triton.knobs.runtime

    def entered(told): said.append(("enter", told.get()["name"]))
    def left(told): said.append(("exit", told.get()["name"]))
    def compiled(*, key, repr, fn, compile, is_manual_warmup, already_compiled): said.append(("compile", is_manual_warmup, already_compiled))

    try:
        switches.jit_cache_hook = compiled
        switches.jit_post_compile_hook = compiled
        local.warmup(x, z, 5, grid=(1,))
        assert said == [("compile", True, False)] * 2
        switches.launch_enter_hook.add(entered)
        switches.launch_exit_hook.add(left)
        for _ in range(3):
            local[(1,)](x, z, 5)
        assert said[2:] == [("enter", "adds"), ("exit", "adds")] * 3
        switches.jit_cache_hook = lambda **_: True
        assert local.warmup(x.astype(np.float32), z, 5, grid=(1,)) is None
    finally:
        switches.jit_cache_hook = switches.jit_post_compile_hook = None
        switches.launch_enter_hook.remove(entered)
        switches.launch_exit_hook.remove(left)
    local[(1,)](x, z, 5)
    assert len(said) == 8 and z[0] == 6


def test_switches(monkeypatch):
    knobs = triton.knobs
    monkeypatch.setenv("TRITON_PRINT_AUTOTUNING", "1")
    assert knobs.autotuning.print and set(knobs.autotuning.knobs) == {"cache", "print"}
    with knobs.autotuning.scope():
        knobs.autotuning.print = False
        knobs.autotuning.cache = True
        assert not knobs.autotuning.print and knobs.autotuning.knobs == {"cache": True, "print": False}
    assert knobs.autotuning.print and not knobs.autotuning.cache

    class mine(knobs.base_knobs):
        size = knobs.env_int("MY_SIZE", 3)
        name = knobs.env_opt_str("MY_NAME")

    made = mine()
    assert made.knobs == {"size": 3, "name": None}
    monkeypatch.setenv("MY_SIZE", "seven")
    with pytest.raises(RuntimeError, match="expected int"):
        _ = made.size
    monkeypatch.setenv("MY_SIZE", "7")
    assert made.size == 7 and made.copy().size == 7


def test_configurations_that_the_kernel_refuses():
    seen = []

    def launched(config_kwargs, **options):
        @triton.autotune([triton.Config({"N": n}, **options) for n in config_kwargs], key=["n"], warmup=1, rep=1,
                         pre_hook=lambda named: seen.append("pre"), post_hook=lambda named, exception: seen.append(exception))
        @triton.jit
        def picks(z, n, N: tl.constexpr):
            tl.static_assert(N < 64, "too large")
            tl.store(z, N + n)
        return picks

    z = np.zeros(1, np.int32)
    picks = launched([64, 16, 128])
    picks[(1,)](z, 5)
    assert picks.best_config.kwargs == {"N": 16} and z[0] == 21
    assert "pre" in seen and None in seen and any(isinstance(s, triton.compiler.CompileTimeAssertionFailure) for s in seen)
    with pytest.raises(triton.compiler.CompileTimeAssertionFailure):
        launched([64, 128])[(1,)](z, 5)


def test_configurations():
    a, b = triton.Config({"N": 1}, num_warps=8), triton.Config({"N": 1}, num_warps=8)
    assert a == b and hash(a) == hash(b) and a != triton.Config({"N": 1})
    assert a.all_kwargs() == {"N": 1, "num_warps": 8, "num_ctas": 1, "num_stages": 3}
    assert str(a) == "N: 1, num_warps: 8, num_ctas: 1, num_stages: 3, maxnreg: None"


def test_wrapped_arrays():
    made = triton.reinterpret(np.zeros(4, np.int8), tl.float8e5).new_empty((2, 3))
    assert made.shape == (2, 3) and made.dtype == tl.float8e5


@pytest.mark.parametrize("mode", ["min", "max", "mean", "median", "all"])
def test_timing(mode):
    made = triton.testing.do_bench(lambda: None, warmup=1, rep=2, return_mode=mode)
    assert isinstance(made, list) == (mode == "all")
    assert len(triton.testing.do_bench(lambda: None, warmup=1, rep=2, quantiles=[0.2, 0.5])) == 2
    with pytest.raises(ValueError, match="return_mode"):
        triton.testing.do_bench(lambda: None, return_mode="most")
