#!/usr/bin/env python3
"""scripts/install_deps.sh on a machine that has none of its packages: which packages it installs, and whose `mpirun` is the
default afterwards. The commands that would change this machine are replaced by ones that keep notes in a folder."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# `mpirun` is a link, as the alternatives system makes it: Open MPI's wherever it is installed, unless the administrator has chosen.
ALTERNATIVE = """
if [ -e "$STATE/chosen" ]; then target=$(cat "$STATE/chosen")
elif grep -qx openmpi-bin "$STATE/installed"; then target="$BIN/mpirun.openmpi"
elif grep -qx mpich "$STATE/installed"; then target="$BIN/mpirun.mpich"
else exit 0; fi
ln -sf "$target" "$BIN/mpirun"
"""
COMMANDS = {
    "dpkg-query": 'for last; do :; done; grep -qx "$last" "$STATE/installed" && echo installed',
    "apt-get": 'case " $* " in *" install "*) for w; do echo "$w"; done >> "$STATE/installed" ;; esac' + ALTERNATIVE,
    "apt-cache": 'for last; do :; done; [ "$last" != clang-format-14 ]',
    "update-alternatives": 'echo "$@" >> "$STATE/alternatives"; echo "$3" > "$STATE/chosen"' + ALTERNATIVE,
    "sudo": 'exec "$@"',
    "mpirun.mpich": ":",
    "mpirun.openmpi": ":",
}


def install(before, flags):
    """Packages afterwards, what `mpirun` is, what was printed."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        binaries, state = folder / "bin", folder / "state"
        binaries.mkdir()
        state.mkdir()
        (state / "installed").write_text("".join(f"{name}\n" for name in before))
        for name, text in COMMANDS.items():
            (binaries / name).write_text(f"#!/bin/sh\n{text}\n")
            (binaries / name).chmod(0o755)
        environment = dict(os.environ, PATH=f"{binaries}:{os.environ['PATH']}", STATE=str(state), BIN=str(binaries))
        subprocess.run([binaries / "apt-get", "update"], env=environment, check=True)
        output = ""
        for flag in flags:
            done = subprocess.run([ROOT / "scripts/install_deps.sh", *flag], env=environment, capture_output=True, text=True, timeout=60, check=False)
            output += done.stdout + done.stderr
            if done.returncode != 0:
                raise SystemExit(f"install_deps.sh {flag}: exit code {done.returncode}\n{output}")
        return (state / "installed").read_text().split(), os.path.basename(os.readlink(binaries / "mpirun")), output


def main():
    failures = []

    def expect(what, condition, output=""):
        if not condition:
            failures.append(f"{what}\n{output}")

    packages, mpirun, output = install([], [[]])
    expect("the default installs mpich", "mpich" in packages)
    expect(f"the default leaves out Open MPI: {packages}", not [name for name in packages if "openmpi" in name])
    expect(f"mpirun is MPICH's after the default: {mpirun}", mpirun == "mpirun.mpich", output)

    packages, mpirun, output = install([], [["--tests"]])
    expect("the tests have Open MPI", {"openmpi-bin", "libopenmpi-dev"} <= set(packages))
    expect(f"mpirun is MPICH's after --tests: {mpirun}", mpirun == "mpirun.mpich", output)

    # A release without a package that only tests need, as Debian 13 without clang-format-14.
    expect("what the release lacks is left out", "clang-format-14" not in packages)
    expect("and named", "this release has no package clang-format-14" in output, output)

    _, mpirun, output = install([], [[], ["--tests"], []])
    expect(f"mpirun is MPICH's after both: {mpirun}", mpirun == "mpirun.mpich", output)

    _, mpirun, output = install(["openmpi-bin"], [[]])
    expect(f"a machine with Open MPI keeps it: {mpirun}", mpirun == "mpirun.openmpi", output)
    expect("and the output has the advice", "write mpiexec.hydra in its place" in output, output)

    _, mpirun, output = install(["openmpi-bin"], [["--tests"], ["--tests"]])
    expect(f"also with --tests: {mpirun}", mpirun == "mpirun.openmpi", output)
    # CMake names the package of a missing library: the same ones.
    named = set()
    for words in re.findall(r'^ *tandem_require\(\w+ (?:"[^"]*"|\S+) ("[^"]*"|\S+)', (ROOT / "cmake/TandemDependencies.cmake").read_text(), re.M):
        named.update(words.strip('"').split())
    listed = subprocess.run([ROOT / "scripts/install_deps.sh", "--libraries"], capture_output=True, text=True, check=True).stdout.split()
    expect(f"CMake and install_deps.sh name other packages: {sorted(named ^ set(listed))}", named == set(listed))
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
