#!/usr/bin/env python3
"""Runs a program of tests as on a processor of another class.

    tools/run_as_cpu_class.py [--emulated[=FILTER]] CLASS PROGRAM [ARGUMENT...]

CLASS is one of the classes of kernels: reference, avx2, avx512, avx512vnni, avx512bf16, amx. Where this processor has more than the class,
TANDEM_CPU_FEATURES hides the rest. --emulated means that the program links the emulation (tests/emulated_cpu): it then claims the classes
for which nothing can be hidden (TANDEM_EMULATED_CPU). FILTER names the tests of such a run, for emulated instructions are slow. Exits 77
(skipped) where neither is possible, and for this processor's own class, which the run without a limit shows.
"""

import os
import platform
import sys

import required_tests

# From the lowest to the highest: what a processor of the class shows, and the class that a processor must have beyond it for hiding to
# mean something.
CLASSES = {
    "reference": ("none", "avx2"),
    "avx2": ("avx2", "avx512"),
    "avx512": ("avx512", "avx512bf16"),
    "avx512vnni": ("avx512_vnni", None),
    "avx512bf16": ("avx512_bf16,avx512_vnni", "amx"),
    "amx": ("", None),
}
# oneDNN finds out by itself what the processor has, so that it is taken for f32 products whatever is hidden.
KERNELS = {"reference": "gemm=reference"}


def skip(reason):
    print(f"SKIPPED: {reason}")
    sys.exit(77)


def variables_of(name, has, emulated):
    """The variables of a run as `name` on a processor with the classes `has`, or the reason why that is impossible."""
    features, beyond = CLASSES[name]
    own = [one for one in CLASSES if one in has or one == "reference"][-1]
    if beyond in has:
        found = {"TANDEM_CPU_FEATURES": features}
    elif name == own:
        return "this is the CPU's own class: the tests without a limit show it"
    elif emulated:
        found = {"TANDEM_EMULATED_CPU": name}
    else:
        return "this CPU has nothing above this class to hide, and the program does not emulate it"
    return {**found, **({"TANDEM_KERNELS": KERNELS[name]} if name in KERNELS else {})}


def self_test():
    zen4, vnni = {"avx2", "avx512", "avx512vnni", "avx512bf16"}, {"avx2", "avx512", "avx512vnni"}
    expectations = [
        (variables_of("avx2", zen4, True), {"TANDEM_CPU_FEATURES": "avx2"}),
        (variables_of("avx512", vnni, True), {"TANDEM_EMULATED_CPU": "avx512"}),
        (variables_of("amx", set(), True), {"TANDEM_EMULATED_CPU": "amx"}),
        (variables_of("reference", {"avx2"}, False), {"TANDEM_CPU_FEATURES": "none", "TANDEM_KERNELS": "gemm=reference"}),
        (type(variables_of("avx512vnni", vnni, True)), str),
        (type(variables_of("amx", zen4, False)), str),
        (type(variables_of("reference", set(), True)), str),
    ]
    wrong = [f"found {found!r}, expected {expected!r}" for found, expected in expectations if found != expected]
    print(*wrong, f"self-test: {len(wrong)} wrong", sep="\n")
    return 1 if wrong else 0


def main():
    words = sys.argv[1:]
    if words == ["--self-test"]:
        sys.exit(self_test())
    emulated = bool(words) and words[0].partition("=")[0] == "--emulated"
    filtered = words.pop(0).partition("=")[2] if emulated else ""
    if len(words) < 2 or words[0] not in CLASSES:
        sys.exit(f"usage: {sys.argv[0]} [--emulated[=FILTER]] {'|'.join(CLASSES)} PROGRAM [ARGUMENT...]")
    name, program = words[0], words[1:]
    if platform.machine() != "x86_64":
        skip("there are classes of x86-64 processors only")
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as cpuinfo:
        variables = variables_of(name, required_tests.cpu_classes(cpuinfo.read()), emulated)
    if isinstance(variables, str):
        skip(variables)
    if filtered and "TANDEM_EMULATED_CPU" in variables:
        program.append(f"--gtest_filter={filtered}")  # the last one holds
    print(*(f"{name}={value}" for name, value in variables.items()), flush=True)
    os.execve(program[0], program, {**os.environ, **variables})


if __name__ == "__main__":
    main()
