"""all_reduce through torch.distributed, in turns with gloo, on the ranks that a launcher started:

    torchrun --nproc-per-node 2 python/bench/all_reduce.py [--json FILE]

Prints, per size, the median microseconds of the slowest rank, with tandem also of a tensor in memory of the communicator
(tandem_torch.share_memory), and for 8 bytes what a call costs that waits for nobody (a group of one): what Python and
the library take of every call."""

import argparse
import json
import statistics
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import tandem_torch

SIZES = [8, 256, 4096, 65536, 1 << 20, 4 << 20, 16 << 20, 64 << 20]
TURNS = 5


def microseconds(group, data, times):
    found = []
    for _ in range(times):
        dist.barrier(group)
        start = time.perf_counter()
        dist.all_reduce(data, group=group)
        found.append((time.perf_counter() - start) * 1e6)
    return statistics.median(found)


def compare(groups, size):
    """{backend, or "shared": median over the turns of the slowest rank's microseconds}"""
    data, shared = torch.zeros(size // 4), torch.zeros(size // 4)
    assert tandem_torch.share_memory(shared, groups["tandem"])
    ways = {**{name: (group, data) for name, group in groups.items()}, "shared": (groups["tandem"], shared)}
    times = max(5, min(200, (8 << 20) // size))
    medians = {name: [] for name in ways}
    for _ in range(TURNS):
        for name, (group, data) in ways.items():
            slowest = torch.tensor([microseconds(group, data, times)])
            dist.all_reduce(slowest, dist.ReduceOp.MAX)
            medians[name].append(slowest.item())
    return {name: statistics.median(found) for name, found in medians.items()}


def alone(backend):
    """Microseconds of a call that waits for nobody."""
    everybody = range(dist.get_world_size())
    group = [dist.new_group([rank], backend=backend) for rank in everybody][dist.get_rank()]
    one, found = torch.zeros(2), []
    for _ in range(2000):
        start = time.perf_counter()
        dist.all_reduce(one, group=group)
        found.append((time.perf_counter() - start) * 1e6)
    return statistics.median(found)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    arguments = parser.parse_args()
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    everybody = list(range(dist.get_world_size()))
    groups = {name: dist.new_group(everybody, backend=name) for name in ("tandem", "gloo")}
    measured = [("all_reduce", size, compare(groups, size)) for size in SIZES]
    measured.append(("a call that waits for nobody", 8, {name: alone(name) for name in groups}))
    rows = [{"what": what, "ranks": len(everybody), "bytes": size, "tandem": found["tandem"], "gloo": found["gloo"],
             "shared": found.get("shared"), "times": found["gloo"] / found["tandem"]} for what, size, found in measured]
    if dist.get_rank() == 0:
        for row in rows:
            print(f"{row['what']}\t{row['bytes']} bytes\ttandem {row['tandem']:.1f} us\t"
                  f"shared {row['shared'] or 0:.1f} us\tgloo {row['gloo']:.1f} us\t"
                  f"{row['times']:.1f} times", flush=True)
        if arguments.json:
            with open(arguments.json, "w") as file:
                json.dump({"versions": {"torch": torch.__version__}, "rows": rows}, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
