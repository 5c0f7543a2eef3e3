#!/usr/bin/env python3
"""Training steps and embeddings of tandem against sentence-transformers on PyTorch, alternately on the same machine; see rivals.py.

    bench/compare_sentence_transformers.py [--what train|embed] [--model minilm|bert-base] [--texts nli|passages] [--batch 64] [--loss MultipleNegativesRankingLoss]
        [--types f32,bf16] [--tcmalloc FILE] [--iomp FILE] ...

Run it with a Python that has sentence-transformers 5 and its dependencies. The model has the named size, random weights, mean pooling and the tokenizer of --tokenizer. `nli`: the sentence pairs of STS-B,
which are as long as those of NLI. `passages`: questions of SQuAD and the first 60 words of their paragraphs, which are as long as queries and passages of MS MARCO.

train: seconds of a step: forward, the loss, backward, clipping to 1.0 and AdamW, with dropout. sentence-transformers has a loop of its own here: texts are tokenized before, padded to the longest of each column
as by its trainer, AdamW is fused, attention is SDPA; a Cached loss has pieces of --mini_batch_size. tandem's step is the difference of two jobs that differ in their steps alone, so that the
start of a job does not count. tandem computes no padding; with --one_length every text of a column has the same words, so that the rival has none either.
embed: seconds for 1,000 texts as both measure them, tokenization included, without the start: `tandem embed` by its last line, `SentenceTransformer.encode` in batches of --batch.
"""

import argparse
import csv
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import rivals

ROOT = pathlib.Path(__file__).resolve().parents[1]
MAX_TOKENS = 256
PASSAGE_WORDS = 60
WARM_STEPS = 3


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--scratch", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--tandem", default="build/release/bin/tandem")
    parser.add_argument("--what", choices=["train", "embed"], default="train")
    parser.add_argument("--model", choices=["minilm", "bert-base"], default="minilm")
    parser.add_argument("--texts", choices=["nli", "passages"], default="nli")
    parser.add_argument("--loss", default="MultipleNegativesRankingLoss", help="a class of sentence-transformers; Cached… has pieces")
    parser.add_argument("--batch", type=int, help="rows of a step, default 64; texts at once of encode(), default 32")
    parser.add_argument("--mini_batch_size", type=int, default=32)
    parser.add_argument("--one_length", action="store_true", help="train on texts of one length, which are full batches for both sides")
    parser.add_argument("--count", type=int, default=1000, help="texts of embed")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--tokenizer", default="build/test-data/minilm", metavar="DIR", help="of a BERT model with 30,522 tokens")
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "../shared/data")
    parser.add_argument("--types", default="f32", help="f32,bf16")
    rivals.add_rounds(parser)
    rivals.add_columns(parser, ["sdpa"])
    options = parser.parse_args()
    options.batch = options.batch or (64 if options.what == "train" else 32)
    return options


# --- what both sides read ---


def pairs_of(options):
    if options.texts == "nli":
        with open(options.data / "tasks/stsb/train.csv", newline="") as file:
            return [(row["sentence1"], row["sentence2"]) for row in csv.DictReader(file)]
    squad = json.loads((options.data / "squad/squad1-train-head.json").read_text())
    paragraphs = [paragraph for article in squad["data"] for paragraph in article["paragraphs"]]
    shortened = lambda text: " ".join(text.split()[:PASSAGE_WORDS])
    return [(asked["question"], shortened(paragraph["context"])) for paragraph in paragraphs for asked in paragraph["qas"]]


def of_one_length(pairs):
    """Every text has the words of the longest of the first rows."""
    words = [max(len(pair[column].split()) for pair in pairs[:64]) for column in (0, 1)]
    return [tuple(" ".join((text.split() * words[column])[: words[column]]) for column, text in enumerate(pair)) for pair in pairs]


def write_inputs(options):
    """A bi-encoder with random weights, rows to train and texts to embed."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import AutoTokenizer, BertConfig, BertModel, set_seed

    set_seed(42)
    encoder = options.scratch / "encoder"
    BertModel(BertConfig(**rivals.MODELS[options.model])).save_pretrained(encoder)
    AutoTokenizer.from_pretrained(options.tokenizer).save_pretrained(encoder)
    module = Transformer(str(encoder), max_seq_length=MAX_TOKENS)
    SentenceTransformer(modules=[module, Pooling(rivals.MODELS[options.model]["hidden_size"])]).save(str(options.scratch / "model"))
    pairs = pairs_of(options)
    if options.one_length:
        pairs = of_one_length(pairs)
    rows = [pairs[i % len(pairs)] for i in range(options.batch * (WARM_STEPS + options.steps) + options.batch)]
    (options.scratch / "rows.jsonl").write_text("".join(json.dumps({"anchor": a, "positive": b}) + "\n" for a, b in rows))
    texts = [" ".join(text.split()) for pair in pairs for text in pair][: options.count]
    (options.scratch / "texts.txt").write_text("\n".join(texts) + "\n")


# --- tandem ---


def tandem_train(options, kind, steps):
    """Seconds of the training of a job."""
    output = options.scratch / "out"
    flags = {
        "model_name_or_path": options.scratch / "model",
        "train_file": options.scratch / "rows.jsonl",
        "output_dir": output,
        "loss": options.loss,
        "per_device_train_batch_size": options.batch,
        "max_steps": steps,
        "learning_rate": rivals.LEARNING_RATE,
        "save_strategy": "no",
        "logging_strategy": "no",
    }
    if options.loss.startswith("Cached"):
        flags["mini_batch_size"] = options.mini_batch_size
    words = [word for name, value in flags.items() for word in (f"--{name}", value)]
    more = ["--bf16"] if kind == "bf16" else []
    rivals.run(
        [options.tandem, "run_embedding", "--do_train", "--overwrite_output_dir", *words, *more],
        {"OMP_NUM_THREADS": str(options.threads)},
    )
    return json.loads((output / "train_results.json").read_text())["train_runtime"]


def tandem_embed(options, kind):
    command = [
        options.tandem,
        "embed",
        "--model",
        options.scratch / "model",
        "--file",
        options.scratch / "texts.txt",
        "--output",
        options.scratch / "vectors.npy",
    ]
    done = subprocess.run(
        list(map(str, [*command, *(["--bf16"] if kind == "bf16" else [])])),
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": str(options.threads)},
    )
    found = re.search(r"(\d+) texts in ([\d.]+) s, ([\d.]+) a second", done.stderr)
    if done.returncode or not found:
        sys.exit(f"tandem embed exited with {done.returncode}:\n{done.stderr[-2000:]}")
    return 1000 / float(found[3])


def tandem_side(options, kind):
    if options.what == "embed":
        return {"seconds": tandem_embed(options, kind), "versions": {}}
    short = tandem_train(options, kind, WARM_STEPS)
    long = tandem_train(options, kind, WARM_STEPS + options.steps)
    return {"seconds": (long - short) / options.steps, "versions": {}}


# --- sentence-transformers ---


def rival_train(options, model, torch):
    from sentence_transformers.sentence_transformer import losses

    arguments = {"mini_batch_size": options.mini_batch_size} if options.loss.startswith("Cached") else {}
    loss_of = getattr(losses, options.loss)(model, **arguments)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rivals.LEARNING_RATE, fused=True)
    rows = [json.loads(line) for line in (options.scratch / "rows.jsonl").read_text().splitlines()]
    batches = []
    for number in range(WARM_STEPS + options.steps):
        batch = rows[number * options.batch : (number + 1) * options.batch]
        batches.append([model.tokenize([row[column] for row in batch]) for column in ("anchor", "positive")])
    model.train()
    seconds = []
    for features in batches:
        begin = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.types == "bf16"):
            loss = loss_of([dict(column) for column in features], None)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds[WARM_STEPS:])


def rival_embed(options, model, torch):
    texts = (options.scratch / "texts.txt").read_text().splitlines()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.types == "bf16"):
        model.encode(texts[: options.batch * 2], batch_size=options.batch)
        begin = time.perf_counter()
        model.encode(texts, batch_size=options.batch)
    return (time.perf_counter() - begin) * 1000 / len(texts)


def rival_side(options):
    import sentence_transformers
    import torch
    import transformers

    torch.set_num_threads(options.threads)
    torch.manual_seed(42)
    model = sentence_transformers.SentenceTransformer(str(options.scratch / "model"), device="cpu", model_kwargs={"attn_implementation": options.side})
    seconds = (rival_train if options.what == "train" else rival_embed)(options, model, torch)
    print(json.dumps({"seconds": seconds, "versions": {module.__name__: module.__version__ for module in (sentence_transformers, torch, transformers)}}))


def run_rival(options, variant, kind, environment):
    names = ("what", "model", "texts", "loss", "batch", "mini_batch_size", "steps", "threads", "scratch")
    words = [word for name in names for word in (f"--{name}", getattr(options, name))]
    command = [sys.executable, __file__, "--side", variant, "--types", kind, *words]
    return json.loads(rivals.run(command, {"OMP_NUM_THREADS": str(options.threads), **environment}).strip().split("\n")[-1])


def compare(options):
    write_inputs(options)
    unit = "a step" if options.what == "train" else "1,000 texts"
    print(
        f"{options.what}, {options.model}, {options.texts}, batch {options.batch}, {options.threads} threads, {options.rounds} rounds; seconds for {unit}, median (min - max)"
    )
    results, versions = [], {}
    for kind in options.types.split(","):
        sides = {
            ("tandem", ""): lambda kind=kind: tandem_side(options, kind),
            **rivals.columns_of(options, lambda variant, variables, kind=kind: run_rival(options, variant, kind, variables)),
        }
        times, found = rivals.in_turns(sides, options.rounds, kind, "seconds")
        versions.update(found)
        ours = statistics.median(times["tandem", ""])
        for side, values in times.items():
            seconds = rivals.spread(values)
            ratio = "" if side[0] == "tandem" else f"   tandem is {seconds['median'] / ours:.2f} times as fast"
            print(f"  {kind:4} {' '.join(side):24} {seconds['median']:8.4f}  ({seconds['min']:.4f} - {seconds['max']:.4f}){ratio}", flush=True)
            results.append({"side": side[0], "allocator": side[1], "dtype": kind, "seconds": seconds})
    if options.json:
        setting = {name: getattr(options, name) for name in ("what", "model", "loss", "batch", "threads", "rounds", "steps")}
        setting |= {"lengths": f"{options.texts}, one length" if options.one_length else options.texts, "rival": "sentence-transformers", "skip": WARM_STEPS}
        pathlib.Path(options.json).write_text(json.dumps({**setting, "versions": versions, "results": results}))


def main():
    options = parse()
    if options.side:
        return rival_side(options)
    with tempfile.TemporaryDirectory() as scratch:
        options.scratch = pathlib.Path(scratch)
        compare(options)


if __name__ == "__main__":
    main()
