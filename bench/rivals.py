"""What compare_torch.py, compare_ipex.py and compare_tensorflow.py share: a training step of tandem and of a rival, in turns on the same machine.

Both sides do the same work: a model of the named size with random weights, a batch of --batch sequences of --seq tokens (with --lengths squad tandem gets the lengths of
SQuAD and computes no padding, while the rival pads to --seq, as run_qa.py does by default), forward with dropout 0.1, backward, clipping to 1.0 and AdamW. A round runs each side
once in a process of its own; the order turns round from one round to the next. A process leaves out its first steps and gives the median of the others; printed are the
medians over the rounds, their spread, and the ratio to tandem.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

MODELS = {
    "minilm": {"num_hidden_layers": 6, "hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536},
    "bert-base": {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
    "bert-large": {"num_hidden_layers": 24, "hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 4096},
}


def parse(description, variants):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--tandem", default="build/release/bin/tandem")
    parser.add_argument("--model", choices=MODELS, default="minilm")
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--seq", type=int, default=384)
    parser.add_argument("--lengths", choices=["padded", "squad"], default="padded")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--skip", type=int, default=3, help="first steps that no side counts: memory, caches, tracing")
    parser.add_argument("--types", default="f32,bf16")
    parser.add_argument("--variants", default=",".join(variants), help=f"of {', '.join(variants)}")
    parser.add_argument("--tcmalloc", metavar="FILE", help="preload this library into the rival, as Hugging Face's guides do; a column more")
    return parser.parse_args()


def numpy_batch(options):
    """The rival's batch: padded to --seq, with masks of SQuAD-like lengths."""
    import numpy as np
    positions = np.arange(options.seq)[None, :]
    lengths = np.minimum(70 + np.arange(options.batch) * 37 % 200, options.seq)[:, None]
    ids = np.random.default_rng(42).integers(1, 30522, (options.batch, options.seq))
    return {"input_ids": ids, "attention_mask": (positions < lengths).astype("int64"), "token_type_ids": (positions >= 9).astype("int64").repeat(options.batch, 0),
            "start_positions": np.full(options.batch, 9), "end_positions": np.full(options.batch, 9)}


def time_steps(options, step):
    """Prints the median seconds of a step; `step` returns when the step is done."""
    seconds = []
    for number in range(options.skip + options.steps):
        begin = time.perf_counter()
        step()
        if number >= options.skip:
            seconds.append(time.perf_counter() - begin)
    print(statistics.median(seconds))


def run(command, environment):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env={**os.environ, **environment})
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return done.stdout


def tandem_step(options, kind):
    output = run([options.tandem, "bench", "step", "--model", options.model, "--batch", options.batch, "--seq", options.seq, "--lengths", options.lengths, "--dtype", kind,
                  "--threads", options.threads, "--rounds", options.skip + options.steps, "--json"], {})
    return json.loads(output)["results"][0]["seconds"]["median"]


def rival_step(options, script, variant, kind, preload):
    environment = {"OMP_NUM_THREADS": str(options.threads), **({"LD_PRELOAD": preload} if preload else {})}
    output = run([sys.executable, script, "--side", variant, "--model", options.model, "--batch", options.batch, "--seq", options.seq, "--threads", options.threads,
                  "--steps", options.steps, "--skip", options.skip, "--types", kind], environment)
    return float(output.strip().split("\n")[-1])


def compare(options, script):
    print(f"{options.model}, {options.batch} x {options.seq}, tandem's lengths: {options.lengths}, {options.threads} threads, {options.rounds} rounds of {options.steps} steps; "
          "seconds per step, median (min - max)")
    for kind in options.types.split(","):
        sides = {"tandem": lambda kind=kind: tandem_step(options, kind)}
        for variant in options.variants.split(","):
            sides[variant] = lambda variant=variant, kind=kind: rival_step(options, script, variant, kind, None)
            if options.tcmalloc:
                sides[variant + "+tcmalloc"] = lambda variant=variant, kind=kind: rival_step(options, script, variant, kind, options.tcmalloc)
        times = {side: [] for side in sides}
        for number in range(options.rounds):
            for side in (list(sides) if number % 2 == 0 else list(sides)[::-1]):
                times[side].append(sides[side]())
                print(f"round {number + 1}: {kind} {side} {times[side][-1]:.4f}", file=sys.stderr, flush=True)  # so that a run that is cut is not lost
        ours = statistics.median(times["tandem"])
        for side, values in times.items():
            median = statistics.median(values)
            ratio = "" if side == "tandem" else f"   tandem is {median / ours:.2f} times as fast"
            print(f"  {kind:4} {side:24} {median:8.4f}  ({min(values):.4f} - {max(values):.4f}){ratio}", flush=True)
