#!/usr/bin/env bash
# Makes the virtual environment of the benchmarks, in $TESSERA_BENCH_VENV or build-bench/venv, and prints
# its folder. Does nothing when it is up to date. Takes several gigabytes: torch brings its GPU libraries.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${TESSERA_BENCH_VENV:-build-bench/venv}
stamp=$venv/.requirements
if ! cmp -s bench/requirements.txt "$stamp"; then
    python=/usr/bin/python3
    [[ -x $python ]] || python=$(command -v python3) || { echo "venv: no python3; run tools/setup.sh" >&2; exit 1; }
    echo "Making $venv with $("$python" --version)" >&2
    [[ -x $venv/bin/python ]] || "$python" -m venv --clear "$venv"
    "$venv/bin/python" -m pip install -q --disable-pip-version-check -r bench/requirements.txt
    cp bench/requirements.txt "$stamp"
fi
echo "$venv"
