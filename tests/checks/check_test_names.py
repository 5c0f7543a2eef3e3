#!/usr/bin/env python3
"""No parameter of a test is printed as raw bytes or as an address: its type has a PrintTo(), or is one that GoogleTest knows.

check_test_names.py FOLDER      # of the build's test programs
check_test_names.py --self-test
"""

import pathlib
import re
import subprocess
import sys

# "  Case/0  # GetParam() = 24-byte object <8C-C0 …>", "… = (0x5587c8720948 pointing to "exchange", 3)"
UNREADABLE = re.compile(r"GetParam\(\) = .*(?:\d+-byte object <|\b0x[0-9a-fA-F]{6,})")


def findings_in(program, listed):
    """One line for each suite with an unreadable parameter."""
    suite, found = "", {}
    for line in listed.splitlines():
        if line and not line.startswith(" "):
            suite = line.split()[0].rstrip(".")
        elif UNREADABLE.search(line):
            found.setdefault(suite, line.split("GetParam() = ")[1][:60])
    return [f"{program}: {suite}: {shown}" for suite, shown in found.items()]


def self_test():
    listed = 'A/Suite.\n  Is/0  # GetParam() = 24-byte object <8C-C0>\n  Is/1  # GetParam() = 24-byte object <8D-C0>\nB/Suite.\n  Is/0  # GetParam() = (0x5587c8720948 pointing to "x", 3)\n'
    assert len(findings_in("t", listed)) == 2, findings_in("t", listed)
    assert not findings_in("t", 'A/Suite.\n  Is/0  # GetParam() = "x"\n  Is/1  # GetParam() = (bert, 0x10)\nB.\n  Plain\n')
    print("check_test_names: self-test passed")
    return 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    programs = sorted(pathlib.Path(sys.argv[1]).glob("*_test"))
    if not programs:
        print("check_test_names: no test program is built; build all targets")
        return 1
    findings = []
    for program in programs:
        done = subprocess.run([program, "--gtest_list_tests"], capture_output=True, text=True, timeout=60)
        findings += findings_in(program.name, done.stdout)
    print("\n".join([*findings, f"check_test_names: {len(programs)} programs, {len(findings)} findings"]))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
