#!/usr/bin/env bash
# Makes build/test-data/hub-clients/old and new: two versions of the official package huggingface_hub, with which a test asks `tandem serve`,
# and numpy, in which they give embeddings.
# Exits 0 when they are there, 1 with the reason when PyPI is not reachable; the test then skips
# with that reason.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=build/test-data/hub-clients
mkdir -p "$folder"
for client in "old huggingface_hub==0.23.0" "new huggingface_hub>=1" "numpy numpy"; do
  target=$folder/${client%% *}
  package=${client#* }
  [ -d "$target/${package%%[=>]*}" ] && continue
  rm -rf "$target" "$target.part"
  if ! python3 -m pip install --quiet --disable-pip-version-check --target "$target.part" "$package" < /dev/null; then
    rm -rf "$target.part"
    echo "fetch_hub_clients: $package could not be installed from PyPI" >&2
    exit 1
  fi
  mv "$target.part" "$target"
done
