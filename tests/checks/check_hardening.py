#!/usr/bin/env python3
"""Whether the built program and libraries have what cmake/TandemHardening.cmake asks for, as readelf sees it, and continuous integration stops at warnings.

check_hardening.py --type=BUILD_TYPE --flags=CXX_FLAGS FILE...    # the program first, then shared libraries
"""

import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def readelf(flags, file):
    return subprocess.run(["readelf", "-W", *flags, file], capture_output=True, text=True, check=True, timeout=120).stdout


def missing(file, program):
    """The protections that the file lacks."""
    header, segments, dynamic, symbols = (readelf([flag], file) for flag in ("-h", "-l", "-d", "--dyn-syms"))
    found = {
        "a random address (type DYN)": re.search(r"Type:\s+DYN", header),
        "PIE": not program or re.search(r"FLAGS_1.*\bPIE\b", dynamic),
        "RELRO": "GNU_RELRO" in segments,
        "BIND_NOW": re.search(r"BIND_NOW|FLAGS_1.*\bNOW\b", dynamic),
        "a stack that is not executable": re.search(r"GNU_STACK.* RW ", segments),
        "the stack protector (__stack_chk_fail)": "__stack_chk_fail" in symbols,
        "fortified functions (…_chk)": not program or re.search(r"\b__\w+_chk\b", symbols.replace("__stack_chk_fail", "")),
    }
    return [name for name, there in found.items() if not there]


def main():
    build_type, flags, files = sys.argv[1].removeprefix("--type="), sys.argv[2].removeprefix("--flags="), sys.argv[3:]
    findings = []
    if "TANDEM_WERROR=1" not in (ROOT / ".ci/run").read_text() or "CMAKE_COMPILE_WARNING_AS_ERROR=ON" not in (ROOT / "scripts/build.sh").read_text():
        findings.append(".ci/run does not build with TANDEM_WERROR=1, which scripts/build.sh makes errors of warnings")
    hardened = build_type in ("Release", "RelWithDebInfo", "MinSizeRel") and "-fsanitize" not in flags
    if hardened and shutil.which("readelf"):
        findings += [f"{file} lacks {what}" for index, file in enumerate(files) for what in missing(file, index == 0)]
    for finding in findings:
        print(finding)
    if findings:
        return 1
    if not hardened:
        print(f"SKIPPED: a build of type '{build_type}' with flags '{flags}' is not hardened; look at a release")
        return 77
    if not shutil.which("readelf"):
        print("SKIPPED: needs readelf (package binutils)")
        return 77
    print(f"check_hardening: {len(files)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
