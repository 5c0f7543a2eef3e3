"""A program written for oneCCL, compiled as users do: check_oneccl.py LIBRARY

Compiles tests/oneccl/program.cc with the headers of src/tandem/comm/oneccl and LIBRARY, in C++17, and runs it with two
ranks that have torchrun's variables, and with each MPI whose compiler and mpirun are there (mpicxx.mpich,
mpicxx.openmpi)."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/support"))

from ports import free_port  # noqa: E402 (found by the line above)


def compile_program(compiler, program, library, more=()):
    subprocess.run(
        [
            compiler,
            "-std=c++17",
            "-Wall",
            "-I",
            str(ROOT / "src" / "tandem" / "comm" / "oneccl"),
            "-I",
            str(ROOT / "src"),
            *more,
            str(ROOT / "tests" / "oneccl" / "program.cc"),
            "-o",
            str(program),
            str(library),
            f"-Wl,-rpath,{library.parent}",
        ],
        check=True,
    )


def prints_passed(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    good = done.returncode == 0 and "2 ranks: PASSED" in done.stdout
    print(f"{' '.join(command)}: {'passed' if good else f'exit code {done.returncode}'}")
    if not good:
        print(done.stdout[-2000:], done.stderr[-2000:])
    return good


def run_two_ranks(program):
    port = free_port()
    ranks = []
    for rank in range(2):
        variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
        ranks.append(subprocess.Popen([program], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    outputs = [rank.communicate(timeout=120)[0] for rank in ranks]
    good = all(rank.returncode == 0 for rank in ranks) and "2 ranks: PASSED" in "".join(outputs)
    print(f"two ranks with torchrun's variables: {'passed' if good else outputs}")
    return good


def main():
    library = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "without_mpi"
        compile_program(os.environ.get("CXX", "c++"), program, library)
        good = run_two_ranks(program)
        for kind, flags in (("mpich", []), ("openmpi", ["--allow-run-as-root", "--oversubscribe"])):
            compiler, launcher = shutil.which(f"mpicxx.{kind}"), shutil.which(f"mpirun.{kind}")
            if not compiler or not launcher:
                print(f"skipped: no mpicxx.{kind} and mpirun.{kind}")
                continue
            program = Path(folder) / kind
            compile_program(compiler, program, library, ["-DUSE_MPI"])
            good = prints_passed([launcher, *flags, "-n", "2", str(program)]) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
