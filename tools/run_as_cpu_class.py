#!/usr/bin/env python3
"""Runs a program of tests as on a processor of a lower class: with what TANDEM_CPU_FEATURES hides.

    tools/run_as_cpu_class.py CLASS PROGRAM [ARGUMENT...]

CLASS is one of the classes of kernels: reference, avx2, avx512, avx512bf16. Exits 77 (skipped) where this processor has no more than
the class: the run without a limit is that of its own class.
"""

import os
import platform
import sys

import required_tests

# What a processor of the class shows, and the class that a processor must have beyond it for hiding to mean something.
CLASSES = {
    "reference": ("none", "avx2"),
    "avx2": ("avx2", "avx512"),
    "avx512": ("avx512", "avx512bf16"),
    "avx512bf16": ("avx512_bf16,avx512_vnni", "amx"),
}
# oneDNN finds out by itself what the processor has, so that it is taken for f32 products whatever is hidden.
KERNELS = {"reference": "gemm=reference"}


def skip(reason):
    print(f"SKIPPED: {reason}")
    sys.exit(77)


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in CLASSES:
        sys.exit(f"usage: {sys.argv[0]} {'|'.join(CLASSES)} PROGRAM [ARGUMENT...]")
    name, program = sys.argv[1], sys.argv[2:]
    features, beyond = CLASSES[name]
    if platform.machine() != "x86_64":
        skip("there are classes of x86-64 processors only")
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as cpuinfo:
        if beyond not in required_tests.cpu_classes(cpuinfo.read()):
            skip("this CPU has nothing above this class to hide: the tests without a limit are its own")
    variables = {"TANDEM_CPU_FEATURES": features}
    if name in KERNELS:
        variables["TANDEM_KERNELS"] = KERNELS[name]
    print(*(f"{name}={value}" for name, value in variables.items()), flush=True)
    os.execve(program[0], program, {**os.environ, **variables})


if __name__ == "__main__":
    main()
