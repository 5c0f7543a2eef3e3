"""Shared by compare_torch.py, compare_ipex.py and compare_tensorflow.py: a training step of tandem and of a rival, alternately on the same machine.

Both sides do the same work: a model of the named size with random weights and the head of --task, a batch of --batch sequences of at most --seq tokens, forward with dropout 0.1,
backward, clipping to 1.0 and AdamW. With --lengths squad or sst2 tandem gets the lengths of these texts and computes no padding; else it computes --seq tokens of each. The rival's
texts are as long as the task's (those of SQuAD, or of SST-2), and it pads them to --seq, as the official scripts do by default, or with --rival_padding longest to the longest of
the batch. A round runs each column once in a process of its own; every round begins with the next column. A process leaves out its first steps and gives the median of the others;
printed are the medians over the rounds, their spread, and the ratio to tandem.

The rival is shown at its best. Its columns: glibc's allocator as it comes, glibc's with huge pages (tandem asks for them itself, by madvise), with --tcmalloc FILE that allocator, and with --iomp FILE
Intel's OpenMP instead of the wheel's, with the given allocator; THP_MEM_ALLOC_ENABLE=1 (PyTorch's own huge pages) and OMP_PROC_BIND=close are set wherever huge pages are. A rival is believed only if
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

# Version 3's form of transformers' class DebertaV2, and its base model's shape.
DEBERTA = {
    "vocab_size": 128100,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "type_vocab_size": 0,
    "relative_attention": True,
    "position_buckets": 256,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "layer_norm_eps": 1e-7,
}
MODELS = {
    "minilm": {"num_hidden_layers": 6, "hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536},
    "bert-base": {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
    "bert-large": {"num_hidden_layers": 24, "hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 4096},
    "deberta-v3-small": {**DEBERTA, "num_hidden_layers": 6},
    "deberta-v3-base": {**DEBERTA, "num_hidden_layers": 12},
    # The defaults of these configurations are the base models'.
    "mpnet-base": {},
    "modernbert-base": {},
}
# transformers' name of a family's configuration and of its classes.
FAMILIES = {
    "deberta-v3-small": ("deberta-v2", "DebertaV2"),
    "deberta-v3-base": ("deberta-v2", "DebertaV2"),
    "mpnet-base": ("mpnet", "MPNet"),
    "modernbert-base": ("modernbert", "ModernBert"),
}
EAGER_ALONE = ("deberta-v2", "mpnet")  # families without SDPA in transformers
# The default batch: the length of the official script's arguments, and texts as long as those of --lengths.
TASKS = {
    "question-answering": {"batch": 12, "seq": 384, "texts": "squad"},
    "text-classification": {"batch": 32, "seq": 128, "texts": "sst2"},
    "token-classification": {"batch": 32, "seq": 128, "texts": "sst2"},
    "fill-mask": {"batch": 12, "seq": 384, "texts": "squad"},
}
LABELS = {"text-classification": 2, "token-classification": 9}
LEAST_WARM_UP = 3
LEARNING_RATE = 3e-5
# Variables that let a rival use huge pages and keep its threads on their cores.
AT_ITS_BEST = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "THP_MEM_ALLOC_ENABLE": "1", "OMP_PROC_BIND": "close"}


def add_sides(parser, models):
    """For scripts that run each side in a process of its own, with a directory that they share."""
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--scratch", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--tandem", default="build/release/bin/tandem")
    parser.add_argument("--model", choices=models, default="minilm")
    parser.add_argument("--tokenizer", default="build/test-data/minilm", metavar="DIR", help="of a BERT model with 30,522 tokens")


def add_rounds(parser):
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)


def add_columns(parser, variants):
    parser.add_argument("--variants", default=",".join(variants), help=f"of {', '.join(variants)}")
    parser.add_argument("--allocators", default="glibc,hugepages,tcmalloc,iomp", help="columns of the rival; tcmalloc and iomp need their file")
    parser.add_argument("--tcmalloc", metavar="FILE", help="preload this library into the rival, as Hugging Face's guides do")
    parser.add_argument("--iomp", metavar="FILE", help="preload this libiomp5.so into the rival")
    parser.add_argument("--json", metavar="FILE", help="write all figures, as bench/record.py wants them")


def family_of(options):
    """transformers' name of the configuration."""
    return FAMILIES.get(options.model, ("bert", "Bert"))[0]


def parse(description, variants):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--tandem", default="build/release/bin/tandem")
    parser.add_argument("--model", choices=MODELS, default="minilm")
    parser.add_argument("--task", choices=TASKS, default="question-answering")
    parser.add_argument("--batch", type=int, help="sequences; default: 12, for texts with labels 32")
    parser.add_argument("--seq", type=int, help="tokens that a sequence has at most; default: 384, for texts with labels 128")
    parser.add_argument("--lengths", choices=["padded", "squad", "sst2"], default="padded", help="tandem's")
    parser.add_argument("--rival_padding", choices=["max", "longest"], default="max", help="to --seq, or to the longest of the batch")
    parser.add_argument("--text_lengths", type=lambda words: [int(word) for word in words.split(",")], help=argparse.SUPPRESS)
    add_rounds(parser)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--skip", type=int, default=3, help=f"first steps that no side counts: memory, caches, tracing; at least {LEAST_WARM_UP}")
    parser.add_argument("--types", default="f32,bf16")
    add_columns(parser, variants)
    options = parser.parse_args()
    if options.skip < LEAST_WARM_UP:
        parser.error(f"--skip: at least {LEAST_WARM_UP} steps of warm-up")
    if family_of(options) in EAGER_ALONE:
        options.variants = ",".join(name for name in options.variants.split(",") if name != "sdpa")
        if not options.variants:
            parser.error(f"--variants: transformers has no SDPA for {options.model}")
    options.batch = options.batch or TASKS[options.task]["batch"]
    options.seq = options.seq or TASKS[options.task]["seq"]
    return options


def numpy_batch(options):
    """The rival's batch: texts of the given lengths, padded."""
    import numpy as np

    width = options.seq if options.rival_padding == "max" else max(options.text_lengths)
    positions = np.arange(width)[None, :]
    lengths = np.array(options.text_lengths)[:, None]
    draw = np.random.default_rng(42)
    shape = (options.batch, width)
    batch = {"input_ids": draw.integers(1, 30522, shape), "attention_mask": (positions < lengths).astype("int64")}
    if options.model not in FAMILIES:  # BERT has token types
        second = (positions >= 9).astype("int64").repeat(options.batch, 0)
        batch["token_type_ids"] = second if options.task == "question-answering" else np.zeros(shape, "int64")
    if options.task == "question-answering":
        answers = np.full(options.batch, 9)
        return {**batch, "start_positions": answers, "end_positions": answers}
    if options.task == "fill-mask":  # three tokens in twenty, as tandem's batch
        masked = (positions % 20 % 7 == 3) & (positions < lengths)
        return {**batch, "labels": np.where(masked, batch["input_ids"], -100)}
    labels = draw.integers(0, LABELS[options.task], options.batch if options.task == "text-classification" else shape)
    if options.task == "token-classification":
        labels[(positions == 0) | (positions >= lengths - 1)] = -100  # special tokens and padding, as run_ner.py labels them
    return {**batch, "labels": labels}


def config_of(options, **more):
    """transformers' configuration of the model, with as many labels as the task has."""
    from transformers import AutoConfig

    family = family_of(options)
    if family in EAGER_ALONE and "attn_implementation" in more:
        more["attn_implementation"] = "eager"
    return AutoConfig.for_model(family, **MODELS[options.model], num_labels=LABELS.get(options.task, 2), **more)


def model_class(options, prefix=""):
    """transformers' class for the task; prefix TF: TensorFlow's."""
    import transformers

    what = {
        "question-answering": "QuestionAnswering",
        "text-classification": "SequenceClassification",
        "token-classification": "TokenClassification",
        "fill-mask": "MaskedLM",
    }[options.task]
    _, name = FAMILIES.get(options.model, ("bert", "Bert"))
    return getattr(transformers, f"{prefix}{name}For{what}")


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


def bench_step(options, lengths, kind, rounds):
    """Verified by the bench itself, against the reference."""
    output = run(
        [
            options.tandem,
            "bench",
            "step",
            "--model",
            options.model,
            "--task",
            options.task,
            "--batch",
            options.batch,
            "--seq",
            options.seq,
            "--lengths",
            lengths,
            "--dtype",
            kind,
            "--threads",
            options.threads,
            "--rounds",
            rounds,
            "--json",
        ],
        {},
    )
    return json.loads(output)["results"][0]


def tandem_step(options, kind):
    return {"seconds": bench_step(options, options.lengths, kind, options.skip + options.steps)["seconds"]["median"], "versions": {}}


def rival_step(options, script, variant, kind, environment):
    output = run(
        [
            sys.executable,
            script,
            "--side",
            variant,
            "--model",
            options.model,
            "--task",
            options.task,
            "--batch",
            options.batch,
            "--seq",
            options.seq,
            "--threads",
            options.threads,
            "--rival_padding",
            options.rival_padding,
            "--text_lengths",
            ",".join(map(str, options.text_lengths)),
            "--steps",
            options.steps,
            "--skip",
            options.skip,
            "--types",
            kind,
        ],
        {"OMP_NUM_THREADS": str(options.threads), **environment},
    )
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
        columns["iomp"] = {
            **AT_ITS_BEST,
            "LD_PRELOAD": ":".join(filter(None, [options.iomp, options.tcmalloc])),
            "KMP_AFFINITY": "granularity=fine,compact,1,0",
            "KMP_BLOCKTIME": "1",
        }
    chosen = options.allocators.split(",")
    return {name: variables for name, variables in columns.items() if name in chosen}


def rotated(columns, number):
    """Rounds come in pairs, the second of them backwards, and each pair begins with the next column: no column is always the first, nor always behind the same one."""
    cut = number // 2 % len(columns)
    turned = columns[cut:] + columns[:cut]
    return turned if number % 2 == 0 else turned[::-1]


def in_turns(sides, rounds, title, figure):
    """{side: [figure of each round]} and the versions; sides: {side: a function that runs it once and returns a dictionary with the figure and "versions"}."""
    values, versions = {side: [] for side in sides}, {}
    for number in range(rounds):
        for side in rotated(list(sides), number):
            result = sides[side]()
            versions.update(result["versions"])
            values[side].append(result[figure])
            print(f"round {number + 1}: {title} {' '.join(side)} {result[figure]:.4f}", file=sys.stderr, flush=True)  # so that a run that is cut is not lost
    return values, versions


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def print_times(kind, times, more=lambda side: ("", {})):
    """Prints the seconds of all sides, and returns them as rows of the JSON file; more(side): a further column, and its figures."""
    ours = statistics.median(times["tandem", ""])
    rows = []
    for side, values in times.items():
        seconds = spread(values)
        column, figures = more(side)
        ratio = "" if side[0] == "tandem" else f"   tandem is {seconds['median'] / ours:.2f} times as fast"
        print(f"  {kind:4} {' '.join(side):24} {seconds['median']:8.4f}  ({seconds['min']:.4f} - {seconds['max']:.4f}){column}{ratio}", flush=True)
        rows.append({"side": side[0], "allocator": side[1], "dtype": kind, "seconds": seconds, **figures})
    return rows


def flags_of(options, kind, names):
    """The command line that gives another process of a script these options."""
    return ["--types", kind, *(word for name in names for word in (f"--{name}", getattr(options, name)))]


def run_side(options, script, side, flags, environment):
    """The JSON in the last line that `script --side SIDE` prints."""
    command = [sys.executable, script, "--side", side, *flags]
    return json.loads(run(command, {"OMP_NUM_THREADS": str(options.threads), **environment}).strip().split("\n")[-1])


def columns_of(options, run_side):
    """{(variant, allocator): a function that runs the rival so}; run_side(variant, variables)."""
    return {
        (variant, name): lambda variant=variant, variables=variables: run_side(variant, variables)
        for variant in options.variants.split(",")
        for name, variables in environments(options).items()
    }


def compare(options, script):
    options.text_lengths = bench_step(options, TASKS[options.task]["texts"], "f32", 1)["sequence_lengths"]
    print(
        f"{options.model}, {options.task}, {options.batch} x {options.seq}, tandem's lengths: {options.lengths}, the rival pads to the {options.rival_padding}, {options.threads} threads, "
        f"{options.rounds} rounds of {options.steps} steps; seconds per step, median (min - max)"
    )
    results, versions = [], {}
    for kind in options.types.split(","):
        sides = {
            ("tandem", ""): lambda kind=kind: tandem_step(options, kind),
            **columns_of(options, lambda variant, variables, kind=kind: rival_step(options, script, variant, kind, variables)),
        }
        times, found = in_turns(sides, options.rounds, kind, "seconds")
        versions.update(found)
        results += print_times(kind, times)
    if options.json:
        setting = {name: getattr(options, name) for name in ("model", "task", "batch", "seq", "lengths", "rival_padding", "threads", "rounds", "steps", "skip")}
        pathlib.Path(options.json).write_text(
            json.dumps({"rival": pathlib.Path(script).stem.removeprefix("compare_"), **setting, "versions": versions, "results": results})
        )
