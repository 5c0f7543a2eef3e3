#!/usr/bin/env python3
"""Hugging Face's side of scripts/quality.sh: transformers' Trainer on the same questions with the same settings, one rank, f32.

    bench/quality_hf.py [--padding false|true] [--seed 42] [--json FILE]

Run it with a Python that has torch, transformers and accelerate. The features are made as the official run_qa.py makes them; tandem evaluates the model that the Trainer saved,
so that both sides are judged by one program.
"""

import argparse
import json
import os
import pathlib
import subprocess
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[1]
SQUAD = ROOT / "../shared/data/squad"
MAX_SEQ_LENGTH, DOC_STRIDE = 384, 128


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--padding", choices=["false", "true"], default="false", help="--pad_to_max_length")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--max_steps", type=int, default=-1, help="for a short try")
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "build/test-data/minilm")
    parser.add_argument("--tandem", type=pathlib.Path, default=ROOT / "build/release/bin/tandem")
    parser.add_argument("--json", metavar="FILE", type=pathlib.Path)
    return parser.parse_args()


def questions():
    for article in json.loads((SQUAD / "squad1-train-head.json").read_text(encoding="utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                yield question["question"].lstrip(), paragraph["context"], question["answers"]


def answer_tokens(encoding, answer):
    """First and last token of the answer in a window, or the window's [CLS] twice where it does not hold the whole answer."""
    begin, end = answer["answer_start"], answer["answer_start"] + len(answer["text"])
    context = [i for i, part in enumerate(encoding.sequence_ids) if part == 1]
    if encoding.offsets[context[0]][0] > begin or encoding.offsets[context[-1]][1] < end:
        return 0, 0
    first = max(i for i in context if encoding.offsets[i][0] <= begin)
    last = min(i for i in context if encoding.offsets[i][1] >= end)
    return first, last


def features(tokenizer, padding):
    listed = list(questions())
    encoded = tokenizer(
        [question for question, _, _ in listed],
        [context for _, context, _ in listed],
        truncation="only_second",
        max_length=MAX_SEQ_LENGTH,
        stride=DOC_STRIDE,
        return_overflowing_tokens=True,
        padding="max_length" if padding == "true" else False,
    )
    names = [name for name in ("input_ids", "attention_mask", "token_type_ids") if name in encoded]
    made = []
    for window, sample in enumerate(encoded["overflow_to_sample_mapping"]):
        first, last = answer_tokens(encoded.encodings[window], listed[sample][2][0])
        made.append({**{name: encoded[name][window] for name in names}, "start_positions": first, "end_positions": last})
    return made


def train(options, output):
    transformers.set_seed(options.seed)  # before the head is drawn, as the script does
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(options.model)
    arguments = transformers.TrainingArguments(
        output_dir=output,
        per_device_train_batch_size=12,
        learning_rate=3e-5,
        num_train_epochs=2,
        max_steps=options.max_steps,
        seed=options.seed,
        use_cpu=True,
        save_strategy="no",
        report_to="none",
        logging_steps=10,
        disable_tqdm=True,
    )
    trainer = transformers.Trainer(
        model=model,
        args=arguments,
        processing_class=tokenizer,
        train_dataset=features(tokenizer, options.padding),
        data_collator=transformers.DataCollatorWithPadding(tokenizer),
    )
    print(f"transformers {transformers.__version__}: {len(trainer.train_dataset)} features", flush=True)
    trainer.train()
    trainer.save_model(output)
    tokenizer.save_pretrained(output)


def evaluate(options, model, output):
    subprocess.run(
        [
            options.tandem,
            "run_qa",
            "--model_name_or_path",
            model,
            "--validation_file",
            SQUAD / "xquad.en.json",
            "--do_eval",
            "--max_seq_length",
            str(MAX_SEQ_LENGTH),
            "--doc_stride",
            str(DOC_STRIDE),
            "--output_dir",
            output,
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return json.loads((pathlib.Path(output) / "all_results.json").read_text())


def main():
    options = parse()
    with tempfile.TemporaryDirectory() as model, tempfile.TemporaryDirectory() as output:
        train(options, model)
        results = evaluate(options, model, output)
    row = {
        "program": "Hugging Face",
        "ranks": 1,
        "type": "f32",
        "padding": options.padding,
        "seed": options.seed,
        "em": round(results["eval_exact_match"], 2),
        "f1": round(results["eval_f1"], 2),
    }
    print(json.dumps(row), flush=True)
    if options.json:
        options.json.write_text(json.dumps({"rows": [row], "versions": {"torch": torch.__version__, "transformers": transformers.__version__}}))


if __name__ == "__main__":
    main()
