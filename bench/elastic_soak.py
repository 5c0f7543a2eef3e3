#!/usr/bin/env python3
"""Kills workers and hosts of a job again and again, and compares its weights with those of an undisturbed job. Prints how long each kind of change kept the job from its next step.

    bench/elastic_soak.py                              # one host, ten minutes, a kill every 5 s
    bench/elastic_soak.py --hosts 2 --workers 1        # two hosts, which are network namespaces: needs root
    bench/elastic_soak.py --minutes 1 --every 2 --workers 4
    bench/elastic_soak.py --model DIR --train FILE

On two hosts a third of the kills ends agent and workers of a host, the endpoint's too, while the other one computes; it starts again at once. A node whose only worker dies is lost to the others until it is back. Seconds are those that `tandem run` prints, from the last step
before a change to the first one after it, the step itself included, whose usual time is printed next to it. Exits with 1 when the weights differ or a job fails.
"""

import argparse
import collections
import hashlib
import json
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ADDRESSES = ("10.77.0.10", "10.77.0.11")
# Limits in addition to the step itself, in seconds; a host that joins may cost two steps.
EVENTS = {"node lost": "0.3", "worker lost": "0.3", "node joins": "2 steps", "worker is back": ""}
LIMIT = 300  # seconds from the last kill to the end, in addition to the time of an undisturbed job


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, choices=(1, 2), default=1)
    parser.add_argument("--workers", type=int, default=3, help="of each host")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--every", type=float, default=5, help="seconds between two kills")
    parser.add_argument("--model", default="examples/demo/model")
    parser.add_argument("--train", default="examples/demo/train.json")
    parser.add_argument("--tandem", default="build/release/bin/tandem")
    parser.add_argument("--seed", type=int, default=1, help="of the choice of victims")
    parser.add_argument("--json", metavar="FILE", help="write the figures, as bench/record.py wants them")
    return parser.parse_args()


def children(pid):
    try:
        return list(map(int, pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    except OSError:
        return []


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


class Network:
    """Two hosts with a cable between them, which end with this object."""

    def __init__(self):
        self.first = [subprocess.Popen(["unshare", "--net", "sleep", "infinity"]) for _ in ADDRESSES]
        own = os.readlink("/proc/self/ns/net")
        until = time.monotonic() + 10
        while any(os.readlink(f"/proc/{one.pid}/ns/net") == own for one in self.first):
            if time.monotonic() > until or any(one.poll() is not None for one in self.first):
                self.close()
                sys.exit("elastic_soak: no network namespaces (they need root)")
            time.sleep(0.01)
        one, other = (str(first.pid) for first in self.first)
        subprocess.run(["ip", "link", "add", "wire", "netns", one, "type", "veth", "peer", "name", "wire", "netns", other], check=True)
        for host, address in enumerate(ADDRESSES):
            for words in (["addr", "add", f"{address}/24", "dev", "wire"], ["link", "set", "wire", "up"], ["link", "set", "lo", "up"]):
                subprocess.run([*self.inside(host), "ip", *words], check=True)

    def inside(self, host):
        return ["nsenter", f"--net=/proc/{self.first[host].pid}/ns/net"]

    def close(self):
        for first in self.first:
            first.kill()
            first.wait()


class Job:
    """A job of one agent on each host; an agent's stderr is a file of its own."""

    def __init__(self, options, folder, name, steps, network=None):
        self.options, self.folder, self.name, self.steps, self.network = options, folder, name, steps, network
        self.logs, self.agents = [], []
        for host in range(options.hosts if network else 1):
            self.agents.append(self.start(host))

    def start(self, host):
        options = self.options
        shards = options.workers * options.hosts
        if self.network:
            where = [
                "--nnodes",
                f"1:{options.hosts}",
                "--rdzv-backend",
                "c10d",
                "--rdzv-endpoint",
                f"{ADDRESSES[0]}:29400",
                "--rdzv-conf",
                f"is_host={int(host == 0)}",
                "--nproc-per-node",
                str(options.workers),
            ]
        else:
            where = ["--standalone", "--nproc-per-node", str(shards)]
        command = [
            *(self.network.inside(host) if self.network else []),
            options.tandem,
            "run",
            *where,
            "run_qa.py",
            "--model_name_or_path",
            options.model,
            "--train_file",
            options.train,
            "--max_seq_length",
            "128",
            "--doc_stride",
            "32",
            "--do_train",
            "--max_steps",
            str(self.steps),
            "--per_device_train_batch_size",
            "4",
            "--learning_rate",
            "1e-4",
            "--logging_steps",
            "50",
            "--save_strategy",
            "no",
            "--report_to",
            "none",
            "--logical_shards",
            str(shards),
            "--output_dir",
            str(self.folder / self.name),
        ]
        log = self.folder / f"{self.name}.{len(self.logs)}"
        self.logs.append(log)
        with open(log, "w") as out:
            agent = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=out, env={**os.environ, "OMP_NUM_THREADS": "1", "TANDEM_JOB_TOKEN": "of this soak"}
            )
        agent.log = log
        return agent

    def lose(self, host):
        agent = self.agents[host]
        for pid in [agent.pid, *children(agent.pid)]:
            kill(pid)
        agent.wait()
        self.agents[host] = self.start(host)

    def lose_worker(self, host, chance):
        workers = children(self.agents[host].pid)
        return bool(workers) and kill(chance.choice(workers))

    def whole(self, host):
        """All workers compute, by the log of the agent of `host`, and a step was applied since."""
        views = re.findall(r"(\d+) of (\d+) workers continue|(step \d+ is applied)", self.agents[host].log.read_text())
        return len(views) > 1 and views[-2][0] != "" and views[-2][0] == views[-2][1] and views[-1][2] != ""

    def step(self):
        return max((int(step) for log in self.logs for step in re.findall(r"step (\d+) is applied", log.read_text())), default=0)

    def end(self, limit):
        until = time.monotonic() + limit
        try:
            codes = [agent.wait(max(0.1, until - time.monotonic())) for agent in self.agents]
        except subprocess.TimeoutExpired:
            codes = ["none"]
        if any(codes):
            self.stop()
            for log in self.logs[-4:]:
                print(f"--- {log.name}", *log.read_text().splitlines()[-20:], sep="\n", file=sys.stderr)
            sys.exit(f"elastic_soak: the job '{self.name}' ended with {codes}")

    def stop(self):
        for agent in self.agents:
            for pid in [agent.pid, *children(agent.pid)] if agent.poll() is None else []:
                kill(pid)

    def weights(self):
        return hashlib.sha256((self.folder / self.name / "model.safetensors").read_bytes()).hexdigest()

    def pauses(self):
        """By what changed: seconds until the next step, once for each view."""
        why, pause = collections.defaultdict(str), {}
        for log in self.logs:
            for view, text in re.findall(r"view (\d+): \d+ of \d+ workers continue after step \d+: (.*)", log.read_text()):
                why[view] += text
            for view, seconds in re.findall(r"view (\d+): step \d+ is applied, ([\d.]+) s after", log.read_text()):
                pause[view] = max(pause.get(view, 0.0), float(seconds))
        signs = {"node lost": "without the node", "worker lost": "was killed", "node joins": "with the node", "worker is back": "is back"}
        found = {event: [] for event in EVENTS}
        for view, seconds in pause.items():
            event = next((event for event, sign in signs.items() if sign in why[view]), None)
            if event:
                found[event].append(seconds)
        return found


def timed(job):
    begin = time.monotonic()
    job.end(3600)
    return time.monotonic() - begin


def kill_again_and_again(options, job, chance):
    kills = collections.Counter()
    while job.step() < 0.9 * job.steps:
        time.sleep(options.every)
        if any(agent.poll() is not None for agent in job.agents):
            break
        host = chance.randrange(len(job.agents))
        if len(job.agents) > 1 and chance.random() < 1 / 3 and job.whole(1 - host):
            job.lose(host)
            kills["hosts"] += 1
        elif job.lose_worker(host, chance):
            kills["workers"] += 1
    return kills


def soak(options, folder, network):
    trial = timed(Job(options, folder, "trial", 400)) / 400
    steps = int(60 * options.minutes / trial) + 400
    calm = Job(options, folder, "calm", steps)
    seconds = timed(calm)
    job = Job(options, folder, "killed", steps, network)
    try:
        kills = kill_again_and_again(options, job, random.Random(options.seed))
        job.end(seconds + LIMIT)
    finally:
        job.stop()
    return calm, job, kills, seconds / steps


def report(options, calm, job, kills, step):
    print(
        f"{options.hosts} hosts of {options.workers} workers, {job.steps} steps of {step:.3f} s undisturbed; killed: {kills['workers']} workers, {kills['hosts']} hosts"
    )
    print(f"{'':16}{'times':>7}{'median s':>10}{'worst s':>10}{'aim':>10}")
    rows = []
    for event, pauses in job.pauses().items():
        if not pauses:
            continue
        row = {
            "hosts": options.hosts,
            "workers": options.workers,
            "event": event,
            "times": len(pauses),
            "median": statistics.median(pauses),
            "worst": max(pauses),
            "step": round(step, 4),
            "aim": EVENTS[event],
        }
        rows.append(row)
        print(f"{event:16}{row['times']:7}{row['median']:10.2f}{row['worst']:10.2f}{row['aim']:>10}")
    same = calm.weights() == job.weights()
    print(f"sha256 of the weights: {calm.weights()} undisturbed, {job.weights()} killed: {'the same' if same else 'THEY DIFFER'}")
    for row in rows:
        row["same"] = "yes" if same else "no"
    return rows, same


def main():
    options = parse()
    os.chdir(pathlib.Path(__file__).resolve().parents[1])
    network = Network() if options.hosts > 1 else None
    try:
        with tempfile.TemporaryDirectory() as folder:
            calm, job, kills, step = soak(options, pathlib.Path(folder), network)
            rows, same = report(options, calm, job, kills, step)
    finally:
        if network:
            network.close()
    if not sum(kills.values()):
        sys.exit("elastic_soak: the job was over before anybody was killed; take more --minutes")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"rows": rows}))
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
