#!/usr/bin/env python3
"""Runs a command with the system calls of Linux 4.18: every newer one fails with ENOSYS.

    tests/support/as_old_kernel.py COMMAND WORD…

On x86-64 the calls after rseq (334, Linux 4.18) have numbers from 335 on. madvise fails with EINVAL
for advice that is newer (MADV_COLD is the first). A seccomp filter stays with all descendants.
Exits 77 where no filter can be installed.
"""

import ctypes
import errno
import os
import platform
import struct
import sys

LAST_CALL_OF_4_18 = 334
MADVISE, MADV_COLD = 28, 20  # Linux 5.4
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
RET_ALLOW, RET_ERRNO = 0x7FFF0000, 0x00050000
LOAD, JUMP_IF_GREATER, JUMP_IF_EQUAL, JUMP_IF_AT_LEAST, RETURN = 0x20, 0x25, 0x15, 0x35, 0x06
NUMBER, THIRD_ARGUMENT = 0, 32  # offsets in struct seccomp_data
# (instruction, lines to jump over if true, if false, operand)
FILTER = (
    (LOAD, 0, 0, NUMBER),
    (JUMP_IF_GREATER, 0, 1, LAST_CALL_OF_4_18),
    (RETURN, 0, 0, RET_ERRNO | errno.ENOSYS),
    (JUMP_IF_EQUAL, 0, 3, MADVISE),
    (LOAD, 0, 0, THIRD_ARGUMENT),
    (JUMP_IF_AT_LEAST, 0, 1, MADV_COLD),
    (RETURN, 0, 0, RET_ERRNO | errno.EINVAL),
    (RETURN, 0, 0, RET_ALLOW),
)


def install_filter():
    program = b"".join(struct.pack("HBBI", *line) for line in FILTER)
    code = ctypes.create_string_buffer(program, len(program))

    class Filter(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]

    libc = ctypes.CDLL(None, use_errno=True)
    chain = Filter(len(FILTER), ctypes.addressof(code))
    return libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 and libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(chain), 0, 0) == 0


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    if platform.machine() != "x86_64" or not install_filter():
        print("SKIPPED: no seccomp filter for x86-64 here")
        raise SystemExit(77)
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
