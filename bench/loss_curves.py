#!/usr/bin/env python3
"""How far the loss curves of two runs lie apart: bench/loss_curves.py RUN_A RUN_B [--window STEPS]

Reads trainer_state.json of both output directories (run with --logging_steps) and compares the mean training loss of each window of steps: a logged loss is the mean since the one before. Prints the
difference per window, the largest one and that of the whole runs, relative to RUN_B.
"""

import argparse
import json
import pathlib
import sys


def losses_of(folder):
    """{step: mean loss since the entry before}"""
    history = json.loads(pathlib.Path(folder, "trainer_state.json").read_text())["log_history"]
    return {entry["step"]: entry["loss"] for entry in history if "loss" in entry}


def windows(losses, size):
    """{last step: mean loss of the window}, weighted by the steps each entry stands for."""
    means, before, total, steps = {}, 0, 0.0, 0
    for step in sorted(losses):
        total += losses[step] * (step - before)
        steps += step - before
        before = step
        if steps >= size:
            means[step] = total / steps
            total, steps = 0.0, 0
    return means


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs=2)
    parser.add_argument("--window", type=int, default=100)
    arguments = parser.parse_args()
    ours, theirs = (losses_of(run) for run in arguments.runs)
    if not ours or ours.keys() != theirs.keys():
        sys.exit(f"the runs logged at different steps: {sorted(ours)[:5]}… and {sorted(theirs)[:5]}…; give both the same --logging_steps")
    a, b = windows(ours, arguments.window), windows(theirs, arguments.window)
    for step in a:
        print(f"step {step:6d}: {a[step]:.4f}  {b[step]:.4f}  {100 * (a[step] / b[step] - 1):+.3f} %")
    whole = windows(ours, max(ours)), windows(theirs, max(theirs))
    (x,), (y,) = (run.values() for run in whole)
    print(f"largest difference of a window {max(abs(a[s] / b[s] - 1) for s in a) * 100:.3f} %; of the whole runs {100 * (x / y - 1):+.3f} %")


if __name__ == "__main__":
    main()
