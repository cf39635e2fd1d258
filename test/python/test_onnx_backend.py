"""ONNX's own backend tests through tessera.onnx_backend."""

import pathlib
import re

import onnx.backend.test

import tessera.onnx_backend

EXCLUDED = pathlib.Path(__file__).parents[1] / "onnx" / "excluded.txt"

backend_test = onnx.backend.test.BackendTest(tessera.onnx_backend.TesseraBackend, __name__)
for line in EXCLUDED.read_text().splitlines():
    if line.strip() and not line.startswith("#"):
        name, _, reason = line.partition(" ")
        assert reason.strip(), f"{name} is excluded without a reason"
        backend_test.exclude(f"^{re.escape(name)}_cpu$")
backend_test.exclude("_cuda$")  # the suite makes each test for two devices; there is a CPU here

globals().update(backend_test.test_cases)
