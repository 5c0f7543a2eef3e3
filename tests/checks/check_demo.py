#!/usr/bin/env python3
"""Makes the demo again in a scratch folder and compares every byte with examples/demo."""

import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def files(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


with tempfile.TemporaryDirectory() as scratch:
    subprocess.run([sys.executable, ROOT / "examples/make_demo.py", scratch], check=True)
    made, committed = files(pathlib.Path(scratch)), files(ROOT / "examples/demo")

different = sorted(name for name in made.keys() | committed.keys() if made.get(name) != committed.get(name))
for name in different:
    where = "only committed" if name not in made else "only made" if name not in committed else "different bytes"
    print(f"examples/demo/{name}: {where}")
print(f"check_demo: {len(made)} files made, {len(different)} differ; if a change is meant, run examples/make_demo.py and commit")
sys.exit(1 if different or not made else 0)
