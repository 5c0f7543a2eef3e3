#!/usr/bin/env python3
"""The portable archive against the program of the build that it was made from, alternately on the same machine.

    bench/compare_portable.py ARCHIVE PROGRAM [--turns N]
    bench/compare_portable.py dist/tandem-0.1.0-linux-x86_64.tar.xz build/dist/bin/tandem
    bench/record.py portable --runs 1 -- bench/compare_portable.py dist/tandem-0.1.0-linux-x86_64.tar.xz build/dist/bin/tandem

First both train the demo's model and must leave the same weights. Then every turn starts both, in alternating order. Printed are the medians over
the turns, and the ratio native / portable per turn as median and range: above 1, the portable program is faster, or smaller. The sizes are those of
the program without symbols and of the libraries that it loads. `--json FILE` keeps the rows.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time

import compare

ROOT = pathlib.Path(__file__).resolve().parents[1]
DEMO = ROOT / "examples/demo"
TOPICS = ["run_classification", "--model_name_or_path", DEMO / "model", "--train_file", DEMO / "topics_train.csv", "--do_train"]
TOPICS += ["--max_seq_length", "64", "--save_strategy", "no", "--learning_rate", "1e-3"]
ONE_STEP = [*TOPICS, "--max_steps", "1"]
TRAINING = [*TOPICS, "--num_train_epochs", "12", "--per_device_train_batch_size", "8"]
STEP = ["step", "--model", "minilm", "--batch", "12", "--seq", "128", "--dtype", "bf16"]
STARTS_PER_TURN = 10


def finish(words):
    """Seconds until the command has ended."""
    begin = time.perf_counter()
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))} ended with {done.returncode}:\n{(done.stderr or done.stdout)[-2000:]}")
    return time.perf_counter() - begin


def unpack(archive, folder):
    with tarfile.open(archive) as file:
        file.extractall(folder)
    found = list(folder.glob("*/bin/tandem"))
    if len(found) != 1:
        sys.exit(f"{archive}: found {len(found)} files */bin/tandem, expected the portable archive of a release")
    return found[0]


def native_bytes(program, scratch):
    stripped = scratch / "stripped"
    shutil.copy(program, stripped)
    subprocess.run(["strip", "--strip-unneeded", stripped], check=True)
    words = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout.split()
    return sum(os.stat(word).st_size for word in words if word.startswith("/")) + stripped.stat().st_size


def portable_bytes(program):
    private = program.parents[1] / "lib/tandem"
    return sum(path.stat().st_size for path in [program, *private.iterdir()] if path.is_file())


def check_same_weights(programs, scratch):
    for name, program in programs.items():
        finish([program, *TRAINING, "--output_dir", scratch / name])
    first, second = ((scratch / name / "model.safetensors").read_bytes() for name in programs)
    if first != second:
        sys.exit("the two programs leave different weights: their times cannot be compared")


def measured(program, scratch):
    """{what: (value, unit)} of one turn."""
    job = lambda words: finish([program, *words, "--output_dir", scratch / "out", "--overwrite_output_dir"])
    return {
        "tandem --version": (1e3 * statistics.median(finish([program, "--version"]) for _ in range(STARTS_PER_TURN)), "ms"),
        "a job of one step": (job(ONE_STEP), "s"),
        "twelve epochs of the demo's topics": (job(TRAINING), "s"),
        **{what: (value, unit) for (what, _), (value, unit, _) in compare.measured(str(program), STEP).items() if ": " not in what},
    }


def rows_of(sizes, turns):
    native, portable = (size / 1e6 for size in sizes)
    rows = [{"what": "program and libraries", "unit": "MB", "native": native, "portable": portable, "ratio": native / portable}]
    for what, (_, unit) in turns[0]["native"].items():
        values = {side: [turn[side][what][0] for turn in turns] for side in ("native", "portable")}
        ratios = [old / new for old, new in zip(*values.values())]
        medians = {side: statistics.median(several) for side, several in values.items()}
        rows.append({"what": what, "unit": unit, **medians, "ratio": [statistics.median(ratios), min(ratios), max(ratios)]})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("archive", type=pathlib.Path)
    parser.add_argument("program", type=pathlib.Path, help="of the build that the archive was made from")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="the rows, as bench/record.py keeps them")
    options = parser.parse_args()
    if options.turns < 1:
        parser.error("--turns: at least one")
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        programs = {"native": options.program.resolve(), "portable": unpack(options.archive, scratch)}
        check_same_weights(programs, scratch)
        turns = []
        for turn in range(options.turns):
            sides = list(programs.items())
            turns.append({name: measured(program, scratch) for name, program in (sides if turn % 2 == 0 else sides[::-1])})
        rows = rows_of((native_bytes(programs["native"], scratch), portable_bytes(programs["portable"])), turns)
    width = max(len(row["what"]) for row in rows)
    print(f"{'':{width}} {'native':>10} {'portable':>10}      native / portable")
    for row in rows:
        ratio = row["ratio"] if isinstance(row["ratio"], list) else [row["ratio"]] * 3
        print(f"{row['what']:{width}} {row['native']:10.3f} {row['portable']:10.3f} {row['unit']:3}  {ratio[0]:.3f} ({ratio[1]:.3f} – {ratio[2]:.3f})")
    if options.json:
        options.json.write_text(json.dumps({"rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
