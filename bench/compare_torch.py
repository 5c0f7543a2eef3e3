#!/usr/bin/env python3
"""One training step of tandem against PyTorch's, measured in turns on the same machine.

    bench/compare_torch.py --tandem build/release/bin/tandem --model build/test-data/minilm [--batch 8] [--length 384]
        [--threads 2] [--rounds 3] [--steps 10] [--types f32,bf16] [--tcmalloc /usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4]

Run it with a Python that has torch and transformers. A step is forward, backward, clipping and AdamW on a batch padded to --length,
dropout 0.1. PyTorch: BertForQuestionAnswering as installed from PyPI, sdpa attention, fused AdamW, autocast for bf16; one more column
with tcmalloc preloaded when --tcmalloc names it. tandem: `tandem run_qa --pad_to_max_length true`. Both sides leave out their first
steps: PyTorch skips them, tandem's time is the difference of two runs of SKIP and SKIP + STEPS steps. Every side runs once
per round, in turns; printed are the medians over the rounds, their spread and the ratio.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

SKIP = 3  # steps that neither side counts: caches, allocations, choice of kernels


def questions(count, vocabulary):
    """Texts of the model's own words, of different lengths up to the maximum; what they say does not matter for the time."""
    words = [w for w in vocabulary if w.isalpha()][:4000]
    rows = []
    for n in range(count):
        context = " ".join(words[(n * 131 + i * 17) % len(words)] for i in range(60 + n * 37 % 200))
        rows.append({"id": str(n), "context": context, "question": "Which word is the first ?", "answers": {"text": [context.split()[0]], "answer_start": [0]}})
    return {"data": rows}


def tandem_seconds_per_step(options, kind, folder):
    def runtime(steps):
        out = folder / f"out-{steps}"
        command = [options.tandem, "run_qa", "--model_name_or_path", options.model, "--train_file", folder / "questions.json", "--do_train", "--max_steps", steps,
                   "--per_device_train_batch_size", options.batch, "--max_seq_length", options.length, "--doc_stride", options.length // 3, "--pad_to_max_length", "true",
                   "--save_strategy", "no", "--logging_steps", 1000000, "--overwrite_output_dir", "--output_dir", out] + (["--bf16"] if kind == "bf16" else [])
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": str(options.threads)})
        if done.returncode:
            sys.exit(f"tandem ended with {done.returncode}:\n{done.stderr[-3000:]}")
        return json.loads((out / "train_results.json").read_text())["train_runtime"]

    return (runtime(SKIP + options.steps) - runtime(SKIP)) / options.steps


def torch_seconds_per_step(options, kind, preload=None):
    command = [sys.executable, __file__, "--torch-side", "--model", options.model, "--batch", options.batch, "--length", options.length, "--threads", options.threads,
               "--steps", options.steps, "--types", kind]
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads), **({"LD_PRELOAD": preload} if preload else {})}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"PyTorch ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return float(done.stdout.strip().split("\n")[-1])


def torch_side(options):
    """Prints the mean seconds of a step."""
    import torch
    from transformers import AutoModelForQuestionAnswering
    torch.set_num_threads(options.threads)
    torch.manual_seed(42)
    model = AutoModelForQuestionAnswering.from_pretrained(options.model).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5, fused=True)
    lengths = torch.tensor([70 + n * 37 % 200 for n in range(options.batch)]).clamp(max=options.length)
    positions = torch.arange(options.length)[None, :]
    batch = {"input_ids": torch.randint(1, model.config.vocab_size, (options.batch, options.length)),
             "attention_mask": (positions < lengths[:, None]).long(), "token_type_ids": (positions >= 9).long().expand(options.batch, -1).contiguous(),
             "start_positions": torch.full((options.batch,), 9), "end_positions": torch.full((options.batch,), 9)}
    if model.config.model_type == "distilbert":
        del batch["token_type_ids"]
    for step in range(SKIP + options.steps):
        if step == SKIP:
            begin = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.types == "bf16"):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()  # as the Trainer's log does
    print((time.perf_counter() - begin) / options.steps)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--torch-side", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--tandem", default="build/release/bin/tandem")
    parser.add_argument("--model", required=True)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=384)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--types", default="f32,bf16")
    parser.add_argument("--tcmalloc")
    options = parser.parse_args()
    if options.torch_side:
        return torch_side(options)

    vocabulary = (pathlib.Path(options.model) / "vocab.txt").read_text(encoding="utf-8").split("\n")
    print(f"{options.model}: batch {options.batch}, length {options.length}, {options.threads} threads, {options.rounds} rounds of {options.steps} steps; seconds per step")
    for kind in options.types.split(","):
        sides = {"tandem": lambda folder: tandem_seconds_per_step(options, kind, folder), "torch": lambda _: torch_seconds_per_step(options, kind)}
        if options.tcmalloc:
            sides["torch+tcmalloc"] = lambda _: torch_seconds_per_step(options, kind, options.tcmalloc)
        times = {side: [] for side in sides}
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            (folder / "questions.json").write_text(json.dumps(questions((SKIP + options.steps) * options.batch, vocabulary)))
            for number in range(options.rounds):
                for side in (list(sides) if number % 2 == 0 else list(sides)[::-1]):
                    times[side].append(sides[side](folder))
        ours = statistics.median(times["tandem"])
        for side, values in times.items():
            median = statistics.median(values)
            ratio = "" if side == "tandem" else f"   tandem is {median / ours:.2f} times as fast"
            print(f"  {kind:4} {side:15} {median:8.4f}  ({min(values):.4f} – {max(values):.4f}){ratio}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
