#!/usr/bin/env python3
"""Serial parts of whole jobs, by Amdahl's law from runs with one and with two threads.

    bench/serial_parts.py MODEL_DIR DATA_DIR [--rounds N] [--cores N] [--jobs run_qa,run_mlm] [--tandem FILE] [--json FILE]
    bench/record.py serial_parts --runs 1 -- bench/serial_parts.py build/test-data/minilm ../shared/data

Each job runs on a set of a common size, made by repetition: with its evaluation, and without one on features that a run before kept. A phase that takes a seconds with one thread and
b with two has a serial part of 2 b - a. The rest is divided by the number of cores. Steps and the encoder of an evaluation are the work: few
are measured, and scaled to the whole job.
"""

import argparse
import csv
import dataclasses
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import make_squad

ROOT = pathlib.Path(__file__).resolve().parents[1]
STEPS = 8
# Sizes of SQuAD 1.1, of GLUE's SST-2, of a set of pairs as all-nli, and of a corpus for language modelling: questions, rows, or bytes.
SQUAD, SQUAD_DEV, SST2, PAIRS, CORPUS = 87_599, 10_570, 67_349, 500_000, 100 << 20
STEP, ENCODER = "steps", "encoder of the evaluation"
# Phases in the order of a job, and the text of the line that ends each.
TRAINING = [("data of training", "  train: "), ("model", "Running training"), (STEP, "'train_runtime'"), ("saved model", "train metrics")]
EVALUATION = [(ENCODER, "100%|"), ("results of the evaluation", "eval metrics")]
END = [("report and end", None)]


@dataclasses.dataclass
class Job:
    name: str
    train: list  # words of the command line
    evaluation: list
    epochs: int


# --- data ---


def repeated_squad(source, questions, path):
    paragraphs = [paragraph for article in json.loads(source.read_text())["data"] for paragraph in article["paragraphs"]]
    copies = list(make_squad.repeated(paragraphs, questions))
    path.write_text(json.dumps({"version": "1.1", "data": [{"title": "repeated", "paragraphs": copies}]}))
    return path


def repeated_rows(source, columns, rows, path):
    """CSV rows of `source`, with the copy's number before the first column."""
    with source.open(newline="") as file:
        found = list(csv.DictReader(file))
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for number in range(rows):
            row = found[number % len(found)]
            writer.writerow([f"{number} {row[columns[0]]}", *(row[name] for name in columns[1:])])
    return path


def repeated_texts(source, size, path):
    """Contexts of SQuAD, one a line, up to `size` bytes."""
    texts = [paragraph["context"] for article in json.loads(source.read_text())["data"] for paragraph in article["paragraphs"]]
    with path.open("w") as file:
        number = written = 0
        while written < size:
            written += file.write(f"{number} {' '.join(texts[number % len(texts)].split())}\n")
            number += 1
    return path


def jobs(data, folder):
    squad, rows = data / "squad/squad1-train-head.json", data / "tasks"
    train = repeated_squad(squad, SQUAD, folder / "train.json")
    answered = repeated_squad(data / "squad/xquad.en.json", SQUAD_DEV, folder / "validation.json")
    sentences = repeated_rows(rows / "sst2/train.csv", ["sentence", "label"], SST2, folder / "sentences.csv")
    pairs = repeated_rows(rows / "stsb/train.csv", ["sentence1", "sentence2"], PAIRS, folder / "pairs.csv")
    corpus = repeated_texts(squad, CORPUS, folder / "corpus.txt")
    validation = ["--do_eval", "--validation_file"]
    yield Job("run_qa", ["--train_file", train], [*validation, answered, "--per_device_eval_batch_size", "64"], 2)
    yield Job("run_classification", ["--train_file", sentences], [*validation, rows / "sst2/validation.csv"], 3)
    yield Job("run_embedding", ["--train_file", pairs, "--per_device_train_batch_size", "64"], [], 1)
    yield Job("run_mlm", ["--train_file", corpus, "--validation_split_percentage", "0"], [], 1)


def phases_of(evaluates):
    if not evaluates:
        return [*TRAINING, *END]
    return [TRAINING[0], ("data of validation", "  validation: "), *TRAINING[1:], *EVALUATION, *END]


# --- runs ---


def seconds_of_phases(options, job, evaluation, threads, cache, folder):
    """({phase: seconds}, steps of the whole job) of one run."""
    words = ["--model_name_or_path", options.model, "--do_train", "--max_steps", STEPS, "--bf16", "--save_strategy", "no"]
    command = [options.tandem, job.name, *words, *job.train, *evaluation, "--output_dir", folder / "out", "--overwrite_output_dir"]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "TANDEM_FEATURE_CACHE": str(cache)}
    output, found, waiting = [], {}, phases_of(evaluation)
    begin = time.perf_counter()
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    for line in process.stdout:
        output.append(line)
        if waiting[0][1] is not None and waiting[0][1] in line:
            now = time.perf_counter()
            found[waiting.pop(0)[0]], begin = now - begin, now
    process.wait()
    if process.returncode or len(waiting) != 1:
        sys.exit("".join(output[-30:]) + f"\nno line has {waiting[0][1]!r}")
    found[waiting[0][0]] = time.perf_counter() - begin
    samples, batch = (
        int(re.search(pattern + r" = ([\d,]+)", "".join(output))[1].replace(",", "")) for pattern in ("Num examples", "Total train batch size .*")
    )
    return found, job.epochs * samples / batch


def median(runs):
    return statistics.median(list(runs))


# --- rows ---


def phase_row(name, one, two, cores):
    # The loss of steps on many cores is a matter of `tandem plan`.
    serial = 0.0 if name in (STEP, ENCODER) else min(max(2 * two - one, 0.0), two)
    return {"phase": name, "one": one, "two": two, "serial": serial, "many": serial + (one - serial) / cores}


def row_of(job, features, phases, cores):
    """The job's row: seconds of the whole job, of what is not its work, and of the largest part of that, with `cores` cores."""
    work = sum(phase["many"] for phase in phases if phase["phase"] in (STEP, ENCODER))
    others = [phase for phase in phases if phase["phase"] not in (STEP, ENCODER)]
    rest, largest = sum(phase["many"] for phase in others), max(others, key=lambda phase: phase["many"])
    for phase in phases:
        print(f"{job:20} {features:5} {phase['phase']:28}" + " ".join(f"{phase[key]:10.3f}" for key in ("one", "two", "serial", "many")))
    print(f"{job:20} {features:5} share of what is not work on {cores} cores: {100 * rest / (work + rest):.2f} %", flush=True)
    return {
        "job": job,
        "features": features,
        "cores": cores,
        "seconds": work + rest,
        "others": rest,
        "largest": largest["phase"],
        "of_largest": largest["many"],
        "share": rest / (work + rest),
    }


def row_of_training(options, job, evaluation, cache, folder):
    runs = {threads: [seconds_of_phases(options, job, evaluation, threads, cache, folder) for _ in range(options.rounds)] for threads in (1, 2)}
    phases = []
    for name, _ in phases_of(evaluation):
        scale = runs[1][0][1] / STEPS if name == STEP else 1
        one, two = (scale * median(found[name] for found, _ in runs[threads]) for threads in (1, 2))
        phases.append(phase_row(name, one, two, options.cores))
    return row_of(job.name, "made" if cache == "off" else "kept", phases, options.cores)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("model", metavar="MODEL_DIR")
    parser.add_argument("data", metavar="DATA_DIR", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=60)
    parser.add_argument("--jobs", default="run_qa,run_classification,run_embedding,run_mlm")
    parser.add_argument("--tandem", default=str(ROOT / "build/release/bin/tandem"))
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="the rows, as bench/record.py keeps them")
    options = parser.parse_args()
    wanted, rows = options.jobs.split(","), []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for job in jobs(options.data, folder):
            if job.name in wanted:
                rows.append(row_of_training(options, job, job.evaluation, "off", folder))
                seconds_of_phases(options, job, [], 2, folder / "cache", folder)
                rows.append(row_of_training(options, job, [], folder / "cache", folder))
    if options.json:
        options.json.write_text(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
