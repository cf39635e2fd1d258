"""Launches after the first: what must not be taken for the arguments of a launch before, and what is held between them."""

import copy
import enum
import gc
import os
import pickle
import sys
import weakref

import numpy as np
import pytest

import tessera
import tessera.tile as triton
import tessera.tile.language as tl
from tessera.tile import _runtime
from tessera.tile.runtime.jit import MockTensor

by_processor = pytest.mark.skipif(os.environ.get("TESSERA_TILE_DEVICE") == "cuda", reason="arguments are moved to the GPU first")


@triton.jit
def stores(z, X: tl.constexpr):
    tl.store(z, X)


@triton.jit
def stores_first(z, X: tl.constexpr):
    tl.store(z, X[0])


@triton.constexpr_function
def name_of_type(x):
    return type(x[0] if isinstance(x, (tuple, list)) else x).__name__


@triton.jit
def kind_of(z, X: tl.constexpr):
    NAME: tl.constexpr = name_of_type(X)
    tl.store(z, 4 if NAME == "Mode" else 3 if NAME == "bool" else 2 if NAME == "float" else 1)


@triton.jit
def adds_one(x, n, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


def stored(kernel, *args, dtype=np.float32):
    z = np.full(1, 7, dtype)
    kernel[(1,)](z, *args)
    return z[0]


def test_constants_that_are_equal_and_differ():
    for x in (0.0, -0.0, 0.0, -0.0):
        assert np.signbit(stored(stores, x)) == np.signbit(x)
    for x, kind in [((1,), 1), ((True,), 3), ((1.0,), 2), ((1,), 1), ([True], 3), ([1], 1), ([1.0], 2)]:
        assert stored(kind_of, x) == kind
    for x in (0.0, -0.0):
        assert np.signbit(stored(stores_first, (x, 1))) == np.signbit(x)
        assert np.signbit(stored(stores_first, [x, (1,)])) == np.signbit(x)
    made = len(stores._compiled)
    for _ in range(3):
        stores.run(np.zeros(1, np.float32), float("nan"), grid=(1,))
    assert len(stores._compiled) == made + 1  # though it equals none


def test_constants_that_change():
    for sizes in ([0, 2], np.zeros(3000, np.int64)):
        for i in range(4):
            sizes[0] = 10 * i
            assert stored(stores_number, sizes) == 10 * i
            sizes[-1] = i
            assert stored(stores_last, sizes) == i
    names = {"a": 1}
    for i in range(4):
        names["a"] = i
        assert stored(stores_entry, names) == i


@triton.jit
def stores_number(z, X: tl.constexpr):
    tl.store(z, int(X[0]))


@triton.jit
def stores_last(z, X: tl.constexpr):
    tl.store(z, int(X[len(X) - 1]))


@triton.jit
def stores_entry(z, X: tl.constexpr):
    tl.store(z, X["a"])


class Mode(str, enum.Enum):
    FAST = "fast"


def test_texts_of_other_types():
    for x, kind in [("fast", 1), (Mode.FAST, 4)] * 2:
        assert stored(kind_of, x) == kind


SIZE = tl.constexpr(0)


@triton.jit
def its_size():
    return SIZE


@triton.jit
def stores_size(z):
    tl.store(z, its_size())


def test_globals_that_change():
    global SIZE
    for i in (3, 5, 5, 3):
        SIZE = tl.constexpr(i)
        assert stored(stores_size) == i
        assert stored(stores_size) == i


def kernel_in_a_function():
    size = tl.constexpr(0)

    @triton.jit
    def inner():
        return size

    @triton.jit
    def stores_size(z):
        tl.store(z, inner() + size)

    def become(value):
        nonlocal size
        size = tl.constexpr(value)

    return stores_size, become


def test_variables_around_that_change():
    kernel, become = kernel_in_a_function()
    z = np.zeros(1, np.float32)
    for i in (0, 1, 2, 2, 1):
        become(i)
        for _ in range(3):
            kernel[(1,)](z)
            assert z[0] == 2 * i


class Sizes:
    first = tl.constexpr(0)
    second = 0


class MoreSizes(Sizes):
    pass


class Held:
    def __init__(self, size): self.size = size


@triton.constexpr_function
def three(): return 3


@triton.constexpr_function
def four(): return 4


counted = three


@triton.jit
def sums_constants(z, HELD: tl.constexpr):
    tl.store(z, MoreSizes.first + 10 * MoreSizes.second + 100 * HELD.size + 1000 * counted())


def test_attributes_and_constexpr_functions_that_change(monkeypatch):
    held, z = Held(2), np.zeros(1, np.float32)

    def sums(wanted):
        for _ in range(3):
            sums_constants[(1,)](z, held)
            assert z[0] == wanted

    sums(3200)
    monkeypatch.setattr(Sizes, "first", tl.constexpr(1))
    sums(3201)
    monkeypatch.setattr(Sizes, "second", 5)
    sums(3251)
    monkeypatch.setattr(MoreSizes, "second", 6, raising=False)
    sums(3261)
    held.size = 4
    sums(3461)
    monkeypatch.setitem(globals(), "counted", four)
    sums(4461)


def test_launches_that_read_attributes_are_kept(monkeypatch):
    compiled = []
    monkeypatch.setattr(_runtime, "on_compile", [lambda *made: compiled.append(made)])
    held = Held(2)
    for _ in range(4):
        stored(sums_constants, held)
    assert len(compiled) == 1


@by_processor
def test_only_arrays_are_written_into():
    x = np.zeros(16, np.uint8)
    for _ in range(2):
        adds_one[(1,)](x, 16, N=16)
        for other in (bytes(16), bytearray(16), memoryview(bytearray(16))):
            with pytest.raises(tessera.Error, match="kernels take arrays"):
                adds_one[(1,)](other, 16, N=16)
            assert not any(other)


class Constant:
    number = 3


@triton.jit
def stores_number_of(z, X: tl.constexpr):
    tl.store(z, X.number)


def test_constants_are_held_once():
    kernel, x, z = triton.jit(stores_number_of.fn), Constant(), np.zeros(1, np.float32)
    kernel.run(z, x, grid=(1,))
    before = sys.getrefcount(x)
    for _ in range(100):
        kernel.run(z, x, grid=(1,))
        kernel[(1,)](z, x)
    assert sys.getrefcount(x) == before


class Array(np.ndarray):
    pass


def test_grids_are_not_held():
    x = np.zeros(16, np.float32).view(Array)
    for _ in range(3):
        adds_one[lambda meta, x=x: (x.size // 16,)](x, 16, N=16)
    over, held = adds_one[lambda meta, x=x: (x.size // 16,)], weakref.ref(x)
    del x
    gc.collect()
    assert held() is not None
    del over
    gc.collect()
    assert held() is None


def test_copies_of_kernels_are_the_kernels():
    assert copy.copy(stores) is stores and copy.deepcopy([stores])[0] is stores
    assert pickle.loads(pickle.dumps(stores)) is stores


@triton.jit
def asserts(x):
    tl.device_assert(tl.load(x) == 0, "is not zero")


def test_debugging_that_is_asked_for_later(monkeypatch):
    x = np.ones(1, np.float32)
    for name in ("TRITON_DEBUG", "TESSERA_DEBUG"):
        for _ in range(2):
            asserts[(1,)](x)
        monkeypatch.setenv(name, "1")
        with pytest.raises(tessera.Error, match="is not zero"):
            asserts[(1,)](x)
        monkeypatch.delenv(name)


def test_options_and_grids_that_are_wrong():
    z = np.zeros(1, np.float32)
    for _ in range(2):
        stores[(1,)](z, 1)
        with pytest.raises(AssertionError, match="power of 2"):
            stores[(1,)](z, 1, num_warps=2**32 + 4)
        for grid in [(1, 1, 1, 1), (1.5,), ("1",), "1", (2**70,)]:
            with pytest.raises(tessera.Error, match="a grid has at most three sizes"):
                stores[grid](z, 1)


def test_listeners_that_come_later():
    x, heard = np.zeros(16, np.float32), []
    adds_one[(1,)](x, 16, N=16)
    _runtime.on_launch.append(lambda kernel, key, program, *rest: heard.append((kernel, program)))
    try:
        adds_one[(1,)](x, 16, N=16)
    finally:
        _runtime.on_launch.pop()
    assert heard[0][0] is adds_one and "store" in str(heard[0][1])


@triton.jit
def scales(x, z, n, factor, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(z + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)


def test_words_beside_those_that_are_tuned():
    configs = [triton.Config({"N": 8}), triton.Config({"N": 16})]
    x, z = np.ones(8, np.float32), np.zeros(8, np.float32)
    chosen = triton.autotune(configs, key=["n"], prune_configs_by={"perf_model": lambda **given: given["N"], "top_k": 1})(scales)
    chosen[(1,)](x, z, n=8, factor=2)
    assert chosen.best_config is configs[0] and (z == 2).all()
    pruned = triton.autotune(configs, key=["n"], prune_configs_by={"early_config_prune": lambda all, named, **words: all[1:]})(scales)
    pruned[(1,)](x, z, n=8, factor=3)
    assert pruned.best_config is configs[1] and (z == 3).all()
    for _ in range(2):
        with pytest.raises(ValueError, match="Conflicting meta-parameters: N"):
            pruned[(1,)](x, z, n=8, factor=3, N=4)
    nothing = triton.autotune(configs, key=["n"], prune_configs_by={"early_config_prune": lambda all, named, **words: []})(scales)
    with pytest.raises(ValueError, match="no configuration is left"):
        nothing[(1,)](x, z, n=8, factor=3)


@by_processor
def test_memory_that_is_not_there_or_not_as_kernels_read_it():
    with pytest.raises(tessera.Error, match="float32 in the other byte order"):
        adds_one[(1,)](np.zeros(16, np.dtype(np.float32).newbyteorder()), 16, N=16)

    class Meta(MockTensor):
        def numel(self): return 16
        def stride(self): return (1,)

    for _ in range(2):
        for array in (MockTensor(tl.float32), Meta(tl.float32, [16])):
            with pytest.raises(tessera.Error, match="argument x of adds_one has no memory"):
                adds_one[(1,)](array, 16, N=16)
        adds_one[(1,)](np.zeros(16, np.float32), 16, N=16)
