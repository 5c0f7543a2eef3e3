#!/usr/bin/env python3
"""Masked language modelling of the same text from the same weights: tandem and transformers' Trainer with what run_mlm.py does.

    bench/quality_of_mlm.py [--tandem PROGRAM] [--data ../shared/data] [--steps 200] [--seeds 3] [--json FILE]

A Python with torch, transformers, datasets and accelerate runs it. The model is a new BERT of two layers with the demo's tokenizer; the text is the sentences of SST-2 in DATA. The last tenth of the
rows is held out. Each seed draws its own weights, which both start from; masks and order are each program's own. `tandem run_mlm --do_eval` measures all models, with one set of masks.
A perplexity is within the spread if the means differ by at most the larger range over seeds. Exit code 1: it is outside.
"""

import argparse
import csv
import itertools
import json
import math
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
TOKENIZER = ROOT / "examples/demo/model"
LENGTH, BATCH, RATE = 64, 16, 1e-3
SHAPE = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256, max_position_embeddings=LENGTH)

os.environ.setdefault("HF_HUB_OFFLINE", "1")


def write_texts(data, folder):
    with open(data / "tasks/sst2/train.csv", newline="") as file:
        rows = [row["sentence"].strip() for row in csv.DictReader(file)][:3000]
    cut = len(rows) * 9 // 10
    (folder / "train.txt").write_text("\n".join(rows[:cut]) + "\n")
    (folder / "held_out.txt").write_text("\n".join(rows[cut:]) + "\n")


def new_model(folder, seed):
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(TOKENIZER)
    transformers.set_seed(seed)
    transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=len(tokenizer), **SHAPE)).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        shutil.copy(TOKENIZER / name, folder)


def pieces(path, tokenizer):
    """As run_mlm.py: 1,000 rows with their special tokens are joined and cut."""
    rows = tokenizer(path.read_text().splitlines(), return_special_tokens_mask=True)
    found = []
    for begin in range(0, len(rows["input_ids"]), 1000):
        joined = {key: list(itertools.chain(*values[begin : begin + 1000])) for key, values in rows.items()}
        found += [{key: values[i : i + LENGTH] for key, values in joined.items()} for i in range(0, len(joined["input_ids"]) // LENGTH * LENGTH, LENGTH)]
    return found


def train_with_trainer(folder, model, output, seed, steps):
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    transformers.set_seed(seed)
    trainer = transformers.Trainer(
        transformers.AutoModelForMaskedLM.from_pretrained(model),
        transformers.TrainingArguments(
            str(output),
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
            save_strategy="no",
            seed=seed,
            max_steps=steps,
            learning_rate=RATE,
            per_device_train_batch_size=BATCH,
        ),
        train_dataset=pieces(folder / "train.txt", tokenizer),
        data_collator=transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model()


def run_mlm(tandem, *flags):
    command = [tandem, "run_mlm", "--max_seq_length", LENGTH, "--overwrite_output_dir", *flags]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\nexited with {done.returncode}:\n{done.stderr[-2000:]}")


def perplexity(tandem, folder, model):
    output = folder / "evaluation"
    run_mlm(tandem, "--model_name_or_path", model, "--validation_file", folder / "held_out.txt", "--do_eval", "--output_dir", output)
    return json.loads((output / "eval_results.json").read_text())["perplexity"]


def run_seed(tandem, folder, seed, steps):
    model, ours, theirs = (folder / f"{name}-{seed}" for name in ("model", "tandem", "trainer"))
    new_model(model, seed)
    train = ("--train_file", folder / "train.txt", "--validation_file", folder / "held_out.txt", "--do_train", "--save_strategy", "no")
    settings = ("--max_steps", steps, "--learning_rate", RATE, "--per_device_train_batch_size", BATCH, "--seed", seed)
    run_mlm(tandem, "--model_name_or_path", model, "--output_dir", ours, *train, *settings)
    train_with_trainer(folder, model, theirs, seed, steps)
    found = [perplexity(tandem, folder, one) for one in (model, ours, theirs)]
    print("seed {}: perplexity {:.2f} at first, tandem {:.2f}, the Trainer {:.2f}".format(seed, *found), flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tandem", type=pathlib.Path, default=ROOT / "build/release/bin/tandem")
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "../shared/data")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE", type=pathlib.Path, help="write all figures, as bench/record.py wants them")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        write_texts(options.data, folder)
        found = [run_seed(options.tandem.resolve(), folder, seed, options.steps) for seed in range(42, 42 + options.seeds)]
    first, ours, theirs = (list(values) for values in zip(*found))
    spread = max(max(values) - min(values) for values in (ours, theirs))
    within = abs(statistics.mean(ours) - statistics.mean(theirs)) <= spread if options.seeds > 1 else None
    lowered = all(after < before for before, *both in found for after in both) and all(map(math.isfinite, ours))
    row = {"setting": f"masked words of SST-2, {options.steps} steps", "metric": "perplexity", "seeds": len(ours), "tandem": statistics.mean(ours)}
    row |= {"tandem_range": [min(ours), max(ours)], "hf_seeds": len(theirs), "hf": statistics.mean(theirs), "hf_range": [min(theirs), max(theirs)]}
    row |= {"within": within, "first": statistics.mean(first)}
    print(json.dumps(row))
    if options.json:
        options.json.write_text(json.dumps({"rows": [row]}))
    return 0 if lowered and within is not False else 1


if __name__ == "__main__":
    sys.exit(main())
