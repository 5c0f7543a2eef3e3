"""all_reduce through torch.distributed, in turns with gloo, on the ranks that a launcher started:

    torchrun --nproc-per-node 2 python/bench/all_reduce.py

Prints, per size, the median microseconds of the slowest rank, and for 8 bytes what a call costs that waits for
nobody (a group of one)."""

import statistics
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import tandem_torch  # noqa: F401

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


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    everybody = list(range(dist.get_world_size()))
    groups = {name: dist.new_group(everybody, backend=name) for name in ("tandem", "gloo")}
    alone = [dist.new_group([rank], backend="tandem") for rank in everybody][dist.get_rank()]
    if dist.get_rank() == 0:
        print("bytes\ttandem us\tgloo us\tgloo / tandem")
    for size in SIZES:
        data = torch.zeros(size // 4)
        times = max(5, min(200, (8 << 20) // size))
        medians = {name: [] for name in groups}
        for _ in range(TURNS):
            for name, group in groups.items():
                slowest = torch.tensor([microseconds(group, data, times)])
                dist.all_reduce(slowest, dist.ReduceOp.MAX)
                medians[name].append(slowest.item())
        ours, theirs = (statistics.median(medians[name]) for name in ("tandem", "gloo"))
        if dist.get_rank() == 0:
            print(f"{size}\t{ours:.1f}\t{theirs:.1f}\t{theirs / ours:.1f}", flush=True)
    one = torch.zeros(2)
    found = []
    for _ in range(2000):
        start = time.perf_counter()
        dist.all_reduce(one, group=alone)
        found.append((time.perf_counter() - start) * 1e6)
    if dist.get_rank() == 0:
        print(f"a call that waits for nobody: {statistics.median(found):.1f} us")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
