#!/usr/bin/env bash
# Configures and builds one preset with as many jobs as there are cores: scripts/build.sh [preset, default release] [target…]
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
shift || true
options=()
command -v ccache > /dev/null && options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
targets=()
[ $# -gt 0 ] && targets=(--target "$@")
cmake --preset "$preset" "${options[@]}"
cmake --build "build/$preset" -j "$(nproc)" "${targets[@]}"
