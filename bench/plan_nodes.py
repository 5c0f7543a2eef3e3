#!/usr/bin/env python3
"""Predictions of `tandem plan` for nodes that are not here: published systems, and nodes of two to eight sockets.

    bench/plan_nodes.py [--tandem FILE] [--json FILE]
    bench/record.py planned_nodes --runs 1 -- bench/plan_nodes.py

Nothing is measured. A published system has one entry that sets the share of its cores' peak, because its software is not tandem; the other
entry is predicted with it and compared. Assumptions are the constants of this file, each with its reason.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
AMX = 1024  # bf16 FLOP that a core with AMX does per cycle
SUSTAINED = 0.8  # of the nominal rate of memory, as STREAM reaches on such servers

# Sapphire Rapids 8480+: base clock 2.0 GHz; eight channels DDR5-4800; links: three UPI of 48 GB/s, sustained as memory.
XEON_8480 = {
    "core_peak_gflops": AMX * 2.0,
    "socket_memory_gbytes_per_second": SUSTAINED * 8 * 4.8 * 8,
    "socket_link_gbytes_per_second": SUSTAINED * 3 * 48,
}
# 32 cores of a cloud's Sapphire Rapids, one socket: 3.0 GHz on all cores; the same memory. Its links have no use.
CLOUD_32 = {**XEON_8480, "core_peak_gflops": AMX * 3.0}
# Granite Rapids with 60 cores: 2.2 GHz under AMX; eight channels DDR5-6400; links: four UPI of 72 GB/s.
GRANITE = {
    "core_peak_gflops": AMX * 2.2,
    "socket_memory_gbytes_per_second": SUSTAINED * 8 * 6.4 * 8,
    "socket_link_gbytes_per_second": SUSTAINED * 4 * 72,
}
# 64 cores of Zen 4: two 512-bit products of 32 bf16 pairs take two cycles; 2.9 GHz; twelve channels DDR5-4800; links: three xGMI of 64 GB/s.
EPYC = {
    "core_peak_gflops": 64 * 2.9,
    "socket_memory_gbytes_per_second": SUSTAINED * 12 * 4.8 * 8,
    "socket_link_gbytes_per_second": SUSTAINED * 3 * 64,
}
# Shares of the core's peak that forward and backward reach, as docs/results/steps.md has them for two cores: BERT-base with AMX, MiniLM on Zen 4.
SHARE_AMX, SHARE_ZEN4 = 0.167, 0.742

BERT_BASE = ["--model", "bert-base", "--batch", "12", "--seq", "384"]
MLPERF = ["--model", "bert-large", "--task", "fill-mask", "--seq", "512", "--ranks-per-node", "4", "--link", "200"]
BLOG = ["--model", "distilbert", "--batch", "32", "--seq", "384", "--link", "25"]
# name, node, topology, words of the entry that sets the share, its seconds, words of the other entry, its seconds
PUBLISHED = [
    (
        "MLPerf Training 3.0, BERT-large, 8 and 16 nodes of 2 x 56 cores",
        XEON_8480,
        "pack:2 numa:1 core:56 pu:2",
        [*MLPERF, "--nodes", "8", "--batch", "64"],
        2048 / 535,
        [*MLPERF, "--nodes", "16", "--batch", "48"],
        3072 / 1017,
    ),
    (
        "Trainer with IPEX and oneCCL, DistilBERT, 1 and 4 nodes of 32 cores",
        CLOUD_32,
        "pack:1 numa:1 core:32 pu:2",
        [*BLOG, "--nodes", "1", "--ranks-per-node", "1"],
        32 / 56.7,
        [*BLOG, "--nodes", "4", "--ranks-per-node", "2"],
        4 * 2 * 32 / 197,
    ),
]
# name, node, share, topology, ranks
DESCRIBED = [
    ("2 x 60 Granite Rapids", GRANITE, SHARE_AMX, "pack:2 numa:1 core:60 pu:2", (1, 2, 4)),
    ("2 x 60 Granite Rapids, three domains a socket", GRANITE, SHARE_AMX, "pack:2 numa:3 core:20 pu:2", (2, 6)),
    ("2 x 64 Zen 4", EPYC, SHARE_ZEN4, "pack:2 numa:1 core:64 pu:2", (1, 2, 8)),
    ("2 x 64 Zen 4, NPS4", EPYC, SHARE_ZEN4, "pack:2 numa:4 core:16 pu:2", (2, 8)),
    ("2 x 64 Zen 4, without SMT", EPYC, SHARE_ZEN4, "pack:2 numa:1 core:64 pu:1", (2,)),
    ("4 x 60 Granite Rapids", GRANITE, SHARE_AMX, "pack:4 numa:1 core:60 pu:2", (1, 4)),
    ("8 x 60 Granite Rapids", GRANITE, SHARE_AMX, "pack:8 numa:1 core:60 pu:2", (1, 8)),
]


def planned(options, node, share, topology, words):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({**node, "share_of_core_peak": share}, file)
        file.flush()
        command = [options.tandem, "plan", "--node", file.name, "--topology", topology, "--json", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout)


def seconds(plan):
    return plan["clusters"][0]["seconds_per_step"]


def fitted_share(options, node, topology, words, wanted):
    """The share of the cores' peak with which the prediction is the published time, by bisection."""
    least, most = 0.001, 1.0
    for _ in range(40):
        middle = (least + most) / 2
        slower = seconds(planned(options, node, middle, topology, words)) > wanted
        least, most = (middle, most) if slower else (least, middle)
    return least


def row(plan, **more):
    cluster = plan["clusters"][0]
    return {
        **more,
        "ranks": cluster["ranks"],
        "seconds": cluster["seconds_per_step"],
        "optimizer": 1e3 * cluster["optimizer_seconds"],
        "sums": 1e3 * cluster["reduction_seconds"],
        "tokens": round(cluster["tokens_per_second"]),
    }


def rows_of(options):
    for name, node, topology, first, first_seconds, second, second_seconds in PUBLISHED:
        share = fitted_share(options, node, topology, first, first_seconds)
        for words, published in ((first, first_seconds), (second, second_seconds)):
            plan = planned(options, node, share, topology, words)
            yield row(plan, what=name, binding="bound", share=share, published=published)
    for name, node, share, topology, ranks in DESCRIBED:
        for count in ranks:
            for binding, words in (("bound", []), ("none", ["--unbound"])):
                plan = planned(options, node, share, topology, [*BERT_BASE, "--ranks-per-node", str(count), *words])
                yield row(plan, what=f"{name}, BERT-base", binding=binding, share=share)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("--tandem", default=str(ROOT / "build/release/bin/tandem"))
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="the rows, as bench/record.py keeps them")
    options = parser.parse_args()
    rows = list(rows_of(options))
    for one in rows:
        published = f"published {one['published']:.3f}" if "published" in one else ""
        print(f"{one['what']:70} {one['ranks']:4} ranks {one['binding']:5} {one['seconds']:.4f} s {one['tokens']:12,.0f} tokens/s  {published}")
    if options.json:
        options.json.write_text(json.dumps({"rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
