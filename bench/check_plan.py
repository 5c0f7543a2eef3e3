#!/usr/bin/env python3
"""Compares `tandem plan` with measured jobs of 1, 2 and 4 ranks on this machine.

    bench/check_plan.py MODEL_DIR TRAIN_FILE [--ranks 1,2,4] [--batch 4] [--seq 128] [--dtype bf16] [--steps 12] [--rounds 3]

For each number of ranks and each round: a profile measured with as many ranks at once (`tandem plan --measure`), what it predicts, then jobs of `tandem run_qa`
under mpirun with padded samples, one thread per rank. A step's time is the difference of the runtimes of a short and a longer job over the difference of their
steps, so that start-up and the first steps do not count. With more ranks than cores everything is oversubscribed, the profile as well: the line notes that.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

SHORT = 3  # steps of the short job


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout[-3000:]}")
    return done.stdout


def predicted_seconds(arguments, ranks):
    output = run(
        [
            arguments.tandem,
            "plan",
            "--model",
            arguments.model,
            "--batch",
            str(arguments.batch),
            "--seq",
            str(arguments.seq),
            "--dtype",
            arguments.dtype,
            "--ranks-per-node",
            str(ranks),
            "--threads",
            "1",
            "--measure",
            "--json",
        ]
    )
    return json.loads(output)["clusters"][0]["seconds_per_step"]


def runtime(arguments, ranks, steps):
    with tempfile.TemporaryDirectory() as folder:
        output = run(
            [
                *([arguments.mpirun, "-n", str(ranks)] if ranks > 1 else []),
                arguments.tandem,
                "run_qa",
                "--model_name_or_path",
                arguments.model,
                "--train_file",
                arguments.train_file,
                "--do_train",
                "--max_steps",
                str(steps),
                "--per_device_train_batch_size",
                str(arguments.batch),
                "--max_seq_length",
                str(arguments.seq),
                "--doc_stride",
                str(arguments.seq // 4),
                "--pad_to_max_length",
                "True",
                "--save_strategy",
                "no",
                *(["--bf16"] if arguments.dtype == "bf16" else []),
                "--output_dir",
                folder + "/out",
            ]
        )
    return float(re.findall(r"'train_runtime': '?([0-9.]+)", output)[-1])


def measured_seconds(arguments, ranks):
    return (runtime(arguments, ranks, SHORT + arguments.steps) - runtime(arguments, ranks, SHORT)) / arguments.steps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("train_file")
    parser.add_argument("--ranks", default="1,2,4")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=128)
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="bf16")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mpirun", default="mpirun", help="the launcher; any that tandem knows")
    parser.add_argument("--tandem", default="build/release/bin/tandem")
    parser.add_argument("--json", metavar="FILE", help="write the figures, as bench/record.py wants them")
    arguments = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    print("| ranks | predicted s/step | measured s/step | smallest, largest measured | error |\n|---|---|---|---|---|")
    rows = []
    for ranks in map(int, arguments.ranks.split(",")):
        predicted, measured = [], []
        for _ in range(arguments.rounds):
            predicted.append(predicted_seconds(arguments, ranks))
            measured.append(measured_seconds(arguments, ranks))
        error = statistics.median(predicted) / statistics.median(measured) - 1
        note = f" (oversubscribed, {cores} cores)" if ranks > cores else ""
        print(
            f"| {ranks}{note} | {statistics.median(predicted):.4f} | {statistics.median(measured):.4f} | {min(measured):.4f}, {max(measured):.4f} "
            f"| {100 * error:+.1f} % |",
            flush=True,
        )
        rows.append(
            {
                "ranks": f"{ranks}{note}",
                "predicted": statistics.median(predicted),
                "measured": [statistics.median(measured), min(measured), max(measured)],
                "error": error,
            }
        )
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
