"""Gloo as torch.distributed calls it, for compare_comm.py: it shows whether comm_gloo.cc does Gloo justice.

    RANK=r WORLD_SIZE=n comm_torch.py FILE in_place|out_of_place SECONDS ROUNDS OPERATION BYTES ...

Calls follow each other as in a training loop, in memory of torch's own; a figure is the median over a round's calls of the slowest rank's time. Prints "OPERATION BYTES MICROSECONDS" per round.
"""

import os
import sys
import time

import torch
import torch.distributed as dist


def operations(count, size):
    data, blocks = torch.zeros(count), [torch.zeros(count // size) for _ in range(size)]
    own, gathered = torch.zeros(count // size), torch.zeros(count)
    return data, {
        "all_reduce": lambda: dist.all_reduce(data),
        "broadcast": lambda: dist.broadcast(data, 0),
        "reduce": lambda: dist.reduce(data, 0),
        "all_gather": lambda: dist.all_gather(blocks, own),
        "all_to_all": lambda: dist.all_to_all_single(gathered, data),
        "gather": lambda: dist.gather(own, blocks if dist.get_rank() == 0 else None, 0),
        "barrier": lambda: dist.barrier(),
    }


def timed(call, calls):
    times = torch.empty(calls, dtype=torch.float64)
    for number in range(calls):
        begin = time.perf_counter()
        call()
        times[number] = time.perf_counter() - begin
    dist.all_reduce(times, dist.ReduceOp.MAX)
    return times.median().item()


def main():
    file, _, seconds, rounds, operation, *sizes = sys.argv[1:]
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}.store", rank=rank, world_size=size)
    for bytes_ in map(int, sizes):
        count = bytes_ // 4
        data, calls = operations(count, size)
        if operation == "all_reduce":
            data.copy_((torch.arange(count) + rank) % 7)
            calls[operation]()
            if not torch.equal(data, sum(((torch.arange(count) + r) % 7).float() for r in range(size))):
                sys.exit(f"wrong sums of {count}")
            data.zero_()
        trial = timed(calls[operation], 5)
        for _ in range(int(rounds)):
            taken = timed(calls[operation], max(5, min(2000, int(float(seconds) / max(trial, 1e-7)))))
            if rank == 0:
                print(operation, bytes_, f"{taken * 1e6:.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
