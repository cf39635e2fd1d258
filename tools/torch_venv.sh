#!/usr/bin/env bash
# Makes build/torch-venv: PyTorch as small as it can be had, for the tests of tessera.torch. Does nothing when it is there.
# The wheel for AArch64 imports without NVIDIA's libraries; the one for x86-64 needs those that it is linked to, but not
# Triton. Prints the environment's Python.
set -euo pipefail
cd "$(dirname "$0")/.."

version=2.10.0
folder=build/torch-venv
stamp=$folder/.torch
python=$folder/bin/python
if [[ $(cat "$stamp" 2>/dev/null) != "$version" ]]; then
    system=/usr/bin/python3
    [[ -x $system ]] || system=$(command -v python3)
    "$system" -m venv --clear "$folder" >&2
    pip() { "$python" -m pip install -q --disable-pip-version-check "$@" >&2; }
    pip --no-deps "torch==$version"
    pip "numpy>=2" sympy networkx jinja2 fsspec filelock typing_extensions "setuptools>=77" expecttest pytest
    if ! "$python" -c "import torch" 2>/dev/null; then
        "$python" - <<'END' | xargs "$python" -m pip install -q --disable-pip-version-check --no-deps >&2
import importlib.metadata
for line in importlib.metadata.requires("torch") or []:
    need = line.split(";")[0].replace(" ", "")
    if need.startswith(("nvidia-", "cuda-")) and "extra" not in line:
        print(need)
END
    fi
    "$python" -c "import torch"
    echo "$version" >"$stamp"
fi
echo "$python"
