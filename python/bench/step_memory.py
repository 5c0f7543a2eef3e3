"""Memory of training with PyTorch, per kind of training and backend, each in ranks of its own:

    python python/bench/step_memory.py [--model minilm|bert-base] [--json FILE]

Prints the sum over two ranks of what a rank holds after some steps: parameters, the optimizer's state, gradients or
their buckets, and the backend's own; and of what is left when glibc has given its free memory back, which is some
hundred MiB and another amount in every run. Memory that ranks share counts once (Pss). Needs transformers."""

import argparse
import ctypes
import json
import os
import re
import subprocess
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
import transformers

import tandem_torch  # noqa: F401
import training_step

RANKS = 2
WAYS = [("ddp", "tandem"), ("ddp", "gloo"), ("ddp with hook", "tandem"), ("fsdp2", "tandem"), ("fsdp2", "gloo")]


def held():
    """This process's bytes, without those of files such as libraries, whose share depends on the other processes that have them open."""
    with open("/proc/self/smaps_rollup") as file:
        return 1024 * sum(map(int, re.findall(r"^Pss_(?:Anon|Shmem):\s+(\d+)", file.read(), re.M)))


def run_rank(arguments):
    """One rank of a way; rank 0 prints the row."""
    dist.init_process_group(arguments.backend, timeout=timedelta(minutes=10))
    before = held()
    make = training_step.kinds_of(dist.group.WORLD, arguments.backend)[arguments.what]
    kind = training_step.Kind(make, arguments)
    after = held()
    dist.barrier()  # what others have is part of what this one shares with them
    ctypes.CDLL(None).malloc_trim(0)
    dist.barrier()
    found = torch.tensor([after, held(), before], dtype=torch.int64)
    dist.all_reduce(found)  # after all have looked
    if dist.get_rank() == 0:
        print(
            json.dumps(
                {
                    "what": arguments.what,
                    "backend": arguments.backend,
                    "model": arguments.model,
                    "ranks": RANKS,
                    "batch": arguments.batch,
                    "length": arguments.length,
                    "memory": found[0].item(),
                    "in_use": found[1].item(),
                    "before": found[2].item(),
                }
            ),
            flush=True,
        )
    del kind
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=sorted(training_step.SHAPES), default="minilm")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--length", type=int, default=384)
    parser.add_argument("--json")
    parser.add_argument("--what")
    parser.add_argument("--backend")
    arguments = parser.parse_args()
    if arguments.what:
        return run_rank(arguments)
    rows = []
    for what, backend in WAYS:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "torch.distributed.run",
                "--standalone",
                "--nproc-per-node",
                str(RANKS),
                __file__,
                "--what",
                what,
                "--backend",
                backend,
                "--model",
                arguments.model,
                "--batch",
                str(arguments.batch),
                "--length",
                str(arguments.length),
            ],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        memory, in_use, before = (rows[-1][name] / 2**20 for name in ("memory", "in_use", "before"))
        print(f"{what}, {backend}: {memory:.0f} MiB, {in_use:.0f} in use, {before:.0f} before the model", flush=True)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"versions": {"torch": torch.__version__, "transformers": transformers.__version__}, "rows": rows}, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
