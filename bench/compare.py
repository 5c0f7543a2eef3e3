#!/usr/bin/env python3
"""Two builds of tandem against each other, alternately on the same machine.

    bench/compare.py OLD NEW [--turns N] [--best] BENCH [arguments of the bench]
    bench/compare.py build/old/bin/tandem build/release gemm --model minilm --dtype bf16
    bench/record.py hardening --runs 1 -- bench/compare.py build/soft build/release --turns 5 step --model minilm --dtype bf16

OLD and NEW are programs or build directories. Every turn runs `tandem bench BENCH … --json` with both,
in alternating order; benches of kernels are in the program kernel_bench next to it. Printed per result: the medians over the turns, and the ratio OLD / NEW of the
times (for rates NEW / OLD) per turn as median and range: above 1, NEW is faster. `--best` compares the best value of all turns instead: for a
machine whose speed changes within seconds. `--json FILE` keeps these rows.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys


def program(path):
    path = pathlib.Path(path)
    inside = path / "bin" / "tandem"
    return str(inside if inside.is_file() else path)


def bench_of(tandem, name):
    """The command of a bench. Older builds have all of them in tandem."""
    kernel_bench = pathlib.Path(tandem).with_name("kernel_bench")
    kernels = name in ("gemm", "attention", "elementwise", "optimizer", "tokenize", "answers")
    return [str(kernel_bench)] if kernels and kernel_bench.is_file() else [tandem, "bench"]


def measured(tandem, arguments, best=False):
    """{(name, dtype): (value, unit, greater is better)} of one run: medians, or the best values, which stages lack."""
    try:
        done = subprocess.run([*bench_of(tandem, arguments[0]), *arguments, "--json"], capture_output=True, text=True)
    except OSError as error:
        sys.exit(f"{tandem}: {error.strerror}")
    if done.returncode:
        sys.exit(f"{tandem} bench {' '.join(arguments)} ended with {done.returncode}:\n{(done.stderr or done.stdout)[-2000:]}")
    values = {}
    for result in json.loads(done.stdout)["results"]:
        key = (result["name"], result.get("dtype", ""))
        if "seconds" in result:
            values[key] = (result["seconds"]["min" if best else "median"] * 1e3, "ms", False)
        elif "microseconds" in result:
            values[key] = (result["microseconds"]["min" if best else "median"], "us", False)
        else:
            values[key] = (result["rate"]["max" if best else "median"], result["unit"], True)
        for stage in [] if best else result.get("breakdown", []):
            values[key[0] + ": " + stage["stage"], key[1]] = (stage["seconds"] * 1e3, "ms", False)
    return values


def best_of(runs):
    """One run that has the best value of each thing."""
    return [{key: (max if greater else min)(run[key] for run in runs) for key, (_, _, greater) in runs[0].items()}]


def compare(old_runs, new_runs):
    """Rows (name, dtype, unit, old, new, ratio, lowest, highest) of what both builds measured."""
    rows = []
    for key, (_, unit, greater) in old_runs[0].items():
        if key not in new_runs[0]:
            continue
        old = [run[key][0] for run in old_runs]
        new = [run[key][0] for run in new_runs]
        ratios = [(n / o if greater else o / n) for o, n in zip(old, new) if o > 0 and n > 0]
        if ratios:
            rows.append((*key, unit, statistics.median(old), statistics.median(new), statistics.median(ratios), min(ratios), max(ratios)))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("bench", help="peak, gemm, attention, …")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--best", action="store_true", help="the best value of all turns, instead of the median")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="the rows, as bench/record.py keeps them")
    options, others = parser.parse_known_args()  # what it does not know is for tandem bench
    if options.turns < 1:
        parser.error("--turns: at least one")
    arguments = [options.bench, *(word for word in others if word != "--")]

    runs = {"old": [], "new": []}
    sides = [("old", program(options.old)), ("new", program(options.new))]
    for turn in range(options.turns):
        for side, tandem in sides if turn % 2 == 0 else sides[::-1]:
            runs[side].append(measured(tandem, arguments, options.best))
    if options.best:
        runs = {side: best_of(of_side) for side, of_side in runs.items()}
    rows = compare(runs["old"], runs["new"])
    if not rows:
        sys.exit("the two builds have no result in common")
    width = max(len(row[0]) for row in rows)
    print(f"{'':{width}}      {'old':>12} {'new':>12}        new is faster by")
    for name, dtype, unit, old, new, ratio, low, high in rows:
        turns = "" if options.best else f" ({low:.3f} – {high:.3f})"
        print(f"{name:{width}} {dtype:4} {old:12.3f} {new:12.3f} {unit:8} {ratio:.3f}{turns}")
    if options.json:
        fields = ("what", "type", "unit", "old", "new")
        whole = [row for row in rows if ": " not in row[0]]  # without the stages of a step
        options.json.write_text(json.dumps({"rows": [{**dict(zip(fields, row)), "ratio": list(row[5:])} for row in whole]}))
    for missing in sorted(set(runs["old"][0]) ^ set(runs["new"][0])):
        print(f"{' '.join(missing)}: only one build has it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
