#!/usr/bin/env python3
"""What goes wrong around a pod, and how it ends: a message that says what to do, and an exit code that restart policies understand (docs/errors.md).

    check_bad_pods.py TANDEM

A volume that is full, read-only, or gone while the job runs (a FUSE file system whose process is killed; Debian's bindfs); an agent
with another job token; a name that nobody resolves; a clock that is years off (a library that the test compiles); a program that is not there.
What the machine does not allow is said. Mounts are made in a namespace of the test's own.
"""

import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO = ROOT / "examples/demo"
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


class Failed(Exception):
    """What is wrong."""


def job(output, *more, steps=100000):
    return ["run_qa.py", "--model_name_or_path", DEMO / "model", "--train_file", DEMO / "train.json", "--do_train", "--max_steps", steps,
            "--per_device_train_batch_size", "4", "--max_seq_length", "128", "--doc_stride", "32", "--max_train_samples", "100", "--logging_steps", "2",
            "--save_steps", "2", "--output_dir", output, *more]


def environment(more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KUBE", "TANDEM_", "PET_"))}
    return {**kept, "OMP_NUM_THREADS": "1", "TANDEM_FEATURE_CACHE": "off", **more}


class Agent:
    """`tandem run`, with its log in a file. It is ended with the block."""

    def __init__(self, folder, name, *words, more=None):
        self.name = name
        self.log = folder / f"{name}.log"
        with open(self.log, "w", encoding="utf-8") as file:
            self.process = subprocess.Popen([TANDEM, "run", *map(str, words)], env=environment(more or {}), stdout=file, stderr=file)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def text(self):
        return self.log.read_text(errors="replace")

    def wait_for(self, condition, what, seconds=90):
        limit = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > limit or self.process.poll() is not None:
                raise Failed(f"{self.name}: no {what} within {seconds} s:\n{self.text()[-2500:]}")
            time.sleep(0.05)

    def end(self, code, *said, seconds=90):
        """Waits for its end, and compares exit code and words; returns what it said in one line."""
        try:
            found = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.name}: not ended after {seconds} s:\n{self.text()[-2500:]}") from None
        text = " ".join(self.text().split())
        missing = [words for words in said if words not in text]
        if found != code or missing:
            raise Failed(f"{self.name}: ended with {found}, expected {code} and {missing} in:\n{self.text()[-2500:]}")
        return text


def alone(folder, name, output, *more):
    return Agent(folder, name, "--standalone", "--nproc-per-node", "1", *job(output, *more))


def call(*words):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        raise Failed(f"{' '.join(map(str, words))}: {done.stderr}")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def checkpoint_of(folder):
    return lambda: list(folder.glob("checkpoint-*"))


def volume(folder, name, options):
    disk = folder / name
    disk.mkdir()
    call("mount", "-t", "tmpfs", "-o", options, "none", disk)
    return disk


def check_full(folder):
    size = (DEMO / "model/model.safetensors").stat().st_size
    disk = volume(folder, "full", f"size={size * 45 // 10}")
    with alone(folder, "a full volume", disk / "out") as agent:
        text = agent.end(1, "No space left on device", "make room there")
    if "is started again" in text or not list(disk.glob("out/checkpoint-2")):
        raise Failed(f"a full volume: started again in vain, or no checkpoint left: {text[-1500:]}")


def check_read_only(folder):
    disk = volume(folder, "read-only", "ro")
    with alone(folder, "a volume that is read-only", disk / "out") as agent:
        agent.end(1, "Read-only file system", "mount the volume for writing")


def check_gone(folder):
    if shutil.which("bindfs") is None or not os.path.exists("/dev/fuse"):
        print("left out: a volume that goes (needs bindfs and /dev/fuse)")
        return
    disk, behind = folder / "gone", folder / "behind"
    disk.mkdir()
    behind.mkdir()
    with subprocess.Popen(["bindfs", "-f", behind, disk], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            limit = time.monotonic() + 30
            while not os.path.ismount(disk):
                if time.monotonic() > limit or server.poll() is not None:
                    print("left out: a volume that goes (this machine mounts no FUSE)")
                    return
                time.sleep(0.05)
            with alone(folder, "a volume that goes", disk / "out", "--save_total_limit", "2") as agent:
                agent.wait_for(checkpoint_of(disk / "out"), "checkpoint")
                server.kill()
                agent.end(201, "does not answer", "the newest checkpoint")
        finally:
            server.kill()
    call("umount", "-l", disk)
    # The pod is started again, and its volume is there.
    checkpoints = [int(path.name.split("-")[1]) for path in behind.glob("out/checkpoint-*")]
    with alone(folder, "after that", behind / "out", "--max_steps", max(checkpoints) + 2) as agent:
        agent.end(0, f"checkpoint-{max(checkpoints)}")


def pair(folder, names, seconds, *more_of_each):
    """Two agents of one job, each with variables of its own."""
    port = free_port()
    words = ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "pair", "--local-addr", "127.0.0.1",
             "--rdzv-conf", f"join_timeout={seconds}"]
    flags = job(folder / f"out-{names[0]}", "--save_strategy", "no", "--logical_shards", "2", steps=8)
    return [Agent(folder, name, *words, *flags, more=more) for name, more in zip(names, more_of_each)]


def check_token(folder):
    first, second = pair(folder, ("the job's token", "another token"), 60, {"TANDEM_JOB_TOKEN": "one"}, {"TANDEM_JOB_TOKEN": "two"})
    with first, second:
        limit = time.monotonic() + 60
        while first.process.poll() is None and second.process.poll() is None and time.monotonic() < limit:
            time.sleep(0.05)
        # Whoever has the endpoint waits for others; the other one learns that it is none of them.
        guest = second if first.process.poll() is None else first
        guest.end(1, "TANDEM_JOB_TOKEN", "the same")


def check_names(folder):
    with Agent(folder, "a name that nobody knows", "--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "qa-worker-0.invalid:29400", "--rdzv-conf", "join_timeout=8",
               *job(folder / "nowhere")) as agent:
        agent.end(200, "qa-worker-0.invalid")


def check_clock(folder):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        print("left out: a clock that is off (needs a C compiler)")
        return
    source, library = folder / "clock.c", folder / "clock.so"
    source.write_text(CLOCK)
    call(compiler, "-shared", "-fPIC", "-o", library, source)
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
        done = subprocess.run([TANDEM, *map(str, ["run_qa", *job(folder / "over", "--overwrite_output_dir", steps=2)[1:]])],
                              env=environment({"TORCHELASTIC_RUN_ID": "over", **more}), capture_output=True, text=True, timeout=90, check=False)
        if done.returncode or (more and "checkpoint-2" not in done.stdout + done.stderr):
            raise Failed(f"{name}: ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")


def check_program(folder):
    with Agent(folder, "no program", "--standalone", "--no-python", "/nowhere/program") as agent:
        agent.end(1, "/nowhere/program")


def main():
    if INSIDE not in sys.argv:
        return subprocess.run([sys.executable, __file__, TANDEM, INSIDE, "--no-mounts"] if os.geteuid() != 0 else
                              ["unshare", "--mount", "--propagation", "private", sys.executable, __file__, TANDEM, INSIDE], check=False).returncode
    checks = [check_token, check_names, check_clock, check_program]
    if "--no-mounts" in sys.argv:
        print("left out: volumes (needs root)")
    else:
        checks = [check_full, check_read_only, check_gone, *checks]
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        try:
            for check in checks:
                check(folder)
        except Failed as problem:
            print(f"check_bad_pods: {problem}")
            return 1
        finally:
            for line in reversed(pathlib.Path("/proc/mounts").read_text().splitlines()):
                if line.split(" ")[1].startswith(scratch):
                    subprocess.run(["umount", "-l", line.split(" ")[1]], check=False)
    print(f"check_bad_pods: {len(checks)} ways in which pods end")
    return 0


if __name__ == "__main__":
    sys.exit(main())
