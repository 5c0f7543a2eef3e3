#!/usr/bin/env python3
"""`tandem run` beside the real torchrun: the same command lines, and what workers, files and the shell see of them.

    tests/parity/check_torchrun.py build/release/bin/tandem

Each case is a command line and a worker. Compared are the exit code, the worker's stdout in sorted lines, the environment that it was given, and
the files of --log-dir. What differs on purpose is in EXPECTED, with the reason. Needs torch 2.8 or newer in build/test-data/venv or in the
Python that TANDEM_PARITY_PYTHON names; exits 77, which means skipped, without it.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("TANDEM_PARITY_PYTHON", str(ROOT / "build/test-data/venv/bin/python"))
LIMIT = 240
sys.path.append(str(ROOT / "tests/support"))

from ports import free_port  # noqa: E402 - found by the line above

# What a worker says of itself: its arguments and the variables that launchers set.
WORKER = """
import json, os, sys
names = [n for n in os.environ if n.startswith(("TORCHELASTIC_", "PET_", "GROUP_", "ROLE_", "LOCAL_", "TORCH_NCCL")) or n in
         ("RANK", "WORLD_SIZE", "MASTER_ADDR", "OMP_NUM_THREADS")]
if sys.argv[1:2] == ["env"]:
    os.write(1, (json.dumps({"name": __name__, "argv": sys.argv[1:], **{n: os.environ[n] for n in sorted(names)}}) + "\\n").encode())
elif sys.argv[1:2] == ["streams"]:
    os.write(1, f"apple {os.environ['RANK']}\\n".encode())
    os.write(2, f"pear {os.environ['RANK']}\\n".encode())
elif sys.argv[1:2] == ["fail"]:
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == sys.argv[2]:
        sys.exit(0)
    sys.exit(int(sys.argv[3]))
elif sys.argv[1:2] == ["raise"]:
    from torch.distributed.elastic.multiprocessing.errors import record
    @record
    def main():
        raise ValueError("no luck")
    main()
elif sys.argv[1:2] == ["killed"]:
    os.kill(os.getpid(), 9)
"""

# Case: flags, words behind the script, variables. {dir} is a folder of the case's own, {script} its worker.
CASES = {
    "environment of two workers": (["--nproc-per-node", "2", "--role", "trainer", "--max-restarts", "2", "{script}"], ["env", "a b", "--x"], {}),
    "standalone": (["--standalone", "{script}"], ["env"], {"OMP_NUM_THREADS": "3"}),
    "static with a port": (["--master-addr", "127.0.0.1", "--master-port", "{port}", "--rdzv-id", "job7", "{script}"], ["env"], {}),
    "variables": (["{script}"], ["env"], {"PET_NPROC_PER_NODE": "2", "PET_ROLE": "r", "PET_MAX_RESTARTS": "1", "PET_STANDALONE": "1"}),
    "a flag comes before its variable": (["--nproc_per_node=1", "{script}"], ["env"], {"PET_NPROC_PER_NODE": "3"}),
    "virtual local rank": (["--nproc-per-node", "2", "--virtual-local-rank", "{script}"], ["env"], {}),
    "module": (["-m", "worker"], ["env"], {}),
    "run path": (["--run-path", "{script}"], ["env", "x"], {}),
    "no python": (["--no-python", sys.executable, "{script}"], ["env"], {}),
    "local rank in arguments": (["--nproc-per-node", "2", "{script}"], ["env", "${local_rank}", "$$"], {}),
    "streams": (["--nproc-per-node", "2", "--log-dir", "{dir}/logs", "-r", "1:2", "-t", "1", "{script}"], ["streams"], {}),
    "prefix and filters": (["--nproc-per-node", "2", "--log-dir", "{dir}/logs", "-t", "3", "--log-line-prefix-template", "<${role_name}.${rank}.${local_rank}> ",
                            "--duplicate-stdout-filters", "apple,none", "--duplicate-stderr-filters", "pear", "{script}"], ["streams"], {}),
    "local ranks filter": (["--nproc-per-node", "2", "--local-ranks-filter", "1", "{script}"], ["streams"], {}),
    "a restart helps": (["--nproc-per-node", "2", "--max-restarts", "2", "{script}"], ["fail", "2", "5"], {}),
    "restarts run out": (["--nproc-per-node", "2", "--max-restarts", "1", "{script}"], ["fail", "9", "5"], {}),
    "killed": (["{script}"], ["killed"], {}),
    "error file": (["{script}"], ["raise"], {"TORCHELASTIC_ERROR_FILE": "{dir}/error.json"}),
    "unknown flag": (["--nproc-per-nod", "x", "--no-such", "{script}"], [], {}),
    "no script": (["--nproc-per-node", "2"], [], {}),
    "bad nodes": (["--nnodes", "3:2", "{script}"], ["env"], {}),
    "module without python": (["-m", "--no-python", "worker"], ["env"], {}),
}

# What is not the same on purpose: a case's name, what differs, why.
EXPECTED = {
    ("bad nodes", "exit code"): "a wrong command line ends with 2 in every case; torchrun's AssertionError ends with 1",
    ("module without python", "exit code"): "the same with its ValueError",
}


def run_one(launcher, case, port):
    flags, words, variables = CASES[case]
    folder = pathlib.Path(tempfile.mkdtemp(prefix="torchrun-"))
    (folder / "worker.py").write_text(WORKER)
    fill = lambda text: text.replace("{dir}", str(folder)).replace("{script}", str(folder / "worker.py")).replace("{port}", str(port))
    clean = {n: v for n, v in os.environ.items() if not n.startswith(("PET_", "TORCHELASTIC", "OMP_")) and n not in ("RANK", "WORLD_SIZE")}
    environment = {**clean, "PYTHON_EXEC": PYTHON, "PYTHONPATH": str(folder), **{n: fill(v) for n, v in variables.items()}}
    done = subprocess.run([*launcher, *map(fill, flags), *words], env=environment, capture_output=True, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL)
    seen = {"exit code": done.returncode, "stdout": sorted(map(comparable, done.stdout.splitlines()))}
    if any("--log-dir" in word for word in flags):
        seen["files"] = files_of(folder / "logs")
    if (folder / "error.json").exists():
        error = json.loads((folder / "error.json").read_text())
        seen["error file"] = {"keys": sorted(error), "message": error["message"]["message"], "extra": sorted(error["message"]["extraInfo"])}
    shutil.rmtree(folder)
    return seen, done.stderr


def comparable(line):
    """Random and local parts of what a worker says are named only."""
    try:
        data = json.loads(line)
    except ValueError:
        return line
    for name in ("TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_RUN_ID", "MASTER_ADDR"):
        value = data.get(name, "")
        value = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID", value)
        value = "this host" if value in ("localhost", "127.0.0.1") else value
        data[name] = re.sub(r"^.*(attempt_\d+)", r"LOGS/\1", value)
    return json.dumps(data, sort_keys=True)


def files_of(folder):
    return {str(path.relative_to(folder).relative_to(next(iter(folder.iterdir())).name)): sorted(path.read_text().splitlines())
            for path in sorted(folder.rglob("*")) if path.is_file()}


def compare(case, tandem):
    ours, said = run_one([tandem, "run"], case, free_port())
    theirs, _ = run_one([PYTHON, "-m", "torch.distributed.run"], case, free_port())
    findings = []
    for what in sorted(set(ours) | set(theirs)):
        if ours.get(what) == theirs.get(what):
            if (case, what) in EXPECTED:
                findings.append(f"{case}: {what}: is the same now; drop it from EXPECTED")
        elif (case, what) not in EXPECTED:
            findings.append(f"{case}: {what}:\n  tandem run: {ours.get(what)}\n  torchrun:   {theirs.get(what)}\n  {said[-600:]}")
    return findings


def main():
    check = "import torch.distributed as d; assert d.is_available() and hasattr(d.Store, 'queue_push')"
    if not os.path.exists(PYTHON) or subprocess.run([PYTHON, "-c", check], capture_output=True).returncode != 0:
        print("check_torchrun: skipped: needs torch 2.8 or newer in build/test-data/venv, or a Python with it in TANDEM_PARITY_PYTHON")
        return 77
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        findings = [text for found in pool.map(lambda case: compare(case, sys.argv[1]), CASES) for text in found]
    for finding in findings:
        print(finding)
    print(f"check_torchrun: {len(CASES)} command lines, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
