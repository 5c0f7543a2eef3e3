#!/usr/bin/env python3
"""What it costs a step that a job could lose ranks and go on: the same job in turns on this machine, nobody is killed.

    bench/compare_elastic.py OLD [NEW] [--ranks 1,2] [--model minilm|bert-base|DIR] [--turns 5] …
    bench/compare_elastic.py ../old/build/release build/release --model bert-base

OLD is a build from before elastic jobs, NEW this one (build/release); programs or build directories. Columns: `old`, ranks of OLD started with torchrun's variables; `new`, those of NEW started the
same way, which are not elastic; `elastic`, NEW under `tandem run --standalone`. Each trains --steps steps of --batch sequences a rank with the machine's cores dealt to the ranks. A figure is
train_runtime over the steps, of a whole job: the median over the turns with its spread, and the ratio to `old` turn by turn (above 1: slower). The weights of all three must be the same bytes where
the builds compute the same bits; the last line says whether they are. bert-base needs a Python with torch and transformers, which make a model of that size with random weights.
"""

import argparse
import hashlib
import json
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile

import compare
import rivals


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new", nargs="?", default="build/release")
    parser.add_argument("--ranks", default="1,2", type=lambda text: [int(word) for word in text.split(",")])
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--tokenizer", default="build/test-data/minilm", metavar="DIR", help="of a BERT model with 30,522 tokens; of minilm the model, too")
    parser.add_argument("--data", default="../shared/data/squad/squad1-train-head.json")
    parser.add_argument("--batch", type=int, default=12, help="sequences of a step, dealt to the ranks")
    parser.add_argument("--seq", type=int, default=384)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--types", default="f32", help="f32,bf16")
    parser.add_argument("--json", metavar="FILE", help="write the figures, as bench/record.py wants them")
    return parser.parse_args()


def model_directory(options, scratch):
    if options.model == "minilm":
        return options.tokenizer
    if options.model not in rivals.MODELS:
        return options.model
    from transformers import BertConfig, BertForQuestionAnswering
    folder = pathlib.Path(scratch) / options.model
    shutil.copytree(options.tokenizer, folder)
    for weights in [*folder.glob("*.safetensors"), *folder.glob("*.bin")]:
        weights.unlink()
    BertForQuestionAnswering(BertConfig(**rivals.MODELS[options.model])).save_pretrained(folder)
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


def run(commands):
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **variables}) for command, variables in commands]
    outputs = [process.communicate()[0] for process in processes]
    for process, output in zip(processes, outputs):
        if process.returncode:
            sys.exit(f"{process.args[0]} ended with {process.returncode}:\n{output[-3000:]}")


def measure(options, side, ranks, model, kind):
    start, tandem = side
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder) / "out"
        run(start(tandem, ranks, job(options, model, ranks, kind, output), max(1, len(os.sched_getaffinity(0)) // ranks)))
        seconds = json.loads((output / "train_results.json").read_text())["train_runtime"] / options.steps
        return seconds, hashlib.sha256((output / "model.safetensors").read_bytes()).hexdigest()


def compare_jobs(options, ranks, model, kind):
    old, new = compare.program(options.old), compare.program(options.new)
    sides = {"old": (by_hand, old), "new": (by_hand, new), "elastic": (elastic, new)}
    times, weights = {name: [] for name in sides}, {}
    for turn in range(options.turns):
        for name in rivals.rotated(list(sides), turn):
            seconds, weights[name] = measure(options, sides[name], ranks, model, kind)
            times[name].append(seconds)
    rows = []
    for name in ("new", "elastic"):
        ratios = [b / a for a, b in zip(times["old"], times[name])]
        three = lambda values: [statistics.median(values), min(values), max(values)]
        row = {"model": options.model, "type": kind, "ranks": ranks, "form": name, "old": three(times["old"]), "seconds": three(times[name]), "ratio": three(ratios)}
        print(f"{options.model} {kind} {ranks} ranks {name:8} {row['seconds'][0]:.4f} s a step, old {row['old'][0]:.4f}: {row['ratio'][0]:.4f} ({row['ratio'][1]:.4f} - {row['ratio'][2]:.4f})", flush=True)
        rows.append(row)
    print(f"weights of new and elastic: {'the same' if weights['new'] == weights['elastic'] else 'DIFFER'}; of old: {'the same' if weights['old'] == weights['new'] else 'others'}")
    if weights["new"] != weights["elastic"]:
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
