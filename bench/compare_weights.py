#!/usr/bin/env python3
"""The trained weights of two builds of tandem, compared bit by bit.

    bench/compare_weights.py OLD NEW

OLD and NEW are programs or build directories. A fixed set of short jobs on the demo's model and data runs with both, on
one and two ranks. Prints the SHA-256 of the weights of each job, and exits 1 if one differs.
"""

import argparse
import hashlib
import pathlib
import subprocess
import sys
import tempfile

from compare import program

DEMO = pathlib.Path(__file__).resolve().parents[1] / "examples/demo"
DATA = {
    "run_qa": ["--train_file", DEMO / "train.json", "--max_seq_length", "64", "--doc_stride", "16"],
    "run_glue": ["--train_file", DEMO / "topics_train.csv", "--validation_file", DEMO / "topics_held_out.csv", "--max_seq_length", "32"],
    "run_ner": ["--train_file", DEMO / "names_train.json", "--validation_file", DEMO / "names_held_out.json"],
}
TRAINING = ["--do_train", "--max_steps", "20", "--per_device_train_batch_size", "8", "--learning_rate", "1e-3", "--save_strategy", "no"]
FORMS = {"f32": [], "bf16": ["--bf16"], "accumulation": ["--gradient_accumulation_steps", "2"], "checkpointing": ["--gradient_checkpointing"]}


def weights_of(tandem, job, form, ranks):
    with tempfile.TemporaryDirectory() as folder:
        words = [tandem, "mpirun", "-n", ranks] if ranks > 1 else []
        words += [tandem, job, "--model_name_or_path", DEMO / "model", "--output_dir", folder, *DATA[job], *TRAINING, *FORMS[form]]
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(map(str, words))} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        return hashlib.sha256((pathlib.Path(folder) / "model.safetensors").read_bytes()).hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    options = parser.parse_args()
    differences = 0
    for job in DATA:
        for form in FORMS:
            for ranks in (1, 2):
                old, new = (weights_of(program(build), job, form, ranks) for build in (options.old, options.new))
                differences += old != new
                print(f"{job} {form}, {ranks} rank{'s' * (ranks > 1)}: {new}{'' if old == new else f', before {old}'}", flush=True)
    print(f"{differences} differ")
    return differences > 0


if __name__ == "__main__":
    sys.exit(main())
