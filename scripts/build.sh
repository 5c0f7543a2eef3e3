#!/usr/bin/env bash
# Configures and builds one preset with as many jobs as there are cores: scripts/build.sh [preset, default release] [target…]
# TANDEM_WERROR=1: a warning is an error, as in continuous integration. Off by default: a newer compiler knows more warnings.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
shift || true
# TANDEM_CCACHE=1: ccache keeps the objects, for a machine that builds often. It excludes precompiled headers and keeps single sources
# best, so that its first build takes twice the time.
# Groups of 24 sources take the least time in all; many cores need more groups to have work.
group=$(($(nproc) > 4 ? 6 : 24))
options=(-DCMAKE_CXX_COMPILER_LAUNCHER= -DCMAKE_DISABLE_PRECOMPILE_HEADERS=OFF "-DTANDEM_UNITY=$group")
[ "${TANDEM_CCACHE:-0}" = 1 ] && options=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DTANDEM_UNITY=0)
[ "${TANDEM_WERROR:-0}" = 1 ] && options+=(-DCMAKE_COMPILE_WARNING_AS_ERROR=ON)
targets=()
[ $# -gt 0 ] && targets=(--target "$@")
cmake --preset "$preset" "${options[@]}"
cmake --build "build/$preset" -j "$(nproc)" "${targets[@]}"
