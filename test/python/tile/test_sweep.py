"""Random kernels, as drawn.py draws them: by machine code, by the interpreter, and as blocks of threads for two GPUs."""

import drawn
import numpy as np
import pytest


@pytest.mark.parametrize("seed", range(60))
def test_random_kernels(seed):
    drawn.check(seed)


def test_a_difference_is_found(monkeypatch):
    """One that NumPy's side alone knows of."""
    def wrong(x, name): return np.asarray(x).astype(drawn.np_dtype(name)) + 1 if name in drawn.INTS else right(x, name)
    right = drawn.cast
    monkeypatch.setattr(drawn, "cast", wrong)
    found = 0
    for seed in range(8):
        try:
            drawn.check(seed, drawn.WAYS[1:2])
        except AssertionError:
            found += 1
    assert found >= 4
