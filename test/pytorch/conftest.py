"""These tests need PyTorch: tools/torch_venv.sh makes an environment with it (docs/torch.md)."""

import importlib.util

import pytest

if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["*.py"]
else:
    import torch

    @pytest.fixture(autouse=True)
    def fresh():
        """Nothing compiled before, and the same numbers each time."""
        torch._dynamo.reset()
        torch.manual_seed(0)
