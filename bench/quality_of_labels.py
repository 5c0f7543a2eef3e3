#!/usr/bin/env python3
"""Trains on real texts and words as the official run_glue.py and run_ner.py did, and prints whether the scores are within the spread of theirs.

    bench/quality_of_labels.py [--tandem PROGRAM] [--data ../shared/data] [--model build/test-data/minilm] [--seeds 3] [--more_of_theirs FILE ...] [--resume] [--json FILE] [-- MORE FLAGS]

The settings and Hugging Face's scores are those of golden/tasks/hf_quality.json, one or two seeds of each; --more_of_theirs adds the seeds
that bench/quality_of_labels_hf.py has run. tandem runs every setting with the same seeds, and with further ones up to --seeds. A score is within
the spread when the two means are not further apart than the larger of both programs' ranges over seeds; one seed on both sides has none. Flags behind -- are added to every run: for a short try, as --max_steps 2. Outputs
and logs go to build/quality; --resume takes those of earlier runs with the same flags as they are, so that hours can be cut into pieces. Exit code 1: a score is outside.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
# By the script: the score that is judged, and what it is called.
SCORES = {"run_glue.py": ("eval_accuracy", "accuracy"), "run_ner.py": ("eval_overall_f1", "F1")}


def settings_of(listed):
    """{(script, flags without the seed): {seed: score}}, in the order of the file."""
    settings = {}
    for run in listed:
        seed = int(re.search(r"--seed (\d+)", run["flags"])[1])
        flags = re.sub(r" ?--seed \d+", "", run["flags"])
        settings.setdefault((run["script"], flags), {})[seed] = run["results"][SCORES[run["script"]][0]]
    return settings


def add_seeds(settings, more):
    """Adds the scores of a file of quality_of_labels_hf.py to the setting that it ran; what the official script gave for a seed stays."""
    words = (f"--max_train_samples {more['max_train_samples']} ", f"--learning_rate {more['learning_rate']} ")
    for (_, flags), theirs in settings.items():
        if all(word in flags for word in words):
            theirs |= {int(seed): score for seed, score in more["scores"].items() if int(seed) not in theirs}
            return
    raise SystemExit(f"no run of the official script has {' '.join(words)}")


def seeds_of(theirs, wanted):
    seeds = sorted(theirs)
    return seeds + [seed for seed in range(42, 42 + 2 * wanted) if seed not in seeds][: max(0, wanted - len(seeds))]


def name_of(script, flags):
    value = lambda flag: (re.search(rf"--{flag} (\S+)", flags) or ["", ""])[1]
    rows = f", {int(value('max_train_samples')):,} rows" if value("max_train_samples") else ""
    return f"{value('train_file').split('/')[0]}{rows}, learning rate {value('learning_rate')}"


def run(options, script, flags, seed):
    words = [
        str(options.data / "tasks" / word) if word.endswith((".csv", ".json")) else str(options.model) if word == "MINILM" else word for word in flags.split()
    ]
    name = f"{pathlib.Path(script).stem}-{re.sub('[^0-9a-z]+', '-', name_of(script, flags))}-{seed}"
    output = ROOT / "build/quality" / name
    output.parent.mkdir(parents=True, exist_ok=True)
    command = [options.tandem, pathlib.Path(script).stem, *words, "--seed", seed, "--output_dir", output, "--overwrite_output_dir", *options.more]
    flags_file = output / "quality_flags.json"
    kept = list(map(str, command[1:]))
    if options.resume and flags_file.is_file() and json.loads(flags_file.read_text()) == kept:
        return score_of(output, script)
    with open(f"{output}.log", "w") as log:
        done = subprocess.run(list(map(str, command)), stdout=log, stderr=log)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}, see {output}.log")
    flags_file.write_text(json.dumps(kept))
    return score_of(output, script)


def score_of(output, script):
    return json.loads((output / "all_results.json").read_text())[SCORES[script][0]]


def judge(ours, theirs):
    """None: no spread is known."""
    spread = max(max(scores) - min(scores) for scores in (ours, theirs))
    if len(ours) == len(theirs) == 1:
        return None
    return abs(statistics.mean(ours) - statistics.mean(theirs)) <= spread


def reported(scores):
    mean = f"{statistics.mean(scores):.4f}"
    return mean if len(scores) == 1 else f"{mean} ({min(scores):.4f} – {max(scores):.4f} over {len(scores)} seeds)"


def self_test():
    assert judge([0.5, 0.6], [0.56]) is True and judge([0.5, 0.51], [0.56]) is False and judge([0.5], [0.5]) is None
    assert seeds_of({42: 0, 43: 0}, 3) == [42, 43, 44] and seeds_of({42: 0}, 1) == [42] and seeds_of({43: 0}, 2) == [43, 42]
    listed = [
        {
            "script": "run_glue.py",
            "flags": f"--train_file sst2/train.csv --learning_rate 1e-4 --seed {seed} --use_cpu",
            "results": {"eval_accuracy": seed / 100},
        }
        for seed in (42, 43)
    ]
    assert list(settings_of(listed).values()) == [{42: 0.42, 43: 0.43}], settings_of(listed)
    settings = {("run_glue.py", "--max_train_samples 9 --learning_rate 1e-4 "): {42: 0.42}}
    add_seeds(settings, {"max_train_samples": 9, "learning_rate": "1e-4", "scores": {"42": 0.5, "43": 0.6}})
    assert list(settings.values()) == [{42: 0.42, 43: 0.6}], settings
    print("quality_of_labels: self-test passed")


def main():
    cut = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tandem", type=pathlib.Path, default=ROOT / "build/release/bin/tandem")
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "../shared/data")
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "build/test-data/minilm")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--more_of_theirs", metavar="FILE", type=pathlib.Path, nargs="*", default=[])
    parser.add_argument("--resume", "--go-on", action="store_true")
    parser.add_argument("--json", metavar="FILE", type=pathlib.Path, help="write all figures, as bench/record.py wants them")
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args(sys.argv[1:cut])
    if options.self_test:
        return self_test()
    options.more = sys.argv[cut + 1 :]
    rows = []
    settings = settings_of(json.loads((options.data / "golden/tasks/hf_quality.json").read_text())["runs"])
    for file in options.more_of_theirs:
        add_seeds(settings, json.loads(file.read_text()))
    for (script, flags), theirs in settings.items():
        seeds = seeds_of(theirs, options.seeds)
        ours = [run(options, script, flags, seed) for seed in seeds]
        verdict = judge(ours, list(theirs.values()))
        rows.append(
            {
                "setting": name_of(script, flags),
                "metric": SCORES[script][1],
                "seeds": len(seeds),
                "tandem": statistics.mean(ours),
                "tandem_range": [min(ours), max(ours)],
                "hf_seeds": len(theirs),
                "hf": statistics.mean(theirs.values()),
                "hf_range": [min(theirs.values()), max(theirs.values())],
                "within": verdict,
            }
        )
        print(
            f"{rows[-1]['setting']}: {SCORES[script][1]} {reported(ours)}, Hugging Face {reported(list(theirs.values()))}: "
            f"{'one seed each, no spread is known' if verdict is None else 'within the spread' if verdict else 'OUTSIDE the spread'}",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps({"rows": rows}))
    return 1 if any(row["within"] is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
