#!/usr/bin/env python3
"""Seconds from the command to the first training step and to its end: bench/startup.py MODEL_DIR TRAIN_FILE [--rounds N] [--tandem PROGRAM] [--feature_cache FOLDER] [-- FLAG...]

Questions are read, tokenized and cut into features each time (bench/make_squad.py makes a file of SQuAD's size), unless --feature_cache names a folder: then the first run fills it, and is not counted. Printed are the median, smallest and largest value.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

MARKS = {"model and tokenizer loaded": "  model: ", "features made": "  train: ", "training begins": "Running training", "first step done": "'train_runtime'"}


def run_once(arguments):
    """{mark: seconds since the command}"""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            arguments.tandem,
            "run_qa",
            "--model_name_or_path",
            arguments.model,
            "--train_file",
            arguments.train_file,
            "--do_train",
            "--max_steps",
            "1",
            "--per_device_train_batch_size",
            "12",
            "--bf16",
            "--save_strategy",
            "no",
            "--output_dir",
            folder + "/out",
            *arguments.flags,
        ]
        begin, seen, output = time.perf_counter(), {}, []
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "TANDEM_FEATURE_CACHE": arguments.feature_cache}
        )
        for line in process.stdout:
            output.append(line)
            for mark, text in MARKS.items():
                if text in line:
                    seen.setdefault(mark, time.perf_counter() - begin)
        missing = [text for mark, text in MARKS.items() if mark not in seen]
        if process.wait() or missing:
            sys.exit("".join(output[-20:]) + "".join(f"no line has '{text}'\n" for text in missing))
        return seen


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("train_file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tandem", default="build/release/bin/tandem")
    parser.add_argument("--feature_cache", default="off")
    parser.add_argument("--json", metavar="FILE", help="write the figures, as bench/record.py wants them")
    parser.add_argument("flags", nargs="*")
    arguments = parser.parse_args()
    if arguments.feature_cache != "off":
        run_once(arguments)
    runs = [run_once(arguments) for _ in range(arguments.rounds)]
    for mark in MARKS:
        values = [run[mark] for run in runs]
        print(f"{mark:28} {statistics.median(values):6.2f} s  ({min(values):.2f} - {max(values):.2f})")
    if arguments.json:
        questions = sum(
            len(paragraph["qas"]) for article in json.loads(pathlib.Path(arguments.train_file).read_text())["data"] for paragraph in article["paragraphs"]
        )
        figures = {name: statistics.median(run[mark] for run in runs) for name, mark in zip(("model", "features", "begins", "first_step"), MARKS)}
        pathlib.Path(arguments.json).write_text(
            json.dumps({"rows": [{"questions": questions, "kept": "made" if arguments.feature_cache == "off" else "kept", **figures}]})
        )


if __name__ == "__main__":
    main()
