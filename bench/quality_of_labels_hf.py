#!/usr/bin/env python3
"""Hugging Face's side of bench/quality_of_labels.py for more seeds: transformers' Trainer with the settings of a run of run_glue.py.

    bench/quality_of_labels_hf.py --learning_rate 5e-5 --max_train_samples 2000 --seeds 42,43,44 [--json FILE]

Run it with a Python that has torch, transformers and accelerate. Data, model and flags are those of the official run in golden/tasks/hf_quality.json with this rate and number of rows: it gives the same
accuracy for the same seed where torch computes alike, and prints that. The file of --json is what quality_of_labels.py takes with --more_of_theirs.
"""

import argparse
import csv
import json
import os
import pathlib
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[1]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "../shared/data")
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "build/test-data/minilm")
    parser.add_argument("--learning_rate", required=True)
    parser.add_argument("--max_train_samples", type=int, required=True)
    parser.add_argument("--seeds", type=lambda words: [int(word) for word in words.split(",")], default=[42, 43, 44])
    parser.add_argument("--json", metavar="FILE", type=pathlib.Path)
    return parser.parse_args()


def rows(file, tokenizer, most=None):
    with open(file, newline="", encoding="utf-8") as text:
        read = [row for _, row in zip(range(most or 10**9), csv.DictReader(text))]
    labels = sorted({row["label"] for row in read})
    return [{**tokenizer(row["sentence"], max_length=128, truncation=True), "label": labels.index(row["label"])} for row in read]


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def train(options, seed):
    transformers.set_seed(seed)  # before the head is drawn, as the script does
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(options.model, num_labels=2)
    with tempfile.TemporaryDirectory() as output:
        arguments = transformers.TrainingArguments(
            output_dir=output,
            per_device_train_batch_size=32,
            per_device_eval_batch_size=64,
            learning_rate=float(options.learning_rate),
            num_train_epochs=1,
            seed=seed,
            use_cpu=True,
            save_strategy="no",
            report_to="none",
            logging_steps=10,
            disable_tqdm=True,
        )
        sst2 = options.data / "tasks/sst2"
        trainer = transformers.Trainer(
            model=model,
            args=arguments,
            processing_class=tokenizer,
            compute_metrics=accuracy,
            train_dataset=rows(sst2 / "train.csv", tokenizer, options.max_train_samples),
            eval_dataset=rows(sst2 / "validation.csv", tokenizer),
        )
        trainer.train()
        return trainer.evaluate()["eval_accuracy"]


def official(options):
    """{seed: accuracy} of the official runs with these settings."""
    words = f"--max_train_samples {options.max_train_samples} "
    runs = json.loads((options.data / "golden/tasks/hf_quality.json").read_text())["runs"]
    mine = [run for run in runs if words in run["flags"] and f"--learning_rate {options.learning_rate} " in run["flags"]]
    return {int(run["flags"].split("--seed ")[1].split()[0]): run["results"]["eval_accuracy"] for run in mine}


def main():
    options = parse()
    print(f"torch {torch.__version__}, transformers {transformers.__version__}", flush=True)
    there = official(options)
    scores = {}
    for seed in options.seeds:
        scores[seed] = train(options, seed)
        print(f"seed {seed}: accuracy {scores[seed]:.4f}" + (f" (the official run: {there[seed]:.4f})" if seed in there else ""), flush=True)
    if options.json:
        options.json.write_text(json.dumps({"learning_rate": options.learning_rate, "max_train_samples": options.max_train_samples, "scores": scores}))


if __name__ == "__main__":
    main()
