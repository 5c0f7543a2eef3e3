#!/usr/bin/env python3
"""Which tests must run on which machine: reads tests/required_tests.txt and finds what this machine has.

    tools/required_tests.py              # what this machine has, and how many patterns are required of it
    tools/required_tests.py --self-test

tools/summarize_tests.py counts a required test that was skipped as failed. The features of the processor come from Linux, not from tandem: if tandem's own
detection loses an instruction set, its tests skip, and this list notices.
"""

import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "required_tests.txt"
TEST_DATA = ROOT / "build" / "test-data"

# The classes of processors, by the flags of /proc/cpuinfo that each needs.
CPU_CLASSES = {
    "avx2": {"avx2", "fma", "f16c"},
    "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"},
    "avx512vnni": {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"},
    "avx512bf16": {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_bf16"},
    "amx": {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_bf16", "amx_tile", "amx_bf16"},
}

# Other requirements of a test, in addition to a processor.
THINGS = {
    "shared-data": "../shared/data, real questions and goldens of the official packages",
    "minilm": "the MiniLM encoder, build/test-data/minilm",
    "mpnet": "the encoder all-mpnet-base-v2, build/test-data/mpnet",
    "python-packages": "the official Python packages, build/test-data/venv",
    "trainer-packages": "torch, transformers and accelerate, in build/test-data/venv or around TANDEM_PARITY_PYTHON",
    "hub-clients": "two versions of huggingface_hub, and numpy, build/test-data/hub-clients",
    "checkpoint-packages": "the same, in build/test-data/torch-venv as well (scripts/fetch_torch.sh)",
    "intel-mpi": "Intel MPI, build/test-data/venv/bin/mpirun",
    "two-hosts": "the right to make network namespaces, which root has",
    "tun": "network interfaces of programs, /dev/net/tun",
    "no-sanitizer": "a build without sanitizers",
}


class ListError(Exception):
    """The list cannot be read; the text names the line and the reason."""


def parse(text):
    """[(frozenset of names that a machine must have, pattern)], from the text of the list."""
    rows, needs = [], None
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            needs = frozenset(line.strip("[]").split()) - {"any"}
            for name in needs:
                if name.removeprefix("no-") not in CPU_CLASSES and name not in THINGS and not name.startswith("program:"):
                    known = ", ".join(["any", *CPU_CLASSES, "no-CLASS", *THINGS, "program:NAME"])
                    raise ListError(f"line {number}: nothing is called '{name}'; there are {known}")
        elif needs is None:
            raise ListError(f"line {number}: a pattern before the first [heading]")
        else:
            try:
                rows.append((needs, re.compile(line)))
            except re.error as error:
                raise ListError(f"line {number}: '{line}' is not a regular expression: {error}") from error
    return rows


def cpu_classes(cpuinfo):
    """The classes of a processor, from the text of /proc/cpuinfo."""
    match = re.search(r"^flags\s*:(.*)$", cpuinfo, re.MULTILINE)
    flags = set(match.group(1).split()) if match else set()
    return {name for name, needed in CPU_CLASSES.items() if needed <= flags}


def can_make_hosts():
    """Whether two hosts can be made of this machine; the same as why_no_hosts() of tests/multihost/hosts.cc."""
    if os.geteuid() != 0 or not all(shutil.which(program) for program in ("ip", "ss", "nsenter", "unshare", "setpriv")):
        return False
    probe = "ip link add one type veth peer name two && mount -t tmpfs t /run"
    command = ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "sh", "-c", probe]
    return subprocess.run(command, capture_output=True, timeout=20, check=False).returncode == 0


def cached(build_folder, name):
    """A variable of a build, from what CMake keeps of it."""
    cache = build_folder / "CMakeCache.txt"
    match = re.search(rf"^{name}:\w+=(.*)$", cache.read_text() if cache.exists() else "", re.MULTILINE)
    return match.group(1) if match else ""


def x86_classes(build_folder):
    """The processor's classes; none where it is an emulated one of another kind that runs the tests."""
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    if platform.machine() != "x86_64" or cached(build_folder, "CMAKE_TOOLCHAIN_FILE") or not cpuinfo.exists():
        return set()
    return cpu_classes(cpuinfo.read_text(errors="replace"))


def machine(build_folder):
    """The names of what this machine has, programs excepted: those are looked up when a list asks for them."""
    python = TEST_DATA / "venv" / "bin" / "python"
    things = {
        "shared-data": (ROOT.parent / "shared" / "data" / "README.md").exists(),
        "minilm": (TEST_DATA / "minilm" / "model.safetensors").exists(),
        "mpnet": (TEST_DATA / "mpnet" / "modules.json").exists(),
        "python-packages": python.exists(),
        "trainer-packages": has_trainer(pathlib.Path(os.environ.get("TANDEM_PARITY_PYTHON", python))),
        "hub-clients": all((TEST_DATA / "hub-clients" / version).exists() for version in ("old", "new", "numpy")),
        "checkpoint-packages": any(has_trainer(one) for one in trainer_pythons(python)),
        "intel-mpi": (TEST_DATA / "venv" / "bin" / "mpirun").exists(),
        "two-hosts": can_make_hosts(),
        "tun": os.access("/dev/net/tun", os.R_OK | os.W_OK),
        "no-sanitizer": "-fsanitize" not in cached(build_folder, "CMAKE_CXX_FLAGS"),
    }
    return x86_classes(build_folder) | {name for name, there in things.items() if there}


def trainer_pythons(python):
    """Where tests/parity/trainer_resumes.py looks."""
    named = os.environ.get("TANDEM_PARITY_PYTHON")
    return [pathlib.Path(named)] if named else [python, TEST_DATA / "torch-venv" / "bin" / "python"]


def has_trainer(python):
    """Whether the environment of this Python has what tests/parity/trainer_resumes.py needs."""
    folders = list((python.parent.parent / "lib").glob("python*/site-packages"))
    return all(any((folder / package).is_dir() for folder in folders) for package in ("torch", "transformers", "accelerate"))


def has(machine_names, need):
    if need.startswith("program:"):
        return shutil.which(need.removeprefix("program:")) is not None
    if need.startswith("no-") and need.removeprefix("no-") in CPU_CLASSES:
        return need.removeprefix("no-") not in machine_names
    return need in machine_names


def is_built(needs, machine_names):
    """Whether tests of this heading are listed here, skipped or not: some are not part of builds with sanitizers, or for other processors."""
    if "no-sanitizer" in needs - machine_names:
        return False
    return needs.isdisjoint(CPU_CLASSES) or not machine_names.isdisjoint(CPU_CLASSES)


class Requirements:
    """The patterns of a list that hold on one machine."""

    def __init__(self, text, machine_names):
        rows = parse(text)
        self.rows = [(needs, pattern) for needs, pattern in rows if all(has(machine_names, need) for need in needs)]
        self.built = [pattern for needs, pattern in rows if is_built(needs, machine_names)]

    def why(self, test):
        """The capability of the machine that makes the test required, or nothing."""
        for needs, pattern in self.rows:
            if pattern.fullmatch(test):
                return ", ".join(sorted(needs)) or "any machine"
        return None

    def unmatched(self, tests):
        """Patterns, of any machine, that no test of a whole run has: the list, or the suite, has lost something."""
        return [pattern.pattern for pattern in self.built if not any(pattern.fullmatch(test) for test in tests)]


def missing_things():
    """Requirements of tests that this machine lacks, as lines: the reason that a script left, if one did."""
    lines = []
    if not (ROOT.parent / "shared" / "data" / "README.md").exists():
        lines.append(f"MISSING {ROOT.parent}/shared/data: the tests on real questions and goldens were skipped")
    for folder, script, tests in (
        ("minilm", "fetch_minilm.sh", "of the real model"),
        ("mpnet", "fetch_mpnet.sh", "of the real all-mpnet-base-v2"),
        ("venv", "fetch_python_packages.sh", "that compare with the official packages"),
    ):
        if (TEST_DATA / folder).exists():
            continue
        left = TEST_DATA / f"{folder}.reason"
        reason = " ".join(left.read_text(errors="replace").split()) if left.exists() else f"scripts/{script} was not run"
        lines.append(f"MISSING build/test-data/{folder}: the tests {tests} were skipped: {reason}")
    return lines


def self_test():
    text = "# why\n[any]\nA\\..*\n\n[avx2]\nB\\.x\n[avx512 minilm]\nC\\.y\n[program:no-such-program]\nD\\.z\n[no-sanitizer]\nE\n[avx2 no-amx]\nF\n"
    zen3, server = Requirements(text, {"avx2"}), Requirements(text, {"avx2", "avx512", "minilm"})
    flags = "processor : 0\nflags\t\t: fpu fma avx2 f16c avx512f avx512bw avx512dq avx512vl avx512_vnni\n"
    expectations = [
        (zen3.why("A.b"), "any machine"),
        (zen3.why("B.x"), "avx2"),
        (zen3.why("B.xx"), None),
        (zen3.why("C.y"), None),
        (zen3.why("F"), "avx2, no-amx"),
        (Requirements(text, {"avx2", "amx"}).why("F"), None),
        (server.why("C.y"), "avx512, minilm"),
        (server.why("D.z"), None),
        (zen3.unmatched(["A.b"]), ["B\\.x", "C\\.y", "D\\.z", "F"]),
        (server.unmatched(["A.b", "B.x", "C.y", "D.z", "F"]), []),
        (Requirements(text, {"no-sanitizer"}).unmatched(["A.b"]), ["D\\.z", "E"]),
        (cpu_classes(flags), {"avx2", "avx512", "avx512vnni"}),
        (cpu_classes(""), set()),
    ]
    wrong = 0
    for found, expected in expectations:
        if found != expected:
            print(f"self-test: found {found!r}, expected {expected!r}")
            wrong += 1
    for bad in ("A\n", "[avx3]\nA\n", "[any]\n(\n"):
        try:
            parse(bad)
            print(f"self-test: {bad!r} was accepted")
            wrong += 1
        except ListError:
            pass
    parse(LIST.read_text(encoding="utf-8"))
    print(f"self-test: {wrong} wrong")
    return 1 if wrong else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    names = machine(ROOT / "build" / "release")
    requirements = Requirements(LIST.read_text(encoding="utf-8"), names)
    print(f"this machine has {', '.join(sorted(names)) or 'nothing of the list'}; {len(requirements.rows)} patterns of tests are required here")
    print("\n".join(missing_things()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
