"""Tensors and gradient buckets in memory of the communicator, on the ranks that a launcher started:

    torchrun --nproc-per-node 3 python/tests/shared_memory.py

Bits compared with sums of private memory, lifetimes of the memory, ranks that cannot share."""

import gc
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import tandem_torch

COUNT = 300_001  # more than a small operation, and no whole pages


def lies_in_memory_of_the_communicator(tensor):
    address = tensor.data_ptr()
    with open("/proc/self/maps") as maps:
        for line in maps:
            begin, end = (int(part, 16) for part in line.split()[0].split("-"))
            if begin <= address < end:
                return "memfd:tandem" in line
    return False


def shared_bytes():
    """Bytes of this process's large mappings of memory files, without the communicator's own."""
    found = 0
    with open("/proc/self/maps") as maps:
        for line in maps:
            begin, end = (int(part, 16) for part in line.split()[0].split("-"))
            found += (end - begin) if "memfd:tandem" in line and end - begin >= 4 * COUNT // 4096 * 4096 else 0
    return found


def numbers(rank, count=COUNT):
    return torch.randn(count, generator=torch.Generator().manual_seed(rank))


def sums_have_the_same_bits(rank, size):
    private, shared = numbers(rank), numbers(rank)
    view = shared[17:]
    assert tandem_torch.share_memory(shared)
    assert torch.equal(shared, numbers(rank)) and lies_in_memory_of_the_communicator(shared)
    assert view.data_ptr() == shared.data_ptr() + 17 * 4, "a view moves along"
    dist.all_reduce(private, dist.ReduceOp.AVG)
    dist.all_reduce(shared, dist.ReduceOp.AVG)
    assert torch.equal(private, shared)
    # One rank's part of it, and together with other ranks' private memory.
    mixed = numbers(rank) if rank else shared.copy_(numbers(rank))
    dist.all_reduce(mixed)
    expected = numbers(rank)
    dist.all_reduce(expected)
    assert torch.equal(mixed, expected)
    for root in range(size):
        shared.fill_(rank)
        dist.broadcast(view, root)
        assert (view == root).all() and (shared[:17] == rank).all()
    assert tandem_torch.share_memory(shared), "it lies there already"


def memory_ends_with_its_tensor(rank, size):
    dist.barrier()
    base = shared_bytes()
    tensor = numbers(rank)
    assert tandem_torch.share_memory(tensor)
    assert shared_bytes() >= base + size * 4 * COUNT
    del tensor
    # Another tensor may get the same address; it is private.
    again = [numbers(rank) for _ in range(4)]
    dist.barrier()
    assert shared_bytes() == base, (shared_bytes(), base)
    for other in again:
        assert not lies_in_memory_of_the_communicator(other)
        dist.all_reduce(other)
    assert all(torch.equal(other, again[0]) for other in again)
    assert not [name for name in map(os.readlink, descriptors()) if "/dev/shm/torch" in name], "torch's file is gone"


def descriptors():
    return [path for path in (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")) if os.path.islink(path)]


def a_rank_that_cannot_share(rank):
    tensor = numbers(rank)
    if rank == 1:
        tensor.share_memory_()  # with other processes, which would not move along
    assert not tandem_torch.share_memory(tensor)
    expected = numbers(rank)
    dist.all_reduce(tensor)
    dist.all_reduce(expected)
    assert torch.equal(tensor, expected) and not lies_in_memory_of_the_communicator(tensor)


def model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(600, 600), torch.nn.GELU(), torch.nn.Linear(600, 600))


def gradients(net):
    return [parameter.grad for parameter in net.parameters()]


def buckets_are_summed_where_they_lie(rank, as_view, group=None):
    """Every step's gradients have the bits of the averages of each rank's own; then all memory goes. With a `group`
    DDP's own sums over it are compared, without the hook."""
    dist.barrier(group)
    base, size = shared_bytes(), dist.get_world_size()
    net = DistributedDataParallel(model(), bucket_cap_mb=0.5, gradient_as_bucket_view=as_view, process_group=group)
    if group is None:
        net.register_comm_hook(None, tandem_torch.average_hook)
    alone = model()
    for step in range(5):
        rows = torch.randn(8, 600, generator=torch.Generator().manual_seed(100 * step + rank))
        net.zero_grad(set_to_none=step % 2 == 0)
        alone.zero_grad()
        net(rows).square().mean().backward()
        alone(rows).square().mean().backward()
        for found, own in zip(gradients(net), gradients(alone)):
            if group is None:
                dist.all_reduce(own, dist.ReduceOp.AVG)
            else:
                own *= 1 / size  # as DDP does before it sums
                dist.all_reduce(own)
            assert torch.equal(found, own), (step, as_view)
    assert shared_bytes() > base, "the buckets are shared"
    if as_view:
        assert all(map(lies_in_memory_of_the_communicator, gradients(net)))
    kept = gradients(net)[0] if as_view else None
    del net, found
    gc.collect()
    dist.barrier(group)
    dist.barrier(group)  # by now all ranks have forgotten theirs
    if kept is None:
        assert shared_bytes() == base, (shared_bytes(), base)
    return kept, own


def main():
    dist.init_process_group("tandem", timeout=timedelta(seconds=60))
    rank, size = dist.get_rank(), dist.get_world_size()
    sums_have_the_same_bits(rank, size)
    dist.barrier()
    assert shared_bytes() == 0, shared_bytes()
    memory_ends_with_its_tensor(rank, size)
    a_rank_that_cannot_share(rank)
    buckets_are_summed_where_they_lie(rank, as_view=False)
    os.environ["TANDEM_TORCH_SHARE"] = "1"
    buckets_are_summed_where_they_lie(rank, as_view=False, group=dist.new_group())
    kept, _ = buckets_are_summed_where_they_lie(rank, as_view=True)
    before = kept.clone()
    dist.destroy_process_group()
    assert torch.equal(kept, before), "a gradient outlives the group"
    if rank == 0:
        print("all shared memory agrees", flush=True)


if __name__ == "__main__":
    sys.exit(main())
