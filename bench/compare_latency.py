#!/usr/bin/env python3
"""Milliseconds of a request with one text: `tandem bench predict` against onnxruntime and OpenVINO, alternately on the same machine.

    bench/compare_latency.py [--model minilm|bert-base] [--tokens 8,16,32,64] [--types f32,bf16] [--tcmalloc FILE] ...

Run it with a Python that has torch, transformers, onnx, onnxruntime and openvino. The model has the named size, random weights, mean pooling and the tokenizer of --tokenizer. All texts of a series have the same
number of tokens, with those of the tokenizer. A request goes from the text to its embedding: tokenizer, model and pooling, in one process. Columns and rounds: as in rivals.py, whose environments bring
the rivals to their best; OpenVINO has its hint for latency, and no allocator but glibc's. onnxruntime has no bf16 products on CPUs and stands in f32 only. Printed are p50 and p99: medians over the rounds. The embeddings of all sides
must agree.
"""

import argparse
import json
import pathlib
import random
import sys
import tempfile
import time

import onnx_rival
import rivals

VARIANTS = ["onnxruntime", "openvino"]
TEXTS = 200  # of a series
MAX_TOKENS = 128
ADDED = 2  # tokens, by the tokenizer
WARM_UP = 20  # requests that a rival leaves out
# Largest difference of a value of an embedding whose values are about 1.
LARGEST_DIFFERENCE = {"f32": 1e-3, "bf16": 0.2}
FIGURES = ("p50", "p99")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    rivals.add_sides(parser, ["minilm", "bert-base"])
    parser.add_argument("--tokens", default="8,16,32,64")
    parser.add_argument("--types", default="f32,bf16")
    parser.add_argument("--seconds", type=float, default=3, help="of requests, per series, side and round")
    rivals.add_rounds(parser)
    rivals.add_columns(parser, VARIANTS)
    return parser.parse_args()


def counts(options):
    return [int(count) for count in options.tokens.split(",")]


# --- what both sides read ---


def texts_of(options, count):
    """Texts of words that are one token each."""
    vocabulary = json.loads((options.scratch / "model/tokenizer.json").read_text())["model"]["vocab"]
    words = sorted(word for word in vocabulary if word.isascii() and word.isalpha())
    drawn = random.Random(count)
    return [" ".join(drawn.choices(words, k=count - ADDED)) for _ in range(TEXTS)]


def make_model(options):
    import torch
    from transformers import AutoTokenizer, BertConfig, BertModel

    torch.manual_seed(42)
    shape = rivals.MODELS[options.model]
    folder = options.scratch / "model"
    BertModel(BertConfig(**shape)).save_pretrained(folder)
    AutoTokenizer.from_pretrained(options.tokenizer).save_pretrained(folder)
    onnx_rival.export(folder, shape["num_attention_heads"], shape["hidden_size"], is_reranker=False)
    for count in counts(options):
        (options.scratch / f"{count}.txt").write_text("".join(text + "\n" for text in texts_of(options, count)))


# --- the sides ---


def tandem_side(options, kind):
    bf16 = ["--bf16"] if kind == "bf16" else []
    model = ["--model", options.scratch / "model", *bf16]
    figures = {}
    for count in counts(options):
        words = ["--file", options.scratch / f"{count}.txt", "--batch", 1, "--rounds", 1, "--seconds", options.seconds, "--json"]
        environment = {"OMP_NUM_THREADS": str(options.threads)}
        found = json.loads(rivals.run([options.tandem, "bench", "predict", *model, *words], environment))
        if found["mean_tokens"] != count - ADDED:
            sys.exit(f"tandem counts {found['mean_tokens']} tokens of words in texts of {count}, expected {count - ADDED}")
        result = found["results"][0]
        if result["p99_seconds"] is None:
            sys.exit(f"{count} tokens: {result['requests']} requests of tandem in {options.seconds} s are too few for p99; give more --seconds")
        figures[count] = {"p50": 1e3 * result["p50_seconds"], "p99": 1e3 * result["p99_seconds"]}
    return figures


def rival_figures(options):
    """In a process of its own."""
    kind = options.types
    if options.side == "openvino":
        model = onnx_rival.OpenVinoModel(options.scratch / "model", options.threads, MAX_TOKENS, kind)
    else:
        model = onnx_rival.Model(options.scratch / "model", options.threads, MAX_TOKENS)
    figures = {}
    for count in counts(options):
        texts = (options.scratch / f"{count}.txt").read_text().splitlines()
        for text in texts[:WARM_UP]:
            model.batch([text])
        times, until = [], time.perf_counter() + options.seconds
        while time.perf_counter() < until:
            begin = time.perf_counter()
            model.batch([texts[len(times) % len(texts)]])
            times.append(time.perf_counter() - begin)
        times.sort()
        figures[count] = {"p50": 1e3 * times[len(times) // 2], "p99": 1e3 * times[int(0.99 * len(times))], "first": model.batch(texts[:1])[0].tolist()}
    return figures


def own_side(options, side, **flags):
    """The command of a side of this script."""
    return [sys.executable, __file__, "--side", side, "--scratch", options.scratch, *(word for name, value in flags.items() for word in (f"--{name}", value))]


def rival_side(options, name, kind, environment):
    flags = {"types": kind, "tokens": options.tokens, "threads": options.threads, "seconds": options.seconds}
    command = own_side(options, name, **flags)
    found = json.loads(rivals.run(command, {"OMP_NUM_THREADS": str(options.threads), **environment}))
    check(options, name, kind, {int(count): figures.pop("first") for count, figures in found.items()})
    return {int(count): figures for count, figures in found.items()}


def check(options, name, kind, firsts):
    for count, found in firsts.items():
        worst = max(abs(a - b) for a, b in zip(expected(options, count), found))
        if not worst <= LARGEST_DIFFERENCE[kind]:
            sys.exit(f"{name}, {kind}, {count} tokens: an embedding differs by {worst:.1e}, expected at most {LARGEST_DIFFERENCE[kind]:.0e}")


def expected(options, count):
    """tandem's embedding of the first text, in f32."""
    file = options.scratch / f"{count}.jsonl"
    if not file.is_file():
        words = ["--model", options.scratch / "model", "--file", options.scratch / f"{count}.txt", "--output", file]
        rivals.run([options.tandem, "embed", *words], {})
    return json.loads(file.read_text().splitlines()[0])["embedding"]


# --- the comparison ---


def sides_of(options, kind):
    sides = {("tandem", ""): lambda: tandem_side(options, kind)}
    for name in options.variants.split(","):
        if name == "onnxruntime" and kind != "f32":
            continue
        for column, variables in rivals.environments(options).items():
            if name == "openvino" and "LD_PRELOAD" in variables:
                continue  # version 2026.4 aborts with another allocator: "munmap_chunk(): invalid pointer"
            sides[name, column] = lambda name=name, variables=variables: rival_side(options, name, kind, variables)
    return sides


def compare(options):
    rivals.run(own_side(options, "model", model=options.model, tokenizer=options.tokenizer, tokens=options.tokens), {})
    results = []
    for kind in options.types.split(","):
        sides = sides_of(options, kind)
        rounds = [{side: sides[side]() for side in rivals.rotated(list(sides), number)} for number in range(options.rounds)]
        for count in counts(options):
            rows = [{"side": name, "allocator": column, "dtype": kind, "tokens": count, **figures_of(rounds, (name, column), count)} for name, column in sides]
            show(rows)
            results += rows
    return results


def figures_of(rounds, side, count):
    return {name: rivals.spread([found[side][count][name] for found in rounds]) for name in FIGURES}


def show(rows):
    ours = rows[0]["p50"]["median"]
    for row in rows:
        ratio = "" if row["side"] == "tandem" else f"   tandem takes {ours / row['p50']['median']:.2f} of it"
        name = f"{row['side']} {row['allocator']}"
        print(
            f"  {row['tokens']:3} tokens {row['dtype']:4} {name:24} p50 {row['p50']['median']:7.3f} ms   p99 {row['p99']['median']:7.3f} ms{ratio}", flush=True
        )


def versions():
    import onnxruntime
    import openvino
    import tokenizers

    return {module.__name__: module.__version__.split("-")[0] for module in (onnxruntime, openvino, tokenizers)}


def main():
    options = parse()
    if options.side == "model":
        return make_model(options)
    if options.side:
        return print(json.dumps(rival_figures(options)))
    with tempfile.TemporaryDirectory() as scratch:
        options.scratch = pathlib.Path(scratch)
        results = compare(options)
    if options.json:
        setting = {"model": options.model, "threads": options.threads, "rounds": options.rounds, "seconds": options.seconds}
        pathlib.Path(options.json).write_text(json.dumps({**setting, "versions": versions(), "results": results}))


if __name__ == "__main__":
    main()
