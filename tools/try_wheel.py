"""Installs a wheel into a bare virtual environment and runs the README's Python lines and the command
`tessera` there, outside the checkout.

usage: try_wheel.py dist/tessera-*.whl      with the Python to try it with
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import venv

# Runs in the environment: a model to load, the README's lines, and what they must have come to.
SCRIPT = """
import pathlib, sys
import numpy as np
import tessera
assert pathlib.Path(tessera.__file__).is_relative_to(sys.prefix), tessera.__file__
random = np.random.default_rng(0)
x = random.standard_normal((1, 16), dtype=np.float32)
weights = ", ".join(str(round(v, 3)) for v in random.standard_normal(16 * 8))
tessera.parse("graph g(x: f32[N,16]) {\\n  const w: f32[16,8] = [" + weights + "]\\n  return relu(relu(matmul(x, w)))\\n}\\n").save("model.onnx")
reference = tessera.load("model.onnx")(x)
exec(pathlib.Path("lines.py").read_text())
np.testing.assert_allclose(y, reference, rtol=1e-3, atol=1e-3)
for other in (smaller, faster):
    np.testing.assert_allclose(tessera.compile(other)(x), reference, rtol=1e-3, atol=1e-3)
np.testing.assert_allclose(tessera.InferenceSession("model.onnx").run(None, {"x": x})[0], reference, rtol=1e-3, atol=1e-3)
assert pathlib.Path("smaller.onnx").stat().st_size > 0 and pathlib.Path("my.rules").stat().st_size > 0
loaded = {line.split()[-1] for line in open("/proc/self/maps") if "/" in line}
outside = [p for p in loaded if any(name in p for name in ("libLLVM", "libfmt", "libre2")) and not p.startswith(sys.prefix)]
assert not outside, f"it uses the system's {outside}"
print("The README's lines ran with Python", sys.version.split()[0])
"""


def readme_lines():
    text = (pathlib.Path(__file__).resolve().parent.parent / "README.md").read_text(encoding="utf-8")
    return re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]


def main():
    wheel = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        venv.create(folder / "venv", with_pip=True)
        python = folder / "venv" / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", wheel], check=True, cwd=folder)
        (folder / "lines.py").write_text(readme_lines())
        subprocess.run([python, "-I", "-c", SCRIPT], check=True, cwd=folder)
        # The command that comes with it, on the model that the script saved.
        for words in (["--version"], ["run", "model.onnx", "--random"], ["optimize", "model.onnx", "-o", "again.onnx"],
                      ["bench", "model.onnx", "--threads", "1", "--seconds", "0", "--runs", "1"]):
            done = subprocess.run([folder / "venv" / "bin" / "tessera", *words], cwd=folder, capture_output=True, text=True)
            assert done.returncode == 0 and done.stdout, (words, done.stderr)
        print("The command `tessera` ran")


main()
