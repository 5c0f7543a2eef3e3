#!/usr/bin/env python3
"""Makes docs/results/*.md, and the parts of README.md between `<!-- results: NAME -->` and `<!-- end of results -->`, of docs/results/data.

    tools/make_results.py            writes them
    tools/make_results.py --check    changes nothing, names what differs, exits with 1
    tools/make_results.py --check --build build/release    and whether that build has about as many tests as README says that ran
    tools/make_results.py --self-test

A file SUBJECT.MACHINE.json holds records of bench/record.py: command, date, versions and all runs. A page has one table; of several valid runs of the same thing it shows the least favourable to tandem, whole: never the best
column of one and the best of another. A run that was written down by hand ("transcribed": true) has its rows as they stand in the table; others are brought into that form here. Where a command has recorded the same thing on the
same machine, the transcribed row is not shown, and bench/record.py removes it. README's figures are those of recorded runs alone.
"""

import argparse
import copy
import json
import math
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
NAMES = {"minilm": "MiniLM", "bert-base": "BERT-base", "bert-large": "BERT-large", "distilbert": "DistilBERT", "squad": "SQuAD's", "sst2": "SST-2's", "longest": "to the longest", "max": "to the limit", "pipeline": "pipeline, text by text", "batched": "pipeline, batches", "trainer": "Trainer", "plain": "not elastic", "torch": "PyTorch", "tensorflow": "TensorFlow", "ipex": "IPEX"}
# What bench/rivals.py calls a side that has one form only.
FORMS = {"tensorflow": "graph", "ipex": "ipex.optimize"}
# Gloo alone, and as torch.distributed calls it, is measured by itself: its time would not be the best beside an MPI's.
GLOO = ("Gloo", "torch.distributed")
MPIS = ("MPICH", "Open MPI", "Intel MPI", "oneCCL", *GLOO)
LEAST_WARM_UP = 3  # steps, for a figure in README
TESTS_AWAY = 0.05  # how far the tests that README says ran may be from those of a build, as a share


# ---- numbers as people read them -----------------------------------------------------------------------------------------------------------------------------------------------


def three_digits(value):
    if value == 0 or not isinstance(value, (int, float)):
        return str(value)
    magnitude = abs(value)
    return f"{value:,.0f}" if magnitude >= 100 else f"{value:.1f}" if magnitude >= 10 else f"{value:.2f}" if magnitude >= 1 else f"{value:.3f}" if magnitude >= 0.1 else f"{value:.3g}"


def spread(shown):
    def show(value):
        if value is None:
            return ""
        if not isinstance(value, list):
            return shown(value)
        return f"{shown(value[0])} ({shown(value[1])} – {shown(value[2])})" if len(value) == 3 else f"{shown(value[0])} to {shown(value[1])}"

    return show


number = spread(three_digits)
percent = spread(lambda value: f"{value * 100:.1f} %")
factor = spread(lambda value: f"{value:.2f}")
four_digits = spread(lambda value: f"{value:.4f}")


def whole(value):
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def bytes_of(value):
    for unit, size in (("MB", 2**20), ("KB", 2**10)):
        if value >= size:
            return f"{value // size} {unit}"
    return f"{value} B"


def mebibytes(value):
    return f"{value / 2**20:,.0f}"


def text(value):
    return "" if value is None else NAMES.get(value, str(value))


def middle(value):
    return value[0] if isinstance(value, list) else value


# ---- what a bench wrote, as rows -----------------------------------------------------------------------------------------------------------------------------------------------


def three(times):
    return [times["median"], times["min"], times["max"]]


def rows_of_steps(run):
    for result in run["results"]:
        model, _, lengths = result["name"].split(" ")
        products = re.compile(r"^(qkv|attention|attention output|up|down) (forward|backward|dX|dW)$")
        share = sum(stage["seconds"] for stage in result["breakdown"] if products.match(stage["stage"])) / result["breakdown_of_seconds"]
        yield {"model": model, "type": result["dtype"], "lengths": lengths, "seconds": three(result["seconds"]), "share": three(result["share"]), "products": share}


def rows_of_products(run):
    groups = {}
    for result in run["results"]:
        groups.setdefault((result["name"].split(" ")[0], result["dtype"]), []).append(result)
    for (model, kind), results in groups.items():
        shares = [result["share"]["median"] for result in results]
        row = {"model": model, "type": kind, "mean": statistics.fmean(shares), "least": min(shares)}
        for name, is_dw in (("forward_dx", False), ("dw", True)):
            part = [result for result in results if result["name"].endswith(" dW") == is_dw]
            ratios = [result["against"]["ratio"]["median"] for result in part if "against" in result]
            row[name] = [min(result["share"]["median"] for result in part), max(result["share"]["median"] for result in part)]
            row["against_" + name] = [min(ratios), max(ratios)] if ratios else None
        yield row


def rows_of_attention(run):
    for result in run["results"]:
        heads, lengths, direction = result["name"].split(" ")
        yield {"heads": heads, "lengths": lengths, "direction": direction, "type": result["dtype"], "seconds": three(result["seconds"]), "share": three(result["share"])}


def rows_of_peak(run):
    for result in run["results"]:
        yield {"what": result["name"], "threads": result["threads"], "rate": three(result["rate"]), "unit": result["unit"]}


def memory_of(column, command):
    """What the rival had in a column of bench/rivals.py."""
    columns = {"glibc": "glibc", "hugepages": "huge pages", "tcmalloc": "tcmalloc, huge pages", "iomp": "iomp, tcmalloc, huge pages" if "--tcmalloc " in command else "iomp, huge pages"}
    return columns[column]


def rows_of_rivals(run):
    ours = {result["dtype"]: result["seconds"] for result in run["results"] if result["side"] == "tandem"}
    for result in run["results"]:
        if result["side"] != "tandem":
            yield {"model": run["model"], "type": result["dtype"], "lengths": run["lengths"], "rival": run["rival"], "form": FORMS.get(result["side"], result["side"]), "allocator": memory_of(result["allocator"], run["command"]),
                   "warm_up": run["skip"], "task": run.get("task"), "padding": run.get("rival_padding"), "tandem": three(ours[result["dtype"]]), "seconds": three(result["seconds"])}


def rows_of_predict(run):
    ours = {result["dtype"]: result for result in run["results"] if result["side"] == "tandem"}
    for result in run["results"]:
        if result["side"] != "tandem":
            tandem = ours[result["dtype"]]
            alike = {name: tandem[name]["median"] / result[name]["median"] for name in ("with_start", "without_start") if name in result}
            yield {**alike, "what": run["what"], "model": run["model"], "type": result["dtype"], "rival": result["side"], "allocator": memory_of(result["allocator"], run["command"]), "tandem": three(tandem["rate"]), "rate": three(result["rate"])}


def rows_of_comm(run):
    names = {"tandem private": "private", "tandem communicator": "communicator", "mpich": "MPICH", "openmpi": "Open MPI", "impi": "Intel MPI", "oneccl": "oneCCL", "gloo": "Gloo", "torch": "torch.distributed"}
    for size, found in run["results"].items():
        yield {"operation": run["operation"], "bytes": int(size), **{names[column]: median for column, median in found["median"].items() if column in names}}


def rows_of_limits(run):
    """Of `tandem bench comm --memory both`: staged where the buffers are private, direct in memory of the communicator."""
    limits, found = {"private": "staged", "communicator": "direct"}, {}
    for result in run["results"]:
        row = found.setdefault((result["operation"], result["bytes"]), {"operation": result["operation"], "bytes": result["bytes"]})
        limit = limits[result["memory"]]
        row |= {result["memory"]: result["microseconds"]["median"], limit: result.get(f"limit_{limit}_microseconds")}
    yield from found.values()


def rows_of_optimizer(run):
    for result in run["results"]:
        model, _, what = result["name"].partition(" ")
        copies = {"AdamW": "no", "AdamW with a bf16 copy": "yes", "update": "no, a rank's update in a job",
                  "update that others can finish": "no, the same, kept so that others can finish it"}
        if what in copies:
            yield {"model": model, "copy": copies[what], "share": three(result["share"])}


def rows_of_answers(run):
    for result in run["results"]:
        yield {"stage": result["name"], "seconds": three(result["seconds"])}


# ---- what follows from a row ---------------------------------------------------------------------------------------------------------------------------------------------------


def with_ratio(row):
    if "ratio" not in row and row.get("tandem"):
        row["ratio"] = middle(row["seconds"]) / middle(row["tandem"])


def with_failure_ratio(row):
    if row.get("seconds") and row.get("tandem_seconds"):
        row["ratio"] = middle(row["seconds"]) / middle(row["tandem_seconds"])


def with_rate_ratio(row):
    row["ratio"] = middle(row["tandem"]) / middle(row["rate"])


def with_warm_up(row):
    """Of a transcribed row, whose command says it."""
    if "warm_up" not in row:
        row["warm_up"] = int(re.search(r"--skip (\d+)", row["command"])[1])
    with_ratio(row)


def with_one_name(row):
    """What scripts/quality.sh calls none is a flag that is not given."""
    row["padding"] = {"none": "not given"}.get(row["padding"], row["padding"])


def with_spread_of_both(row):
    """One seed has no spread."""
    if min(row["seeds"], row["hf_seeds"]) < 2:
        row["within"] = None


def with_share_of_plan(row):
    if row.get("planned"):
        row["share"] = row["used"] / row["planned"]


def with_gloo_at_its_best(row):
    """A ratio only where Gloo was started several times and its calls followed each other, as in bench/compare_comm.py."""
    row["quotient"] = row["gloo"] / row["tandem"]
    if row["what"] != ALONE:
        row.setdefault("gloo_starts", 1)
    row["times"] = row["quotient"] if row.get("gloo_starts") != 1 else None


def with_comm_ratios(row):
    rivals = [row[name] for name in MPIS if row.get(name)]
    for memory in ("private", "communicator"):
        if row.get(memory) and rivals:
            row["ratio_" + memory] = min(rivals) / middle(row[memory])


ALONE = "a call that waits for nobody"


class Page:
    """title, what stands above the table, columns (heading, field, form), the fields that say what was measured, which field judges and whether less of it is worse; `more` makes a second table of all documents."""

    def __init__(self, title, about, columns, keys, judge=None, less_is_worse=True, rows=None, derive=None, more=None):
        self.title, self.about, self.columns, self.keys, self.judge, self.less_is_worse, self.rows, self.derive, self.more = title, about, columns, keys, judge, less_is_worse, rows, derive, more


def means_over_seeds(documents):
    """Of each form of the job with three seeds or more, how many ranks it had not counted; of two runs of a seed the one with the lower F1."""
    seeds = {}
    for document in documents:
        for entry in least_favourable(PAGES["quality"], document):
            row = entry["row"]
            of_form = seeds.setdefault((document["name"], row["program"], row["type"], row["padding"]), {})
            if row["seed"] not in of_form or row["f1"] < of_form[row["seed"]]["f1"]:
                of_form[row["seed"]] = row
    lines = []
    for form, of_form in seeds.items():
        if len(of_form) >= 3:
            ems, f1s = ([row[field] for row in of_form.values()] for field in ("em", "f1"))
            lines.append([*form, ", ".join(map(str, sorted(of_form))), f"{statistics.mean(ems):.2f}", f"{statistics.mean(f1s):.2f}", f"{min(f1s):.2f} to {max(f1s):.2f}"])
    return table(["machine", "program", "type", "`--pad_to_max_length`", "seeds", "mean EM", "mean F1", "F1, lowest to highest"], lines)


MODEL = [("model", "model", text), ("type", "type", text), ("lengths", "lengths", text)]
PAGES = {
    "steps": Page("Training steps", "Steps of 12 sequences of 384 tokens (padded, or with the lengths of SQuAD's features) with dropout 0.1, AdamW and clipping, two threads. The share is of the fastest multiply-add that the cores do on "
                  "registers, measured in turns; products and attention are the share of the step's time that they take.",
                  [*MODEL, ("seconds per step", "seconds", number), ("share of the peak", "share", percent), ("products and attention", "products", percent)], ("model", "type", "lengths"), "share", rows=rows_of_steps),
    "products": Page("Matrix products", "The twelve products of a model (forward, dX and dW of its four kinds of linear layers) on 12 × 384 rows: shares of the register-only peak, and times as fast as oneDNN in turns.",
                     [("model", "model", text), ("type", "type", text), ("mean", "mean", percent), ("least", "least", percent), ("forward and dX", "forward_dx", percent), ("dW", "dw", percent), ("oneDNN", "against", text),
                      ("against it: forward, dX", "against_forward_dx", factor), ("dW", "against_dw", factor)], ("model", "type", "against"), "mean", rows=rows_of_products),
    "attention": Page("Attention", "Forward and backward with dropout 0.1; what backward recomputes does not count as work. Shares of the register-only peak.",
                      [("heads", "heads", text), ("lengths", "lengths", text), ("", "direction", text), ("type", "type", text), ("seconds", "seconds", number), ("share of the peak", "share", percent)],
                      ("heads", "lengths", "direction", "type"), "share", rows=rows_of_attention),
    "peak": Page("The machine", "What `tandem bench peak` finds: multiply-adds on registers and fed from the L1 cache, streams through memory.",
                 [("what", "what", text), ("threads", "threads", whole), ("rate", "rate", number), ("", "unit", text)], ("what", "threads"), "rate", rows=rows_of_peak),
    "rivals": Page("Training steps against other frameworks", "Seconds for the same step (12 × 384, dropout 0.1, clipping, AdamW), in turns. With SQuAD's lengths the rivals pad to 384, as Hugging Face's script does by default, and tandem computes no padding, as it does by "
                   "default. Memory of the rival is what it had in that row: glibc as it comes; huge pages (`GLIBC_TUNABLES=glibc.malloc.hugetlb=1`, `THP_MEM_ALLOC_ENABLE=1`, and with them `OMP_PROC_BIND=close`); tcmalloc preloaded; "
                   "iomp, Intel's OpenMP preloaded. Warm-up: steps that neither side counts.",
                   [*MODEL, ("rival", "rival", text), ("form", "form", text), ("memory", "allocator", text), ("warm-up", "warm_up", whole), ("tandem, s", "tandem", number), ("rival, s", "seconds", number), ("times as fast", "ratio", factor)],
                   ("model", "type", "lengths", "rival", "form", "allocator"), "ratio", rows=rows_of_rivals, derive=with_warm_up),
    "label_rivals": Page("Steps of text and token classification against other frameworks", "Seconds for the same step of text classification (two labels of each text) and of token classification (nine labels of each token): sequences of at most 128 tokens with "
                         "SST-2's lengths (23.3 on average), dropout 0.1, clipping, AdamW, in turns. With these lengths tandem computes no padding; the rivals pad to 128, as Hugging Face's scripts do by default, or to the longest of the batch. "
                         "Memory of the rival: as in [training steps](rivals.md).",
                         [("task", "task", text), *MODEL, ("rival", "rival", text), ("form", "form", text), ("it pads", "padding", text), ("memory", "allocator", text), ("tandem, s", "tandem", number), ("rival, s", "seconds", number),
                          ("times as fast", "ratio", factor)], ("task", "model", "type", "lengths", "rival", "form", "padding", "allocator"), "ratio", rows=rows_of_rivals, derive=with_ratio),
    "predict": Page("Labels for texts against transformers and onnxruntime", "Sentences of SST-2 per second, in turns. predict: `tandem predict`, its start counted, against transformers' pipeline and onnxruntime with the model exported and fused, their start not counted; the last two columns count the start of both sides, or of neither (tandem's is the time of a command with one text). evaluate: what "
                    "`tandem run_glue` and the Trainer print for an evaluation. Memory of the rival: as in [training steps](rivals.md).",
                    [("", "what", text), ("model", "model", text), ("type", "type", text), ("rival", "rival", text), ("memory", "allocator", text), ("tandem, per second", "tandem", number), ("rival, per second", "rate", number), ("times as fast", "ratio", factor),
                     ("both starts counted", "with_start", factor), ("no start counted", "without_start", factor)],
                    ("what", "model", "type", "rival", "allocator"), "ratio", rows=rows_of_predict, derive=with_rate_ratio),
    "collectives": Page("Collectives against MPI, oneCCL and Gloo", "Two ranks on two cores of one machine, one core each (Gloo, which has threads of its own, is not bound, and its calls follow each other without a barrier), f32, microseconds: medians over the rounds of the slowest rank's median. Private is memory that the program allocated, in pages of "
                        "4 KiB; communicator memory comes from `mem_alloc`. all_reduce and broadcast are in place; the bytes of all_gather and gather are those of the gathered buffer. A ratio is the fastest rival's time over tandem's.",
                        [("operation", "operation", text), ("bytes", "bytes", bytes_of), ("private", "private", number), ("communicator", "communicator", number), *((name, name, number) for name in MPIS),
                         ("ratio, private", "ratio_private", factor), ("ratio, communicator", "ratio_communicator", factor)], ("operation", "bytes", "rivals"), "ratio_private", rows=rows_of_comm, derive=with_comm_ratios),
    "collectives_limits": Page("Collectives and the machine's limit", "`tandem bench comm` beside what two pinned threads with plain loops need for the same, in microseconds: direct, where each reaches the other's buffer, and staged, where everything goes through a ring of "
                               "shared memory.", [("operation", "operation", text), ("bytes", "bytes", bytes_of), ("private", "private", number), ("staged limit", "staged", number), ("communicator", "communicator", number), ("direct limit", "direct", number)],
                               ("operation", "bytes"), "private", False, rows=rows_of_limits),
    "collectives_hosts": Page("all_reduce over tcp", "Two network namespaces of one machine, joined by a pair of virtual interfaces; each rank has a core of its own, MPICH goes over UCX's tcp. Microseconds.",
                              [("bytes", "bytes", bytes_of), ("tandem", "private", number), ("MPICH", "MPICH", number), ("ratio", "ratio_private", factor)], ("bytes",), "ratio_private", derive=with_comm_ratios, rows=rows_of_comm),
    "messages": Page("Messages", "send_receive: every rank sends to the next and receives from the one before; through memory inside a node, and over the loopback's tcp. Microseconds.",
                     [("bytes", "bytes", bytes_of), ("memory", "memory", number), ("tcp", "tcp", number)], ("bytes",), "memory", False),
    "shared_core": Page("Two ranks on one core", "all_reduce of two ranks in private memory, on one core (`taskset -c 0`) and on two; microseconds.",
                        [("bytes", "bytes", bytes_of), ("one core", "one", number), ("two cores", "two", number)], ("bytes",), "one", False),
    "bf16_sums": Page("Sums in bf16", "all_reduce in bf16 against f32: bytes per second in private memory, as a share of f32's.", [("bytes", "bytes", bytes_of), ("bf16 / f32", "share", factor)], ("bytes",), "share"),
    "losses": Page("Losses in bf16 and f32", "The training loss of the two epochs of [quality](quality.md) in bf16 against f32: the largest difference of means over a window of steps.",
                   [("window", "window", text), ("difference", "difference", lambda value: f"{value * 100:.3f} %")], ("window",), "difference", False),
    "ranks": Page("Ranks against threads", "BERT-base, bf16, global batches of 12 × 384 padded tokens, on two cores.",
                  [("", "what", text), ("seconds per step", "seconds", number), ("sums of gradients and waits", "communication", percent)], ("what",), "seconds", False),
    "jobs": Page("A whole job", "MiniLM, two epochs over 4,370 questions of SQuAD in global batches of 12, bf16, then the evaluation on 1,190 questions of XQuAD, from the command to the results. Hugging Face's best configuration (two ranks of one thread, Gloo, tcmalloc) is projected "
                 "from the steps and batches named.", [("the rival's padding", "padding", text), ("tandem, s", "tandem", number), ("Hugging Face, s", "seconds", number), ("projected from", "projected", text), ("times as fast", "ratio", factor)],
                 ("padding",), "ratio", derive=with_ratio),
    "startup": Page("From the command to the first step", "MiniLM, bf16, batches of 12; seconds since the command.",
                    [("questions", "questions", whole), ("features", "kept", text), ("model and tokenizer", "model", number), ("features there", "features", number), ("training begins", "begins", number), ("first step done", "first_step", number)],
                    ("questions", "kept"), "first_step", False),
    "memory": Page("Memory", "`bench/memory.py`: what a job plans and what it uses, all ranks of the node together, MiB. Resident: the highest of rank 0 in the first and in the last tenth of the steps.",
                   [("job", "job", text), ("planned", "planned", whole), ("used", "used", whole), ("used / planned", "share", spread(lambda value: f"{value:.3f}")), ("resident in the first tenth", "early", number), ("in the last", "late", number)], ("job",), "share", False, derive=with_share_of_plan),
    "optimizer": Page("AdamW", "All parameters of a model: share of the rate at which its bytes can be streamed.",
                      [("model", "model", text), ("bf16 copy", "copy", text), ("share of a stream", "share", percent)], ("model", "copy"), "share", rows=rows_of_optimizer),
    "int8": Page("Products on 8-bit integers", "Milliseconds of the forward product of 12 × 384 rows of BERT-base. In int8 the time includes the quantization of the rows; the share is of int8's register-only peak, with a static range.",
                 [("product", "product", text), ("kernels", "kernels", text), ("f32", "f32", number), ("bf16", "bf16", number), ("int8, static range", "static", number), ("share", "share", percent), ("int8, range for each row", "dynamic", number)],
                 ("product", "kernels"), "share"),
    "int8_models": Page("Int8 models", "MiniLM fine-tuned for two epochs (a weak model: few questions) and the demo's model, evaluated in batches of 16, MiniLM on the 1,190 English questions of XQuAD; the seconds are those of the evaluation. int8 models have all encoder layers in int8. A change of rounding moves "
                        "the answers of a weak model both ways: where int8 is better, that is chance.",
                        [("model", "model", text), ("computed in", "form", text), ("F1", "f1", factor), ("seconds", "seconds", number), ("model.safetensors, MB", "megabytes", number)], ("model", "form"), "f1"),
    "quality": Page("Quality of a fine-tuned model", "`scripts/quality.sh`: MiniLM's encoder after two epochs on 4,370 questions of SQuAD, evaluated on the 1,190 English questions of XQuAD.",
                    [("program", "program", text), ("ranks", "ranks", whole), ("type", "type", text), ("`--pad_to_max_length`", "padding", text), ("seed", "seed", whole), ("EM", "em", factor), ("F1", "f1", factor)],
                    ("program", "ranks", "type", "padding", "seed"), "f1", derive=with_one_name, more=means_over_seeds),
    "quality_labels": Page("Quality of texts and words that get labels", "`bench/quality_of_labels.py`: MiniLM's encoder trained on SST-2's sentences and WNUT-17's tags as the official run_glue.py and run_ner.py did, the mean over seeds. Within the spread: the means are no further apart than the larger "
                           "of both ranges over seeds; of one seed no range is known.",
                           [("setting", "setting", text), ("metric", "metric", text), ("seeds", "seeds", whole), ("tandem", "tandem", four_digits), ("lowest to highest", "tandem_range", four_digits), ("seeds", "hf_seeds", whole), ("Hugging Face", "hf", four_digits),
                            ("lowest to highest", "hf_range", four_digits), ("within the spread", "within", lambda value: {True: "yes", False: "no", None: "not known"}[value])], ("setting",), "tandem", derive=with_spread_of_both),
    "tokenizer": Page("Tokenizer", "Against Hugging Face's `tokenizers` on the same two threads.", [("text", "text", text), ("times as fast", "ratio", number)], ("text",), "ratio"),
    "answers": Page("Answers and metrics", "From logits (noise) to files and metrics, for 10,570 questions (10,849 features).", [("stage", "stage", text), ("seconds", "seconds", number)], ("stage",), "seconds", False, rows=rows_of_answers),
    "plan": Page("Planned and measured steps", "`tandem plan` against jobs on one machine: MiniLM, bf16, 4 padded sequences of 128 per rank, one thread per rank. No prediction for several nodes was compared with a measurement.",
                 [("ranks", "ranks", text), ("predicted, s per step", "predicted", number), ("measured", "measured", number), ("error", "error", lambda value: f"{value * 100:+.1f} %")], ("ranks",)),
    "plan_clusters": Page("Planned clusters", "Not measured: what `tandem plan` predicts for BERT-base, 12 sequences of 384 per rank, bf16, two ranks per node, each assumed to do 3,000 GFLOP/s of which half is reached, 80 GB/s for the optimizer, 60 GB/s for sums, 10 µs per message. Efficiency is per rank, against one rank "
                          "alone; above 100 % because a node's ranks share one optimizer.",
                          [("nodes", "nodes", whole), ("link, Gbit/s", "link", whole), ("s per step", "seconds", number), ("nothing hidden", "unhidden", number), ("communication", "communication", percent), ("tokens/s", "tokens", whole), ("efficiency", "efficiency", percent),
                           ("GB sent by the busiest node", "busiest", number), ("dealt evenly", "evenly", number), ("ranks that own slices", "owners", text), ("GiB of the fullest node", "memory", number)], ("nodes", "link")),
    "soak": Page("Soak", "1,000,000 mixed operations on one node, each verified: every collective, seven types, four reductions, up to 300,000 elements, all roots, in and out of place, started and grouped, messages, splits and `mem_alloc` with its end.",
                 [("ranks", "ranks", whole), ("seconds", "seconds", whole), ("resident at 10 %, MiB", "early", number), ("at the end", "late", number), ("descriptors at 10 %", "files_early", whole), ("at the end", "files_late", whole)], ("ranks",)),
    "failures": Page("Failures", "How long after a failure the last survivor knows of it.", [("what", "what", text), ("known after", "after", text)], ("what",)),
    "failure_rivals": Page("The same loss under tandem and PyTorch", "Two ranks of one thread each on one machine train MiniLM on 4 × 128 tokens a rank, and SIGKILL ends one of the ranks, or one of two agents with its rank. Seconds from the kill until the first step is applied that had "
                           "not been, the step itself included; steps that had been applied and were computed again; whether the final weights are those of a run without a kill. torchrun's script saves a checkpoint every 10 steps; \"last call 1 s\" is `--rdzv-conf last_call_timeout=1`. "
                           "reconfigure is PyTorch 2.15's Gloo with `enable_reconfigure=True`, torchft 0.2.0 has a lighthouse on the same machine: under these two nobody starts the rank again.",
                           [("lost", "event", text), ("rival", "rival", text), ("its job", "outcome", text), ("tandem, s", "tandem_seconds", number), ("rival, s", "seconds", number), ("its step: tandem, s", "tandem_step", number), ("rival, s", "step", number),
                            ("again: tandem", "tandem_again", number), ("rival", "again", number), ("same weights: tandem", "tandem_same", text), ("rival", "same", text), ("times as fast", "ratio", factor)],
                           ("event", "rival"), "ratio", derive=with_failure_ratio),
    "elastic_cost": Page("A step of an elastic job that loses nobody", "`bench/compare_elastic.py`: ranks started by hand, which are not elastic, and the same under `tandem run` (elastic); where it was given, beside a build that has no elastic jobs (without). All compute the same steps in turns, a few at a time, while the others are stopped. "
                         "Seconds are the median step of what it is against: how large a step is. The ratio, above 1 is slower, is made of pieces that were computed one after the other, piece by piece, never of two medians of seconds, between which the machine may have changed: the median of each start's pieces, then the median of the starts, for where a process finds its memory makes it faster or slower by some "
                         "percent until it ends. Beside it: between which two the median of all such starts lies with 95 % confidence; with one start, those of its pieces. Rows without pieces are whole jobs in turns, with the least and the largest ratio.",
                         [("model", "model", text), ("type", "type", text), ("ranks", "ranks", whole), ("sequences a step", "batch", whole), ("form", "form", text), ("against", "against", lambda value: text({"old": "without"}.get(value, value))), ("a step of that, s", "base", number), ("ratio", "ratio", spread(lambda value: f"{value:.3f}")),
                          ("starts", "starts", whole), ("pieces of each", "rounds", whole)],
                         ("model", "type", "ranks", "batch", "form", "against"), "ratio", False),
    "elastic_soak": Page("Elastic jobs under kills", "`bench/elastic_soak.py`: every few seconds a worker, or agent and workers of a host, is killed and starts again. Seconds from the last step before a change of the view to the first one after it, the step itself included, "
                         "whose time in a job that nobody disturbed stands beside it; the aim is for what goes beyond the step.",
                         [("hosts", "hosts", whole), ("workers of each", "workers", whole), ("what changed", "event", text), ("times", "times", whole), ("median, s", "median", number), ("worst, s", "worst", number), ("a step, s", "step", four_digits),
                          ("aim", "aim", text), ("same weights", "same", text)], ("hosts", "workers", "event"), "worst", False),
    "elastic_join": Page("What a host that joins costs the others", "`bench/elastic_join.py`: a host trains alone, then a second one comes. Both are network namespaces of one machine, with a worker of one thread each. Without: a build that has not the rehearsal and the message memory of [note 0024](../design/0024-learners.md); with: one that has. Cores, shared: both use all, own: each host has one for everything, for its worker, for what it sends or takes, and for its agent. "
                         "While: the mean of the steps of the first one from when the second one began until it was there. Pause: from the last step before the view with both to the first one after it. Lost: the pause beyond a step together, and what the steps before it took beyond those alone. State: how long it took to come, beside the steps.",
                         [("model", "model", text), ("build", "build", lambda value: {"old": "without", "new": "with"}[value]), ("cores", "cores", text), ("alone, s a step", "alone", number), ("while", "while", number), ("together", "together", number), ("state, s", "learned", number), ("pause, s", "pause", number),
                          ("of it beyond a step", "beyond", number), ("slower steps, s", "slower", number), ("lost, s", "lost", number), ("lost, steps", "steps", factor), ("aim", "aim", whole), ("same weights", "same", text)], ("model", "build", "cores"), "steps", False),
    "elastic_times": Page("What each loss costs an elastic job", "`bench/elastic_times.py`: four ranks on two hosts of network namespaces, and each event several times while all compute. Seconds from the last step before the change of the view to the first one after it, the step itself included, whose time in a job that "
                          "nobody disturbed stands beside it; the aim is for what goes beyond the step. A worker that segfaults is measured until the first step with it again, its start-up included; a rendezvous from the start of four agents to that of the last program.",
                          [("event", "event", text), ("times", "times", whole), ("median, s", "median", number), ("worst, s", "worst", number), ("a step, s", "step", four_digits), ("aim, s", "aim", text), ("same weights", "same", text)], ("event",), "worst", False),
    "large_jobs": Page("Large elastic jobs in simulation", "`membership_large_jobs`: every agent of the job is production's, without workers; 10 Gbit/s a node, 50 µs one way. Seconds until the last node runs the new view; of a silent host they hold the 2 s to 2.5 s until it is missed, of a join the 0.5 s until the "
                       "newcomer is level and the rest of a step of 0.1 s. A view of n nodes is told to n nodes, so its bytes grow with the square. BERT-base is learned by one node, whatever the size of the job.",
                       [("nodes", "nodes", whole), ("event", "event", text), ("rounds", "rounds", whole), ("messages", "messages", whole), ("MB in all", "megabytes", number), ("seconds", "seconds", number)], ("nodes", "event"), "seconds", False),
    "schedules": Page("Simulated elastic jobs", "Jobs of the [membership](../elastic_protocol.md#the-simulator) in worlds made of a seed: nodes die, stop, are cut off and come back, messages are late, lost and repeated; the invariants are checked after every event. "
                      "Nodes learn the state before their first view, as `tandem run` does, or else get it there.",
                      [("first seed", "from", whole), ("schedules", "schedules", whole), ("events", "events", whole), ("views", "views", whole), ("deaths", "deaths", whole), ("learned before their view", "learned", whole),
                       ("longest end after healing, ms", "longest_ms", whole), ("invariants broken", "broken", whole)], ("from", "schedules"), "broken", False),
    "fuzzing": Page("Fuzzing", "libFuzzer with the address and undefined-behaviour sanitizers (`scripts/fuzz.sh`); inputs up to 64 KB, 2 GB of memory.",
                    [("target", "target", text), ("seconds", "seconds", number), ("inputs", "inputs", whole), ("kept", "kept", whole), ("MB", "megabytes", whole), ("findings", "findings", whole)], ("target",)),
    "hardening": Page("The price of hardening", "Two builds in turns, without (`-DTANDEM_HARDENING=OFF`) and with the stack protector, `_FORTIFY_SOURCE=3`, `_GLIBCXX_ASSERTIONS` and full RELRO. The ratio is of the times (of rates turned round): below 1, hardening costs; median and range over the turns.",
                      [("what", "what", text), ("type", "type", text), ("without", "old", number), ("with", "new", number), ("", "unit", text), ("ratio", "ratio", spread(lambda value: f"{value:.3f}"))], ("what", "type"), "ratio"),
    "torch_collectives": Page("all_reduce through torch.distributed", "tandem-torch and Gloo in turns, between ranks of one node (`python/bench/all_reduce.py`): microseconds of the slowest rank. In shared memory: of a tensor that `tandem_torch.share_memory` has moved there, with tandem. A call that waits for nobody is one in a group of one rank: what Python takes of every call. Gloo is at its best, and a ratio stands there, where it was started several times, twice under SCHED_BATCH, and the best "
                              "start counts ([why](../benchmarking.md#collectives)); starts: how many. One start may have threads that share a core, which costs a time slice in each call.",
                              [("what", "what", text), ("ranks", "ranks", whole), ("size", "bytes", bytes_of), ("tandem µs", "tandem", number), ("in shared memory µs", "shared", number), ("Gloo µs", "gloo", number), ("starts of Gloo", "gloo_starts", whole), ("Gloo / tandem", "times", number)], ("what", "ranks", "bytes"), "quotient", derive=with_gloo_at_its_best),
    "torch_steps": Page("Training steps with PyTorch", "PyTorch's own training, with tandem-torch and Gloo in turns (`python/bench/training_step.py`). With hook: `tandem_torch.average_hook`, which moves the gradient buckets into shared memory; private buckets: the same without that. Communication: the share of a step that is not there without it.",
                        [("what", "what", text), ("backend", "backend", text), ("model", "model", text), ("ranks", "ranks", whole), ("batch", "batch", whole), ("length", "length", whole), ("s per step", "seconds", number), ("communication", "communication", percent)], ("what", "backend", "model", "ranks", "batch", "length"), "seconds", False),
    "torch_memory": Page("Memory of training with PyTorch", "What two ranks hold together after some steps (`python/bench/step_memory.py`), in MiB, without libraries and other files; memory that they share counts once. In use: when glibc has given back what is free in its heap, which is another amount in every run. Before the model: Python, PyTorch and the backend.",
                         [("what", "what", text), ("backend", "backend", text), ("model", "model", text), ("ranks", "ranks", whole), ("batch", "batch", whole), ("length", "length", whole), ("held", "memory", mebibytes), ("in use", "in_use", mebibytes), ("before the model", "before", mebibytes)], ("what", "backend", "model", "ranks", "batch", "length"), "in_use", False),
    "torch_faults": Page("Failures under PyTorch", "What each survivor of three ranks is told with tandem-torch, and after how many seconds (`python/tests/faults.py`).",
                         [("case", "case", text), ("rank", "rank", whole), ("s", "seconds", number), ("message", "message", text)], ("case", "rank"), "seconds", False),
    "torch_tests": Page("PyTorch's own tests", "The test body of torch.distributed that its wheel ships, with tandem as the backend (`python/tests/torch_own_tests.py`): by its own name, with which the tests then do what gloo or mpi can, or in gloo's place. Tests for GPUs by name are left out; of the rest those that ask for devices, or for another backend, skip themselves.",
                        [("torch", "torch", text), ("backend", "asked_for", text), ("ranks", "ranks", whole), ("outcome", "outcome", text), ("tests", "tests", whole), ("reason", "reason", text), ("which", "which", text)], ("torch", "asked_for", "outcome", "reason")),
    "tests": Page("Tests", "The last line of `scripts/test.sh`: of each machine its last run, with the commit that was built. A later commit has other tests.",
                  [("commit", "commit", text), ("passed", "passed", whole), ("failed", "failed", whole), ("skipped", "skipped", whole)], (), "date", False),
    "tests_of_builds": Page("Tests of other builds", "The last line of `scripts/aarch64.sh` (64-bit Arm, in an emulator) and of `scripts/sanitize.sh` (clang's sanitizers): of each machine its last run, with the commit that was built.",
                            [("script", "command", text), ("commit", "commit", text), ("passed", "passed", whole), ("failed", "failed", whole), ("skipped", "skipped", whole)], ("command",), "date", False),
}


# ---- from files to rows --------------------------------------------------------------------------------------------------------------------------------------------------------


def load(folder):
    """{subject: [document]}, each with the name of its machine."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        subject, name = path.name.split(".")[:2]
        if subject not in PAGES:
            raise SystemExit(f"{path}: no page is called {subject}")
        document = json.loads(path.read_text(encoding="utf-8"))
        if not all(record["date"] for record in document["records"]):
            raise SystemExit(f"{path}: a record has no date")
        found.setdefault(subject, []).append({**document, "name": name})
    return found


def rows_of_run(page, record, run):
    if "rows" not in run and page.rows is None:
        raise SystemExit(f"{page.title}: rows of `{record['command']}` cannot be read")
    rows = copy.deepcopy(run["rows"]) if "rows" in run else list(page.rows({**run, "command": record["command"]}))
    for row in rows:
        row.update(command=record["command"], date=record["date"], commit=record.get("versions", {}).get("tandem"))
        if "against" in page.keys and row.get("against_dw"):
            row.setdefault("against", record.get("versions", {}).get("onednn"))
        if "rivals" in page.keys:
            row["rivals"] = "Gloo" if {name for name in MPIS if row.get(name)} <= set(GLOO) else "MPI"
        if page.derive:
            page.derive(row)
    return rows


def key_of(page, row):
    return tuple(json.dumps(row.get(name)) for name in page.keys)


def is_worse(page, judged, old):
    return judged is not None and (old is None or (judged < old) == page.less_is_worse and judged != old)


def least_favourable(page, document):
    """The rows of a machine in the order of its records; of several valid measurements of the same thing the least favourable, with how many there were. What a command recorded counts, not what was transcribed of the same."""
    best = {}
    for record in document["records"]:
        by_hand = bool(record.get("transcribed"))
        for run in record["runs"]:
            if not run.get("valid", True):
                continue
            for row in rows_of_run(page, record, run):
                key = key_of(page, row)
                old = best.get(key)
                judged = None if page.judge is None else middle(row.get(page.judge))
                if old is None or old["transcribed"] and not by_hand:
                    best[key] = {"row": row, "judged": judged, "runs": 1, "transcribed": by_hand}
                elif old["transcribed"] == by_hand:
                    old["runs"] += 1
                    if is_worse(page, judged, old["judged"]):
                        old.update(row=row, judged=judged)
    return list(best.values())


def without_superseded(document):
    """The records but for the transcribed ones of which a command has recorded every row."""
    page = PAGES.get(document["subject"])
    if page is None:
        return document["records"]
    keys = lambda record: {key_of(page, row) for run in record["runs"] if run.get("valid", True) for row in rows_of_run(page, record, run)}
    recorded = set().union(*(keys(record) for record in document["records"] if not record.get("transcribed")))
    return [record for record in document["records"] if not record.get("transcribed") or not keys(record) <= recorded]


def count_transcribed(found):
    """(transcribed, all) records."""
    records = [record for documents in found.values() for document in documents for record in document["records"]]
    return sum(bool(record.get("transcribed")) for record in records), len(records)


def table(headings, lines):
    return "\n".join(["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings), *("| " + " | ".join(line) + " |" for line in lines)])


def described(who):
    return ", ".join(filter(None, [who["cpu"], f"class {who['class']}", f"{who['cores']} cores", f"{who['memory_gib']} GiB" if who.get("memory_gib") else "", who.get("system", "")]))


SHOWN = "Of several valid runs the least favourable is shown."
BY_HAND = "Transcribed: written down from what a command printed, with the runs that were kept. README shows none of these; where a rival stands beside tandem it may have had less than its best, so these are no claim against it."


def lines_of(page, document, transcribed):
    return [[document["name"], *(form(entry["row"].get(field)) for _, field, form in page.columns), str(entry["runs"]), entry["row"]["date"]] for entry in least_favourable(page, document) if entry["transcribed"] == transcribed]


def source_of(document, record):
    versions = ", ".join(f"{name} {value}" for name, value in sorted(record.get("versions", {}).items()))
    valid = sum(run.get("valid", True) for run in record["runs"])
    how = "transcribed" if record.get("transcribed") else f"{valid} of {len(record['runs'])} runs valid"
    return f"- {document['name']}, {record['date']}, {how}" + (f", {record['isa']}" if record.get("isa") else "") + f": `{record['command']}`" + (f" ({versions})" if versions else "") + (f". {record['note']}" if record.get("note") else "")


def page_text(subject, documents):
    """What commands recorded, and apart from it what was written down by hand."""
    page = PAGES[subject]
    recorded, by_hand = ([line for document in documents for line in lines_of(page, document, transcribed)] for transcribed in (False, True))
    headings = ["machine", *(heading for heading, _, _ in page.columns), "runs", "date"]
    tables = [[table(headings, recorded), ""]] if recorded else []
    tables += [["## Transcribed", "", BY_HAND, "", table(headings, by_hand), ""]] if by_hand else []
    more = [*(["## Over seeds", ""] if by_hand else []), page.more(documents), ""] if page.more else []
    machines = [f"- **{document['name']}**: {described(document['machine'])}" for document in documents]
    sources = [source_of(document, record) for document in documents for record in document["records"]]
    return "\n".join([f"# {page.title}", "", "<!-- made by tools/make_results.py of docs/results/data: change it there -->", "", page.about, SHOWN, "", *(line for part in tables for line in part), *more, "## Machines and commands", "", *machines, "", *sources, ""])


def names_of_machines(documents):
    """A machine of which nothing was recorded by a command says so."""
    return ", ".join(document["name"] + (" (transcribed)" if all(record.get("transcribed") for record in document["records"]) else "") for document in documents)


def index_text(found):
    lines = [[f"[{PAGES[subject].title}]({subject}.md)", names_of_machines(found[subject])] for subject in PAGES if subject in found]
    return "\n".join(["# Results", "", "<!-- made by tools/make_results.py of docs/results/data: change it there -->", "",
                      "What was measured, a page per subject. The pages and README's figures are made by `tools/make_results.py` of the files in `docs/results/data`, which `bench/record.py` writes; figures that were written down by hand stand apart as transcribed, and README shows none of them. "
                      "How to measure: [benchmarking](../benchmarking.md).", "", table(["subject", "machines"], lines), ""])


# ---- README --------------------------------------------------------------------------------------------------------------------------------------------------------------------


def at_their_best(document):
    """Padded steps of README's models: {(rival, type): {model: the entry that is the least favourable of all forms and memories}}, of recorded runs with enough warm-up, where the rival had tcmalloc and huge pages too."""
    groups = {}
    for entry in least_favourable(PAGES["rivals"], document):
        row = entry["row"]
        if not entry["transcribed"] and row["warm_up"] >= LEAST_WARM_UP and row["lengths"] == "padded" and row["model"] in README_MODELS:
            groups.setdefault((row["rival"], row["type"]), {}).setdefault(row["model"], []).append(entry)
    best = {}
    for name, models in groups.items():
        for model, entries in models.items():
            if any("tcmalloc, huge pages" in entry["row"]["allocator"] for entry in entries):
                best.setdefault(name, {})[model] = min(entries, key=lambda entry: entry["row"]["ratio"])
    return best


def told_runs(counts):
    """Of how many runs each figure is the least favourable."""
    least, most = min(counts), max(counts)
    return "one run each" if most == 1 else f"of {least} runs each the least favourable" if least == most else f"of {least} to {most} runs each the least favourable"


def readme_cell(entry):
    """Rounded down."""
    return f"{math.floor(entry['row']['ratio'] * 10) / 10:.1f} times as fast" if entry else "not recorded"


def headline(document):
    """(type, {model: entry}) against README's rival on a machine: of the type with which most models were recorded, bf16 before f32. None: no such record."""
    kinds = {kind: models for (rival, kind), models in at_their_best(document).items() if rival == README_RIVAL}
    return max(kinds.items(), key=lambda one: (len(one[1]), one[0] == "bf16"), default=None)


def readme_rivals(found):
    """A row for each machine: the least favourable run of the form and the memory in which the rival is best."""
    lines, counts = [], []
    for document in found.get("rivals", []):
        if best := headline(document):
            kind, models = best
            counts += [entry["runs"] for entry in models.values()]
            lines.append([document["name"], kind, *(readme_cell(models.get(model)) for model in README_MODELS)])
    if not lines:
        return "Nothing was recorded yet."
    return (table(["CPU class", "type", *map(text, README_MODELS)], lines)
            + f"\n\nRecorded by a command, {told_runs(counts)}, rounded down; PyTorch in its fastest form with tcmalloc and\nhuge pages ([conditions and other rivals](docs/results/rivals.md)).")


def newest_tests(found):
    """(document, row) of the newest recorded run: older ones are of trees with fewer tests. Of several that day the one with the least that passed."""
    entries = [(document, entry["row"]) for document in found["tests"] for entry in least_favourable(PAGES["tests"], document) if not entry["transcribed"]]
    newest = max(row["date"] for _, row in entries)
    return min(((document, row) for document, row in entries if row["date"] == newest), key=lambda one: one[1]["passed"])


def readme_tests(found):
    document, row = newest_tests(found)
    return f"`{row['passed']} passed, {row['failed']} failed, {row['skipped']} skipped`\n({document['name']}, {row['date']}, commit {row['commit']}; [others](docs/results/tests.md))"


README_MODELS = ("minilm", "bert-base")
README_RIVAL = "torch"
README_PARTS = {"rivals": readme_rivals, "tests": readme_tests}


def filled(readme, found):
    for name in re.findall(r"<!-- results: (\w+) -->", readme):
        readme = re.sub(rf"(<!-- results: {name} -->\n).*?(<!-- end of results -->)", lambda part, name=name: part[1] + README_PARTS[name](found) + "\n" + part[2], readme, flags=re.S)
    return readme


# ---- the program ---------------------------------------------------------------------------------------------------------------------------------------------------------------


def wanted(root):
    """{path: text} of everything that is made."""
    found = load(root / "docs/results/data")
    pages = {root / f"docs/results/{subject}.md": page_text(subject, documents) for subject, documents in found.items()}
    readme = root / "README.md"
    return {**pages, root / "docs/results/README.md": index_text(found), readme: filled(readme.read_text(encoding="utf-8"), found)}


def differences(root):
    """What stands there and is not what the data say."""
    made = wanted(root)
    superseded = [f"docs/results/data/{subject}.{document['name']}.json: a transcribed record is superseded by a recorded one: remove it"
                  for subject, documents in load(root / "docs/results/data").items() for document in documents if len(without_superseded(document)) < len(document["records"])]
    wrong = superseded + [f"{path.relative_to(root)} is not what docs/results/data say" for path, content in made.items() if not path.is_file() or path.read_text(encoding="utf-8") != content]
    wrong += [f"{path.relative_to(root)} is made of no data" for path in sorted((root / "docs/results").glob("*.md")) if path not in made]
    readme = (root / "README.md").read_text(encoding="utf-8")
    wrong += [f"README.md has no part <!-- results: {name} -->" for name in README_PARTS if f"<!-- results: {name} -->" not in readme]
    return wrong


def tests_of(build):
    """How many tests ctest knows of a build."""
    listed = subprocess.run(["ctest", "--test-dir", build, "-N"], capture_output=True, text=True, check=True).stdout
    return int(re.search(r"Total Tests: (\d+)", listed)[1])


def tests_away(found, registered):
    """What is wrong with README's count of tests beside that of a build or a whole run: no or one line."""
    _, row = newest_tests(found)
    ran = row["passed"] + row["failed"] + row["skipped"]
    if abs(ran - registered) <= TESTS_AWAY * registered:
        return []
    return [f"README.md says that {ran} tests ran (commit {row['commit']}), and the build has {registered}: bench/record.py tests --runs 1 -- scripts/test.sh"]


def rivals_run(ratio, model="minilm", skip=3, allocator="tcmalloc", valid=True):
    side = lambda name, seconds: {"side": name, "allocator": "" if name == "tandem" else allocator, "dtype": "bf16", "seconds": {"median": seconds, "min": seconds, "max": seconds}}
    return {"valid": valid, "rival": "torch", "model": model, "lengths": "padded", "skip": skip, "results": [side("tandem", 1.0), side("eager", ratio)]}


def self_test_of_headlines():
    """What README shows: recorded, warmed up, with tcmalloc and huge pages measured, the least favourable, rounded down."""
    machine = {"cpu": "x", "class": "avx2", "cores": 2}
    by_hand = {"command": "c --skip 3", "date": "2026-01-01", "transcribed": True,
               "runs": [{"rows": [{"model": "bert-base", "type": "bf16", "lengths": "padded", "rival": "torch", "form": "eager", "allocator": "tcmalloc", "tandem": 1, "seconds": 1.5}]}]}
    shown = lambda *runs: readme_rivals({"rivals": [{"name": "m", "machine": machine, "records": [by_hand, {"command": "c --tcmalloc f", "date": "2026-01-02", "runs": list(runs)}]}]})
    assert "| m | bf16 | 2.9 times as fast | not recorded |" in shown(rivals_run(2.99)) and "one run each" in shown(rivals_run(2.99)), shown(rivals_run(2.99))
    several = shown(rivals_run(2.99), rivals_run(2.5), rivals_run(1.1, valid=False), rivals_run(3.5, allocator="glibc"), rivals_run(5.0, "bert-base"))
    assert "| 2.5 times as fast | 5.0 times" in several and "of 1 to 2 runs each" in several, several
    assert "| 2.0 times as fast |" in shown(rivals_run(2.5), rivals_run(2.0, allocator="glibc")), "the memory that suits the rival best"
    for none in (rivals_run(2.5, skip=1), rivals_run(2.5, allocator="glibc")):
        assert "times as fast" not in shown(none), "a rival that was not warmed up, or had no tcmalloc"


def self_test_of_records():
    """A recorded row takes the place of a transcribed one, and the count of tests is compared with a build."""
    row = lambda passed: [{"rows": [{"passed": passed, "failed": 0, "skipped": 1}]}]
    by_hand = {"command": "c", "date": "2026-01-03", "transcribed": True, "runs": row(9)}
    recorded = {"command": "d", "date": "2026-01-02", "versions": {"tandem": "abc"}, "runs": row(7)}
    document = {"subject": "tests", "name": "m", "machine": {"cpu": "x"}, "records": [by_hand, recorded]}
    assert without_superseded(document) == [recorded] and without_superseded({**document, "records": [by_hand]}) == [by_hand]
    assert [entry["row"]["passed"] for entry in least_favourable(PAGES["tests"], document)] == [7]
    found = {"tests": [document]}
    assert "7 passed, 0 failed, 1 skipped" in readme_tests(found) and "commit abc" in readme_tests(found) and count_transcribed(found) == (1, 2)
    assert not tests_away(found, 8) and tests_away(found, 9) and tests_away(found, 7)
    one_seed = {"seeds": 3, "hf_seeds": 1, "within": True}
    with_spread_of_both(one_seed)
    assert one_seed["within"] is None


def self_test():
    self_test_of_headlines()
    self_test_of_records()
    machine = {"cpu": "x", "class": "avx2", "cores": 2}
    document = {"subject": "rivals", "machine": machine, "records": [{"command": "c", "date": "2026-01-02", "runs": [rivals_run(4.0), rivals_run(2.0), rivals_run(1.0, valid=False)]}]}
    tests_on = lambda date, passed: {"subject": "tests", "machine": machine, "records": [{"command": "c", "date": date, "runs": [{"rows": [{"passed": passed, "failed": 0, "skipped": 1}]}]}]}
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        (root / "docs/results/data").mkdir(parents=True)
        (root / "docs/results/data/rivals.m.json").write_text(json.dumps(document))
        (root / "docs/results/data/tests.m.json").write_text(json.dumps(tests_on("2026-01-02", 7)))
        (root / "docs/results/data/tests.old.json").write_text(json.dumps(tests_on("2026-01-01", 5)))
        (root / "README.md").write_text("a\n<!-- results: rivals -->\n<!-- end of results -->\n<!-- results: tests -->\n<!-- end of results -->\n")
        assert differences(root), "nothing was made yet"
        for path, content in wanted(root).items():
            path.write_text(content, encoding="utf-8")
        assert not differences(root), differences(root)
        assert "2.0 times as fast" in (root / "README.md").read_text() and "| 2.00 | 2 |" in (root / "docs/results/rivals.md").read_text(), "not the least favourable of the valid runs"
        for path, old, new in ((root / "README.md", "2.0 times", "2.1 times"), (root / "README.md", "7 passed", "8 passed"), (root / "docs/results/rivals.md", "2.00", "2.10")):
            content = path.read_text()
            path.write_text(content.replace(old, new))
            assert len(differences(root)) == 1, f"{path.name} with {new} for {old} was not noticed"
            path.write_text(content)
        (root / "docs/results/old.md").write_text("x")
        assert len(differences(root)) == 1, "a page without data was not noticed"
        by_hand = {**tests_on("2026-01-01", 5)["records"][0], "command": "d", "transcribed": True}
        (root / "docs/results/data/tests.old.json").write_text(json.dumps({**tests_on("2026-01-01", 5), "records": [*tests_on("2026-01-01", 5)["records"], by_hand]}))
        assert any("superseded" in line for line in differences(root)), "a superseded record was not noticed"
    print("make_results: self-test passed")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--build", metavar="DIR", help="with --check: compare README's count of tests with those of this build")
    options = parser.parse_args()
    if options.self_test:
        return self_test()
    if options.check:
        wrong = differences(ROOT) + (tests_away(load(ROOT / "docs/results/data"), tests_of(options.build)) if options.build else [])
        print("\n".join([*wrong, f"make_results: {len(wrong)} differences"]))
        return 1 if wrong else 0
    for path, content in wanted(ROOT).items():
        path.write_text(content, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
