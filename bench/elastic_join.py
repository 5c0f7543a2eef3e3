#!/usr/bin/env python3
"""Cost of a joining host for the host that trains: two hosts, which are network namespaces (root), one worker of one thread on each.

    bench/elastic_join.py [BUILD] [--old BUILD] [--model minilm|bert-base|DIR] [--batch 1] [--seq 128]
    bench/elastic_join.py build/release --old ../old/build/release --model bert-base

The first host trains alone for some steps, then the second one starts, and both continue for some. `pause` is the time from the last step before the view with
both to the first one after it. `together` is the median of their steps after that; `alone` that of steps before the second host started; `while` the mean of
the steps from when it prepared itself or took the state on. `lost` is what all of it took beyond usual steps: the pause beyond a step together, and the slower
steps before it; the aim is two steps. Both builds must end with the same weights. bert-base is a model of that size with random weights.
"""

import argparse
import hashlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import compare
import compare_elastic
import elastic_soak


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", default="build/release")
    parser.add_argument("--old", metavar="BUILD", help="another build, measured first")
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--tokenizer", default="build/test-data/minilm", metavar="DIR", help="of a BERT model with 30,522 tokens; of minilm the model, too")
    parser.add_argument("--data", default="../shared/data/squad/squad1-train-head.json")
    parser.add_argument("--batch", type=int, default=1, help="sequences of each worker in a step")
    parser.add_argument("--seq", type=int, default=128)
    parser.add_argument("--cores", choices=("shared", "own"), default="shared", help="own: each host has one core for everything")
    parser.add_argument("--alone", type=int, default=8, help="steps before the second host starts")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--json", metavar="FILE", help="write the figures, as bench/record.py wants them")
    return parser.parse_args()


class Agent:
    """`tandem run` on a host; the times at which it reported a step, and its log lines about itself."""

    def __init__(self, options, tandem, model, network, host, folder):
        words = [
            "--nnodes",
            "1:2",
            "--nproc-per-node",
            "1",
            "--rdzv-backend",
            "c10d",
            "--rdzv-endpoint",
            f"{elastic_soak.ADDRESSES[0]}:29400",
            "--rdzv-conf",
            f"is_host={int(host == 0)}",
            "run_qa.py",
            "--model_name_or_path",
            model,
            "--train_file",
            options.data,
            "--max_train_samples",
            "400",
            "--do_train",
            "--max_steps",
            options.steps,
            "--per_device_train_batch_size",
            options.batch,
            "--max_seq_length",
            options.seq,
            "--doc_stride",
            options.seq // 4,
            "--logging_steps",
            1,
            "--save_strategy",
            "no",
            "--report_to",
            "none",
            "--logical_shards",
            2,
            "--output_dir",
            folder / "out",
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TANDEM_JOB_TOKEN": "of this bench"}
        self.steps, self.lines = [], []
        bound = ["taskset", "-c", str(sorted(os.sched_getaffinity(0))[host])] if options.cores == "own" else []
        self.process = subprocess.Popen(
            [*network.inside(host), *bound, tandem, "run", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line.rstrip()))
            if re.search(r"'loss':", line):
                self.steps.append(time.monotonic())

    def wait_for(self, condition, what):
        until = time.monotonic() + 280
        while not condition():
            if time.monotonic() > until or self.process.poll() is not None:
                sys.exit(f"elastic_join: {what}: " + "\n".join(line for _, line in self.lines[-30:]))
            time.sleep(0.01)

    def logged(self, text):
        return next((at for at, line in self.lines if text in line), None)


def differences(times):
    return [b - a for a, b in zip(times, times[1:])]


def join(options, build, model, network):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        start = lambda host: Agent(options, compare.program(build), model, network, host, folder)
        first = start(0)
        second = None
        try:
            first.wait_for(lambda: len(first.steps) > options.alone, "no steps")
            began, second = time.monotonic(), start(1)
            for agent in (first, second):
                if agent.process.wait(280):
                    sys.exit("elastic_join: the job failed: " + "\n".join(line for _, line in agent.lines[-30:]))
                agent.reader.join()
        finally:
            for agent in filter(None, (first, second)):
                for pid in [*elastic_soak.children(agent.process.pid), agent.process.pid] if agent.process.poll() is None else []:
                    elastic_soak.kill(pid)
        return figures(options, build, first, second, began), hashlib.sha256((folder / "out" / "model.safetensors").read_bytes()).hexdigest()


def figures(options, build, first, second, began):
    view = first.logged("with the node at")
    pause = next((float(seconds) for at, line in first.lines if view and at >= view for seconds in re.findall(r"is applied, ([\d.]+) s after", line)), None)
    if pause is None:
        sys.exit("elastic_join: no node joined: " + "\n".join(line for _, line in first.lines[-30:]))
    before = [at for at in first.steps if at < began]
    during = [*before[-1:], *(at for at in first.steps if began <= at < view)]
    after = [at for at in first.steps if at > view][1:]
    alone, together = statistics.median(differences(before)), statistics.median(differences(after))
    slower = sum(max(0.0, step - alone) for step in differences(during))
    learned = second.logged("this node joins")
    beyond, aim = pause - together, elastic_soak.EVENTS["node joins"]
    row = {
        "model": options.model,
        "build": "old" if build == options.old else "new",
        "cores": options.cores,
        "alone": alone,
        "together": together,
        "while": statistics.mean(differences(during) or [alone]),
        "pause": pause,
        "learned": round(learned - second.logged("takes the job's state"), 2) if learned else "in the view",
        "beyond": beyond,
        "slower": slower,
        "lost": beyond + slower,
        "steps": (beyond + slower) / together,
        "aim": int(aim.split()[0]),
    }
    print(
        f"{row['model']} {row['build']}, {options.cores} cores: alone {alone:.2f} s a step, {row['while']:.2f} while the other comes, together {together:.2f}; pause {pause:.2f} s ({beyond:.2f} beyond a step), slower steps {slower:.2f} s; "
        f"lost {row['lost']:.2f} s = {row['steps']:.2f} steps (aim {aim}); state: {row['learned']}",
        flush=True,
    )
    return row


def main():
    options = parse()
    os.chdir(pathlib.Path(__file__).resolve().parents[1])
    rows, weights = [], set()
    network = elastic_soak.Network()
    try:
        with tempfile.TemporaryDirectory() as scratch:
            model = compare_elastic.model_directory(options, scratch)
            for build in filter(None, (options.old, options.build)):
                row, sha = join(options, build, model, network)
                rows.append(row)
                weights.add(sha)
    finally:
        network.close()
    print("weights:", *weights, "the same" if len(weights) == 1 else "THEY DIFFER")
    for row in rows if options.old else []:
        row["same"] = "yes" if len(weights) == 1 else "no"
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"rows": rows}))
    return 0 if len(weights) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
