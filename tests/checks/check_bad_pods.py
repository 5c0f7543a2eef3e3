#!/usr/bin/env python3
"""Faults around a pod and their results: a message with advice for the user, and an exit code that restart policies understand (docs/errors.md).

    check_bad_pods.py TANDEM [--only=NAME]    # NAME: gone, mapped, lock …

A volume that is full, read-only, gone while the job runs (a FUSE file system whose process is killed; Debian's bindfs), gone before it begins, or
unmounted under it; mapped features that are cut short; a lock whose holder dies; an agent with another job token; a name that no server resolves; a clock
that is years off (a library that the test compiles); a port that is taken; a program that is not there.
The script reports the cases that the machine does not allow. Mounts are made in a namespace of the test's own.
"""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

from support import DEMO, ROOT, Failed, Process, Scratch, environment, job_flags, many_questions, must, verdict, wait_for

sys.path.append(str(ROOT / "tests/support"))

from ports import free_port  # noqa: E402 - found by the line above

TANDEM = str(pathlib.Path(sys.argv[1]).resolve())
INSIDE = "--inside"
# Shifts the time of day, and nothing that measures durations.
CLOCK = r"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long shift(void) { const char* text = getenv("TEST_CLOCK_SHIFT"); return text ? atol(text) : 0; }
int clock_gettime(clockid_t clock, struct timespec* now) {
  int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += shift();
  return result;
}
time_t time(time_t* to) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (to) *to = now.tv_sec;
  return now.tv_sec;
}
int gettimeofday(struct timeval* now, void* zone) {
  struct timespec exact;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &exact);
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return 0;
}
"""


class Agent(Process):
    """`tandem run`."""

    def __init__(self, folder, name, *words, more=None):
        super().__init__(folder, name, TANDEM, "run", *words, more=more)


def job(output, *more, steps=100000):
    return ["run_qa.py", *job_flags(output, *more, steps=steps)]


def alone(folder, name, output, *more):
    return Agent(folder, name, "--standalone", "--nproc-per-node", "1", *job(output, *more))


def checkpoint_of(folder):
    return lambda: list(folder.glob("checkpoint-*"))


def volume(folder, name, options):
    disk = folder / name
    disk.mkdir()
    must("mount", "-t", "tmpfs", "-o", options, "none", disk)
    return disk


def check_full(folder):
    size = (DEMO / "model/model.safetensors").stat().st_size
    disk = volume(folder, "full", f"size={size * 45 // 10}")
    with alone(folder, "a full volume", disk / "out") as agent:
        text = agent.end(1, "No space left on device", "make room there")
    if "is started again" in text or not list(disk.glob("out/checkpoint-2")):
        raise Failed(f"a full volume: restarted without success, or no checkpoint left: {text[-1500:]}")


def check_read_only(folder):
    disk = volume(folder, "read-only", "ro")
    with alone(folder, "a volume that is read-only", disk / "out") as agent:
        agent.end(1, "Read-only file system", "mount the volume for writing")


class Bound:
    """A FUSE volume of a folder; dies with kill()."""

    def __init__(self, folder, name):
        self.disk, self.behind = folder / name, folder / f"behind-{name}"
        self.disk.mkdir()
        self.behind.mkdir()
        self.server = subprocess.Popen(["bindfs", "-f", self.behind, self.disk], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda: os.path.ismount(self.disk) or self.server.poll() is not None, "a mount", 30)
        if self.server.poll() is not None:
            raise LeftOut("this machine mounts no FUSE")

    def kill(self):
        self.server.kill()
        self.server.wait()

    def __enter__(self):
        if self.server.poll() is not None:
            raise LeftOut("this machine mounts no FUSE")
        return self

    def __exit__(self, *_):
        self.kill()
        must("umount", "-l", self.disk)


class LeftOut(Exception):
    """The reason why this machine does not allow the case."""


def require_fuse():
    if shutil.which("bindfs") is None or not os.path.exists("/dev/fuse"):
        raise LeftOut("needs bindfs and /dev/fuse")


def check_gone(folder):
    require_fuse()
    with Bound(folder, "gone") as volume:
        with alone(folder, "a volume that goes", volume.disk / "out", "--save_total_limit", "2") as agent:
            agent.wait_for(checkpoint_of(volume.disk / "out"), "checkpoint")
            volume.kill()
            agent.end(201, "does not answer", "the newest checkpoint")
    # The pod is started again, and its volume is there.
    checkpoints = [int(path.name.split("-")[1]) for path in volume.behind.glob("out/checkpoint-*")]
    with alone(folder, "after that", volume.behind / "out", "--max_steps", max(checkpoints) + 2) as agent:
        agent.end(0, f"checkpoint-{max(checkpoints)}")


def check_gone_at_start(folder):
    """Whatever lies there: no message claims that it does not exist, and no run begins without it."""
    require_fuse()
    with Bound(folder, "dead") as volume:
        shutil.copytree(DEMO / "model", volume.behind / "model")
        shutil.copy(DEMO / "train.json", volume.behind)
        volume.kill()
        disk = volume.disk
        for what, words, more in (
            ("model", ["--model_name_or_path", disk / "model"], {}),
            ("data", ["--train_file", disk / "train.json"], {}),
            ("output_dir", ["--output_dir", disk / "out"], {}),
            ("checkpoint", ["--resume_from_checkpoint", disk / "out/checkpoint-2"], {}),
            ("cache of models", ["--model_name_or_path", "org/demo"], {"HF_HOME": str(disk / "hf"), "HF_HUB_OFFLINE": "1"}),
            ("cache of data sets", ["--dataset_name", "org/data"], {"HF_DATASETS_CACHE": str(disk / "hf"), "HF_HUB_OFFLINE": "1"}),
        ):
            with Process(folder, f"a volume without an answer with the {what}", TANDEM, "run_qa", *job_flags(folder / "nowhere", *words), more=more) as process:
                process.end(201, "does not answer", seconds=30)


def check_unmounted(folder):
    """A volume that is unmounted under the job: no checkpoint goes to the disk below."""
    disk = volume(folder, "unmounted", "size=200m")
    with alone(folder, "a volume that is unmounted", disk, "--save_total_limit", "2", "--overwrite_output_dir") as agent:
        agent.wait_for(checkpoint_of(disk), "checkpoint")
        must("umount", "-l", disk)
        agent.end(201, "is not mounted there any more", "the newest checkpoint")
    if left := list(disk.rglob("*checkpoint*")) + list(disk.rglob("model*")):
        raise Failed(f"a volume that is unmounted: written below it: {left}")


def check_mapped(folder):
    """Features that are cut short under the job, as a mapping is whose server has lost the file."""
    train = folder / "large.json"
    train.write_text(many_questions())
    cache = folder / "features"
    with Agent(
        folder,
        "mapped features that are lost",
        "--standalone",
        "--nproc-per-node",
        "2",
        *job(folder / "mapped", "--train_file", train, "--save_total_limit", "2"),
        more={"TANDEM_FEATURE_CACHE": str(cache)},
    ) as agent:
        agent.wait_for(checkpoint_of(folder / "mapped"), "checkpoint")
        for file in cache.glob("*.features"):
            os.truncate(file, 0)
        agent.end(201, ".features', which is mapped", "the newest checkpoint")


def check_lock(folder):
    """The worker that has the lock of output_dir dies, and the others continue: another job is still refused."""
    output = folder / "locked"

    def holder():
        words = (output / ".tandem-lock").read_text().split() if (output / ".tandem-lock").exists() else []
        return int(words[1]) if words[:1] == ["process"] else None

    with Agent(folder, "a job whose lock's holder dies", "--standalone", "--nproc-per-node", "2", *job(output, "--save_total_limit", "2")) as agent:
        agent.wait_for(checkpoint_of(output), "checkpoint")
        first = holder()
        os.kill(first, signal.SIGKILL)
        agent.wait_for(lambda: holder() not in (None, first), "lock of the worker that continues")
        with alone(folder, "another job", output) as other:
            other.end(1, "another job is running in")


def pair(folder, names, seconds, *more_of_each):
    """Two agents of one job, each with variables of its own."""
    port = free_port()
    words = [
        "--nnodes",
        "2",
        "--nproc-per-node",
        "1",
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        f"127.0.0.1:{port}",
        "--rdzv-id",
        "pair",
        "--local-addr",
        "127.0.0.1",
        "--rdzv-conf",
        f"join_timeout={seconds}",
    ]
    flags = job(folder / f"out-{names[0]}", "--save_strategy", "no", "--logical_shards", "2", steps=8)
    return [Agent(folder, name, *words, *flags, more=more) for name, more in zip(names, more_of_each)]


def check_token(folder):
    first, second = pair(folder, ("the job's token", "another token"), 60, {"TANDEM_JOB_TOKEN": "one"}, {"TANDEM_JOB_TOKEN": "two"})
    with first, second:
        limit = time.monotonic() + 60
        while first.process.poll() is None and second.process.poll() is None and time.monotonic() < limit:
            time.sleep(0.05)
        # The agent with the endpoint waits for others. The other agent is refused.
        refused_agent = second if first.process.poll() is None else first
        refused_agent.end(1, "TANDEM_JOB_TOKEN", "the same")


def check_names(folder):
    with Agent(
        folder,
        "an unknown name",
        "--nnodes",
        "2",
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        "qa-worker-0.invalid:29400",
        "--rdzv-conf",
        "join_timeout=8",
        *job(folder / "nowhere"),
    ) as agent:
        agent.end(200, "qa-worker-0.invalid")


def check_clock(folder):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        print("left out: a clock that is off (needs a C compiler)")
        return
    source, library = folder / "clock.c", folder / "clock.so"
    source.write_text(CLOCK)
    must(compiler, "-shared", "-fPIC", "-o", library, source)
    weights = []
    for shift in (0, -3 * 365 * 86400, 86400):
        name = f"a clock off by {shift} s"
        first, second = pair(folder, (name, f"{name}, the other"), 60, {}, {"LD_PRELOAD": str(library), "TEST_CLOCK_SHIFT": str(shift)})
        with first, second:
            first.end(0)
            second.end(0)
        weights.append((folder / f"out-{name}/model.safetensors").read_bytes())
    if len(set(weights)) != 1:
        raise Failed("a clock that is off changes the weights")
    # A pod that is started again minutes after the end knows by the volume's clock, and not by its own, that the job is over.
    variables = {"LD_PRELOAD": str(library), "TEST_CLOCK_SHIFT": str(30 * 86400)}
    for name, more in (("the end", {}), ("a start after the end", variables)):
        done = subprocess.run(
            [TANDEM, *map(str, ["run_qa", *job(folder / "over", "--overwrite_output_dir", steps=2)[1:]])],
            env=environment({"TORCHELASTIC_RUN_ID": "over", **more}),
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        if done.returncode or (more and "checkpoint-2" not in done.stdout + done.stderr):
            raise Failed(f"{name}: ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")


def check_port(folder):
    with socket.create_server(("0.0.0.0", 0)) as other:
        port = str(other.getsockname()[1])
        with Agent(
            folder, "a port that is taken", "--standalone", *job(folder / "port"), more={"TANDEM_METRICS_PORT": port, "KUBERNETES_SERVICE_HOST": "10.96.0.1"}
        ) as agent:
            agent.end(200, f"TANDEM_METRICS_PORT={port}", "hostNetwork")


def main():
    if INSIDE not in sys.argv:
        again = [sys.executable, __file__, *sys.argv[1:], INSIDE]
        return subprocess.run(
            [*again, "--no-mounts"] if os.geteuid() != 0 else ["unshare", "--mount", "--propagation", "private", *again], check=False
        ).returncode
    checks = [check_mapped, check_lock, check_token, check_names, check_clock, check_port]
    if "--no-mounts" in sys.argv:
        print("left out: volumes (needs root)")
    else:
        checks = [check_full, check_read_only, check_gone, check_gone_at_start, check_unmounted, *checks]
    wanted = [word.removeprefix("--only=") for word in sys.argv if word.startswith("--only=")]
    checks = [check for check in checks if not wanted or check.__name__.removeprefix("check_") in wanted]
    with Scratch() as folder:
        return verdict("check_bad_pods", lambda: run_all(checks, folder))


def run_all(checks, folder):
    for check in checks:
        try:
            check(folder)
        except LeftOut as reason:
            print(f"left out: {check.__name__} ({reason})")
    return f"{len(checks)} ways in which pods end"


if __name__ == "__main__":
    sys.exit(main())
