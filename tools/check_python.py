#!/usr/bin/env python3
"""Checks the Python files with ruff: its rules, and the form that it writes (ruff.toml).

tools/check_python.py              # exits 1 if ruff finds something, 77 where it is not of the version of scripts/install_deps.sh
tools/check_python.py --self-test  # plants a violation of each kind in a scratch folder and expects it to be found
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def wanted_version():
    return re.search(r"version=([\d.]+)", (ROOT / "scripts/install_deps.sh").read_text())[1]


def find_ruff():
    """The program of the wanted version, or None."""
    for program in (ROOT / "build/dev-venv/bin/ruff", shutil.which("ruff")):
        if program and shutil.which(program):
            found = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60, check=False).stdout
            if found.split() == ["ruff", wanted_version()]:
                return program
    return None


def findings(ruff, folder):
    """Findings of ruff for the folder, in a list that is empty if it finds nothing."""
    logged = []
    for words in (["check", "--output-format", "concise"], ["format", "--check"]):
        command = [ruff, *words, "--config", ROOT / "ruff.toml", "--no-cache", "."]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0:
            logged.append(done.stdout + done.stderr)
    return logged


def self_test(ruff):
    with tempfile.TemporaryDirectory() as scratch:
        file = pathlib.Path(scratch) / "example.py"
        texts = {"good": ("import os\n\nprint(os.name)\n", 0), "rule": ("import os\n", 1), "form": ("print( 'a' )\n", 1)}
        wrong = []
        for name, (text, expected) in texts.items():
            file.write_text(text)
            if len(findings(ruff, scratch)) != expected:
                wrong.append(f"{name}: expected {expected} findings")
    print(*wrong, f"self-test: {len(wrong)} wrong", sep="\n")
    return 1 if wrong else 0


def main():
    ruff = find_ruff()
    if ruff is None:
        print(f"SKIPPED: needs ruff {wanted_version()} (scripts/install_deps.sh --dev)")
        return 77
    if sys.argv[1:] == ["--self-test"]:
        return self_test(ruff)
    logged = findings(ruff, ROOT)
    print("\n".join(logged) or "ruff finds nothing")
    return 1 if logged else 0


if __name__ == "__main__":
    sys.exit(main())
