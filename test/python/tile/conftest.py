"""With TESSERA_TILE_DEVICE=cuda the tests' arrays are copied to the GPU, kernels run there, and arrays are copied back."""

import os

import numpy as np

from tessera.tile import _arguments, _runtime


def _span(x):
    memory = _arguments.memory_of(x)
    return memory.address, max(memory.end, memory.address + 1)


def _on_gpu(arrays, torch):
    """Tensors that lie to each other as the arrays do, and what copies them back."""
    import ctypes
    spans = sorted({_span(x) for x in arrays})
    pieces = []
    for begin, end in spans:
        if pieces and begin < pieces[-1][1]:
            pieces[-1][1] = max(pieces[-1][1], end)
        else:
            pieces.append([begin, end])
    copies = []
    for begin, end in pieces:
        host = np.ctypeslib.as_array((ctypes.c_uint8 * (end - begin)).from_address(begin))
        copies.append((begin, end, host, torch.from_numpy(host.copy()).cuda()))
    tensors = []
    for x in arrays:
        address = _span(x)[0]
        begin, _, _, memory = next(c for c in copies if c[0] <= address < c[1])
        dtype = getattr(torch, {"bool": "bool"}.get(x.dtype.name, x.dtype.name))
        flat = memory[address - begin:]
        flat = flat[:flat.numel() // x.itemsize * x.itemsize].view(dtype) if x.size else torch.empty(0, dtype=dtype).cuda()
        tensors.append(flat.as_strided(x.shape, [s // x.itemsize for s in x.strides]) if x.size else flat)

    def back():
        torch.cuda.synchronize()
        for _, _, host, memory in copies:
            host[:] = memory.cpu().numpy()

    return tensors, back


def _arrays_in(value, found):
    if isinstance(value, np.ndarray):
        found.append(value)
    elif isinstance(value, _arguments.TensorWrapper):
        _arrays_in(value.base, found)
    elif isinstance(value, _arguments.TensorDescriptor):
        _arrays_in(value.base, found)
    elif isinstance(value, (tuple, list)):
        for v in value:
            _arrays_in(v, found)


def _moved(value, places):
    if isinstance(value, np.ndarray):
        return places[id(value)]
    if isinstance(value, _arguments.TensorWrapper):
        return _arguments.TensorWrapper(_moved(value.base, places), value.dtype)
    if isinstance(value, _arguments.TensorDescriptor):
        return _arguments.TensorDescriptor(_moved(value.base, places), value.shape, value.strides, value.block_shape, value.padding)
    if isinstance(value, tuple):
        items = [_moved(v, places) for v in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value


def _run_on_gpu():
    import torch
    run = _runtime.JITFunction.run

    def moved(self, *args, grid, warmup=False, **kwargs):
        arrays = []
        for value in (*args, *kwargs.values()):
            _arrays_in(value, arrays)
        if warmup or not arrays:
            return run(self, *args, grid=grid, warmup=warmup, **kwargs)
        tensors, back = _on_gpu(arrays, torch)
        places = {id(a): t for a, t in zip(arrays, tensors)}
        made = run(self, *(_moved(a, places) for a in args), grid=grid,
                   **{k: _moved(v, places) for k, v in kwargs.items()})
        back()
        return made

    _runtime.JITFunction.run = moved


# Addresses of the processor's memory are none of the GPU's; an assertion that does not hold ends all work there; and what
# is compiled for another target by way of the interpreter does not run there.
_NOT_ON_GPU = ("test_pointers_that_are_loaded", "test_pointers_to_pointers", "test_prints_on_the_device",
               "test_assertions_on_the_device", "test_debugging_that_is_asked_for_later",
               "test_products_of_words_are_matrix_instructions")


def pytest_collection_modifyitems(items):
    if os.environ.get("TESSERA_TILE_DEVICE") == "cuda":
        import pytest
        for item in items:
            if item.name.startswith(_NOT_ON_GPU):
                item.add_marker(pytest.mark.skip(reason="not on a GPU"))


if os.environ.get("TESSERA_TILE_DEVICE") == "cuda":
    _run_on_gpu()
