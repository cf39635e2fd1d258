#!/usr/bin/env bash
# Makes dist/tessera-*.whl, a wheel that needs nothing but Python (3.11 or later) and the C and C++ libraries: LLVM and
# fmt are linked into the module, RE2 lies beside it. Then tries it in a bare environment. `make wheel` builds the library first.
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python
made=build/wheel

rm -rf $made
mkdir -p $made dist
$python -m pip install -q --disable-pip-version-check -r tools/wheel_requirements.txt
# Linked anew out of the same build folder; `make python` links it against the shared libraries again.
$python -m pip wheel -q --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir $made/plain \
    --config-settings=build-dir=build --config-settings=cmake.define.TESSERA_WHEEL=ON .
# Puts RE2 into the wheel and the C library that it needs into its name, and fails where anything else is missing.
PATH=$PWD/.venv/bin:$PATH $python -m auditwheel repair --wheel-dir $made/named $made/plain/*.whl
cp $made/named/*.whl dist/
wheel=dist/$(basename $made/named/*.whl)
$python -m auditwheel show "$wheel"
du -h "$wheel"
$python tools/try_wheel.py "$wheel"
