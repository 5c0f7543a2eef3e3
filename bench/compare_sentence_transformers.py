#!/usr/bin/env python3
"""Training steps, embeddings and reranking of tandem against sentence-transformers, onnxruntime and fastembed, alternately on the same machine; see rivals.py.

    bench/compare_sentence_transformers.py [--what train|embed|rerank] [--model minilm|bert-base] [--texts nli|passages] [--batch 64] [--loss MultipleNegativesRankingLoss]
        [--types f32,bf16] [--tcmalloc FILE] [--iomp FILE] ...

Run it with a Python that has sentence-transformers 5 and its dependencies, and for embed and rerank onnx, onnxruntime and fastembed. The model has the named size, random weights, mean pooling and the tokenizer
of --tokenizer. `nli`: the sentence pairs of STS-B, which are as long as those of NLI. `passages`: questions of SQuAD and the first 60 words of their paragraphs, which are as long as queries and
passages of MS MARCO.

train: seconds of a step: forward, the loss, backward, clipping to 1.0 and AdamW, with dropout. sentence-transformers has a loop of its own here: texts are tokenized before, padded to the longest of each column
as by its trainer, AdamW is fused, attention is SDPA; a Cached loss has pieces of --mini_batch_size. tandem's steps are those of one job, by the seconds in the log of each step, features and logging included.
Both leave out their first steps and give the median of the others. tandem computes no padding; with --one_length every text of a column has the same words, so that the rival has none either.
embed: seconds for 1,000 texts as each side measures them, tokenization included, without the start: `tandem embed` by its last line, `SentenceTransformer.encode` in batches of --batch, onnxruntime and
fastembed with the model exported and fused (onnx_rival.py), texts of similar length together.
rerank: seconds for the scores of one question and 100 passages: `POST /rerank` of `tandem serve`, the way through HTTP included; `CrossEncoder.predict` and onnxruntime in their own process. The texts are
always `passages`.
In bf16 a rival's training has autocast, its other models are bf16 throughout, which is its fastest form; onnxruntime has no such products on CPUs and stands in f32 only. embed and rerank compare the results of
all sides.
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

import onnx_rival
import rivals
from tandem_server import Server

ROOT = pathlib.Path(__file__).resolve().parents[1]
MAX_TOKENS = 256
PASSAGE_WORDS = 60
WARM_STEPS = 3
PASSAGES = 100
REPEATS = {"embed": 1, "rerank": 5}  # of what is measured in one process, after a warm-up
# Largest difference of a value of an embedding, or of a score; a model that is bf16 throughout rounds every sum.
LARGEST_DIFFERENCE = {"f32": 1e-4, "bf16": 0.1}
VARIANTS = {"train": ["sdpa"], "embed": ["sdpa", "onnxruntime", "fastembed"], "rerank": ["sdpa", "onnxruntime"]}
WITHOUT_BF16 = ("onnxruntime", "fastembed")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    rivals.add_sides(parser, ["minilm", "bert-base"])
    parser.add_argument("--what", choices=VARIANTS, default="train")
    parser.add_argument("--texts", choices=["nli", "passages"], default="nli")
    parser.add_argument("--loss", default="MultipleNegativesRankingLoss", help="a class of sentence-transformers; Cached… has pieces")
    parser.add_argument("--batch", type=int, help="rows of a step, default 64; texts at once of a rival, default 32")
    parser.add_argument("--mini_batch_size", type=int, default=32)
    parser.add_argument("--one_length", action="store_true", help="train on texts of one length, which are full batches for both sides")
    parser.add_argument("--count", type=int, default=1000, help="texts of embed")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "../shared/data")
    parser.add_argument("--types", default="f32", help="f32,bf16")
    rivals.add_rounds(parser)
    rivals.add_columns(parser, VARIANTS["embed"])
    options = parser.parse_args()
    options.batch = options.batch or (64 if options.what == "train" else 32)
    options.variants = ",".join(name for name in options.variants.split(",") if name in VARIANTS[options.what])
    options.texts = "passages" if options.what == "rerank" else options.texts
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


def write_model(options):
    """A bi-encoder with random weights, or a reranker whose head has weights large enough that the scores of passages differ."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification, BertModel, set_seed

    set_seed(42)
    shape = rivals.MODELS[options.model]
    folder = options.scratch / "model"
    if options.what == "rerank":
        model = BertForSequenceClassification(BertConfig(**shape, num_labels=1))
        torch.nn.init.normal_(model.classifier.weight, std=0.2)
        model.save_pretrained(folder)
        return AutoTokenizer.from_pretrained(options.tokenizer).save_pretrained(folder)
    encoder = options.scratch / "encoder"
    BertModel(BertConfig(**shape)).save_pretrained(encoder)
    AutoTokenizer.from_pretrained(options.tokenizer).save_pretrained(encoder)
    module = Transformer(str(encoder), max_seq_length=MAX_TOKENS)
    SentenceTransformer(modules=[module, Pooling(shape["hidden_size"])]).save(str(folder))


def write_inputs(options):
    """The model, rows to train, texts to embed and passages to rank."""
    rivals.run([sys.executable, __file__, "--side", "model", *rival_flags(options, "f32")], {})
    if any(name in WITHOUT_BF16 for name in options.variants.split(",")):
        rivals.run([sys.executable, __file__, "--side", "export", *rival_flags(options, "f32")], {})
    pairs = pairs_of(options)
    if options.one_length:
        pairs = of_one_length(pairs)
    rows = [pairs[i % len(pairs)] for i in range(options.batch * (WARM_STEPS + options.steps) + options.batch)]
    (options.scratch / "rows.jsonl").write_text("".join(json.dumps({"anchor": a, "positive": b}) + "\n" for a, b in rows))
    texts = [" ".join(text.split()) for pair in pairs for text in pair][: options.count]
    (options.scratch / "texts.txt").write_text("\n".join(texts) + "\n")
    passages = list(dict.fromkeys(passage for _, passage in pairs))[:PASSAGES]
    (options.scratch / "ranking.json").write_text(json.dumps({"query": pairs[0][0], "texts": passages}))


# --- tandem ---


def bf16_flag(kind):
    return ["--bf16"] if kind == "bf16" else []


def tandem_train(options, kind):
    """Median seconds of the steps after the warm-up: differences of the seconds in the logs of two steps."""
    output = options.scratch / "out"
    flags = {
        "model_name_or_path": options.scratch / "model",
        "train_file": options.scratch / "rows.jsonl",
        "output_dir": output,
        "loss": options.loss,
        "per_device_train_batch_size": options.batch,
        "max_steps": WARM_STEPS + options.steps,
        "learning_rate": rivals.LEARNING_RATE,
        "save_strategy": "no",
        "logging_steps": 1,
        "include_num_input_tokens_seen": "all",
        "report_to": "none",
    }
    if options.loss.startswith("Cached"):
        flags["mini_batch_size"] = options.mini_batch_size
    words = [word for name, value in flags.items() for word in (f"--{name}", value)]
    environment = {"OMP_NUM_THREADS": str(options.threads)}
    rivals.run([options.tandem, "run_embedding", "--do_train", "--overwrite_output_dir", *words, *bf16_flag(kind)], environment)
    log = json.loads((output / "trainer_state.json").read_text())["log_history"]
    ends = [entry["train_runtime"] for entry in log if "loss" in entry]
    if len(ends) != WARM_STEPS + options.steps:
        sys.exit(f"trainer_state.json has the logs of {len(ends)} steps, expected {WARM_STEPS + options.steps}")
    return statistics.median(end - begin for begin, end in zip(ends[WARM_STEPS - 1 :], ends[WARM_STEPS:]))


def tandem_embed(options, kind):
    import numpy

    output = options.scratch / "tandem.npy"
    output.unlink(missing_ok=True)
    command = [options.tandem, "embed", "--model", options.scratch / "model", "--file", options.scratch / "texts.txt", "--output", output, *bf16_flag(kind)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment)
    found = re.search(r"(\d+) texts in ([\d.]+) s, ([\d.]+) a second", done.stderr)
    if done.returncode or not found:
        sys.exit(f"tandem embed exited with {done.returncode}:\n{done.stderr[-2000:]}")
    keep_results(options, "tandem", numpy.load(output))
    return 1000 / float(found[3])


def tandem_rerank(options, kind):
    request = json.loads((options.scratch / "ranking.json").read_text())
    with Server(options.tandem, options.scratch / "model", options.threads, bf16_flag(kind)) as server:
        # In the order of the passages, as the rivals' scores are.
        scores = lambda: [item["score"] for item in sorted(server.post("/rerank", request), key=lambda item: item["index"])]
        seconds, found = timed("rerank", scores)
    keep_results(options, "tandem", found)
    return seconds


def tandem_side(options, kind):
    work = {"train": tandem_train, "embed": tandem_embed, "rerank": tandem_rerank}[options.what]
    return {"seconds": work(options, kind), "versions": {}}


# --- rivals ---


def timed(what, work):
    """The median seconds of work() after a warm-up, and its result."""
    work()
    seconds = []
    for _ in range(REPEATS[what]):
        begin = time.perf_counter()
        found = work()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds), found


def keep_results(options, name, values):
    import numpy

    numpy.save(options.scratch / f"results_{name}.npy", numpy.asarray(values, dtype=numpy.float32).reshape(len(values), -1))


def sentence_transformer(options):
    """The class of the model, in the type of --types where nothing is trained."""
    import sentence_transformers
    import torch

    torch.set_num_threads(options.threads)
    torch.manual_seed(42)
    arguments = {"attn_implementation": options.side}
    if options.what != "train" and options.types == "bf16":
        arguments["torch_dtype"] = torch.bfloat16
    kind = sentence_transformers.CrossEncoder if options.what == "rerank" else sentence_transformers.SentenceTransformer
    return kind(str(options.scratch / "model"), device="cpu", model_kwargs=arguments)


def rival_train(options):
    import torch
    from sentence_transformers.sentence_transformer import losses

    model = sentence_transformer(options)
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


def fast_embedder(options):
    """fastembed's function from texts to embeddings; it pads to the longest of the batch and does not sort."""
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    TextEmbedding.add_custom_model(
        "tandem/bench",
        pooling=PoolingType.DISABLED,
        normalization=False,
        sources=ModelSource(hf="tandem/bench"),
        dim=rivals.MODELS[options.model]["hidden_size"],
        model_file=onnx_rival.FILE,
    )
    model = TextEmbedding("tandem/bench", specific_model_path=str(options.scratch / "model"), threads=options.threads)

    def embed(texts):
        parts = onnx_rival.similar_lengths(texts, len(texts))[0]
        found = list(model.embed([texts[i] for i in parts], batch_size=options.batch))
        return [vector for _, vector in sorted(zip(parts, found), key=lambda pair: pair[0])]

    return embed


def rival_embed(options):
    texts = (options.scratch / "texts.txt").read_text().splitlines()
    if options.side == "onnxruntime":
        model = onnx_rival.Model(options.scratch / "model", options.threads, MAX_TOKENS)
        work = lambda: model(texts, options.batch)
    elif options.side == "fastembed":
        embed = fast_embedder(options)
        work = lambda: embed(texts)
    else:
        model = sentence_transformer(options)
        work = lambda: model.encode(texts, batch_size=options.batch)
    seconds, found = timed(options.what, work)
    keep_results(options, options.side, found)
    return seconds * 1000 / len(texts)


def rival_rerank(options):
    import numpy

    ranking = json.loads((options.scratch / "ranking.json").read_text())
    pairs = [(ranking["query"], text) for text in ranking["texts"]]
    if options.side == "onnxruntime":
        model = onnx_rival.Model(options.scratch / "model", options.threads, MAX_TOKENS)
        work = lambda: 1 / (1 + numpy.exp(-model(pairs, options.batch)))
    else:
        model = sentence_transformer(options)
        work = lambda: model.predict(pairs, batch_size=options.batch)
    seconds, found = timed(options.what, work)
    keep_results(options, options.side, found)
    return seconds


def versions_of(side):
    from importlib import metadata

    names = {"onnxruntime": ["onnxruntime", "tokenizers"], "fastembed": ["fastembed", "onnxruntime"]}.get(
        side, ["sentence-transformers", "torch", "transformers"]
    )
    return {name: metadata.version(name) for name in names}


def rival_side(options):
    work = {"train": rival_train, "embed": rival_embed, "rerank": rival_rerank}[options.what]
    print(json.dumps({"seconds": work(options), "versions": versions_of(options.side)}))


def rival_flags(options, kind):
    return rivals.flags_of(options, kind, ("what", "model", "texts", "loss", "batch", "mini_batch_size", "steps", "threads", "scratch", "tokenizer"))


def run_rival(options, variant, kind, environment):
    return rivals.run_side(options, __file__, variant, rival_flags(options, kind), environment)


# --- the comparison ---


def sides_of(options, kind):
    theirs = rivals.columns_of(options, lambda variant, variables: run_rival(options, variant, kind, variables))
    theirs = {side: run for side, run in theirs.items() if kind == "f32" or side[0] not in WITHOUT_BF16}
    return {("tandem", ""): lambda: tandem_side(options, kind), **theirs}


def check(options, kind, sides):
    """Exits when a side has computed something else."""
    import numpy

    if options.what == "train":
        return
    ours = numpy.load(options.scratch / "results_tandem.npy")
    for variant in sorted({side[0] for side in sides} - {"tandem"}):
        theirs = numpy.load(options.scratch / f"results_{variant}.npy")
        worst = float(numpy.abs(ours - theirs).max()) if ours.shape == theirs.shape else float("nan")
        print(f"{variant}: {len(ours)} results of {kind} differ by at most {worst:.1e}, values from {ours.min():.3f} to {ours.max():.3f}")
        if not worst <= LARGEST_DIFFERENCE[kind]:
            sys.exit(f"{variant}: not the same results")


def compare(options):
    write_inputs(options)
    unit = {"train": "a step", "embed": "1,000 texts", "rerank": f"{PASSAGES} passages"}[options.what]
    print(
        f"{options.what}, {options.model}, {options.texts}, batch {options.batch}, {options.threads} threads, {options.rounds} rounds; seconds for {unit}, median (min - max)"
    )
    results, versions = [], {}
    for kind in options.types.split(","):
        sides = sides_of(options, kind)
        times, found = rivals.in_turns(sides, options.rounds, kind, "seconds")
        versions.update(found)
        check(options, kind, sides)
        results += rivals.print_times(kind, times)
    if options.json:
        setting = {name: getattr(options, name) for name in ("what", "model", "loss", "batch", "threads", "rounds", "steps")}
        setting |= {"lengths": f"{options.texts}, one length" if options.one_length else options.texts, "rival": "sentence-transformers", "skip": WARM_STEPS}
        pathlib.Path(options.json).write_text(json.dumps({**setting, "versions": versions, "results": results}))


def main():
    options = parse()
    if options.side == "model":
        return write_model(options)
    if options.side == "export":
        shape = rivals.MODELS[options.model]
        return onnx_rival.export(options.scratch / "model", shape["num_attention_heads"], shape["hidden_size"], options.what == "rerank")
    if options.side:
        return rival_side(options)
    with tempfile.TemporaryDirectory() as scratch:
        options.scratch = pathlib.Path(scratch)
        compare(options)


if __name__ == "__main__":
    main()
