#!/usr/bin/env python3
"""The cost of elasticity for a step: the same job, elastic and not, step by step alternately on this machine, without failures.

    bench/compare_elastic.py [BUILD] [--old BUILD] [--ranks 1,2] [--model minilm|bert-base|DIR] [--starts 6] …
    bench/compare_elastic.py build/release --old ../old/build/release --model bert-base

BUILD is a program or a build directory (build/release). Its ranks started with torchrun's variables, which are not elastic (`plain`), and the same under `tandem run --standalone` (`elastic`); with
--old, those of a build that has no elastic jobs, too (`old`). All are started, and then one at a time computes a piece of its job, on all cores, while the others are stopped (SIGSTOP): --piece steps
of --batch sequences, dealt to the ranks. So neighbours of the machine that make it slower for a while do it to all. A piece ends when its log entry is printed; the first one of a job is not counted.

Jobs are started --starts times, and each time compute --rounds pieces: where a process finds its memory makes it faster or slower by some percent until it ends. A figure is seconds a step, the median
over all pieces. A ratio is to the first of the three that is there, piece by piece (above 1: slower), and the median of these is that of the start. Shown are the median of the starts, and between which
two of them the median of all such starts lies; from six starts on with 95 % confidence.

The weights of plain and elastic must be the same bytes; the last line states whether those of old are. bert-base needs a Python with torch and transformers, which make a model of that size with random
weights.
"""

import argparse
import contextlib
import hashlib
import json
import math
import os
import pathlib
import queue
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import compare
import compare_failures
import random_bert
import rivals

DEADLINE = 600  # seconds for a piece


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", default="build/release")
    parser.add_argument("--old", metavar="BUILD", help="one that has no elastic jobs")
    parser.add_argument("--ranks", default="1,2", type=lambda text: [int(word) for word in text.split(",")])
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--tokenizer", default="build/test-data/minilm", metavar="DIR", help="of a BERT model with 30,522 tokens; of minilm the model, too")
    parser.add_argument("--data", default="../shared/data/squad/squad1-train-head.json")
    parser.add_argument("--batch", type=int, default=12, help="sequences of a step, dealt to the ranks")
    parser.add_argument("--seq", type=int, default=384)
    parser.add_argument("--piece", type=int, default=2, help="steps")
    parser.add_argument("--starts", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=12, help="pieces of a start")
    parser.add_argument("--types", default="f32", help="f32,bf16")
    parser.add_argument("--json", metavar="FILE", help="write the figures, as bench/record.py wants them")
    return parser.parse_args()


def model_directory(options, scratch):
    if options.model == "minilm":
        return options.tokenizer
    if options.model not in rivals.MODELS:
        return options.model
    folder = pathlib.Path(scratch) / options.model
    random_bert.write(folder, options.model, options.tokenizer)
    return folder


def job(options, model, ranks, kind, output):
    words = [
        "--model_name_or_path",
        model,
        "--train_file",
        options.data,
        "--do_train",
        "--max_steps",
        options.piece * (options.rounds + 1),
        "--per_device_train_batch_size",
        options.batch // ranks,
        "--max_seq_length",
        options.seq,
        "--doc_stride",
        options.seq // 3,
        "--logging_steps",
        options.piece,
        "--save_strategy",
        "no",
        "--report_to",
        "none",
        "--learning_rate",
        "3e-5",
        "--output_dir",
        output,
    ]
    return [*map(str, words), *(["--bf16"] if kind == "bf16" else [])]


def by_hand(tandem, ranks, words, threads):
    """One process per rank, as a launcher would start them."""
    port = compare_failures.free_port()
    variables = lambda rank: {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    return [([tandem, "run_qa", *words], {"OMP_NUM_THREADS": str(threads), **(variables(rank) if ranks > 1 else {})}) for rank in range(ranks)]


def elastic(tandem, ranks, words, threads):
    return [([tandem, "run", "--standalone", "--nproc-per-node", str(ranks), "run_qa.py", *words], {"OMP_NUM_THREADS": str(threads)})]


def family(pid):
    """A process and all below it."""
    return [pid, *(one for child in compare_failures.children(pid) for one in family(child))]


class Job:
    """One that computes while it may. The first of its commands prints the log entries."""

    def __init__(self, commands):
        never = {"TANDEM_STALL_TIMEOUT": "0"}  # a stopped rank has not failed
        self.processes = [
            subprocess.Popen(
                command,
                stdout=subprocess.PIPE if number == 0 else subprocess.DEVNULL,
                stderr=subprocess.STDOUT,
                text=True,
                env={**os.environ, **never, **variables},
            )
            for number, (command, variables) in enumerate(commands)
        ]
        self.entries, self.lines = queue.Queue(), []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.processes[0].stdout:
            self.lines.append(line)
            if "'loss': " in line:
                self.entries.put(time.monotonic())
        self.entries.put(None)

    def signal(self, number):
        for process in self.processes:
            for pid in family(process.pid) if process.returncode is None else ():
                with contextlib.suppress(ProcessLookupError):  # one that has just ended
                    os.kill(pid, number)

    def compute(self):
        """Seconds until the next entry; stopped behind it."""
        begin = time.monotonic()
        self.signal(signal.SIGCONT)
        entry = self.entries.get(timeout=DEADLINE)
        if entry is None:
            self.fail()
        self.signal(signal.SIGSTOP)
        return entry - begin

    def end(self):
        self.signal(signal.SIGCONT)
        for process in self.processes:
            if process.wait(DEADLINE):
                self.fail()

    def fail(self):
        raise SystemExit(f"{self.processes[0].args[0]} ended:\n{''.join(self.lines[-40:])}")


def with_confidence(values):
    """The median, and the two values between which that of the distribution lies with 95 %: by their ranks, whose number below it is binomial."""
    ordered = sorted(values)
    low = max(0, math.floor(len(ordered) / 2 - 0.98 * math.sqrt(len(ordered))) - 1)
    return [statistics.median(ordered), ordered[low], ordered[-1 - low]]


def weights_of(folder):
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def in_turns(options, sides, ranks, model, kind, number):
    """{name: seconds of its pieces}, {name: hash of its weights}"""
    threads = max(1, len(os.sched_getaffinity(0)) // ranks)
    with tempfile.TemporaryDirectory() as scratch:
        outputs = {name: pathlib.Path(scratch) / name for name in sides}
        jobs = {}
        try:
            for name in rivals.rotated(list(sides), number):
                start, tandem = sides[name]
                jobs[name] = Job(start(tandem, ranks, job(options, model, ranks, kind, outputs[name]), threads))
                jobs[name].compute()
            pieces = {name: [] for name in sides}
            for turn in range(options.rounds):
                for name in rivals.rotated(list(sides), number + turn):
                    pieces[name].append(jobs[name].compute())
            for one in jobs.values():
                one.end()
        finally:
            for one in jobs.values():
                one.signal(signal.SIGKILL)
        return pieces, {name: weights_of(output) for name, output in outputs.items()}


def ratio_of(starts, name, base):
    """The ratio over the pieces of each start, then over the starts: median, least and largest."""
    return with_confidence([statistics.median(b / a for a, b in zip(pieces[base], pieces[name])) for pieces in starts])


def compare_jobs(options, ranks, model, kind):
    build = compare.program(options.build)
    sides = {"plain": (by_hand, build), "elastic": (elastic, build)}
    if options.old:
        sides = {"old": (by_hand, compare.program(options.old)), **sides}
    starts = []
    for number in range(options.starts):
        pieces, weights = in_turns(options, sides, ranks, model, kind, number)
        if weights["plain"] != weights["elastic"]:
            sys.exit("the weights of elastic are others than those of plain")
        starts.append(pieces)
    seconds = {name: statistics.median(piece for pieces in starts for piece in pieces[name]) / options.piece for name in sides}
    rows = []
    for name, base in [("plain", "old"), ("elastic", "old"), ("elastic", "plain")][0 if options.old else 2 :]:
        ratio = ratio_of(starts, name, base)
        rows.append(
            {
                "model": options.model,
                "type": kind,
                "ranks": ranks,
                "batch": options.batch,
                "form": name,
                "against": base,
                "base": seconds[base],
                "seconds": seconds[name],
                "ratio": ratio,
                "starts": options.starts,
                "rounds": options.rounds,
            }
        )
        print(
            f"{options.model} {kind} {ranks} ranks {name:8} {seconds[name]:.4f} s a step, {base} {seconds[base]:.4f}: {ratio[0]:.4f} ({ratio[1]:.4f} - {ratio[2]:.4f})",
            flush=True,
        )
    same = ", ".join(f"{name} {'the same' if weights[name] == weights['plain'] else 'OTHERS'}" for name in sides)
    print(f"weights compared with plain's: {same}")
    return rows


def main():
    options = parse()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        model = model_directory(options, scratch)
        for kind in options.types.split(","):
            for ranks in options.ranks:
                rows += compare_jobs(options, ranks, model, kind)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
