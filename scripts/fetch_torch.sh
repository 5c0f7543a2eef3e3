#!/usr/bin/env bash
# Makes build/test-data/torch-venv with torch from PyPI, with which the test "torch" runs the wheel of python/, and with transformers and accelerate, with which
# the test "trainer_resumes" resumes checkpoints. Several GB, because PyPI's torch for Linux brings its libraries for GPUs; so nothing calls it by itself. Exits 1 when PyPI is not reachable.
# scripts/fetch_torch.sh [version, default the newest]
set -euo pipefail
cd "$(dirname "$0")/.."
venv=build/test-data/torch-venv
mkdir -p build/test-data
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check "torch${1:+==$1}" numpy setuptools expecttest transformers accelerate < /dev/null
