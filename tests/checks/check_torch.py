"""The wheel of python/ with a real torch: check_torch.py TANDEM LIBRARY

Runs python/tests/operations.py, shared_memory.py, training.py and names.py under torchrun, groups.py under `tandem run`,
launched.py under each mpirun that there is, and the quick cases of faults.py, with LIBRARY instead of the wheel's.
Exits 77 where scripts/fetch_torch.sh has not been run and TORCH_PYTHON names no Python with torch."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "python" / "tests"


def find_python():
    """A Python that has torch, or None."""
    for python in (os.environ.get("TORCH_PYTHON"), str(ROOT / "build" / "test-data" / "torch-venv" / "bin" / "python")):
        if python and shutil.which(python) and subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0:
            return python
    return None


def main():
    python = find_python()
    if python is None:
        print("skipped: no Python with torch; scripts/fetch_torch.sh makes one, or TORCH_PYTHON names it")
        return 77
    tandem, library = sys.argv[1:]
    environment = {
        **os.environ,
        "TANDEM_TORCH_LIBRARY": library,
        "OMP_NUM_THREADS": "1",
        "PYTHON_EXEC": python,
        "PYTHONPATH": f"{ROOT / 'python' / 'src'}:{ROOT / 'python' / 'ccl' / 'src'}",
    }
    torchrun = [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    runs = [
        (torchrun + ["3", str(TESTS / "operations.py")], "all operations agree"),
        ([tandem, "run", "--standalone", "--nproc-per-node", "3", str(TESTS / "groups.py")], "all groups agree"),
        (torchrun + ["3", str(TESTS / "shared_memory.py")], "all shared memory agrees"),
        (torchrun + ["2", str(TESTS / "training.py")], "ddp with hook: equal"),
        (torchrun + ["2", str(TESTS / "names.py")], "all names answer"),
        (
            [
                python,
                str(TESTS / "faults.py"),
                "killed",
                "order",
                "fork",
                "shrink",
                "backward-killed",
                "backward-order",
                "interrupt",
                "backward-interrupt",
                "exit-under-way",
                "exit",
            ],
            "exit: as expected",
        ),
    ]
    for name, flags in (("mpirun.mpich", []), ("mpirun.openmpi", ["--allow-run-as-root", "--oversubscribe"])):
        if mpirun := shutil.which(name):
            runs.append(([mpirun, *flags, "-n", "2", python, str(TESTS / "launched.py")], "2 ranks met"))
    for command, expected in runs:
        replaced = {"TANDEM_TORCH_REPLACE": "gloo"} if command[-1].endswith("names.py") else {}
        done = subprocess.run(command, env={**environment, **replaced}, capture_output=True, text=True, timeout=600)
        print(done.stdout)
        if done.returncode != 0 or expected not in done.stdout:
            print(f"{' '.join(command)}: exit code {done.returncode}, expected 0 and '{expected}'\n{done.stderr[-4000:]}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
