#!/usr/bin/env python3
"""Checks the workflows of .github: with actionlint, and that each script they call exists.

tools/check_workflows.py              # exits 1 if something is found, 77 without actionlint (scripts/install_deps.sh --dev)
tools/check_workflows.py --self-test  # plants a violation of each kind in a scratch folder and expects it to be found
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAMES = {"quick", "full", "sanitize", "release"}


def find_actionlint():
    beside = ROOT / "build/dev-venv/bin/actionlint"
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("actionlint")


def findings(actionlint, folder):
    files = sorted(folder.glob("*.yml"))
    found = [f"there is no workflow {name}" for name in sorted(NAMES - {file.stem for file in files})]
    for file in files:
        for script in re.findall(r"(?:^|[\s\"'])((?:scripts|tools|\.ci)/[\w./]+)", file.read_text(encoding="utf-8"), re.M):
            if not os.access(ROOT / script, os.X_OK):
                found.append(f"{file.name}: {script} is not a program of the project")
    done = subprocess.run([actionlint, *files], capture_output=True, text=True, timeout=100, check=False)
    return found + ([done.stdout + done.stderr] if done.returncode != 0 else [])


def self_test(actionlint):
    good = (ROOT / ".github/workflows/quick.yml").read_text(encoding="utf-8")
    texts = {"good": (good, 0), "script": (good.replace("scripts/build.sh", "scripts/absent.sh"), 1), "key": (good.replace("runs-on", "runs-at"), 1)}
    wrong = []
    for name, (text, expected) in texts.items():
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            for file in NAMES:
                (folder / f"{file}.yml").write_text(text, encoding="utf-8")
            if (len(findings(actionlint, folder)) > 0) != (expected > 0):
                wrong.append(f"{name}: {findings(actionlint, folder)}")
    print(*wrong, f"self-test: {len(wrong)} wrong", sep="\n")
    return 1 if wrong else 0


def main():
    actionlint = find_actionlint()
    if actionlint is None:
        print("SKIPPED: needs actionlint (scripts/install_deps.sh --dev)")
        return 77
    if sys.argv[1:] == ["--self-test"]:
        return self_test(actionlint)
    found = findings(actionlint, ROOT / ".github/workflows")
    print("\n".join(found) or "actionlint finds nothing")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
