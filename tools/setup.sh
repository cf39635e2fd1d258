#!/usr/bin/env bash
# Installs the distribution packages that a task needs and are missing, on Debian 12 (Ubuntu 24.04 has the same names).
# usage: tools/setup.sh [build] [python] [check] [oracles] [wheel] [browser] [format] [fuzz] [cross] [rtl] [mpi]   (no argument: build python)
set -euo pipefail

declare -A packages=(
    [build]="g++ cmake ninja-build ccache libfmt-dev libprotozero-dev libcli11-dev nlohmann-json3-dev libre2-dev libxxhash-dev llvm-19-dev
             libgoogle-perftools-dev libgtest-dev libgmock-dev libbenchmark-dev python3"
    [python]="python3 python3-venv python3-dev"
    [check]="shellcheck"
    [oracles]="libz3-dev libisl-dev"
    [wheel]="zlib1g-dev libzstd-dev"
    [browser]="chromium"
    [format]="git clang-format-14"
    [fuzz]="clang"
    [cross]="g++-x86-64-linux-gnu xz-utils"
    [rtl]="verilator yosys"
    [mpi]="openmpi-bin libopenmpi-dev"
)

missing=()
for task in "${@:-build python}"; do
    for word in $task; do
        [[ -v packages[$word] ]] || { echo "setup: unknown task '$word'" >&2; exit 2; }
        for package in ${packages[$word]}; do
            status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
            [[ $status == installed ]] || missing+=("$package")
        done
    done
done
[[ ${#missing[@]} -eq 0 ]] && exit 0

if ! command -v apt-get >/dev/null; then
    echo "setup: this is not a Debian or Ubuntu system; install the equivalents of: ${missing[*]}" >&2
    exit 1
fi
as_root=()
if [[ $(id -u) -ne 0 ]]; then
    if ! command -v sudo >/dev/null; then
        echo "setup: packages are missing, and neither root nor sudo is at hand. As root, run:" >&2
        echo "    apt-get install ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi

install() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >"$log" 2>&1
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "Installing distribution packages: ${missing[*]}"
# The package lists may be absent or old: refresh them only when the first attempt fails.
if ! install; then
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
    install || { cat "$log" >&2; echo "setup: apt-get could not install: ${missing[*]}" >&2; exit 1; }
fi
