#!/usr/bin/env bash
# Lays out .sysroot/ with the x86-64 libraries that the cross build links, taken from the distribution's packages.
# The system's package state is left alone: a private package list is fetched, and packages are only unpacked.
# APT_SOURCES=file names another sources file, where the host's own has no amd64 packages (Ubuntu's ports).
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(libfmt-dev libprotozero-dev libcli11-dev nlohmann-json3-dev libre2-dev libxxhash-dev llvm-19-dev zlib1g-dev libzstd-dev)

if [[ $(uname -m) == x86_64 ]]; then
    echo "The host is x86-64: its own packages are used, there is nothing to lay out."
    exec tools/setup.sh build
fi
tools/setup.sh build cross

# shellcheck source=/dev/null
stamp="$(. /etc/os-release && echo "$ID $VERSION_ID"): ${packages[*]}"
[[ $(cat .sysroot/.ready 2>/dev/null) == "$stamp" ]] && { echo ".sysroot is up to date"; exit 0; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"  # apt fetches as a user of its own
mkdir -p "$work"/state/lists/partial "$work"/cache/archives/partial "$work"/packages
: >"$work/status"
apt=(apt-get -qq -o APT::Architecture=amd64 -o APT::Architectures::=amd64 -o Dir::State="$work/state"
    -o Dir::State::status="$work/status" -o Dir::Cache="$work/cache" -o APT::Sandbox::User="$(id -un)"
    -o Acquire::Languages=none)
[[ -n ${APT_SOURCES:-} ]] && apt+=(-o Dir::Etc::SourceList="$(realpath "$APT_SOURCES")" -o Dir::Etc::SourceParts=-)

echo "Fetching ${packages[*]} for amd64"
"${apt[@]}" update
(cd "$work/packages" && "${apt[@]}" download "${packages[@]}") || {
    echo "sysroot: the package sources have no amd64 packages; name some with APT_SOURCES=file" >&2
    exit 1
}
rm -rf .sysroot
mkdir .sysroot
for file in "$work"/packages/*.deb; do
    dpkg -x "$file" .sysroot
done
rm -rf .sysroot/usr/share/doc
echo "$stamp" >.sysroot/.ready
du -sh .sysroot
