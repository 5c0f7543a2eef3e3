"""Training on the ranks that a launcher started, once per backend, with the same losses:

    torchrun --nproc-per-node 2 python/tests/training.py

DDP (with and without tandem_torch's hook), ZeroRedundancyOptimizer, FSDP2 and DTensor where the version has them on
CPUs. Prints one line per kind on rank 0."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import tandem_torch  # noqa: F401

STEPS = 5


def model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64))


def losses(net, optimizer, rank):
    """The losses of STEPS steps, summed over the ranks with their exact bits."""
    generator = torch.Generator().manual_seed(rank)
    found = []
    for _ in range(STEPS):
        rows = torch.randn(8, 64, generator=generator)
        loss = (net(rows) - rows.flip(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def ddp(rank, hook=None):
    net = DistributedDataParallel(model(), bucket_cap_mb=0.05, gradient_as_bucket_view=True)
    if hook is not None:
        net.register_comm_hook(None, hook)
    return losses(net, torch.optim.AdamW(net.parameters(), lr=1e-2), rank)


def zero(rank):
    net = DistributedDataParallel(model())
    return losses(net, ZeroRedundancyOptimizer(net.parameters(), torch.optim.AdamW, lr=1e-2), rank)


def fsdp(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    net = model()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in net:
        fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    return losses(net, torch.optim.AdamW(net.parameters(), lr=1e-2), rank)


def dtensor(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(2)
    left, right = torch.randn(8, 8), torch.randn(8, 8)
    product = distribute_tensor(left, mesh, [Shard(1)]) @ distribute_tensor(right, mesh, [Shard(0)])
    return product.redistribute(mesh, [Replicate()]).to_local().flatten().tolist()


def run(backend, kinds):
    dist.init_process_group(backend, timeout=timedelta(seconds=60))
    found = {}
    for name, kind in kinds.items():
        try:
            found[name] = kind(dist.get_rank())
        except (ImportError, AttributeError) as error:
            found[name] = f"not in this version: {error}"
    dist.destroy_process_group()
    return found


def main():
    def report(line):
        if os.environ["RANK"] == "0":
            print(line, flush=True)

    kinds = {"ddp": ddp, "ddp with hook": ddp, "zero": zero, "fsdp2": fsdp, "dtensor": dtensor}
    # tandem first: docs/pytorch.md has the reason.
    ours = run("tandem", {**kinds, "ddp with hook": lambda rank: ddp(rank, tandem_torch.average_hook)})
    theirs = run("gloo", kinds)
    for name in kinds:
        assert type(ours[name]) is type(theirs[name]), (name, ours[name], theirs[name])
        if isinstance(ours[name], str):
            report(f"{name}: {ours[name]}")
            continue
        assert len(ours[name]) == len(theirs[name]) > 0, name
        difference = max(abs(a - b) for a, b in zip(ours[name], theirs[name]))
        # Both sum two numbers per element; the average is taken in another place.
        assert difference <= 1e-6, (name, ours[name], theirs[name])
        report(f"{name}: equal to gloo's (largest difference {difference:g})")


if __name__ == "__main__":
    main()
    # Without the end of the interpreter: a thread of torch's Gloo group may still free tensors, which aborts the process
    # there (seen with torch 2.15). faults.py tests how tandem's groups end.
    os._exit(0)
