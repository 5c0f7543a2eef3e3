#!/usr/bin/env python3
"""What it costs a step that a job could lose ranks and go on: the same job in turns on this machine, nobody is killed.

    bench/compare_elastic.py [BUILD] [--old BUILD] [--ranks 1,2] [--model minilm|bert-base|DIR] [--turns 5] …
    bench/compare_elastic.py build/release --old ../old/build/release --model bert-base

BUILD is a program or a build directory (build/release). Its ranks started with torchrun's variables, which are not elastic (`plain`), and the same under `tandem run --standalone` (`elastic`); with
--old, those of a build from before elastic jobs, too (`old`). Each trains --steps steps of --batch sequences, dealt to the ranks, with the machine's cores dealt to the ranks. Two figures are given,
each with its ratio to the first of the three that is there (above 1: slower):

    a turn       train_runtime over the steps of a whole job: the median over the turns and its spread; the ratio is turn by turn
    undisturbed  every job's steps are cut into the same pieces, --piece steps from one log entry to the next, and of each piece the quickest of all turns counts: what neighbours of the machine
                 take is left out, and what a side does in every step is not

The weights of plain and elastic must be the same bytes; the last line says whether those of old are. bert-base needs a Python with torch and transformers, which make a model of that size with random
weights.
"""

import argparse
import hashlib
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import compare
import random_bert
import rivals


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", default="build/release")
    parser.add_argument("--old", metavar="BUILD", help="from before elastic jobs")
    parser.add_argument("--ranks", default="1,2", type=lambda text: [int(word) for word in text.split(",")])
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--tokenizer", default="build/test-data/minilm", metavar="DIR", help="of a BERT model with 30,522 tokens; of minilm the model, too")
    parser.add_argument("--data", default="../shared/data/squad/squad1-train-head.json")
    parser.add_argument("--batch", type=int, default=12, help="sequences of a step, dealt to the ranks")
    parser.add_argument("--seq", type=int, default=384)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--piece", type=int, default=5, help="steps; the first piece of a job is not counted")
    parser.add_argument("--types", default="f32", help="f32,bf16")
    parser.add_argument("--json", metavar="FILE", help="write the figures, as bench/record.py wants them")
    options = parser.parse_args()
    if options.steps // options.piece < 2:
        parser.error("--steps: at least two pieces")
    return options


def model_directory(options, scratch):
    if options.model == "minilm":
        return options.tokenizer
    if options.model not in rivals.MODELS:
        return options.model
    folder = pathlib.Path(scratch) / options.model
    random_bert.write(folder, options.model, options.tokenizer)
    return folder


def job(options, model, ranks, kind, output):
    words = ["--model_name_or_path", model, "--train_file", options.data, "--do_train", "--max_steps", options.steps, "--per_device_train_batch_size", options.batch // ranks, "--max_seq_length",
             options.seq, "--doc_stride", options.seq // 3, "--logging_steps", options.piece, "--save_strategy", "no", "--report_to", "none", "--learning_rate", "3e-5", "--output_dir", output]
    return [*map(str, words), *(["--bf16"] if kind == "bf16" else [])]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def by_hand(tandem, ranks, words, threads):
    """One process per rank, as a launcher would start them."""
    port = free_port()
    variables = lambda rank: {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [([tandem, "run_qa", *words], {"OMP_NUM_THREADS": str(threads), **(variables(rank) if ranks > 1 else {})}) for rank in range(ranks)]


def elastic(tandem, ranks, words, threads):
    return [([tandem, "run", "--standalone", "--nproc-per-node", str(ranks), "run_qa.py", *words], {"OMP_NUM_THREADS": str(threads)})]


def run(commands):
    """Their times of log entries, in seconds: the first of the commands prints them."""
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE if number == 0 else subprocess.DEVNULL, stderr=subprocess.STDOUT, text=True, env={**os.environ, **variables})
                 for number, (command, variables) in enumerate(commands)]
    lines = [(time.monotonic(), line) for line in processes[0].stdout]
    for process in processes:
        if process.wait():
            sys.exit(f"{process.args[0]} ended with {process.returncode}:\n{''.join(line for _, line in lines[-40:])}")
    return [at for at, line in lines if "'loss': " in line]


def measure(options, side, ranks, model, kind):
    start, tandem = side
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder) / "out"
        entries = run(start(tandem, ranks, job(options, model, ranks, kind, output), max(1, len(os.sched_getaffinity(0)) // ranks)))
        seconds = json.loads((output / "train_results.json").read_text())["train_runtime"] / options.steps
        pieces = [end - begin for begin, end in zip(entries, entries[1:])]
        if len(pieces) != options.steps // options.piece - 1:
            sys.exit(f"{len(entries)} log entries in {options.steps} steps")
        return seconds, pieces, hashlib.sha256((output / "model.safetensors").read_bytes()).hexdigest()


def undisturbed(options, runs):
    """Seconds a step, of each piece's quickest run."""
    quickest = [min(times) for times in zip(*(pieces for _, pieces, _ in runs))]
    return sum(quickest) / (options.piece * len(quickest))


def compare_jobs(options, ranks, model, kind):
    build = compare.program(options.build)
    sides = {"plain": (by_hand, build), "elastic": (elastic, build)}
    if options.old:
        sides = {"old": (by_hand, compare.program(options.old)), **sides}
    runs = {name: [] for name in sides}
    for turn in range(options.turns):
        for name in rivals.rotated(list(sides), turn):
            runs[name].append(measure(options, sides[name], ranks, model, kind))
    rows = []
    base, *others = sides
    seconds = {name: [whole for whole, _, _ in runs[name]] for name in sides}
    three = lambda values: [statistics.median(values), min(values), max(values)]
    for name in others:
        row = {"model": options.model, "type": kind, "ranks": ranks, "batch": options.batch, "form": name, "against": base, "base": three(seconds[base]), "seconds": three(seconds[name]),
               "ratio": three([b / a for a, b in zip(seconds[base], seconds[name])]), "base_undisturbed": undisturbed(options, runs[base]), "undisturbed": undisturbed(options, runs[name])}
        row["undisturbed_ratio"] = row["undisturbed"] / row["base_undisturbed"]
        print(f"{options.model} {kind} {ranks} ranks {name:8} {row['seconds'][0]:.4f} s a step, {base} {row['base'][0]:.4f}: {row['ratio'][0]:.4f} ({row['ratio'][1]:.4f} - {row['ratio'][2]:.4f}); "
              f"undisturbed {row['undisturbed']:.4f}, {row['base_undisturbed']:.4f}: {row['undisturbed_ratio']:.4f}", flush=True)
        rows.append(row)
    weights = {name: {digest for _, _, digest in runs[name]} for name in sides}
    for name in sides:
        print(f"weights of {name}: {'the same as plain' if weights[name] == weights['plain'] else 'OTHERS than plain'}")
    if weights["plain"] != weights["elastic"] or len(weights["plain"]) != 1:
        sys.exit(1)
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
