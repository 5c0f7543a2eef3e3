#!/usr/bin/env python3
"""The memory that jobs plan and take: models with random weights train a few steps of 12 sequences of at most 384 tokens of real questions.

    bench/memory.py [--models minilm,bert-base] [--types f32,bf16] [--ranks 1,2] [--forms unpadded,padded,checkpointing] [--steps 3] [--json FILE]
    bench/memory.py --models bert-large --types bf16 --ranks 1 --forms unpadded --steps 500        whether it grows
    bench/memory.py --contrast 65536 --models minilm --types f32 --ranks 1                          one step of run_embedding over so many pairs of short texts

Printed is the job's own report at its end: all ranks of the node together. With 20 steps or more also the highest that rank 0 had resident in the first and in the last tenth of the steps.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import random_bert
import rivals

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import result_rows  # noqa: E402

BATCH = 12
FORMS = {"unpadded": [], "padded": ["--pad_to_max_length", "true"], "checkpointing": ["--gradient_checkpointing"]}
SAID = re.compile(r"memory used on this node: (\d+) MiB, planned (\d+) ")
LEAST_FOR_TENTHS = 20


def parse():
    words = lambda text: text.split(",")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=words, default=["minilm", "bert-base"], help=f"of {', '.join(rivals.MODELS)}")
    parser.add_argument("--types", type=words, default=["f32", "bf16"])
    parser.add_argument("--ranks", type=lambda text: [int(word) for word in words(text)], default=[1, 2])
    parser.add_argument("--forms", type=words, default=list(FORMS))
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--contrast", type=int, metavar="ROWS", help="rows of a contrast over all ranks, which compute it in pieces")
    parser.add_argument("--tokenizer", type=pathlib.Path, default=ROOT / "build/test-data/minilm", help="the directory of a model")
    parser.add_argument("--train_file", type=pathlib.Path, default=ROOT / "../shared/data/squad/squad1-train-head.json")
    parser.add_argument("--tandem", default=str(ROOT / "build/release/bin/tandem"))
    parser.add_argument("--json", metavar="FILE", type=pathlib.Path)
    return parser.parse_args()


def resident(pid):
    """MiB"""
    return int(re.search(r"VmRSS:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) / 1024


def children(pid):
    return [int(child) for task in pathlib.Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]


def rank_0(pid):
    """The process under `tandem run`, or the job itself."""
    found = children(pid)
    return found[0] if found else pid


def questions_words(options, form):
    sizes = ["--max_steps", options.steps, "--per_device_train_batch_size", BATCH, "--max_seq_length", 384, "--doc_stride", 128]
    return ["run_qa", "--train_file", options.train_file, *sizes, *FORMS[form]]


def contrast_words(options, ranks, output):
    rows = output.parent / "pairs.jsonl"
    rows.write_text("".join(json.dumps({"anchor": f"ship {row}", "positive": f"{row} sails"}) + "\n" for row in range(options.contrast)))
    sizes = ["--max_steps", 1, "--per_device_train_batch_size", options.contrast // ranks, "--mini_batch_size", 32]
    return ["run_embedding", "--train_file", rows, *sizes, "--gather_across_devices"]


def run(options, model, kind, ranks, form, output):
    """(planned, used, [MiB that rank 0 had resident after each step])"""
    words = [
        *(contrast_words(options, ranks, output) if options.contrast else questions_words(options, form)),
        "--model_name_or_path",
        model,
        "--do_train",
        "--logging_steps",
        1,
        "--save_strategy",
        "no",
        "--output_dir",
        output,
        "--overwrite_output_dir",
        *(["--bf16"] if kind == "bf16" else []),
    ]
    start = ["run", "--standalone", "--nproc-per-node", ranks] if ranks > 1 else []
    process = subprocess.Popen([options.tandem, *map(str, start + words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    steps, lines = [], []
    for line in process.stdout:
        lines.append(line)
        if "'loss':" in line:
            steps.append(resident(rank_0(process.pid) if ranks > 1 else process.pid))
    logged = SAID.search("".join(lines))
    if process.wait() or not logged:
        sys.exit("".join(lines[-20:]))
    return int(logged[2]), int(logged[1]), steps


def row_of(options, model, kind, ranks, form, taken):
    planned, used, steps = taken
    work = f"a contrast of {options.contrast:,} pairs" if options.contrast else f"{options.steps} steps of {BATCH} × 384 a rank, {form}"
    row = {
        "job": f"{result_rows.NAMES[model]}, {kind}, {ranks} rank{'s' if ranks > 1 else ''}, {work}",
        "planned": planned,
        "used": used,
    }
    if len(steps) >= LEAST_FOR_TENTHS:
        tenth = len(steps) // 10
        row |= {"early": max(steps[:tenth]), "late": max(steps[-tenth:])}
    return row


def main():
    options = parse()
    rows = []
    if options.contrast:
        options.forms = ["unpadded"]
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        for model in options.models:
            random_bert.write(folder / model, model, options.tokenizer)
            for kind in options.types:
                for ranks in options.ranks:
                    for form in options.forms:
                        rows.append(row_of(options, model, kind, ranks, form, run(options, folder / model, kind, ranks, form, folder / "out")))
                        print(rows[-1], flush=True)
    if options.json:
        options.json.write_text(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
