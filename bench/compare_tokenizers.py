#!/usr/bin/env python3
"""tandem's tokenizer against Hugging Face's `tokenizers`, alternately on the same machine and threads.

    bench/compare_tokenizers.py --model DIRECTORY --questions squad.json [--threads N] [--rounds 5]

Run it with a Python that has tokenizers. Both encode the same texts, the contexts and questions of a raw SQuAD file, one line each; offsets are made on both sides. `kernel_bench tokenize` first
checks that its tokens do not depend on the threads; that they equal Hugging Face's is what the tests check.
"""

import argparse
import json
import os
import pathlib
import statistics
import tempfile
import time

import rivals


def texts_of(questions):
    for article in json.loads(pathlib.Path(questions).read_text(encoding="utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            yield " ".join(paragraph["context"].split())
            yield from (" ".join(qa["question"].split()) for qa in paragraph["qas"])


def rival_seconds(tokenizer, lines):
    begin = time.perf_counter()
    tokenizer.encode_batch(lines)
    return time.perf_counter() - begin


def tandem_seconds(options, file):
    output = rivals.run(
        [
            pathlib.Path(options.tandem).with_name("kernel_bench"),
            "tokenize",
            "--model",
            options.model,
            "--threads",
            options.threads,
            "--rounds",
            3,
            "--json",
            file,
        ],
        {},
    )
    return next(result["seconds"]["median"] for result in json.loads(output)["results"] if result["name"] == "all threads")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tandem", default="build/release/bin/tandem")
    parser.add_argument("--model", required=True)
    parser.add_argument("--questions", required=True)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", metavar="FILE", help="write the figures, as bench/record.py wants them")
    options = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(options.threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(pathlib.Path(options.model) / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    lines = list(texts_of(options.questions))
    tokenizer.encode_batch(lines)  # threads, caches
    ours, theirs = [], []
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        for _ in range(options.rounds):
            ours.append(tandem_seconds(options, file.name))
            theirs.append(rival_seconds(tokenizer, lines))
    ratios = [b / a for a, b in zip(ours, theirs)]
    print(
        f"{len(lines)} texts, {options.threads} threads: tandem {statistics.median(ours):.3f} s, tokenizers {statistics.median(theirs):.3f} s; "
        f"tandem is {statistics.median(ratios):.1f} times as fast ({min(ratios):.1f} - {max(ratios):.1f})"
    )
    if options.json:
        import tokenizers

        row = {"text": pathlib.Path(options.questions).name, "ratio": [statistics.median(ratios), min(ratios), max(ratios)]}
        pathlib.Path(options.json).write_text(json.dumps({"rows": [row], "versions": {"tokenizers": tokenizers.__version__}}))


if __name__ == "__main__":
    main()
