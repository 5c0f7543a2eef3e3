#!/usr/bin/env python3
"""Runs a command that may not make memory executable, as SELinux without execmem.

    tests/support/as_strict_memory.py COMMAND WORD…

prctl(PR_SET_MDWE) of Linux 6.3: no mapping is writable and executable, and none becomes executable
later. It stays with all descendants. Exits 77 where the kernel lacks it.
"""

import ctypes
import os
import sys

PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN = 65, 1


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    if ctypes.CDLL(None).prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0) != 0:
        print("SKIPPED: this kernel has no PR_SET_MDWE")
        raise SystemExit(77)
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
