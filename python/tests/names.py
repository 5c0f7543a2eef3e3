"""The names by which scripts ask for tandem, on the ranks that a launcher started:

    TANDEM_TORCH_REPLACE=gloo torchrun --nproc-per-node 2 python/tests/names.py

gloo in whose place tandem stands, and ccl by the modules of oneCCL's bindings. Prints "all names answer"."""

import os
import subprocess

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

import tandem_torch  # noqa: F401
import oneccl_bindings_for_pytorch
import torch_ccl


def answers(name, store, rank, size):
    dist.init_process_group(name, store=dist.PrefixStore(name, store), rank=rank, world_size=size)
    found = torch.ones(3)
    dist.all_reduce(found)
    assert found.tolist() == [dist.get_world_size()] * 3, found
    assert dist.distributed_c10d._get_default_group().getBackendName() == "tandem"
    if name == "gloo":
        dist.monitored_barrier()  # torch up to 2.9 refuses it for groups of other names
    dist.destroy_process_group()


def main():
    world = next(rendezvous("env://"))  # of both: a second store at the same port may get requests for the first one
    answers("ccl", *world)
    answers("gloo", *world)
    for file in ("setvars.sh", "vars.sh"):
        subprocess.run(["sh", "-euc", f". {torch_ccl.cwd}/env/{file}"], check=True)
    assert oneccl_bindings_for_pytorch.oneccl_bindings_for_pytorch_path == oneccl_bindings_for_pytorch.cwd
    if os.environ["RANK"] == "0":
        print("all names answer", flush=True)


if __name__ == "__main__":
    main()
