#!/usr/bin/env python3
"""How long each kind of loss keeps an elastic job from its next step: four ranks on two hosts, which are network namespaces. Needs root.

    bench/elastic_times.py
    bench/elastic_times.py --events "rank 0 killed,host silent" --times 5
    bench/elastic_times.py --model DIR --train FILE

For each event a job during which it happens again and again, each time when all compute. Seconds are those that `tandem run` prints, from the last step before the change of the view to the first one after it, the step itself included, whose usual time is printed next to it; of a worker that is
started again from its death to the first step with it; of the rendezvous from the start of four agents to that of the last program. Exits with 1 when the weights are not those of an undisturbed job.
"""

import argparse
import hashlib
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from elastic_soak import ADDRESSES, Network, children, kill

WORKERS = 2  # of each host
LIMIT = 60


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", default=",".join(EVENTS), help="separated by commas; default: all")
    parser.add_argument("--times", type=int, default=5, help="each event, or fewer where the job is over before")
    parser.add_argument("--seconds", type=float, default=20, help="of the job for one event, undisturbed")
    parser.add_argument("--model", default="examples/demo/model")
    parser.add_argument("--train", default="examples/demo/train.json")
    parser.add_argument("--tandem", default="build/release/bin/tandem")
    parser.add_argument("--json", metavar="FILE", help="write the figures, as bench/record.py wants them")
    options = parser.parse_args()
    options.events = options.events.split(",")
    if unknown := set(options.events) - set(EVENTS):
        parser.error(f"no such events: {', '.join(sorted(unknown))}")
    return options


class Agent:
    """Its lines, with the time at which each came."""

    def __init__(self, command, logged):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TANDEM_JOB_TOKEN": "of this bench", "TANDEM_STATUS_INTERVAL": "1"}
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", env=environment)
        self.pid = self.process.pid
        threading.Thread(target=self.listen, args=(logged,), daemon=True).start()

    def listen(self, logged):
        for line in self.process.stderr:
            logged.append((time.monotonic(), line.rstrip()))


class Job:
    def __init__(self, options, folder, name, steps, network=None):
        self.options, self.output, self.steps, self.network = options, folder / name, steps, network
        self.logged = []
        self.agents = [self.agent(host) for host in range(2 if network else 1)]

    def agent(self, host):
        options, shards = self.options, 2 * WORKERS
        where = ["--standalone", "--nproc-per-node", str(shards)]
        inside = self.network.inside(host) if self.network else []
        if self.network:
            where = [
                "--nnodes",
                "1:2",
                "--rdzv-backend",
                "c10d",
                "--rdzv-endpoint",
                f"{ADDRESSES[0]}:29400",
                "--rdzv-conf",
                f"is_host={int(host == 0)}",
                "--nproc-per-node",
                str(WORKERS),
            ]
        return Agent(
            [
                *inside,
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
                "500",
                "--save_strategy",
                "no",
                "--report_to",
                "none",
                "--logical_shards",
                str(shards),
                "--output_dir",
                str(self.output),
            ],
            self.logged,
        )

    def start_again(self, host):
        self.agents[host].process.wait()
        self.agents[host] = self.agent(host)

    def status(self):
        """The first answer of an agent about all hosts."""
        for host, agent in enumerate(self.agents):
            done = subprocess.run([*self.network.inside(host), self.options.tandem, "status", str(agent.pid)], capture_output=True, text=True)
            if done.returncode == 0:
                return done.stdout
        return ""

    def worker_of_rank(self, rank):
        """The process and its host."""
        found_text = self.wait("a status with all ranks", lambda: re.search(rf"computes as rank {rank} \(pid (\d+)\)", self.status()))
        pid = int(found_text[1])
        return pid, next(host for host, agent in enumerate(self.agents) if pid in children(agent.pid))

    def views(self, since):
        """By number: when it was first reported, how many compute, of how many, why, and its pause and when its first step was reported."""
        found = {}
        for when, line in list(self.logged):
            if when < since:
                continue
            if found_text := re.search(r"view (\d+): (\d+) of (\d+) workers continue after step \d+:? ?(.*)", line):
                view = found.setdefault(int(found_text[1]), {"computes": int(found_text[2]), "of": int(found_text[3]), "why": "", "pause": None})
                view["why"] += found_text[4]
            elif found_text := re.search(r"view (\d+): step \d+ is applied, ([\d.]+) s after", line):
                view = found.get(int(found_text[1]))
                if view is not None:
                    view["pause"] = max(view["pause"] or 0.0, float(found_text[2]))
                    view["applied"] = max(view.get("applied", 0.0), when)
        return dict(sorted(found.items()))

    def wait(self, what, condition):
        until = time.monotonic() + LIMIT
        while not (found := condition()):
            if time.monotonic() > until or any(agent.process.poll() not in (None, 0, 143, -signal.SIGKILL) for agent in self.agents):
                print(*(line for _, line in self.logged[-40:]), sep="\n", file=sys.stderr)
                sys.exit(f"elastic_times: waited for {what}, which did not come")
            time.sleep(0.005)
        return found

    def whole(self, since):
        """All compute, and have made a step since."""
        views = list(self.views(since).values())
        return views if views and views[-1]["computes"] == views[-1]["of"] == 2 * WORKERS and views[-1]["pause"] is not None else None

    def begun(self):
        return any(re.search(r"workers compute, step [1-9]\d* is applied|\d+/\d+ \[", line) for _, line in list(self.logged))

    def all_compute(self):
        return any(re.search(rf"view \d+: {2 * WORKERS} of {2 * WORKERS} workers (continue after|compute)", line) for _, line in list(self.logged))

    def lost(self, since):
        return next((view for view in self.views(since).values() if view["pause"] is not None), None)

    def step(self):
        return max((int(step) for _, line in list(self.logged) for step in re.findall(r"step (\d+) is applied", line)), default=0)

    def end(self):
        codes = [agent.process.wait(LIMIT + 3 * self.options.seconds) for agent in self.agents]
        if any(codes):
            print(*(line for _, line in self.logged[-40:]), sep="\n", file=sys.stderr)
            sys.exit(f"elastic_times: agents ended with {codes}")
        return hashlib.sha256((self.output / "model.safetensors").read_bytes()).hexdigest()

    def stop(self):
        for agent in self.agents:
            for pid in [*children(agent.pid), agent.pid] if agent.process.poll() is None else []:
                kill(pid)


# ---- what happens: each returns how long its change of the view took ----


def lose_worker(rank, number):
    def act(job):
        since = time.monotonic()
        os.kill(job.worker_of_rank(rank)[0], number)
        views = job.wait("all to be back", lambda: job.whole(since))
        return {"pause": views[0]["pause"], "back": views[-1]["applied"] - since}

    return act


def lose_host(rank, agent_only):
    def act(job):
        host = job.worker_of_rank(rank)[1]
        agent = job.agents[host]
        since = time.monotonic()
        for pid in [agent.pid] if agent_only else [agent.pid, *children(agent.pid)]:
            kill(pid)
        return host_comes_back(job, host, since)

    return act


def drain(job):
    host = job.worker_of_rank(3)[1]
    since = time.monotonic()
    os.kill(job.agents[host].pid, signal.SIGTERM)
    return host_comes_back(job, host, since)


def host_comes_back(job, host, since):
    pause = job.wait("the others to continue", lambda: job.lost(since))["pause"]
    job.start_again(host)
    views = job.wait("the host to be back", lambda: job.whole(since))
    return {"pause": pause, "join": views[-1]["pause"]}


def silence(job):
    since = time.monotonic()
    wire = [*job.network.inside(1), "ip", "link", "set", "wire"]
    subprocess.run([*wire, "down"], check=True)
    pause = job.wait("one side to continue", lambda: job.lost(since))["pause"]
    subprocess.run([*wire, "up"], check=True)
    job.wait("the hosts to find each other", lambda: job.whole(since))
    return {"pause": pause}


AGENT, STEP = "0.3", "1 step"
# The action of each event, and the goal for the time in addition to the step itself.
EVENTS = {
    "worker killed": (lose_worker(3, signal.SIGKILL), AGENT),
    "rank 0 killed": (lose_worker(0, signal.SIGKILL), AGENT),
    "worker segfaults": (lose_worker(2, signal.SIGSEGV), AGENT),
    "agent killed": (lose_host(3, agent_only=True), AGENT),
    "rank 0's agent killed": (lose_host(0, agent_only=True), AGENT),
    "rank 0's host killed": (lose_host(0, agent_only=False), AGENT),
    "host silent": (silence, "2.5"),
    "host drains on SIGTERM": (drain, STEP),
    "rendezvous": (None, "1.0"),
}


def rendezvous(options, network):
    """Seconds until four agents have started a program other than tandem's."""
    begin = time.time()
    agents = []
    for node in range(4):
        command = [
            *network.inside(node % 2),
            options.tandem,
            "run",
            "--nnodes",
            "4",
            "--nproc-per-node",
            "1",
            "--rdzv-backend",
            "c10d",
            "--rdzv-endpoint",
            f"{ADDRESSES[0]}:29500",
            "--rdzv-conf",
            f"is_host={int(node == 0)}",
            "--no-python",
            "date",
            "+%s.%N",
        ]
        agents.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "TANDEM_JOB_TOKEN": "of this bench"})
        )
    times = []
    for agent in agents:
        out, err = agent.communicate(timeout=LIMIT)
        stamp = re.search(r"\d{9,}\.\d+", out)
        if agent.returncode or not stamp:
            sys.exit(f"elastic_times: an agent ended with {agent.returncode}: {out}{err}")
        times.append(float(stamp[0]) - begin)
    return max(times)


def row(event, seconds, step, aim, same):
    return {"event": event, "times": len(seconds), "median": statistics.median(seconds), "worst": max(seconds), "step": step, "aim": aim, "same": same}


def rows_of(event, found, step, same):
    rows = [row(event, [each["pause"] for each in found], step, EVENTS[event][1], same)]
    if event == "worker segfaults":
        rows.append(row("… until the first step with it again", [each["back"] for each in found], step, "1 after start-up", same))
    joins = [each["join"] for each in found if "join" in each]
    if event == "rank 0's host killed":
        rows.append(row("… and joins", joins, step, "2 steps", same))
    return rows


def measure(options, event, calm, folder, network):
    job = Job(options, folder, event.replace(" ", "_"), calm.steps, network)
    found = []
    try:
        job.wait("all to compute", job.all_compute)
        while len(found) < options.times and job.step() < 0.8 * job.steps:
            time.sleep(0.5)
            found.append(EVENTS[event][0](job))
        same = "yes" if job.end() == calm.weights else "no"
    finally:
        job.stop()
    return rows_of(event, found, calm.step_seconds, same)


def calm_job(options, folder):
    def run(name, steps):
        job = Job(options, folder, name, steps)
        try:
            job.wait("all to compute", job.begun)
            begin = time.monotonic()
            job.weights = job.end()
            job.step_seconds = round((time.monotonic() - begin) / steps, 4)
        finally:
            job.stop()
        return job

    return run("calm", int(options.seconds / run("trial", 300).step_seconds))


def main():
    options = parse()
    os.chdir(pathlib.Path(__file__).resolve().parents[1])
    network, rows = Network(), []
    try:
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            jobs = [event for event in options.events if EVENTS[event][0]]
            calm = calm_job(options, folder) if jobs else None
            for event in jobs:
                rows += measure(options, event, calm, folder, network)
            if "rendezvous" in options.events:
                rows.append(row("rendezvous", [rendezvous(options, network) for _ in range(options.times)], None, EVENTS["rendezvous"][1], ""))
    finally:
        network.close()
    print(f"{'':40}{'times':>7}{'median s':>10}{'worst s':>10}{'a step s':>10}{'aim':>18}  same weights")
    for each in rows:
        print(f"{each['event']:40}{each['times']:7}{each['median']:10.2f}{each['worst']:10.2f}{each['step'] or '':>10}{each['aim']:>18}  {each['same']}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"rows": rows}))
    return 1 if any(each["same"] == "no" for each in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
