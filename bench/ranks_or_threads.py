#!/usr/bin/env python3
"""The same job as one rank with two threads and as two ranks with one thread each, alternately: what ranks cost compared with threads on one machine.

    bench/ranks_or_threads.py MODEL_DIR TRAIN_FILE [--global_batch 12] [--seq 384] [--dtype bf16] [--steps 6] [--rounds 5]

Both train on the same padded batches. A step's time is the difference of the runtimes of a short and a longer job over the difference of their steps, so
that start-up and the first steps do not count. Printed are the medians, their spread, the tokens per second of two ranks as a share of those of two threads,
and the jobs' figures for sums of gradients and waits (all steps of the longer job).
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

SHORT = 2  # steps of the short job


def runtime(arguments, ranks, steps):
    with tempfile.TemporaryDirectory() as folder:
        command = [
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
            str(arguments.global_batch // ranks),
            "--max_seq_length",
            str(arguments.seq),
            "--doc_stride",
            str(arguments.seq // 3),
            "--pad_to_max_length",
            "True",
            "--save_strategy",
            "no",
            *(["--bf16"] if arguments.dtype == "bf16" else []),
            "--output_dir",
            folder + "/out",
        ]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, env={**os.environ, "OMP_NUM_THREADS": str(2 // ranks)}
        )
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout[-3000:]}")
    gradients = float(re.search(r"([0-9.]+) % sums of gradients", done.stdout).group(1))
    return float(re.findall(r"'train_runtime': '?([0-9.]+)", done.stdout)[-1]), gradients


def measure(arguments, ranks):
    longer, gradients = runtime(arguments, ranks, SHORT + arguments.steps)
    return (longer - runtime(arguments, ranks, SHORT)[0]) / arguments.steps, gradients


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("train_file")
    parser.add_argument("--global_batch", type=int, default=12)
    parser.add_argument("--seq", type=int, default=384)
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="bf16")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mpirun", default="mpirun", help="the launcher; any that tandem knows")
    parser.add_argument("--tandem", default="build/release/bin/tandem")
    parser.add_argument("--json", metavar="FILE", help="write the figures, as bench/record.py wants them")
    arguments = parser.parse_args()
    times, shares = {1: [], 2: []}, {1: [], 2: []}
    for number in range(arguments.rounds):
        for ranks in (1, 2) if number % 2 == 0 else (2, 1):
            for values, value in zip((times[ranks], shares[ranks]), measure(arguments, ranks)):
                values.append(value)
            print(f"round {number + 1}: {ranks} rank(s) {times[ranks][-1]:.4f} s per step, gradients {shares[ranks][-1]} %", file=sys.stderr, flush=True)
    for ranks, seconds in times.items():
        print(
            f"{ranks} rank(s) x {2 // ranks} thread(s): {statistics.median(seconds):.4f} s per step ({min(seconds):.4f} - {max(seconds):.4f}); "
            f"sums of gradients and waits {statistics.median(shares[ranks]):.1f} % ({min(shares[ranks])} - {max(shares[ranks])})"
        )
    print(f"two ranks reach {100 * statistics.median(times[1]) / statistics.median(times[2]):.1f} % of the tokens per second of two threads")
    if arguments.json:
        three = lambda values: [statistics.median(values), min(values), max(values)]
        rows = [
            {
                "what": f"{ranks} rank{'s' * (ranks > 1)} × {2 // ranks} thread{'s' * (ranks == 1)}",
                "seconds": three(times[ranks]),
                "communication": [share / 100 for share in three(shares[ranks])],
            }
            for ranks in times
        ]
        pathlib.Path(arguments.json).write_text(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
