#!/usr/bin/env python3
"""Runs codespell over the files of the checkout (tools/codespell.cfg). Exits 77 where codespell is absent."""

import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]

if shutil.which("codespell") is None:
    print("SKIPPED: codespell is not installed (apt install codespell)")
    sys.exit(77)
listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True).stdout
files = [name for name in listed.decode().split("\0") if name and (ROOT / name).is_file()]
done = subprocess.run(["codespell", "--config", "tools/codespell.cfg", *files], cwd=ROOT, check=False)
print(f"check_spelling: {len(files)} files")
sys.exit(1 if done.returncode else 0)
