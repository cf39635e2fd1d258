#!/usr/bin/env bash
# Makes the virtual environment of the benchmarks, in $TESSERA_BENCH_VENV or build-bench/venv, and prints
# its folder. Does nothing when it is up to date. Takes 6 GB: torch brings its GPU libraries.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${TESSERA_BENCH_VENV:-build-bench/venv}
stamp=$venv/.requirements
if ! cmp -s bench/requirements.txt "$stamp"; then
    python=/usr/bin/python3
    [[ -x $python ]] || python=$(command -v python3) || { echo "venv: no python3; run tools/setup.sh" >&2; exit 1; }
    echo "Making $venv with $("$python" --version)" >&2
    [[ -x $venv/bin/python ]] || "$python" -m venv --clear "$venv"
    pip=("$venv/bin/python" -m pip install -q --disable-pip-version-check)
    mapfile -t wanted < <(grep -v -e '^#' -e '^onnxoptimizer' -e '^$' bench/requirements.txt)
    "${pip[@]}" "${wanted[@]}"
    # Where onnxoptimizer has no wheel, its source is built: on its own it would fetch more from the network, so
    # it is given the distribution's protobuf and the pybind11 of this environment.
    pybind11=$("$venv/bin/python" -m pybind11 --cmakedir)
    ONNX_OPT_USE_SYSTEM_PROTOBUF=1 \
        CMAKE_ARGS="${CMAKE_ARGS:-} -Dpybind11_DIR=$pybind11 -DONNX_USE_PROTOBUF_SHARED_LIBS=ON" \
        "${pip[@]}" "$(grep '^onnxoptimizer' bench/requirements.txt)" ||
        { echo "venv: onnxoptimizer needs the packages libprotobuf-dev and protobuf-compiler" >&2; exit 1; }
    cp bench/requirements.txt "$stamp"
fi
echo "$venv"
