#!/usr/bin/env bash
# with_models.sh GROUP [ARGUMENT ...]: makes the environment, exports the models of the group that are missing (in
# $TESSERA_BENCH_MODELS or build-bench/models), then runs bench/GROUP.py on them with the arguments given.
set -euo pipefail
cd "$(dirname "$0")/.."

group=$1
shift
python=$(bench/venv.sh)/bin/python
models=${TESSERA_BENCH_MODELS:-build-bench/models}
for name in $("$python" -c 'import sys; sys.path.insert(0, "bench/models"); import groups; print(*getattr(groups, sys.argv[1].upper()))' "$group"); do
    [[ -f $models/$name.dynamo.onnx ]] || missing=1
done
[[ -z ${missing:-} ]] || "$python" bench/models/export.py --out "$models" --exporter dynamo "$group"
exec "$python" "bench/$group.py" --models "$models" "$@"
