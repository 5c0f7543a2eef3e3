#!/usr/bin/env bash
# Makes build/test-data/llama.cpp with the converter of llama.cpp, from the sources of the package llama-cpp-python (80 MB), with which the test
# "gguf_of_merged_models" converts what `tandem merge` wrote. Nothing calls it by itself. Exits 1 when PyPI is not reachable.
# scripts/fetch_llama_cpp.sh [version, default 0.3.36]
set -euo pipefail
cd "$(dirname "$0")/.."
target=build/test-data/llama.cpp
[ -e "$target/convert_hf_to_gguf.py" ] && exit 0
download=$target.part
rm -rf "$download"
mkdir -p "$download"
python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-binary llama-cpp-python --dest "$download" "llama-cpp-python==${1:-0.3.36}" < /dev/null
tar -C "$download" --strip-components=3 -xzf "$download"/llama_cpp_python-*.tar.gz --wildcards '*/vendor/llama.cpp/convert_hf_to_gguf.py' \
  '*/vendor/llama.cpp/conversion' '*/vendor/llama.cpp/gguf-py'
rm "$download"/llama_cpp_python-*.tar.gz
mv "$download" "$target"
