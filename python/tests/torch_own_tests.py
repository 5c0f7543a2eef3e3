"""PyTorch's own tests of torch.distributed (torch/testing/_internal/distributed/distributed_test.py, in its wheel)
with tandem as the backend, with a time limit for each test.

    python python/tests/torch_own_tests.py --record results.json [--backend gloo]

The tests ask for backends by name and skip themselves for one that they do not know. So the name "tandem", under which they run, is also equal to "gloo" and
to "mpi" where they ask: they then do what either can, all_to_all and groups of few ranks too. With --backend gloo the name is gloo's, and tandem stands in
its place. Tests with nccl, gpu or cuda in their names are left out. --record continues after the last line of the file; with --seconds a run stops early,
and exits with 75 if tests are left. Prints the counts, and the reason for each failure; --json writes them as bench/record.py keeps them. Ranks are forked,
as PyTorch's own runner can do, because importing torch takes longer than most tests."""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CHILD = """
import importlib.util, json, os, sys, time, traceback, types, unittest
import torch, torch.distributed as dist
import tandem_torch
from torch.testing._internal import common_distributed
common_distributed.TIMEOUT_OVERRIDE.clear()

class Tandem(str):
    # Found in sets of backends where gloo is, and equal to what only gloo or mpi may be.
    __hash__ = lambda self: hash("gloo")
    __eq__ = lambda self, other: str(other) in ("tandem", "gloo", "mpi")
    __ne__ = lambda self, other: not self == other

def body_of(name):
    # What asks os.environ is decided by "mpi", which needs no eight ranks; what asks BACKEND by the name above.
    spec = importlib.util.find_spec("torch.testing._internal.distributed.distributed_test")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    source = spec.loader.get_source(spec.name)
    line = 'BACKEND = os.environ["BACKEND"]'
    assert source.count(chr(10) + line) == 1, "the test body names its backend in another way"
    if name == "tandem":
        os.environ["BACKEND"] = "mpi"
        common_distributed.DistTestCases.backend_feature["plugin"].add("tandem")
        source = source.replace(chr(10) + line, chr(10) + "BACKEND = BACKEND_OF_TESTS")
        module.BACKEND_OF_TESTS = Tandem(name)
    exec(compile(source, spec.origin, "exec"), module.__dict__)
    for list_of in ("PROFILING_SUPPORTED_BACKENDS", "SEND_RECV_PROFILING_SUPPORTED_BACKENDS"):
        getattr(module, list_of).append("tandem")
    return module

body = body_of(os.environ["BACKEND"])

class TestDist(body.TestDistBackend, body.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)

class Result(unittest.TestResult):
    def report(self, test, result, reason=""):
        with open(sys.argv[1], "a") as log:
            log.write(json.dumps([test.id().split(".")[-1], result, reason]) + "\\n")
    def startTest(self, test):
        super().startTest(test)
        self.report(test, "started")
    def addSuccess(self, test):
        self.report(test, "passed")
    def addSkip(self, test, reason):
        self.report(test, "skipped", reason)
    def addFailure(self, test, error):
        self.report(test, "failed", "".join(traceback.format_exception(*error)))
    addError = addFailure
    def addExpectedFailure(self, test, error):
        self.report(test, "passed")

if sys.argv[1] == "--names":
    print(json.dumps([torch.__version__, [name for name in dir(TestDist) if name.startswith("test_")]]))
else:
    for name in sys.argv[2:]:
        try:
            test = TestDist(name)
        except Exception as error:
            with open(sys.argv[1], "a") as log:
                log.write("".join(json.dumps([name, *rest]) + "\\n" for rest in
                                  (["started", ""], ["failed", f"{type(error).__name__}: {error}"])))
        else:
            test.run(Result())
"""


# Why a test that fails is right to do so; the record has it next to the test's output.
_ONLY_GLOO = "torch up to 2.9 calls monitored_barrier for groups named gloo only; in gloo's place these tests pass"
WHY = {
    "test_ddp_logging_data_cpu": "the test wants the name gloo in DDP's log; a group names itself tandem, in gloo's "
    "place too, because torch looks for parts of gloo in a group of that name",
    **dict.fromkeys(
        (
            "test_monitored_barrier_failure_order",
            "test_monitored_barrier_gloo",
            "test_monitored_barrier_gloo_subgroup",
            "test_monitored_barrier_wait_all_ranks",
        ),
        _ONLY_GLOO,
    ),
}


class Runner:
    def __init__(self, arguments):
        self.arguments = arguments
        self.folder = tempfile.TemporaryDirectory()
        self.log = Path(self.folder.name) / "log"
        self.script = Path(self.folder.name) / "test_own.py"
        self.script.write_text(CHILD)
        for name in ("barrier", "test_dir", "init_dir"):
            (Path(self.folder.name) / name).mkdir()

    def start(self, words, stdout=subprocess.DEVNULL):
        environment = {
            **os.environ,
            "BACKEND": self.arguments.backend,
            "WORLD_SIZE": str(self.arguments.ranks),
            "TEMP_DIR": self.folder.name,
            "OMP_NUM_THREADS": "1",
            "TANDEM_TORCH_REPLACE": "" if self.arguments.backend == "tandem" else self.arguments.backend,
            "INIT_METHOD": f"file://{self.folder.name}/init_dir/another",
            "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": str(self.arguments.limit),
        }
        return subprocess.Popen(
            [sys.executable, str(self.script), *words], stdout=stdout, stderr=subprocess.DEVNULL, text=True, start_new_session=True, env=environment
        )

    def names(self):
        """(version of torch, names of tests)"""
        out, _ = self.start(["--names"], subprocess.PIPE).communicate(timeout=180)
        version, names = json.loads(out.splitlines()[-1])  # after what importing may have printed
        return version, [name for name in names if not re.search("nccl|gpu|cuda", name, re.I) and re.search(self.arguments.only, name)]

    def run(self, names, deadline, report):
        """Runs tests in one process until it hangs, ends or the time is over; report(name, result, reason, seconds)."""
        self.log.write_text("")
        process = self.start([str(self.log), *names])
        read, began, running = 0, time.monotonic(), None
        while True:
            ended = process.poll() is not None
            lines = self.log.read_text().splitlines()
            for name, result, reason in map(json.loads, lines[read:]):
                if result == "started":
                    running, began = name, time.monotonic()
                elif running is not None:  # the first word about a test counts
                    report(name, result, reason, time.monotonic() - began)
                    running = None
            read = len(lines)
            late = time.monotonic() - began > self.arguments.limit + 40
            if running is not None and (late or ended):
                report(
                    running,
                    "hung" if late else "failed",
                    "no end within the limit" if late else f"the process of the tests ended with code {process.returncode}",
                    time.monotonic() - began,
                )
            if ended or late or (running is None and time.monotonic() > deadline):
                break
            time.sleep(0.1)
        try:
            os.killpg(process.pid, signal.SIGKILL)  # the session that was started above
        except ProcessLookupError:
            pass
        process.wait()


def cause(result, text):
    """(result, one line of what went wrong) of a traceback."""
    if re.search("timed out after|Timing out after", text):
        return "hung", "no end within the limit"
    if result != "failed":
        return result, text
    errors = [line.strip() for line in text.splitlines() if re.match(r"\s*(\w+\.)*\w*(Error|Exception)\b", line)]
    errors = [line for line in errors if "exited with error code" not in line] or errors or text.split("\n")[-2:]
    return result, errors[0][:300]


def counts(tests):
    return {kind: sum(one["result"] == kind for one in tests.values()) for kind in ("passed", "failed", "skipped", "hung")}


def rows(version, arguments, tests):
    """A row for each outcome and reason; of failures and hangs with the tests' names."""
    groups = {}
    for name, one in sorted(tests.items()):
        reason = plain(one["reason"]) + (f": {WHY[name]}" if one["result"] == "failed" and name in WHY else "")
        groups.setdefault((one["result"], reason), []).append(name)
    order = ["passed", "failed", "hung", "skipped"]
    return [
        {
            "torch": version,
            "ranks": arguments.ranks,
            "asked_for": arguments.backend,
            "outcome": outcome,
            "tests": len(names),
            "reason": reason,
            "which": " ".join(names) if outcome in ("failed", "hung") else "",
        }
        for (outcome, reason), names in sorted(groups.items(), key=lambda item: (order.index(item[0][0]), item))
    ]


def plain(reason):
    """Without what differs from run to run, and where the reason is another's: the address."""
    return re.sub(r" \(host [^)]*\)", "", reason)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--record")
    parser.add_argument("--only", default="")
    parser.add_argument("--limit", type=int, default=60, help="seconds per test")
    parser.add_argument("--seconds", type=int, default=10**6, help="begin no test after so many")
    parser.add_argument("--again", action="store_true", help="run those that failed or hung once more")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--backend", default="tandem", choices=["tandem", "gloo"])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    deadline = time.monotonic() + arguments.seconds
    runner = Runner(arguments)
    version, names = runner.names()
    record = Path(arguments.record) if arguments.record else None
    tests = json.loads(record.read_text())["tests"] if record and record.exists() else {}
    if arguments.again:
        tests = {name: one for name, one in tests.items() if one["result"] in ("passed", "skipped")}

    def report(name, result, reason, seconds):
        result, reason = cause(result, reason)
        tests[name] = {"result": result, "reason": reason}
        print(f"{result:8} {name} ({seconds:.0f} s) {reason}", flush=True)
        if record:
            whole = {"torch": version, "backend": arguments.backend, "ranks": arguments.ranks, "counts": counts(tests), "tests": tests}
            record.write_text(json.dumps(whole, indent=1) + "\n")

    while left := [name for name in names if name not in tests]:
        if time.monotonic() > deadline:
            print(f"{len(left)} tests left")
            return 75
        runner.run(left, deadline, report)
        if len(left) == sum(name not in tests for name in names):
            sys.exit(f"the process of the tests ended before its first, {left[0]}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"versions": {"torch": version}, "rows": rows(version, arguments, tests)}))
    found = counts(tests)
    print(f"torch {version}: " + ", ".join(f"{count} {kind}" for kind, count in found.items()))
    return 1 if found["hung"] else 0


if __name__ == "__main__":
    sys.exit(main())
