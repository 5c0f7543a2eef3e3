"""Ranks that meet by their launcher's variables, without RANK or MASTER_ADDR by hand:

    mpirun.mpich -n 2 python python/tests/launched.py

Prints "N ranks met" on rank 0."""

from datetime import timedelta

import torch
import torch.distributed as dist

import tandem_torch  # noqa: F401


def main():
    dist.init_process_group("tandem", init_method="tandem://", timeout=timedelta(seconds=60))
    ones = torch.ones(3)
    dist.all_reduce(ones)
    assert ones.tolist() == [dist.get_world_size()] * 3, ones
    part = dist.new_group([0])
    if dist.get_rank() == 0:
        dist.all_reduce(ones, group=part)
        print(f"{dist.get_world_size()} ranks met", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
