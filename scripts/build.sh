#!/usr/bin/env bash
# Configures and builds one preset with as many jobs as there are cores: scripts/build.sh [preset, default release] [target…]
# TANDEM_WERROR=1: a warning is an error, as in continuous integration. Off by default: a newer compiler knows more warnings.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
shift || true
# Without ccache each build begins with nothing: precompiled headers and groups of sources halve its time. ccache excludes the
# first, and keeps single sources best.
options=(-DCMAKE_DISABLE_PRECOMPILE_HEADERS=OFF -DTANDEM_UNITY=ON)
command -v ccache > /dev/null && options=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DTANDEM_UNITY=OFF)
[ "${TANDEM_WERROR:-0}" = 1 ] && options+=(-DCMAKE_COMPILE_WARNING_AS_ERROR=ON)
targets=()
[ $# -gt 0 ] && targets=(--target "$@")
cmake --preset "$preset" "${options[@]}"
cmake --build "build/$preset" -j "$(nproc)" "${targets[@]}"
