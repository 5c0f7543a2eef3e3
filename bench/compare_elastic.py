#!/usr/bin/env python3
"""What it costs a step that a job could lose ranks and go on: the same job in turns on this machine, nobody is killed.

    bench/compare_elastic.py [BUILD] [--old BUILD] [--ranks 1,2] [--model minilm|bert-base|DIR] [--turns 5] …
    bench/compare_elastic.py build/release --old ../old/build/release --model bert-base

BUILD is a program or a build directory (build/release). Its ranks started with torchrun's variables, which are not elastic (`plain`), and the same under `tandem run --standalone` (`elastic`); with
--old, those of a build from before elastic jobs, too (`old`). Each trains --steps steps of --batch sequences, dealt to the ranks, with the machine's cores dealt to the ranks. A figure is
train_runtime over the steps, of a whole job: the median over the turns with its spread, and the ratio to the first of the three that is there, turn by turn (above 1: slower). The weights of plain and
elastic must be the same bytes; the last line says whether those of old are. bert-base needs a Python with torch and transformers, which make a model of that size with random weights. --at_once is for
machines whose neighbours make them faster and slower.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile

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
    parser.add_argument("--at_once", action="store_true", help="the two that are compared run at the same time, each on half of the cores, and change places every turn")
    parser.add_argument("--types", default="f32", help="f32,bf16")
    parser.add_argument("--json", metavar="FILE", help="write the figures, as bench/record.py wants them")
    options = parser.parse_args()
    if options.at_once and max(options.ranks) > len(os.sched_getaffinity(0)) // 2:
        parser.error("--at_once: a rank of each of the two needs a core of its own")
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
             options.seq, "--doc_stride", options.seq // 3, "--logging_steps", 10, "--save_strategy", "no", "--report_to", "none", "--learning_rate", "3e-5", "--output_dir", output]
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


def run(commands, cores):
    tied = ["taskset", "-c", ",".join(map(str, cores))]
    processes = [subprocess.Popen([*tied, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **variables}) for command, variables in commands]
    outputs = [process.communicate()[0] for process in processes]
    for process, output in zip(processes, outputs):
        if process.returncode:
            sys.exit(f"{process.args[len(tied)]} ended with {process.returncode}:\n{output[-3000:]}")


def measure(options, side, ranks, model, kind, cores):
    start, tandem = side
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder) / "out"
        run(start(tandem, ranks, job(options, model, ranks, kind, output), max(1, len(cores) // ranks)), cores)
        seconds = json.loads((output / "train_results.json").read_text())["train_runtime"] / options.steps
        return seconds, hashlib.sha256((output / "model.safetensors").read_bytes()).hexdigest()


def in_turns(options, names, one):
    """{name: [(seconds of the first, its seconds)]}, one after the other, each on all cores."""
    cores = os.sched_getaffinity(0)
    turns = [{name: one(name, cores) for name in rivals.rotated(names, turn)} for turn in range(options.turns)]
    return {name: [(turn[names[0]], turn[name]) for turn in turns] for name in names[1:]}


def at_once(options, names, one):
    """The same with both at one time: what neighbours of the machine do to one of them they do to the other."""
    cores = sorted(os.sched_getaffinity(0))
    half = len(cores) // 2
    halves = [cores[:half], cores[half:2 * half]]
    pairs = {name: [] for name in names[1:]}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for turn in range(options.turns):
            for name in names[1:]:
                pairs[name].append(tuple(pool.map(one, [names[0], name], halves if turn % 2 == 0 else halves[::-1])))
    return pairs


def compare_jobs(options, ranks, model, kind):
    build = compare.program(options.build)
    sides = {"plain": (by_hand, build), "elastic": (elastic, build)}
    if options.old:
        sides = {"old": (by_hand, compare.program(options.old)), **sides}
    weights = {}

    def one(name, cores):
        seconds, weights[name] = measure(options, sides[name], ranks, model, kind, cores)
        return seconds

    rows = []
    base, *others = sides
    pairs = (at_once if options.at_once else in_turns)(options, list(sides), one)
    three = lambda values: [statistics.median(values), min(values), max(values)]
    for name in others:
        row = {"model": options.model, "type": kind, "ranks": ranks, "form": name, "against": base, "base": three([a for a, _ in pairs[name]]), "seconds": three([b for _, b in pairs[name]]),
               "ratio": three([b / a for a, b in pairs[name]]), **({"at_once": "yes"} if options.at_once else {})}
        print(f"{options.model} {kind} {ranks} ranks {name:8} {row['seconds'][0]:.4f} s a step, {base} {row['base'][0]:.4f}: {row['ratio'][0]:.4f} ({row['ratio'][1]:.4f} - {row['ratio'][2]:.4f})", flush=True)
        rows.append(row)
    for name in sides:
        print(f"weights of {name}: {'the same as plain' if weights[name] == weights['plain'] else 'OTHERS than plain'}")
    if weights["plain"] != weights["elastic"]:
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
