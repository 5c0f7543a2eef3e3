"""A program written for oneCCL, compiled as users do: check_oneccl.py TANDEM LIBRARY

Compiles tests/oneccl/program.cc with the headers of src/tandem/comm/oneccl and LIBRARY, in C++17, and runs it with two
ranks under `tandem run`, and with each MPI whose compiler and mpirun are there (mpicxx.mpich, mpicxx.openmpi)."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def compile_program(compiler, program, library, more=()):
    subprocess.run([compiler, "-std=c++17", "-Wall", "-I", str(ROOT / "src" / "tandem" / "comm" / "oneccl"), "-I",
                    str(ROOT / "src"), *more, str(ROOT / "tests" / "oneccl" / "program.cc"), "-o", str(program),
                    str(library), f"-Wl,-rpath,{library.parent}"], check=True)


def prints_passed(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    good = done.returncode == 0 and "2 ranks: PASSED" in done.stdout
    print(f"{' '.join(command)}: {'passed' if good else f'exit code {done.returncode}'}")
    if not good:
        print(done.stdout[-2000:], done.stderr[-2000:])
    return good


def main():
    tandem, library = Path(sys.argv[1]), Path(sys.argv[2]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "without_mpi"
        compile_program(os.environ.get("CXX", "c++"), program, library)
        good = prints_passed([str(tandem), "run", "--standalone", "--nproc-per-node", "2", "--no-python", str(program)])
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
