#!/usr/bin/env bash
# Builds build/onednn/bin/kernel_bench with the newest oneDNN of PyPI, for `kernel_bench gemm --against onednn`; CPU jobs of that wheel need the OpenCL runtime
# beside it (OCL_ICD_FILENAMES). Downloads about 1 GB, so nothing calls it by itself. Exits 1 when PyPI is not reachable.
# scripts/build_onednn_bench.sh [version of the wheel, default the newest]
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$PWD/build/test-data/onednn-venv
mkdir -p build/test-data
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check "onednn${1:+==$1}" "onednn-devel${1:+==$1}" < /dev/null
cmake --preset release -B build/onednn -DCMAKE_PREFIX_PATH="$venv" -DCMAKE_BUILD_RPATH="$venv/lib" -DTANDEM_UNITY=24
LD_LIBRARY_PATH=$venv/lib cmake --build build/onednn --target kernel_bench
echo "OCL_ICD_FILENAMES=$venv/lib/libintelocl.so LD_LIBRARY_PATH=$venv/lib taskset -c 1 build/onednn/bin/kernel_bench gemm --dtype bf16 --threads 1 --against onednn"
