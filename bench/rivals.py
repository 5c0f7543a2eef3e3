"""What compare_torch.py, compare_ipex.py and compare_tensorflow.py share: a training step of tandem and of a rival, in turns on the same machine.

Both sides do the same work: a model of the named size with random weights, a batch of --batch sequences of --seq tokens (with --lengths squad tandem gets the lengths of
SQuAD and computes no padding, while the rival pads to --seq, as run_qa.py does by default), forward with dropout 0.1, backward, clipping to 1.0 and AdamW. A round runs each column
once in a process of its own; every round begins with the next column. A process leaves out its first steps and gives the median of the others; printed are the medians over the
rounds, their spread, and the ratio to tandem.

The rival is shown at its best. Its columns: glibc's allocator as it comes, glibc's with huge pages (tandem asks for them itself, by madvise), with --tcmalloc FILE that allocator, and with --iomp FILE
Intel's OpenMP in the place of the wheel's, with whichever allocator is given; THP_MEM_ALLOC_ENABLE=1 (PyTorch's own huge pages) and OMP_PROC_BIND=close are set wherever huge pages are. A rival is believed only if
its losses are finite and fall over its steps on the same batch: a step that does not learn has not done the work.
"""

import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import time

MODELS = {
    "minilm": {"num_hidden_layers": 6, "hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536},
    "bert-base": {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
    "bert-large": {"num_hidden_layers": 24, "hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 4096},
}
LEAST_WARM_UP = 3
LEARNING_RATE = 3e-5
# What lets a rival use huge pages and keeps its threads on their cores.
AT_ITS_BEST = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "THP_MEM_ALLOC_ENABLE": "1", "OMP_PROC_BIND": "close"}


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
    parser.add_argument("--skip", type=int, default=3, help=f"first steps that no side counts: memory, caches, tracing; at least {LEAST_WARM_UP}")
    parser.add_argument("--types", default="f32,bf16")
    parser.add_argument("--variants", default=",".join(variants), help=f"of {', '.join(variants)}")
    parser.add_argument("--allocators", default="glibc,hugepages,tcmalloc,iomp", help="columns of the rival; tcmalloc and iomp need their file")
    parser.add_argument("--tcmalloc", metavar="FILE", help="preload this library into the rival, as Hugging Face's guides do")
    parser.add_argument("--iomp", metavar="FILE", help="preload this libiomp5.so into the rival")
    parser.add_argument("--json", metavar="FILE", help="write all figures, as bench/record.py wants them")
    options = parser.parse_args()
    if options.skip < LEAST_WARM_UP:
        parser.error(f"--skip: at least {LEAST_WARM_UP} steps of warm-up")
    return options


def numpy_batch(options):
    """The rival's batch: padded to --seq, with masks of SQuAD-like lengths."""
    import numpy as np
    positions = np.arange(options.seq)[None, :]
    lengths = np.minimum(70 + np.arange(options.batch) * 37 % 200, options.seq)[:, None]
    ids = np.random.default_rng(42).integers(1, 30522, (options.batch, options.seq))
    return {"input_ids": ids, "attention_mask": (positions < lengths).astype("int64"), "token_type_ids": (positions >= 9).astype("int64").repeat(options.batch, 0),
            "start_positions": np.full(options.batch, 9), "end_positions": np.full(options.batch, 9)}


def has_learned(losses):
    """Finite losses of which the last ones are below the first: the same batch again and again, so AdamW must bring it down."""
    return len(losses) > LEAST_WARM_UP and all(math.isfinite(loss) for loss in losses) and min(losses[LEAST_WARM_UP:]) < losses[0]


def time_steps(options, step, modules):
    """Prints one line of JSON: the median seconds of a step, the losses, the versions. `step` returns its loss when it is done."""
    seconds, losses = [], []
    for number in range(options.skip + options.steps):
        begin = time.perf_counter()
        losses.append(float(step()))
        if number >= options.skip:
            seconds.append(time.perf_counter() - begin)
    print(json.dumps({"seconds": statistics.median(seconds), "losses": losses, "versions": {module.__name__: module.__version__ for module in modules}}))


def run(command, environment):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env={**os.environ, **environment})
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return done.stdout


def tandem_step(options, kind):
    """Verified by the bench itself, against the reference."""
    output = run([options.tandem, "bench", "step", "--model", options.model, "--batch", options.batch, "--seq", options.seq, "--lengths", options.lengths, "--dtype", kind,
                  "--threads", options.threads, "--rounds", options.skip + options.steps, "--json"], {})
    return {"seconds": json.loads(output)["results"][0]["seconds"]["median"], "versions": {}}


def rival_step(options, script, variant, kind, environment):
    output = run([sys.executable, script, "--side", variant, "--model", options.model, "--batch", options.batch, "--seq", options.seq, "--threads", options.threads,
                  "--steps", options.steps, "--skip", options.skip, "--types", kind], {"OMP_NUM_THREADS": str(options.threads), **environment})
    result = json.loads(output.strip().split("\n")[-1])
    if not has_learned(result["losses"]):
        sys.exit(f"{variant} {kind}: the losses {result['losses']} are not those of a model that learns: not comparable")
    return result


def environments(options):
    """{column: variables of the rival's process}"""
    columns = {"glibc": {}, "hugepages": dict(AT_ITS_BEST)}
    if options.tcmalloc:
        columns["tcmalloc"] = {**AT_ITS_BEST, "LD_PRELOAD": options.tcmalloc}
    if options.iomp:
        columns["iomp"] = {**AT_ITS_BEST, "LD_PRELOAD": ":".join(filter(None, [options.iomp, options.tcmalloc])), "KMP_AFFINITY": "granularity=fine,compact,1,0", "KMP_BLOCKTIME": "1"}
    chosen = options.allocators.split(",")
    return {name: variables for name, variables in columns.items() if name in chosen}


def rotated(columns, number):
    """Round `number` begins with the next column, and every other one goes backwards: no column is always the first, nor always behind the same one."""
    cut = number % len(columns)
    turned = columns[cut:] + columns[:cut]
    return turned if number % 2 == 0 else turned[::-1]


def compare(options, script):
    print(f"{options.model}, {options.batch} x {options.seq}, tandem's lengths: {options.lengths}, {options.threads} threads, {options.rounds} rounds of {options.steps} steps; "
          "seconds per step, median (min - max)")
    results, versions = [], {}
    for kind in options.types.split(","):
        sides = {("tandem", ""): lambda kind=kind: tandem_step(options, kind)}
        for variant in options.variants.split(","):
            for name, variables in environments(options).items():
                sides[variant, name] = lambda variant=variant, variables=variables, kind=kind: rival_step(options, script, variant, kind, variables)
        times = {side: [] for side in sides}
        for number in range(options.rounds):
            for side in rotated(list(sides), number):
                result = sides[side]()
                versions.update(result["versions"])
                times[side].append(result["seconds"])
                print(f"round {number + 1}: {kind} {' '.join(side)} {result['seconds']:.4f}", file=sys.stderr, flush=True)  # so that a run that is cut is not lost
        ours = statistics.median(times["tandem", ""])
        for side, values in times.items():
            median = statistics.median(values)
            ratio = "" if side[0] == "tandem" else f"   tandem is {median / ours:.2f} times as fast"
            print(f"  {kind:4} {' '.join(side):24} {median:8.4f}  ({min(values):.4f} - {max(values):.4f}){ratio}", flush=True)
            results.append({"side": side[0], "allocator": side[1], "dtype": kind, "seconds": {"median": median, "min": min(values), "max": max(values)}})
    if options.json:
        setting = {name: getattr(options, name) for name in ("model", "batch", "seq", "lengths", "threads", "rounds", "steps", "skip")}
        pathlib.Path(options.json).write_text(json.dumps({"rival": pathlib.Path(script).stem.removeprefix("compare_"), **setting, "versions": versions, "results": results}))
