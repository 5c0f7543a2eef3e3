#!/usr/bin/env python3
"""Bi-encoders from the same weights and data: tandem and the trainer of sentence-transformers, and contrasts of 32 and 1,024 rows.

    bench/quality_of_embeddings.py [--tandem PROGRAM] [--model build/test-data/minilm] [--data ../shared/data] [--seeds 3] [--epochs 1] [--rows N] [--max_seq_length 192] [--settings scores,retrieval,contrast] [--json FILE]

A Python with sentence-transformers 5 and its dependencies runs it. Settings:

scores      CoSENTLoss on STS-B's training pairs, both programs; Spearman's correlation on its test pairs
retrieval   MultipleNegativesRankingLoss on questions and paragraphs of SQuAD, contrasts of 32 rows, both programs; nDCG@10 of XQuAD's English questions among its paragraphs
contrast    the same by tandem alone with contrasts of 1,024 rows; its column of the rival is tandem's with 32. It needs retrieval

`tandem run_embedding --do_eval` measures all models. A figure is within the spread if the means differ by at most the larger range over seeds. Exit code 1: scores or retrieval are outside.
Whether the larger contrast is better is printed, not judged.
"""

import argparse
import csv
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
RATE, PIECE = 2e-5, 32
os.environ.setdefault("HF_HUB_OFFLINE", "1")


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def stsb(path):
    with open(path, newline="") as file:
        return [{"a": row["sentence1"], "b": row["sentence2"], "score": float(row["label"]) / 5} for row in csv.DictReader(file)]


def asked(path):
    """(question, paragraph) of a file in SQuAD's form."""
    for article in json.loads(path.read_text())["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                yield question["question"].strip(), paragraph["context"]


def write_data(data, folder, rows):
    write_rows(folder / "scores.jsonl", stsb(data / "tasks/stsb/train.csv")[:rows])
    write_rows(folder / "scores_test.jsonl", stsb(data / "tasks/stsb/test.csv")[:rows])
    pairs = list(asked(data / "squad/squad1-train-head.json"))[:rows]
    write_rows(folder / "pairs.jsonl", [{"anchor": question, "positive": context} for question, context in pairs])
    held_out = list(asked(data / "squad/xquad.en.json"))[:rows]
    contexts = {context: f"d{number}" for number, context in enumerate(dict.fromkeys(context for _, context in held_out))}
    write_rows(folder / "corpus.jsonl", [{"_id": name, "text": context} for context, name in contexts.items()])
    write_rows(folder / "queries.jsonl", [{"_id": f"q{number}", "text": question} for number, (question, _) in enumerate(held_out)])
    write_rows(folder / "qrels.jsonl", [{"query-id": f"q{number}", "corpus-id": contexts[context]} for number, (_, context) in enumerate(held_out)])


SETTINGS = {
    "scores": {"file": "scores.jsonl", "loss": "CoSENTLoss", "batch": 32, "sampler": "batch_sampler"},
    "retrieval": {"file": "pairs.jsonl", "loss": "MultipleNegativesRankingLoss", "batch": 32, "sampler": "no_duplicates"},
    "contrast": {"file": "pairs.jsonl", "loss": "MultipleNegativesRankingLoss", "batch": 1024, "sampler": "no_duplicates"},
}


def run_embedding(options, *flags):
    command = [options.tandem, "run_embedding", "--overwrite_output_dir", "--max_seq_length", options.max_seq_length, *flags]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\nexited with {done.returncode}:\n{done.stderr[-2000:]}")


def train_with_tandem(options, folder, setting, seed, output):
    run_embedding(
        options,
        *("--model_name_or_path", options.model, "--do_train", "--train_file", folder / setting["file"], "--loss", setting["loss"]),
        *("--batch_sampler", setting["sampler"], "--per_device_train_batch_size", setting["batch"], "--mini_batch_size", PIECE),
        *("--learning_rate", RATE, "--warmup_ratio", 0.1, "--num_train_epochs", options.epochs, "--seed", seed),
        *("--save_strategy", "no", "--output_dir", output),
    )


def train_with_package(options, folder, setting, seed, output):
    import datasets
    import sentence_transformers
    import transformers
    from sentence_transformers.sentence_transformer import losses

    transformers.set_seed(seed)
    model = sentence_transformers.SentenceTransformer(str(options.model), device="cpu")
    model.max_seq_length = options.max_seq_length
    rows = datasets.Dataset.from_list([json.loads(line) for line in (folder / setting["file"]).read_text().splitlines()])
    arguments = sentence_transformers.SentenceTransformerTrainingArguments(
        str(folder / "trainer"),
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
        seed=seed,
        num_train_epochs=options.epochs,
        learning_rate=RATE,
        warmup_ratio=0.1,
        per_device_train_batch_size=setting["batch"],
        batch_sampler=setting["sampler"],
    )
    loss = getattr(losses, setting["loss"])(model)
    sentence_transformers.SentenceTransformerTrainer(model=model, args=arguments, train_dataset=rows, loss=loss).train()
    model.save_pretrained(str(output))


def measure(options, folder, name, model):
    output = folder / "evaluation"
    if name == "scores":
        flags = ["--validation_file", folder / "scores_test.jsonl"]
    else:
        flags = [word for part in ("corpus", "queries", "qrels") for word in (f"--eval_{part}", folder / f"{part}.jsonl")]
    run_embedding(options, "--model_name_or_path", model, "--do_eval", "--output_dir", output, *flags)
    found = json.loads((output / "eval_results.json").read_text())
    return found["eval_spearman_cosine" if name == "scores" else "eval_cosine_ndcg@10"]


def train_and_measure(options, folder, name, seed, train):
    output = folder / "model"
    train(options, folder, SETTINGS[name], seed, output)
    found = measure(options, folder, name, output)
    print(f"{name}, seed {seed}, {train.__name__}: {found:.4f}", flush=True)
    return found


def row_of(name, options, ours, theirs):
    spread = max(max(values) - min(values) for values in (ours, theirs))
    within = abs(statistics.mean(ours) - statistics.mean(theirs)) <= spread if options.seeds > 1 else None
    metric = "Spearman" if name == "scores" else "nDCG@10"
    shortened = f", {options.rows} rows" if options.rows else ""
    row = {
        "setting": f"{name}, {options.epochs} epochs{shortened}, {options.max_seq_length} tokens",
        "metric": metric,
        "seeds": len(ours),
        "tandem": statistics.mean(ours),
    }
    row |= {"tandem_range": [min(ours), max(ours)], "hf_seeds": len(theirs), "hf": statistics.mean(theirs), "hf_range": [min(theirs), max(theirs)]}
    return row | {"within": within}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tandem", type=pathlib.Path, default=ROOT / "build/release/bin/tandem")
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "build/test-data/minilm")
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "../shared/data")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--rows", type=int, help="of each file, the first ones; default: all")
    parser.add_argument("--max_seq_length", type=int, default=192)
    parser.add_argument("--settings", type=lambda names: names.split(","), default=list(SETTINGS))
    parser.add_argument("--json", metavar="FILE", type=pathlib.Path, help="write all figures, as bench/record.py wants them")
    options = parser.parse_args()
    options.tandem, seeds = options.tandem.resolve(), range(42, 42 + options.seeds)
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        write_data(options.data, folder, options.rows)
        of_both = [name for name in options.settings if name != "contrast"]
        for name in of_both:
            print(f"{name}: {measure(options, folder, name, options.model):.4f} at first", flush=True)
        ours = {name: [train_and_measure(options, folder, name, seed, train_with_tandem) for seed in seeds] for name in options.settings}
        theirs = {name: [train_and_measure(options, folder, name, seed, train_with_package) for seed in seeds] for name in of_both}
    if "contrast" in ours:
        theirs["contrast"] = ours["retrieval"]
    rows = [row_of(name, options, ours[name], theirs[name]) for name in options.settings]
    for row in rows:
        print(json.dumps(row))
    if "contrast" in ours:
        better = statistics.mean(ours["contrast"]) > statistics.mean(ours["retrieval"])
        print(f"contrasts of 1,024 rows are {'better than' if better else 'not better than'} those of 32 on the held-out retrieval")
    if options.json:
        options.json.write_text(json.dumps({"rows": rows}))
    return 1 if any(row["within"] is False for row in rows[: len(of_both)]) else 0


if __name__ == "__main__":
    sys.exit(main())
