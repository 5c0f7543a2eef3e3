"""Every operation of the wheel against its definition, on the ranks that a launcher started:

    torchrun --nproc-per-node 3 python/tests/operations.py

Prints "all operations agree" on rank 0. What torch-ccl's own tests cover is here: broadcast, all_reduce
(coalesced), reduce, gather, scatter, all_gather (base, coalesced), reduce_scatter (base, coalesced, uneven),
all_to_all (equal, unequal, list)."""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

import tandem_torch  # noqa: F401  (torch before 2.5 does not load it by itself)

MOVED = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.bool,
    torch.complex64,
]


# Moved as bytes only; the older the torch, the fewer there are.
BYTES = [
    getattr(torch, name)
    for name in ("complex32", "complex128", "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu")
    if hasattr(torch, name)
]


def of(rank, shape, dtype):
    """Numbers that differ between ranks and places."""
    numbers = (torch.arange(int(torch.tensor(shape).prod()) if shape else 1) * 3 + rank * 5) % 7
    return (numbers % 2 if dtype == torch.bool else numbers).to(dtype).view(shape)


def same(found, expected, what):
    assert torch.equal(found, expected), f"{what}: found {found}, expected {expected}"


def reductions(rank, n):
    for dtype in MOVED:
        for op, fold in [
            (ReduceOp.SUM, torch.add),
            (ReduceOp.PRODUCT, torch.mul),
            (ReduceOp.MAX, torch.maximum),
            (ReduceOp.MIN, torch.minimum),
            (ReduceOp.BXOR, torch.bitwise_xor),
            (ReduceOp.BAND, torch.bitwise_and),
            (ReduceOp.BOR, torch.bitwise_or),
        ]:
            bits = op in (ReduceOp.BXOR, ReduceOp.BAND, ReduceOp.BOR)
            number = dtype.is_floating_point or dtype.is_complex
            if (bits and number) or (dtype.is_complex and op != ReduceOp.SUM):
                continue
            if dtype == torch.bool:
                fold = {torch.add: torch.logical_or, torch.mul: torch.logical_and}.get(fold, fold)
            expected = of(0, (4, 3), dtype)
            for r in range(1, n):
                expected = fold(expected, of(r, (4, 3), dtype))
            found = of(rank, (4, 3), dtype)
            dist.all_reduce(found, op)
            same(found, expected, f"all_reduce {op} of {dtype}")
            found = of(rank, (4, 3), dtype)
            dist.reduce(found, n - 1, op)
            if rank == n - 1:
                same(found, expected, f"reduce {op} of {dtype}")
    found = torch.full((5,), float(rank))
    dist.all_reduce(found, ReduceOp.AVG)
    same(found, torch.full((5,), sum(range(n)) / n), "all_reduce AVG")
    found = torch.full((5,), float(rank + 1))
    dist.all_reduce(found, dist._make_nccl_premul_sum(0.5))
    same(found, torch.full((5,), n * (n + 1) / 4), "all_reduce PREMUL_SUM")
    large = torch.full((300_001,), float(rank))
    dist.all_reduce(large)
    same(large, torch.full((300_001,), float(sum(range(n)))), "all_reduce of 1.2 MB")
    strided = of(rank, (6, 4), torch.float32).t()
    expected = sum(of(r, (6, 4), torch.float32) for r in range(n)).t()
    dist.all_reduce(strided)
    same(strided, expected, "all_reduce of a transposed tensor")
    several = [of(rank, (i + 1,), torch.float32) for i in range(3)]
    with dist._coalescing_manager():
        for one in several:
            dist.all_reduce(one)
    for i, one in enumerate(several):
        same(one, sum(of(r, (i + 1,), torch.float32) for r in range(n)), "all_reduce, coalesced")


def moves(rank, n):
    for dtype in MOVED:
        shape = (2, 3)
        blocks = [of(r, shape, dtype) for r in range(n)]
        found = blocks[rank].clone()
        dist.broadcast(found, n - 1)
        same(found, blocks[n - 1], f"broadcast of {dtype}")
        found = [torch.zeros(shape, dtype=dtype) for _ in range(n)]
        dist.all_gather(found, blocks[rank])
        same(torch.stack(found), torch.stack(blocks), f"all_gather of {dtype}")
        found = torch.zeros((2 * n, 3), dtype=dtype)
        dist.all_gather_into_tensor(found, blocks[rank])
        same(found, torch.cat(blocks), f"all_gather_into_tensor of {dtype}")
        found = [torch.zeros(shape, dtype=dtype) for _ in range(n)] if rank == 0 else None
        dist.gather(blocks[rank], found)
        if rank == 0:
            same(torch.stack(found), torch.stack(blocks), f"gather of {dtype}")
        found = torch.zeros(shape, dtype=dtype)
        dist.scatter(found, blocks if rank == 0 else None)
        same(found, blocks[rank], f"scatter of {dtype}")
        uneven = [of(r, (r,), dtype) for r in range(n)]
        found = [torch.zeros(r, dtype=dtype) for r in range(n)]
        dist.all_gather(found, uneven[rank])
        same(torch.cat(found), torch.cat(uneven), f"uneven all_gather of {dtype}")
    outputs = [torch.zeros((2 * n,)) for _ in range(2)]
    with dist._coalescing_manager():
        for i, output in enumerate(outputs):
            dist.all_gather_into_tensor(output, of(rank + i, (2,), torch.float32))
    for i, output in enumerate(outputs):
        same(output, torch.cat([of(r + i, (2,), torch.float32) for r in range(n)]), "all_gather, coalesced")


def as_bytes(tensor):
    return tensor.contiguous().view(torch.uint8)


def moves_of_bytes(rank, n):
    """Types with which torch itself can hardly compute, in each of the ways in which tensors travel."""
    for dtype in BYTES:
        size = torch.empty((), dtype=dtype).element_size()
        blocks = [(torch.arange(4 * size) * 11 + r).to(torch.uint8).view(dtype) for r in range(n)]
        everything = torch.stack([as_bytes(block) for block in blocks])

        def empty(count=4):
            return torch.zeros(count * size, dtype=torch.uint8).view(dtype)

        found = as_bytes(blocks[rank]).clone().view(dtype)
        dist.broadcast(found, n - 1)
        same(as_bytes(found), everything[n - 1], f"broadcast of {dtype}")
        found = [empty() for _ in range(n)]
        dist.all_gather(found, blocks[rank])
        same(torch.stack([as_bytes(one) for one in found]), everything, f"all_gather of {dtype}")
        dist.gather(blocks[rank], found if rank == 0 else None)
        found = empty()
        dist.scatter(found, blocks if rank == 0 else None)
        same(as_bytes(found), everything[rank], f"scatter of {dtype}")
        found = [empty() for _ in range(n)]
        dist.all_to_all(found, [blocks[rank]] * n)
        same(torch.stack([as_bytes(one) for one in found]), everything, f"all_to_all of {dtype}")
        found, before = empty(), (rank - 1) % n
        sent = dist.isend(blocks[rank], (rank + 1) % n)
        dist.recv(found, before)
        sent.wait()
        same(as_bytes(found), everything[before], f"recv of {dtype}")


def gathers_in_one(rank, n):
    """Functions that newer versions of torch have in addition to gather()."""
    if not hasattr(dist, "gather_single"):
        return
    own = of(rank, (2, 3), torch.float32)
    expected = torch.stack([of(r, (2, 3), torch.float32) for r in range(n)])
    for gather in (dist.gather_single, dist.gather_into_tensor):
        for found in (torch.zeros((n, 2, 3)), torch.zeros((2, 3, n)).permute(2, 0, 1)):
            gather(own, found if rank == n - 1 else None, dst=n - 1)
            if rank == n - 1:
                same(found, expected, gather.__name__)


def coalesced(rank, n):
    several = [of(rank, (i + 1,), torch.float32) for i in range(3)]
    dist.all_reduce_coalesced(several)
    for i, one in enumerate(several):
        same(one, sum(of(r, (i + 1,), torch.float32) for r in range(n)), "all_reduce_coalesced")
    found = [[torch.zeros(i + 1) for i in range(2)] for _ in range(n)]
    dist.all_gather_coalesced(found, [of(rank, (i + 1,), torch.float32) for i in range(2)])
    for r, ones in enumerate(found):
        for i, one in enumerate(ones):
            same(one, of(r, (i + 1,), torch.float32), "all_gather_coalesced")


def functional(rank, n):
    """Functions that torch.compile, DTensor and FSDP2 call; these go through C++."""
    from torch.distributed import _functional_collectives as calls

    group, own = dist.group.WORLD, of(rank, (n, 2), torch.float32)
    all_ranks = [of(r, (n, 2), torch.float32) for r in range(n)]
    same(calls.all_reduce(own, "sum", group) + 0, sum(all_ranks), "functional all_reduce")
    same(calls.all_gather_tensor(own, 0, group) + 0, torch.cat(all_ranks), "functional all_gather_tensor")
    same(calls.reduce_scatter_tensor(own, "sum", 0, group) + 0, sum(all_ranks)[rank : rank + 1], "functional reduce_scatter_tensor")
    same(calls.all_to_all_single(own, None, None, group) + 0, torch.stack([one[rank] for one in all_ranks]), "functional all_to_all_single")
    same(calls.broadcast(own, n - 1, group) + 0, all_ranks[n - 1], "functional broadcast")


def scattered_sums(rank, n):
    for sizes in ([4] * n, [r + 1 for r in range(n)]):
        inputs = [of(rank + r, (size,), torch.float32) for r, size in enumerate(sizes)]
        expected = sum(of(s + rank, (sizes[rank],), torch.float32) for s in range(n))
        found = torch.zeros(sizes[rank])
        dist.reduce_scatter(found, inputs)
        same(found, expected, f"reduce_scatter of {sizes}")
    for op, factor in ((ReduceOp.SUM, 1), (ReduceOp.AVG, 1 / n)):
        found = torch.zeros(2)
        dist.reduce_scatter_tensor(found, torch.full((2 * n,), float(n * rank)), op)
        same(found, torch.full((2,), n * sum(range(n)) * factor), f"reduce_scatter_tensor {op}")
    outputs = [torch.zeros(2) for _ in range(2)]
    with dist._coalescing_manager():
        for output in outputs:
            dist.reduce_scatter_tensor(output, torch.full((2 * n,), float(rank)))
    for output in outputs:
        same(output, torch.full((2,), float(sum(range(n)))), "reduce_scatter, coalesced")


def exchanges(rank, n):
    found = torch.zeros(2 * n)
    dist.all_to_all_single(found, torch.full((2 * n,), float(rank)))
    same(found, torch.arange(n).repeat_interleave(2).float(), "all_to_all_single")
    # Rank r sends s + 1 rows to rank s.
    found = torch.zeros((n * (rank + 1), 2), dtype=torch.bool)
    dist.all_to_all_single(found, torch.ones((n * (n + 1) // 2, 2), dtype=torch.bool), [rank + 1] * n, [s + 1 for s in range(n)])
    same(found, torch.ones_like(found), "all_to_all_single with splits")
    found = [torch.zeros(r + 1 if r else 0) for r in range(n)]
    dist.all_to_all(found, [torch.full((rank + 1 if rank else 0,), float(rank)) for _ in range(n)])
    for r, one in enumerate(found):
        same(one, torch.full((r + 1 if r else 0,), float(r)), "all_to_all of a list")


def messages(rank, n):
    after, before = (rank + 1) % n, (rank - 1) % n
    found = torch.zeros((3, 2)).t()
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, of(rank, (2, 3), torch.float32), after), dist.P2POp(dist.irecv, found, before)])
    for work in works:
        work.wait()
    same(found, of(before, (2, 3), torch.float32), "batch_isend_irecv")
    if rank > 0:
        dist.send(torch.tensor([rank]), 0, tag=4)
        dist.send(torch.tensor([10 * rank]), 0, tag=3)
    else:
        found = torch.zeros(1, dtype=torch.int64)
        for factor, tag in ((10, 3), (1, 4)):
            sources = set()
            for _ in range(1, n):
                source = dist.recv(found, tag=tag)
                same(found, torch.tensor([factor * source]), "recv from anybody")
                sources.add(source)
            assert sources == set(range(1, n)), sources
    dist.barrier()


def rest(rank, n):
    first, second = torch.ones(3), torch.full((200_000,), 2.0)
    one, two = dist.all_reduce(first, async_op=True), dist.all_reduce(second, async_op=True)
    two.wait(timedelta(seconds=30))
    one.wait()
    assert one.is_completed() and one.is_success() and one.exception() is None
    same(second[:3], torch.full((3,), 2.0 * n), "a started all_reduce")
    future = dist.all_reduce(first, async_op=True).get_future()
    same(future.wait()[0], torch.full((3,), float(n * n)), "a future")
    evens = dist.new_group(range(0, n, 2))
    if rank % 2 == 0:
        found = torch.tensor([rank])
        dist.all_reduce(found, group=evens)
        same(found, torch.tensor([sum(range(0, n, 2))]), "all_reduce of a sub-group")
    objects = [None] * n
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in range(n)], objects
    objects = [rank, "x" * rank]
    dist.broadcast_object_list(objects, n - 1)
    assert objects == [n - 1, "x" * (n - 1)], objects
    objects = [None] * n if rank == 1 else None
    dist.gather_object(("of", rank), objects, dst=1)
    assert rank != 1 or objects == [("of", r) for r in range(n)], objects
    objects = [None]
    dist.scatter_object_list(objects, [f"for {r}" for r in range(n)] if rank == 0 else None, src=0)
    assert objects == [f"for {rank}"], objects
    dist.barrier()


def main():
    dist.init_process_group("tandem", timeout=timedelta(seconds=60))
    rank, n = dist.get_rank(), dist.get_world_size()
    for part in (reductions, moves, moves_of_bytes, gathers_in_one, coalesced, functional, scattered_sums, exchanges, messages, rest):
        part(rank, n)
    if rank == 0:
        print("all operations agree", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
