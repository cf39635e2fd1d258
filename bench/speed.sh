#!/usr/bin/env bash
# Compares compiled models with ONNX Runtime: makes the environment, exports the models that are missing (in
# $TESSERA_BENCH_MODELS or build-bench/models), then runs bench/speed.py with the arguments given.
set -euo pipefail
cd "$(dirname "$0")/.."

python=$(bench/venv.sh)/bin/python
models=${TESSERA_BENCH_MODELS:-build-bench/models}
for name in $("$python" -c 'import sys; sys.path.insert(0, "bench/models"); import groups; print(*groups.SPEED)'); do
    [[ -f $models/$name.dynamo.onnx ]] || missing=1
done
[[ -z ${missing:-} ]] || "$python" bench/models/export.py --out "$models" --exporter dynamo speed
exec "$python" bench/speed.py --models "$models" "$@"
