#!/usr/bin/env bash
# Cross-builds the command line and ONNX's suite for x86-64, takes them to a host with a GPU, and runs tools/gpu_host.sh
# there. The host needs NVIDIA's driver, and neither a compiler nor LLVM.
# usage: tools/gpu.sh HOST   a name that ssh knows
set -euo pipefail
cd "$(dirname "$0")/.."

host=${1:?usage: tools/gpu.sh HOST}
python=${PYTHON:-.venv/bin/python}
suite=build/onnx_suite_files
tools/sysroot.sh
cmake --preset cross-x86_64 >/dev/null
cmake --build --preset cross-x86_64 --target tessera-cli onnx_suite
[[ -d $suite ]] || "$python" test/onnx/dump_suite.py "$suite"

load=$(mktemp -d)
trap 'rm -rf "$load"' EXIT
cp build-x86_64/bin/tessera build-x86_64/bin/onnx_suite test/onnx/excluded.txt tools/gpu_host.sh "$load"
cp -r "$suite" "$load/suite"
folder=$(ssh "$host" mktemp -d)
tar -C "$load" -cJf - . | ssh "$host" tar -C "$folder" -xJf -
# shellcheck disable=SC2029  # the folder is the one that the host just named
ssh "$host" "bash $folder/gpu_host.sh $folder; code=\$?; rm -rf $folder; exit \$code"
