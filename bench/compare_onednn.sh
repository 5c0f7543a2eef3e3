#!/usr/bin/env bash
# Our products against those of PyPI's newest oneDNN, alternately on one core:
#   bench/compare_onednn.sh [FLAG of kernel_bench gemm...]
#   bench/compare_onednn.sh --json FILE …    writes the result there, for bench/record.py
# Builds tandem a second time, in build/onednn, with the package onednn-devel instead of Debian's libdnnl. One core, because that build of oneDNN runs on a SYCL device with threads of its own and
# takes as many as it is allowed to see; the device is Intel's OpenCL for CPUs, which comes with the package.
set -euo pipefail
cd "$(dirname "$0")/.."
words=() json=
while [ $# -gt 0 ]; do
  case $1 in
    --json) json=$2; shift 2 ;;
    *) words+=("$1"); shift ;;
  esac
done
set -- "${words[@]}"
packages=build/onednn-packages
if [ ! -x "$packages/bin/pip" ]; then
  python3 -m venv "$packages"
  "$packages/bin/pip" install --quiet onednn onednn-devel
fi
options=()
command -v ccache > /dev/null && options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
library=$PWD/$packages/lib
cmake -S . -B build/onednn -G Ninja -DCMAKE_BUILD_TYPE=Release "${options[@]}" \
  -DDNNL_INCLUDE_DIR="$PWD/$packages/include" -DDNNL_LIBRARY="$library/libdnnl.so" \
  -DCMAKE_BUILD_RPATH="$library" -DCMAKE_EXE_LINKER_FLAGS="-Wl,-rpath-link,$library" > build/onednn.log
cmake --build build/onednn --target kernel_bench -j "$(nproc)" >> build/onednn.log
core=$(taskset -cp $$ | sed 's/.*: \([0-9]*\).*/\1/')
against_onednn() {
  LD_LIBRARY_PATH=$library OCL_ICD_FILENAMES=$library/libintelocl.so taskset -c "$core" \
    build/onednn/bin/kernel_bench gemm --threads 1 --against onednn "$@" | grep -v '^onednn_verbose'
}
[ -n "$json" ] || { against_onednn "$@"; exit; }
against_onednn --json "$@" > "$json"
# The version for the record: that of the program which bench/record.py looks at is Debian's.
python3 - "$json" "$(basename "$(readlink -f "$library/libdnnl.so")")" << 'EOF'
import json, sys
run = json.load(open(sys.argv[1]))
run["versions"] = {"onednn": sys.argv[2].partition(".so.")[2]}
json.dump(run, open(sys.argv[1], "w"))
EOF
