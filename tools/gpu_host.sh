#!/usr/bin/env bash
# What tools/gpu.sh runs on the host with the GPU: ResNet-50 step by step against the reference, ONNX's suite against its
# expected outputs, and how long some models take on the device, all launches of one together.
# usage: gpu_host.sh FOLDER   with tessera, onnx_suite, excluded.txt and suite/ in it
set -uo pipefail
cd "$1" || exit
status=0
step() {
    echo "== $1"
    shift
    "$@" || status=1
}
nvidia-smi -L
export TESSERA_CACHE="$PWD/cache"
step "ResNet-50, each step against the reference" ./tessera compile --target cuda --check
step "ONNX's suite" ./onnx_suite suite --compiled --target cuda --batch 12 --jobs "$(nproc)" --exclude excluded.txt

models=$(mktemp -d)
trap 'rm -rf "$models"' EXIT
graph() { printf 'graph g(%s) {\n  return %s\n}\n' "$2" "$3" >"$models/$1.tsr"; }
graph add_f32_2^27 "a: f32[134217728], b: f32[134217728]" "add(a, b)"
for size in 8192,1024 8192,4096 4096,16384; do graph "softmax_f16_$size" "x: f16[$size]" "softmax(x, axis=-1)"; done
for size in 4096,8192 4096,12288; do graph "softmax_f32_$size" "x: f32[$size]" "softmax(x, axis=-1)"; done
graph layer_norm_f16_8192,4096 "x: f16[8192,4096], s: f16[4096], b: f16[4096]" "layer_normalization(x, s, b)"
graph sum_of_rows_f32_8192,8192 "x: f32[8192,8192]" "reduce_sum(x, [1], keepdims=0)"
graph sum_of_columns_f32_8192,8192 "x: f32[8192,8192]" "reduce_sum(x, [0], keepdims=0)"
graph transpose_f32_8192,8192 "x: f32[8192,8192]" "transpose(x, perm=[1,0])"
for type in f32 f16 bf16; do
    for size in 2048 4096 8192; do
        graph "matmul_${type}_$size" "a: ${type}[$size,$size], b: ${type}[$size,$size]" "matmul(a, b)"
    done
done
for rows in 1 16 64 128; do
    graph "matmul_bf16_${rows}_4096_4096" "a: bf16[$rows,4096], b: bf16[4096,4096]" "matmul(a, b)"
done
echo "== On the device: time, share, FLOP/s, bytes/s"
for model in "$models"/*.tsr ""; do
    name=$(basename "${model:-resnet50 f32}" .tsr)
    named=()
    [[ -n $model ]] && named=("$model")
    line=$(./tessera profile "${named[@]}" --target cuda 2>"$models/errors" | tail -1) || { cat "$models/errors"; status=1; }
    printf '%-30s %s\n' "$name" "$line"
done
exit $status
