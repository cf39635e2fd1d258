#!/usr/bin/env bash
# Runs every test against build/ and prints what was counted. `make test` builds first, then calls this.
# usage: tools/test.sh [--all]
# --all: every test program under the sanitizers, and the tests of threads under ThreadSanitizer, which need one more
# build of everything each.
# The output of each stage is kept in build/test-logs/<stage>.log and shown when the stage fails.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

all=0
[[ ${1:-} == --all ]] && all=1
python=.venv/bin/python
suite=build/onnx_suite_files
logs=build/test-logs
export TESSERA_VERIFY=1  # kernels, after every lowering: in the command line and in Python too
rm -rf "$logs"
mkdir -p "$logs"
began=$SECONDS

# stage NAME COUNT COMMAND...: runs the command; `COUNT NAME` then prints one line that says what ran.
stage() {
    local name=$1 count=$2 start=$SECONDS verdict=passed
    shift 2
    echo "== $name"
    if ! "$@" >"$logs/$name.log" 2>&1; then
        verdict=FAILED
        tail -n 60 "$logs/$name.log"
    fi
    printf '%-10s %-6s %4d s   %s\n' "$name" "$verdict" $((SECONDS - start)) "$($count "$name")" | tee -a "$logs/summary"
}

last_line() { grep -v '^\s*$' "$logs/$1.log" | tail -n 1 | sed 's/^=* *//; s/ *=*$//'; }

# Tests as CTest counts them (a program, a shard of one, a script), cases as GoogleTest does.
ctest_counts() {
    $python - "$logs/$1" "$logs/$1.log" <<'END'
import json, pathlib, re, sys
cases = [json.loads(p.read_text()) for p in pathlib.Path(sys.argv[1]).glob("*.json")]
log = pathlib.Path(sys.argv[2]).read_text(errors="replace")
total = sum(c["tests"] for c in cases)
bad = sum(c["failures"] + c["errors"] for c in cases)
skipped = sum(t.get("result") == "SKIPPED" for c in cases for s in c["testsuites"] for t in s["testsuite"])
tests = re.search(r"tests failed out of (\d+)", log)
print(f"{tests.group(1) if tests else 0} tests, {total} cases, {bad} failed, {skipped} skipped")
END
}

run_ctest() {
    local name=$1 preset=$2
    shift 2
    local cases=build-$preset/test-cases status
    [[ $preset == release ]] && cases=build/test-cases
    rm -rf "$cases"
    mkdir -p "$logs/$name/tmp"
    TMPDIR="$PWD/$logs/$name/tmp" ctest --preset "$preset" --no-tests=error -j"$(nproc)" "$@"
    status=$?
    cp "$cases"/*.json "$logs/$name/"
    return $status
}

dump_suite() {
    local version
    version=$($python -c "import onnx; print(onnx.__version__)")
    [[ $(cat "$suite.version" 2>/dev/null) == "$version" ]] && return
    $python test/onnx/dump_suite.py "$suite" && echo "$version" >"$suite.version"
}

onnx_suite() { dump_suite && build/bin/onnx_suite "$suite" --round-trip --exclude test/onnx/excluded.txt; }
optimized_suite() { build/bin/onnx_suite "$suite" --optimize --exclude test/onnx/excluded.txt; }
compiled_suite() { build/bin/onnx_suite "$suite" --compiled --exclude test/onnx/excluded.txt; }
# The kernels for a GPU, thread by thread; not those of whole networks.
gpu_suite() {
    build/bin/onnx_suite "$suite" --interpreted --target sm_90a --filter '^test_' --exclude test/onnx/excluded.txt
}

sanitize() {
    local label=sanitize
    ((all)) && label=sanitize_all
    cmake --preset asan && cmake --build --preset asan --target ${label}_tests && run_ctest sanitize asan -L "^$label\$"
}

threads() {
    cmake --preset tsan && cmake --build --preset tsan --target thread_tests &&
        TESSERA_THREADS=8 run_ctest threads tsan -L threads
}

# The package with PyTorch, which has an environment of its own.
with_torch() {
    local torch_python packages
    if ! torch_python=$(tools/torch_venv.sh); then
        echo "SKIP: PyTorch could not be installed (tools/torch_venv.sh)"
        return 0
    fi
    packages=$($python -c "import sysconfig; print(sysconfig.get_paths()['purelib'])")
    PYTHONPATH=$packages timeout 1800 "$torch_python" -m pytest -q test/pytorch
}

# Both run beside the other stages, in the time that these leave cores idle.
sanitizers() {
    renice -n 19 "$BASHPID" >/dev/null
    stage sanitize ctest_counts sanitize
    if ((all)); then stage threads ctest_counts threads; fi
}

dump_suite >"$logs/dump.log" 2>&1  # the tests of damaged models start from these
set -m  # a process group of its own, which ends with this script
sanitizers &
beside=$!
set +m
trap 'kill -- "-$beside"' EXIT
stage unit ctest_counts run_ctest unit release
[[ -x build/bin/onnx_suite ]] && stage onnx last_line onnx_suite
[[ -x build/bin/onnx_suite ]] && stage optimized last_line optimized_suite
[[ -x build/bin/onnx_suite ]] && stage compiled last_line compiled_suite
[[ -x build/bin/onnx_suite ]] && stage gpu last_line gpu_suite
[[ -d test/python ]] && stage python last_line timeout 3600 $python -m pytest -q test/python
stage torch last_line with_torch
wait "$beside" || echo "sanitize   FAILED: it was stopped" >>"$logs/summary"
trap - EXIT

echo
cat "$logs/summary"
took="$(((SECONDS - began) / 60)) min $(((SECONDS - began) % 60)) s"
if grep -Eq '^\w+ +FAILED' "$logs/summary"; then
    echo "Some tests FAILED (logs in $logs/), after $took."
    exit 1
fi
echo "All tests passed in $took."
