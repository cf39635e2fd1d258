#!/usr/bin/env bash
# Builds the libFuzzer targets with clang and runs each of them.
# usage: tools/fuzz.sh [seconds per target]
# Starts from ONNX's test models; what it finds on the way stays in build-fuzz/corpus/.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-600}

tools/setup.sh build fuzz
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz --target fuzz_targets tessera-cli

# ONNX's own test models are the seeds, as files and as text.
tools/venv.sh
suite=build-fuzz/suite
if [[ ! -d $suite ]]; then
    .venv/bin/python test/onnx/dump_suite.py "$suite" >/dev/null 2>&1
    for kind in reader importer text; do mkdir -p "build-fuzz/seeds/${kind}_fuzz"; done
    while read -r model; do
        name=$(basename "$(dirname "$model")")
        cp "$model" "build-fuzz/seeds/reader_fuzz/$name.onnx"
        cp "$model" "build-fuzz/seeds/importer_fuzz/$name.onnx"
        build-fuzz/bin/tessera convert "$model" "build-fuzz/seeds/text_fuzz/$name.tsr" 2>/dev/null || true
    done < <(find "$suite" -name '*.onnx' -size -16k)
fi

mkdir -p build-fuzz/seeds/rules_fuzz
cp rules/*.rules build-fuzz/seeds/rules_fuzz/
mkdir -p build-fuzz/seeds/kernels_fuzz
cp test/files/kernel/*.tsk build-fuzz/seeds/kernels_fuzz/

targets=(build-fuzz/bin/*_fuzz)
[[ -x ${targets[0]} ]] || { echo "No fuzz target."; exit 0; }
for target in "${targets[@]}"; do
    name=$(basename "$target")
    corpus=build-fuzz/corpus/$name
    seeds=build-fuzz/seeds/$name
    folders=("$corpus")
    [[ -d $seeds ]] && folders+=("$seeds")
    mkdir -p "$corpus"
    echo "$name: $seconds seconds"
    "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0 \
        -artifact_prefix="build-fuzz/$name-" "${folders[@]}" || {
        echo "$name: FAILED; the input is build-fuzz/$name-*" >&2
        exit 1
    }
done
echo "All ${#targets[@]} fuzz targets ran $seconds seconds and found nothing."
