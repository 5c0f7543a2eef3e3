#!/usr/bin/env python3
"""scripts/aarch64.sh where what it needs cannot be had: exit code 77, a line with the reason, and nothing installed for another
processor. The commands that would reach out are replaced by ones that fail and note how they were called."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = "echo x86_64"
FAILS = 'echo "$@" >> "$0.calls"; exit 100'
CASES = {  # uname, dpkg-query, text of the reason
    "another machine": ("echo aarch64", "echo installed", "not an x86-64"),
    "no compiler": (HERE, 'case "$*" in *aarch64*) exit 1 ;; esac; echo installed', "g++-aarch64-linux-gnu"),
    "no libraries": (HERE, "echo installed", "is the package archive reachable?"),
}


def write_command(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def wrong_calls(calls):
    """Calls of apt-get for Arm must not be able to change this machine."""
    for call in calls:
        private = "Dir::State=" in call and "--download-only" in call
        if "arm64" in call and not private:
            yield f"apt-get {call}"


def run(name, uname, dpkg_query, reason):
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        shutil.copytree(ROOT / "scripts", folder / "scripts")
        commands = folder / "commands"
        commands.mkdir()
        for command, text in {"uname": uname, "dpkg-query": dpkg_query, "apt-get": FAILS, "sudo": 'exec "$@"'}.items():
            write_command(commands / command, text)
        environment = dict(os.environ, PATH=f"{commands}:{os.environ['PATH']}")
        done = subprocess.run([folder / "scripts/aarch64.sh"], env=environment, capture_output=True, text=True, timeout=60, check=False)
        calls = commands / "apt-get.calls"
        calls = calls.read_text().splitlines() if calls.exists() else []
    logged = [line for line in done.stderr.splitlines() if "SKIPPED" in line]
    errors = list(wrong_calls(calls))
    if done.returncode != 77:
        errors.append(f"exit code {done.returncode}, expected 77")
    if len(logged) != 1 or reason not in logged[0]:
        errors.append(f"no line SKIPPED with '{reason}'")
    if name == "no libraries" and not any("arm64" in call for call in calls):
        errors.append("apt-get was not asked for arm64")
    for error in errors:
        print(f"{name}: {error}\n{done.stdout}{done.stderr}")
    return not errors


results = [run(name, *case) for name, case in CASES.items()]
print(f"check_aarch64: {len(results)} cases, {results.count(False)} wrong")
sys.exit(0 if all(results) else 1)
