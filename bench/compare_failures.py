#!/usr/bin/env python3
"""The same loss under tandem and under what PyTorch offers: the time until the job makes progress again, the repeated steps, and whether the final weights are those of an undisturbed job.

    bench/compare_failures.py [--sides tandem,torchrun,reconfigure,torchft] [--events rank,host] [--model build/test-data/minilm] [--rounds 3] …

Run it with a Python that has torch 2.15 and transformers; a torchft without its program of a Python that has it, too (--torchft PYTHON), is left out. Two ranks of one thread each on this machine
train the same model on sequences of --seq tokens. When step --kill_after is applied, SIGKILL ends

    rank    one of the two ranks. tandem and torchrun start it again; under reconfigure and torchft the other continues
    host    the agent and the rank of one of two agents, as if a host were lost whose kernel still closes its connections. Only tandem and torchrun have agents (--nnodes 1:2)

Seconds: from the kill until the first step is applied that had not been before; the step itself is part of it, and its usual time is the column next to it. Again: steps that had been applied and were
computed again. Weights: whether their hash is that of the same side's run without a kill. A job that ends instead of continuing is reported. bench/failure_ranks.py has the rivals' ranks, and describes
their recovery. torchrun is there with its default, by which a smaller world is waited for 30 s, and with --rdzv-conf last_call_timeout=1. torchft's lighthouse has the flags of its README.
"""

import argparse
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

BENCH = pathlib.Path(__file__).resolve().parent
SIDES = {"tandem": ["rank", "host"], "torchrun": ["rank", "host"], "torchrun, last call 1 s": ["host"], "reconfigure": ["rank"], "torchft": ["rank"]}
DEADLINE = 600  # seconds that a run may take
POLL = 0.002


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tandem", default="build/release/bin/tandem")
    parser.add_argument("--torchft", metavar="PYTHON", help="a Python that has torchft; default: the one that runs this, if it has")
    parser.add_argument("--sides", default="tandem,torchrun,reconfigure,torchft")
    parser.add_argument("--events", default="rank,host")
    parser.add_argument("--model", default="build/test-data/minilm")
    parser.add_argument("--data", default="../shared/data/squad/squad1-train-head.json")
    parser.add_argument("--batch", type=int, default=4, help="sequences of a rank")
    parser.add_argument("--seq", type=int, default=128)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--kill_after", type=int, default=25)
    parser.add_argument("--save_steps", type=int, default=10, help="between two checkpoints of torchrun's script")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE", help="write the figures, as bench/record.py wants them")
    options = parser.parse_args()
    if not 5 <= options.kill_after < options.steps - 5:
        parser.error("--kill_after: at least 5 steps before it and behind it")
    options.torchft = options.torchft or sys.executable
    return options


class RunFailed(Exception):
    """Why, and the last lines of its processes."""


# --- processes ---


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def children(pid):
    try:
        return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


class Run:
    """Processes of one job, and their lines with the time at which they came: output and errors of all, in one list."""

    def __init__(self):
        self.processes, self.threads, self.lines = [], [], []

    def start(self, command, **environment):
        process = subprocess.Popen(
            list(map(str, command)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", **environment},
        )
        reader = threading.Thread(target=self.read, args=[process], daemon=True)
        reader.start()
        self.processes.append(process)
        self.threads.append(reader)
        return process

    def read(self, process):
        for line in process.stdout:
            self.lines.append((time.monotonic(), line))

    def wait_until(self, there, what):
        end = time.monotonic() + DEADLINE
        while not there():
            if time.monotonic() > end:
                self.fail(f"{what}: not within {DEADLINE} s")
            time.sleep(POLL)

    def fail(self, why):
        self.stop()
        raise RunFailed(why, "".join(line for _, line in self.lines[-40:]))

    def stop(self):
        for process in self.processes:
            try:
                os.killpg(process.pid, signal.SIGKILL)  # the session that start() made
            except ProcessLookupError:
                pass
            process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


# --- a side: how its job is started, which processes the event kills, what its lines contain ---


class Side:
    def __init__(self, options, name, event, folder):
        self.options, self.name, self.event, self.folder = options, name, event, folder
        self.agents, self.killed = [], []

    def complete(self, run):
        """Whether all ranks compute."""
        return True

    def after_kill(self):
        """Acts as the supervisor outside the job."""

    def victims(self):
        """The processes that the event kills: a rank, or an agent with its rank."""
        if self.event == "host":
            return [self.agents[1].pid, *children(self.agents[1].pid)]
        return children(self.agents[0].pid)[1:2]


class Tandem(Side):
    def start(self, run):
        o = self.options
        job = [
            "run_qa.py",
            "--model_name_or_path",
            o.model,
            "--train_file",
            o.data,
            "--do_train",
            "--max_steps",
            o.steps,
            "--per_device_train_batch_size",
            o.batch,
            "--max_seq_length",
            o.seq,
            "--doc_stride",
            o.seq // 4,
            "--pad_to_max_length",
            "true",
            "--learning_rate",
            "3e-5",
            "--logging_steps",
            1,
            "--save_strategy",
            "no",
            "--report_to",
            "none",
            "--output_dir",
            self.folder / "out",
        ]
        if self.event == "rank":
            self.agents = [run.start([o.tandem, "run", "--standalone", "--nproc-per-node", 2, *job])]
        else:
            where = ["--nnodes", "1:2", "--nproc-per-node", 1, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
            self.agents = [run.start([o.tandem, "run", *where, *job])]
            time.sleep(1)  # the first one is the endpoint's, and is not the one that is lost
            self.agents.append(run.start([o.tandem, "run", *where, *job]))

    def applied(self, run):
        """Log entries, one per step. The one of the step at which a rank dies may come late, so the agent's log line shows where the job continued."""
        return sum("'loss': " in line for _, line in run.lines)

    def complete(self, run):
        """A job on two agents may have begun with the first: some steps behind the second's arrival."""
        if self.event == "rank":
            return True
        lines = [line for _, line in list(run.lines)]
        joined = next((i for i, line in enumerate(lines) if "2 of 2 workers continue" in line), len(lines))
        return sum("'loss': " in line for line in lines[joined:]) >= 3

    def progress_after(self, run, killed):
        for at, line in list(run.lines):
            found = re.search(r"step (\d+) is applied, [\d.]+ s after step (\d+)", line)
            if found and at > killed:
                return {"seconds": at - killed, "again": int(found[2]) + 1 - int(found[1])}
        return None

    def step_seconds(self, run):
        return median_gap([at for at, line in run.lines if "'loss': " in line])

    def weights(self, run):
        path = self.folder / "out/model.safetensors"
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


class Rival(Side):
    """Ranks that print lines of JSON (failure_ranks.py)."""

    def rank_command(self, way, python=sys.executable):
        o = self.options
        return [
            python,
            BENCH / "failure_ranks.py",
            way,
            "--steps",
            o.steps,
            "--batch",
            o.batch,
            "--seq",
            o.seq,
            "--save_steps",
            o.save_steps,
            "--model",
            o.model,
            "--folder",
            self.folder,
        ]

    @staticmethod
    def logged(run, what):
        """[(time, pid, value)]"""
        found = []
        for at, line in list(run.lines):
            if line.startswith('{"pid"'):
                entry = json.loads(line)
                if what in entry:
                    found.append((at, entry["pid"], entry[what]))
        return found

    def applied(self, run):
        return max((step for _, _, step in self.logged(run, "step")), default=0)

    def progress_after(self, run, killed):
        """A new process has begun again at an earlier step; one that was there continues."""
        steps = self.logged(run, "step")
        before = {pid for at, pid, _ in steps if at <= killed}
        last = max(step for at, _, step in steps if at <= killed)
        new = next((at for at, pid, step in steps if at > killed and step > last and pid not in self.killed), None)
        if new is None:
            return None
        again = {step for at, pid, step in steps if killed < at <= new and step <= last and pid not in before}
        return {"seconds": new - killed, "again": len(again)}

    def step_seconds(self, run):
        steps = self.logged(run, "step")
        return median_gap([at for at, pid, _ in steps if pid == steps[0][1]])

    def weights(self, run):
        return next((value for _, _, value in self.logged(run, "weights")), None)


class Torchrun(Rival):
    def start(self, run):
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--max-restarts", 3]
        ddp = self.rank_command("ddp")[1:]
        if self.event == "rank":
            self.agents = [run.start([*torchrun, "--standalone", "--nproc-per-node", 2, *ddp])]
            return
        where = ["--nnodes", "1:2", "--nproc-per-node", 1, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{free_port()}"]
        last_call = ",last_call_timeout=1" if "last call" in self.name else ""
        for has_store in (1, 0):  # the agent with the store is not the lost one
            self.agents.append(run.start([*torchrun, *where, "--rdzv-conf", f"is_host={has_store}{last_call}", *ddp]))


class Reconfigure(Rival):
    """This process is the supervisor: it has the store and names the remaining ranks."""

    def start(self, run):
        import torch.distributed

        self.store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.store.set("members/0", "[0, 1]")
        self.agents = [run.start([*self.rank_command("reconfigure"), "--rank", rank, "--store_port", self.store.port]) for rank in range(2)]

    def victims(self):
        return [self.agents[1].pid]

    def after_kill(self):
        self.agents[1].wait()
        self.store.set("members/1", "[0]")


class Torchft(Rival):
    def start(self, run):
        port = free_port()
        lighthouse = pathlib.Path(self.options.torchft).parent / "torchft_lighthouse"
        run.start([lighthouse, "--min_replicas", 1, "--quorum_tick_ms", 100, "--join_timeout_ms", 10000, "--bind", f"[::]:{port}"])
        self.agents = [
            run.start([*self.rank_command("torchft", self.options.torchft), "--rank", rank], TORCHFT_LIGHTHOUSE=f"http://127.0.0.1:{port}") for rank in range(2)
        ]

    def victims(self):
        return [self.agents[1].pid]


CLASSES = {"tandem": Tandem, "torchrun": Torchrun, "torchrun, last call 1 s": Torchrun, "reconfigure": Reconfigure, "torchft": Torchft}


def median_gap(times):
    """Between the lines before anything happened; the first steps are slower."""
    gaps = [b - a for a, b in zip(times[2:], times[3:])]
    return statistics.median(gaps) if gaps else None


def spread(values):
    """Median, least and largest of the known values."""
    known = [value for value in values if value is not None]
    return [statistics.median(known), min(known), max(known)] if known else None


# --- one run, all runs ---


def run_once(options, name, event, kills):
    with tempfile.TemporaryDirectory() as folder, Run() as run:
        side = CLASSES[name](options, name, event, pathlib.Path(folder))
        side.start(run)
        ended = lambda: all(agent.poll() is not None for agent in side.agents if agent.pid not in side.killed)
        result = {}
        if kills:
            run.wait_until(lambda: side.applied(run) >= options.kill_after and side.complete(run) or ended(), f"{name}: step {options.kill_after}")
            result["step"] = side.step_seconds(run)
            side.killed = side.victims()
            if not side.killed:
                run.fail(f"{name}: there was no process to kill")
            killed = time.monotonic()
            for pid in side.killed:
                os.kill(pid, signal.SIGKILL)
            side.after_kill()
            run.wait_until(lambda: side.progress_after(run, killed) or ended(), f"{name}: a step after the kill")
            result.update(side.progress_after(run, killed) or {"seconds": None, "again": None})
            if result["seconds"] is None:  # it has ended instead
                return {**result, "ended": time.monotonic() - killed, "weights": None}
        run.wait_until(ended, f"{name}: the end")
        for agent in side.agents:
            if agent.returncode and agent.pid not in side.killed:
                run.fail(f"{name}, {event}: the job ended with {agent.returncode}")
        for reader in run.threads[-len(side.agents) :]:
            reader.join(5)  # the last lines
        result["weights"] = side.weights(run)
        return result


def measure(options, name, event):
    """A row; if a rival's job fails by itself, one with that outcome."""
    try:
        calm = run_once(options, name, event, kills=False)["weights"]
        runs = [run_once(options, name, event, kills=True) for _ in range(options.rounds)]
    except RunFailed as failed:
        why, lines = failed.args
        print(f"{why}\n{lines}", file=sys.stderr, flush=True)
        if name == "tandem":
            sys.exit(1)
        return {"outcome": why}
    row = {
        "step": spread(run["step"] for run in runs),
        "seconds": spread(run["seconds"] for run in runs),
        "again": spread(run["again"] for run in runs),
        "same": f"{sum(run['weights'] == calm for run in runs)} of {len(runs)}",
    }
    ended = spread(run.get("ended") for run in runs)
    row["outcome"] = "continues" if ended is None else f"{sum('ended' in run for run in runs)} of {len(runs)} jobs ended, after {ended[0]:.0f} s"
    next_step = (
        ""
        if row["seconds"] is None
        else f"; next step after {row['seconds'][0]:.2f} s ({row['seconds'][1]:.2f} - {row['seconds'][2]:.2f}); {row['again'][0]:g} steps again"
    )
    print(f"{event:5} {name:24} step {row['step'][0]:.3f} s; {row['outcome']}{next_step}; same weights: {row['same']}", flush=True)
    return row


def chosen(options):
    """{event: [side]}"""
    wanted = options.sides.split(",")
    if "torchft" in wanted and not shutil.which(str(pathlib.Path(options.torchft).parent / "torchft_lighthouse")):
        print(f"torchft is left out: {options.torchft} does not have it (pip install torchft; --torchft PYTHON)", file=sys.stderr)
        wanted.remove("torchft")
    return {event: [name for name, events in SIDES.items() if event in events and name.split(",")[0] in wanted] for event in options.events.split(",")}


def main():
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no job is left behind
    rows = []
    for event, sides in chosen(options).items():
        found = {name: measure(options, name, event) for name in sides}
        ours = found.pop("tandem", None)
        for name, row in found.items() if ours else []:
            rows.append({"event": event, "rival": name, **{f"tandem_{field}": value for field, value in ours.items()}, **row})
    if options.json:
        setting = {name: getattr(options, name) for name in ("batch", "seq", "steps", "kill_after", "save_steps", "rounds")}
        import torch

        pathlib.Path(options.json).write_text(json.dumps({**setting, "versions": {"torch": torch.__version__}, "rows": rows}))


if __name__ == "__main__":
    main()
