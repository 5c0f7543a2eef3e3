#!/usr/bin/env python3
"""README shows what the demo prints: runs scripts/demo.sh with the built program and compares every line of README's block.

    check_demo_output.py PROGRAM [--self-test]

In the block a line `…` stands for any lines, and `…` at the end of a line for any rest of it; folders of this machine are brought into README's form. f32 has the same bits on every x86-64 CPU since
AVX2, so every digit must agree. Exits 77 (skipped) on other CPUs and without MPICH's launcher.
"""

import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Placeholders in README's lines for what differs on this machine.
PROGRAM, FOLDER, LAUNCHER = "build/release/bin/tandem", "build/demo", "/usr/bin/mpirun.mpich"
ANY = "…"


def block(readme):
    found = re.search(r"```\nscripts/demo\.sh\n```.*?```\n(.*?)```", readme, re.S)
    return found[1].rstrip("\n").split("\n") if found else []


def alike(wanted, line):
    return line.startswith(wanted[:-1]) if wanted.endswith(ANY) else line == wanted


def first_difference(wanted, printed):
    """The first line of the block that the output does not have in its place; None: all are there, in order, and the last line is the last one."""
    at, free = 0, True
    for line in wanted:
        if line == ANY:
            free = True
            continue
        while free and at < len(printed) and not alike(line, printed[at]):
            at += 1
        if at == len(printed) or not alike(line, printed[at]):
            return line
        at, free = at + 1, False
    return None if free or at == len(printed) else wanted[-1]


def self_test():
    printed = ["== 1.", "exact", "", "== 2.", "$ run --a --b", "1", "2", "3", "end 7"]
    assert first_difference(["== 2.", "$ run --a …", "1", ANY, "3", "end 7"], printed) is None
    for wrong in (["== 2.", "$ run --b …", "1"], ["== 2.", "$ run --a …", "2"], ["1", ANY, "4", "end 7"], ["3", "end 8"], ["1", "2"]):
        assert first_difference(wrong, printed), wrong
    assert block("a\n```\nscripts/demo.sh\n```\nb\n```\nc\nd\n```\n```\nscripts/test.sh\n```\n") == ["c", "d"]
    print("check_demo_output: self-test passed")
    return 0


def skipped(reason):
    print(f"SKIPPED: {reason}")
    return 77


def check(program):
    wanted = block((ROOT / "README.md").read_text(encoding="utf-8"))
    if not wanted:
        print("check_demo_output: README has no block behind scripts/demo.sh")
        return 1
    if platform.machine() != "x86_64" or " avx2 " not in pathlib.Path("/proc/cpuinfo").read_text():
        return skipped("README's digits are those of x86-64 CPUs with AVX2")
    launcher = shutil.which("mpirun.mpich") or shutil.which("mpiexec.hydra")
    if not launcher:
        return skipped("no mpirun.mpich: the demo's job cannot be run")
    with tempfile.TemporaryDirectory() as scratch:
        folder = f"{scratch}/demo"
        done = subprocess.run([ROOT / "scripts/demo.sh", program, folder], capture_output=True, text=True, check=False)
        output = done.stdout.replace(folder, FOLDER).replace(program, PROGRAM).replace(f"$ {launcher} ", f"$ {LAUNCHER} ")
    if done.returncode:
        print(f"check_demo_output: scripts/demo.sh ended with {done.returncode}:\n{output[-3000:]}\n{done.stderr[-2000:]}")
        return 1
    different = first_difference(wanted, output.rstrip("\n").split("\n"))
    if different is not None:
        print(f"check_demo_output: README's line\n    {different}\nis not what the demo prints in its place:\n{output}")
        return 1
    print(f"check_demo_output: the {len(wanted)} lines of README's block are what the demo prints")
    return 0


if __name__ == "__main__":
    sys.exit(self_test() if "--self-test" in sys.argv else check(sys.argv[1]))
