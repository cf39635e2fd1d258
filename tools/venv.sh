#!/usr/bin/env bash
# Makes .venv with what the Python module and the tests need. Does nothing when it is up to date.
set -euo pipefail
cd "$(dirname "$0")/.."

stamp=.venv/.requirements
cmp -s requirements-test.txt "$stamp" && exit 0

# The distribution's Python, since its headers are the ones tools/setup.sh installs.
python=/usr/bin/python3
[[ -x $python ]] || python=$(command -v python3) || { echo "venv: no python3; run tools/setup.sh" >&2; exit 1; }

echo "Making .venv with $("$python" --version)"
[[ -x .venv/bin/python ]] || "$python" -m venv --clear .venv
.venv/bin/python -m pip install -q --disable-pip-version-check -r requirements-test.txt
cp requirements-test.txt "$stamp"
