"""Rows and cells of the tables that tools/make_results.py prints, from what the benches wrote into docs/results/data.

READERS has a function per subject whose bench writes results of its own; other subjects are recorded as rows. DERIVE has a
function per subject that adds to a row what follows from it.
"""

import re
import statistics

# Names of sides in bench/rivals.py that have one form only.
ONLY_FORMS = {"tensorflow": "graph", "ipex": "ipex.optimize"}
# Gloo is measured alone, and as torch.distributed calls it: its time would not be the best compared with an MPI's.
GLOO = ("Gloo", "torch.distributed")
MPIS = ("MPICH", "Open MPI", "Intel MPI", "oneCCL", *GLOO)
ALONE = "a call that waits for no other rank"
DECODER_WORK = {"full": "full step", "lora": "LoRA step", "generate": "new token"}
NAMES = {
    "minilm": "MiniLM",
    "bert-base": "BERT-base",
    "bert-large": "BERT-large",
    "deberta-v3-base": "DeBERTa-v3-base",
    "deberta-v3-small": "DeBERTa-v3-small",
    "distilbert": "DistilBERT",
    "squad": "SQuAD's",
    "sst2": "SST-2's",
    "longest": "to the longest",
    "max": "to the limit",
    "pipeline": "pipeline, text by text",
    "batched": "pipeline, batches",
    "trainer": "Trainer",
    "plain": "not elastic",
    "torch": "PyTorch",
    "tensorflow": "TensorFlow",
    "ipex": "IPEX",
}


def middle(value):
    return value[0] if isinstance(value, list) else value


# ---- numbers as people read them --------------------------------------------------------------------------------------


def three_digits(value):
    if value == 0 or not isinstance(value, (int, float)):
        return str(value)
    magnitude = abs(value)
    return (
        f"{value:,.0f}"
        if magnitude >= 100
        else f"{value:.1f}"
        if magnitude >= 10
        else f"{value:.2f}"
        if magnitude >= 1
        else f"{value:.3f}"
        if magnitude >= 0.1
        else f"{value:.3g}"
    )


def spread(shown):
    """A form for one value, [low, high] or [median, low, high]."""

    def show(value):
        if not isinstance(value, list):
            return shown(value)
        return f"{shown(value[0])} ({shown(value[1])} – {shown(value[2])})" if len(value) == 3 else f"{shown(value[0])} to {shown(value[1])}"

    return show


def bytes_of(value):
    for unit, size in (("MB", 2**20), ("KB", 2**10)):
        if value >= size:
            return f"{value // size} {unit}"
    return f"{value} B"


def text(value):
    return NAMES.get(value, str(value))


FORMS = {
    "text": text,
    "whole": lambda value: f"{value:,}" if isinstance(value, int) else str(value),
    "bytes": bytes_of,
    "mebibytes": lambda value: f"{value / 2**20:,.0f}",
    "build": lambda value: {"old": "without", "new": "with"}.get(value, text(value)),
    "yes_no": lambda value: "yes" if value else "no",
    "number": spread(three_digits),
    "percent": spread(lambda value: f"{value * 100:.1f} %"),
    "factor": spread(lambda value: f"{value:.2f}"),
    "ratio": spread(lambda value: f"{value:.3f}"),
    "four_digits": spread(lambda value: f"{value:.4f}"),
}


def cell(form, value):
    return "" if value is None else FORMS[form](value)


# ---- readers ----------------------------------------------------------------------------------------------------------


def three(times):
    return [times["median"], times["min"], times["max"]]


def rows_of_steps(run):
    for result in run["results"]:
        model, _, lengths = result["name"].split(" ")
        products = re.compile(r"^(qkv|attention|attention output|up|down) (forward|backward|dX|dW)$")
        share = sum(stage["seconds"] for stage in result["breakdown"] if products.match(stage["stage"])) / result["breakdown_of_seconds"]
        yield {
            "model": model,
            "type": result["dtype"],
            "lengths": lengths,
            "seconds": three(result["seconds"]),
            "share": three(result["share"]),
            "products": share,
        }


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


def rows_of_int8_products(run):
    """One row for a product: seconds in each type, with the names of the bench."""
    implementations = dict(choice.split("=") for choice in run["kernels"].split(","))
    rows = {}
    for result in run["results"]:
        name, _, dynamic = result["name"].partition(" forward")
        row = rows.setdefault(name, {"product": name, "kernels": implementations["int8"]})
        row["dynamic" if dynamic else result["dtype"]] = three(result["seconds"])
        if result["dtype"] == "int8" and not dynamic:
            row["share"] = three(result["share"])
    yield from rows.values()


def rows_of_attention(run):
    for result in run["results"]:
        heads, lengths, direction = result["name"].split(" ")
        yield {
            "heads": heads,
            "lengths": lengths,
            "direction": direction,
            "type": result["dtype"],
            "seconds": three(result["seconds"]),
            "share": three(result["share"]),
        }


def rows_of_peak(run):
    for result in run["results"]:
        yield {"what": result["name"], "threads": result["threads"], "rate": three(result["rate"]), "unit": result["unit"]}


def memory_of(column, command):
    """The allocator that a column of bench/rivals.py stands for."""
    columns = {
        "glibc": "glibc",
        "hugepages": "huge pages",
        "tcmalloc": "tcmalloc, huge pages",
        "iomp": "iomp, tcmalloc, huge pages" if "--tcmalloc " in command else "iomp, huge pages",
    }
    return columns[column]


def rows_of_rivals(run):
    ours = {result["dtype"]: result["seconds"] for result in run["results"] if result["side"] == "tandem"}
    for result in run["results"]:
        if result["side"] != "tandem":
            yield {
                "model": run["model"],
                "type": result["dtype"],
                "lengths": run["lengths"],
                "rival": run["rival"],
                "form": ONLY_FORMS.get(result["side"], result["side"]),
                "allocator": memory_of(result["allocator"], run["command"]),
                "warm_up": run["skip"],
                "task": run.get("task"),
                "padding": run.get("rival_padding"),
                "batch": run.get("batch"),
                "length": run.get("seq"),
                "tandem": three(ours[result["dtype"]]),
                "seconds": three(result["seconds"]),
            }


def rows_of_embedding_rivals(run):
    for row in rows_of_rivals(run):
        yield {**row, "what": run["what"], "loss": run["loss"] if run["what"] == "train" else "", "batch": run["batch"]}


def rows_of_decoder_rivals(run):
    """As rows_of_rivals(), with the memory of both sides."""
    held = {(result["side"], result["allocator"], result["dtype"]): result["memory"] for result in run["results"]}
    theirs = [result for result in run["results"] if result["side"] != "tandem"]
    for row, result in zip(rows_of_rivals(run), theirs):
        kind = result["dtype"]
        memory = {"tandem_memory": held["tandem", "", kind], "memory": held[result["side"], result["allocator"], kind]}
        yield {**row, **memory, "what": DECODER_WORK[run["what"]], "length": run["length"]}


def rows_of_serve(run):
    ours = {result["clients"]: result for result in run["results"] if result["side"] == "tandem"}
    for result in run["results"]:
        if result["side"] != "tandem":
            tandem = ours[result["clients"]]
            yield {
                "model": run["model"],
                "clients": result["clients"],
                "form": result["side"],
                "allocator": memory_of(result["allocator"], run["command"]),
                "tandem": three(tandem["rate"]),
                **{f"tandem_{name}": three(tandem[name]) for name in ("p50", "p99")},
                **{name: three(result[name]) for name in ("rate", "p50", "p99")},
            }


def rows_of_latency(run):
    ours = {(result["dtype"], result["tokens"]): result for result in run["results"] if result["side"] == "tandem"}
    for result in run["results"]:
        if result["side"] != "tandem":
            tandem = ours[result["dtype"], result["tokens"]]
            yield {
                "model": run["model"],
                "type": result["dtype"],
                "tokens": result["tokens"],
                "form": result["side"],
                "allocator": memory_of(result["allocator"], run["command"]),
                **{f"tandem_{name}": three(tandem[name]) for name in ("p50", "p99")},
                **{name: three(result[name]) for name in ("p50", "p99")},
            }


def rows_of_predict(run):
    ours = {result["dtype"]: result for result in run["results"] if result["side"] == "tandem"}
    for result in run["results"]:
        if result["side"] != "tandem":
            tandem = ours[result["dtype"]]
            alike = {name: tandem[name]["median"] / result[name]["median"] for name in ("with_start", "without_start") if name in result}
            yield {
                **alike,
                "what": run["what"],
                "model": run["model"],
                "type": result["dtype"],
                "rival": result["side"],
                "allocator": memory_of(result["allocator"], run["command"]),
                "tandem": three(tandem["rate"]),
                "rate": three(result["rate"]),
            }


def rows_of_comm(run):
    names = {
        "tandem private": "private",
        "tandem communicator": "communicator",
        "mpich": "MPICH",
        "openmpi": "Open MPI",
        "impi": "Intel MPI",
        "oneccl": "oneCCL",
        "gloo": "Gloo",
        "torch": "torch.distributed",
    }
    for size, found in run["results"].items():
        yield {"operation": run["operation"], "bytes": int(size), **{names[column]: median for column, median in found["median"].items() if column in names}}


def rows_of_limits(run):
    """`tandem bench comm --memory both`: staged for private buffers, direct in memory of the communicator."""
    limits, found = {"private": "staged", "communicator": "direct"}, {}
    for result in run["results"]:
        row = found.setdefault((result["operation"], result["bytes"]), {"operation": result["operation"], "bytes": result["bytes"]})
        limit = limits[result["memory"]]
        row |= {result["memory"]: result["microseconds"]["median"], limit: result.get(f"limit_{limit}_microseconds")}
    yield from found.values()


def rows_of_optimizer(run):
    for result in run["results"]:
        model, _, what = result["name"].partition(" ")
        copies = {
            "AdamW": "no",
            "AdamW with a bf16 copy": "yes",
            "update": "no, a rank's update in a job",
            "update that others can finish": "no, the same, kept so that others can finish it",
        }
        if what in copies:
            yield {"model": model, "copy": copies[what], "share": three(result["share"])}


def with_ratio(row):
    if "ratio" not in row and row.get("tandem"):
        row["ratio"] = middle(row["seconds"]) / middle(row["tandem"])


def with_failure_ratio(row):
    if row.get("seconds") and row.get("tandem_seconds"):
        row["ratio"] = middle(row["seconds"]) / middle(row["tandem_seconds"])


def with_rate_ratio(row):
    row["ratio"] = middle(row["tandem"]) / middle(row["rate"])


def with_latency_ratio(row):
    row["ratio"] = middle(row["p50"]) / middle(row["tandem_p50"])


def with_one_name(row):
    """scripts/quality.sh writes "none" if the flag is not given."""
    row["padding"] = {"none": "not given"}.get(row["padding"], row["padding"])


def with_spread_of_both(row):
    """One seed has no spread."""
    if min(row["seeds"], row["hf_seeds"]) < 2:
        row["within"] = None


def with_share_of_plan(row):
    if row.get("planned"):
        row["share"] = row["used"] / row["planned"]


def with_gloo_at_its_best(row):
    """A ratio only if Gloo was started several times and its calls followed each other, as in bench/compare_comm.py."""
    row["quotient"] = row["gloo"] / row["tandem"]
    if row["what"] != ALONE:
        row.setdefault("gloo_starts", 1)
    row["times"] = row["quotient"] if row.get("gloo_starts") != 1 else None


def with_comm_ratios(row):
    rivals = [row[name] for name in MPIS if row.get(name)]
    for memory in ("private", "communicator"):
        if row.get(memory) and rivals:
            row["ratio_" + memory] = min(rivals) / middle(row[memory])


READERS = {
    "steps": rows_of_steps,
    "products": rows_of_products,
    "int8_products": rows_of_int8_products,
    "attention": rows_of_attention,
    "peak": rows_of_peak,
    "rivals": rows_of_rivals,
    "label_rivals": rows_of_rivals,
    "long_rivals": rows_of_rivals,
    "mlm_rivals": rows_of_rivals,
    "embedding_rivals": rows_of_embedding_rivals,
    "decoder_rivals": rows_of_decoder_rivals,
    "serve_rivals": rows_of_serve,
    "latency_rivals": rows_of_latency,
    "predict": rows_of_predict,
    "collectives": rows_of_comm,
    "collectives_limits": rows_of_limits,
    "optimizer": rows_of_optimizer,
}
DERIVE = {
    "rivals": with_ratio,
    "label_rivals": with_ratio,
    "long_rivals": with_ratio,
    "mlm_rivals": with_ratio,
    "embedding_rivals": with_ratio,
    "decoder_rivals": with_ratio,
    "serve_rivals": with_rate_ratio,
    "latency_rivals": with_latency_ratio,
    "predict": with_rate_ratio,
    "collectives": with_comm_ratios,
    "memory": with_share_of_plan,
    "quality": with_one_name,
    "quality_labels": with_spread_of_both,
    "failure_rivals": with_failure_ratio,
    "torch_collectives": with_gloo_at_its_best,
}
