"""Groups that are split, change their members, wait for each other under observation and end in any order, on three
ranks that a launcher started:

    torchrun --nproc-per-node 3 python/tests/groups.py

Prints a line per kind on rank 0, and "all groups agree"."""

import os
import threading
import time
import types
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

import tandem_torch  # noqa: F401
from tandem_torch._monitored_barrier import MonitoredBarrier

RANK = int(os.environ["RANK"])
IN_TORCH = hasattr(distributed_c10d, "_reconfigure")  # 2.15: the functions around the group's methods


def report(line):
    if RANK == 0:
        print(line, flush=True)


def total(group):
    """The sum of this process's number over the group."""
    number = torch.tensor([10.0**RANK])
    group.allreduce([number], dist.AllreduceOptions()).wait()
    return number.item()


def refused(call, text, kind=RuntimeError):
    try:
        call()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"no error with the text '{text}'")


def observed(group, store):
    group.monitored_barrier(timedelta(seconds=60))
    if RANK == 0:
        refused(lambda: group.monitored_barrier(timedelta(seconds=0.5)), "Rank 1 failed to pass monitoredBarrier")
        store.set("observed", "done")
    elif RANK == 2:
        refused(lambda: group.monitored_barrier(timedelta(seconds=60)), "Rank 1 failed to pass monitoredBarrier")
    else:
        store.wait(["observed"], timedelta(seconds=60))
        refused(lambda: group.monitored_barrier(timedelta(seconds=60)), "Rank 1 failed to pass monitoredBarrier")
    assert total(group) == 111
    report("monitored_barrier names the missing ranks, and the group still works")


class SlowReader:
    """A store that answers get() late, as another process may that has to wait for a core."""

    def __init__(self, store):
        self._store, self.has_read = store, False

    def get(self, key):
        time.sleep(0.3)
        self.has_read = True
        return self._store.get(key)

    def __getattr__(self, name):
        return getattr(self._store, name)


def outlived():
    """Rank 0 may end after the barrier, and the store with it."""
    store = dist.HashStore()
    reader = SlowReader(store)
    barrier = lambda store, rank: MonitoredBarrier(store, rank, 2, lambda: None).run(timedelta(seconds=60), False)
    other = threading.Thread(target=barrier, args=(reader, 1))
    other.start()
    barrier(store, 0)
    assert reader.has_read
    other.join()
    report("monitored_barrier ends on rank 0 when the others have read its verdict")


def split(group):
    if IN_TORCH:
        part = dist.split_group(split_ranks=[[2, 0], [1]])
    else:
        part = group.split_group([2, 0] if RANK != 1 else [1], group_name=f"part of {RANK % 2}")
    assert (part.rank(), part.size(), total(part)) == {0: (1, 2, 101), 1: (0, 1, 10), 2: (0, 2, 101)}[RANK]
    assert total(group) == 111
    report("split_group keeps the order that it is given")


def merged(group, store):
    """Two groups become one, and the third process joins a bigger one; the old ones work on."""
    pair = group.split_group([0, 2], group_name="pair")
    alone = group.split_group([1], group_name="alone")
    own = alone if RANK == 1 else pair
    whole = own.merge_remote_group(dist.PrefixStore("merge", store), 3, timedelta(seconds=60), "whole")
    assert (whole.size(), whole.group_name, total(whole)) == (3, "whole", 111)
    ranks = [torch.zeros(1, dtype=torch.int64) for _ in range(3)]
    whole.allgather([ranks], [torch.tensor([whole.rank()])]).wait()
    assert sorted(int(rank) for rank in ranks) == [0, 1, 2]
    assert total(group) == 111 and total(own) == (10 if RANK == 1 else 101)
    refused(lambda: own.merge_remote_group(dist.PrefixStore("merge", store), 3), "a store of its own", ValueError)
    if RANK == 0:
        late = dist.PrefixStore("late", store)
        refused(lambda: own.merge_remote_group(late, 2, timedelta(seconds=1)), "1 of 2")
    report("merge_remote_group makes one group of several")


def short(group):
    """The group's own methods without lists and options, as torch 2.15 has them."""
    one, sums = torch.tensor([float(RANK)]), torch.tensor([float(RANK)])
    group.broadcast(one, 2).wait()
    group.reduce(sums, root=1).wait()
    highest = torch.tensor([float(RANK)])
    group.reduce(highest, 0, dist.ReduceOp.MAX).wait()
    assert one.item() == 2 and (RANK != 1 or sums.item() == 3) and (RANK != 0 or highest.item() == 2)
    blocks = [torch.zeros(1) for _ in range(3)]
    group.allgather(blocks, torch.tensor([float(RANK)]), timedelta(seconds=60)).wait()
    assert [block.item() for block in blocks] == [0, 1, 2]
    own = torch.zeros(1)
    group.scatter(own, [torch.tensor([10.0 * rank]) for rank in range(3)] if RANK == 1 else [], 1).wait()
    assert own.item() == 10 * RANK
    group.gather(blocks if RANK == 2 else [], own, root=2, timeout=timedelta(seconds=60)).wait()
    assert RANK != 2 or [block.item() for block in blocks] == [0, 10, 20]
    group.reduce_scatter(own, [torch.tensor([float(rank)]) for rank in range(3)]).wait()
    assert own.item() == 3 * RANK
    report("short forms of a group's methods")


def absent(group):
    assert not group.supports_window and not group.supports_abort_hooks
    refused(lambda: group.new_window(torch.ones(1)), "no one-sided windows")
    refused(lambda: group.register_pre_hook(1, print), "no hooks before or after operations")
    refused(lambda: group.register_post_hook(1, print), "no hooks before or after operations")
    refused(lambda: group.register_abort_hook(1, print), "no hooks of abort")
    refused(lambda: group._register_on_completion_hook(print), "no hooks of completion")
    report("what a group has not is refused by name")


def handles_of(group, store, ranks, name):
    store.set(f"{name}/{RANK}", group.get_reconfigure_handle())
    return [store.get(f"{name}/{rank}").decode() for rank in ranks]


def change(group, uuid, handles):
    if IN_TORCH:
        distributed_c10d._reconfigure(uuid, handles, group).wait()
    else:
        group.reconfigure(types.SimpleNamespace(uuid=uuid, handles=handles, timeout=None)).wait()


def reconfigured(group, store):
    change(group, 1, handles_of(group, store, [2, 1, 0], "reversed"))
    assert (group.rank(), group.size(), total(group)) == (2 - RANK, 3, 111)
    change(group, 2, set(handles_of(group, store, range(3), "same")))
    assert (group.rank(), total(group)) == (2 - RANK, 111)
    if RANK != 1:
        change(group, 3, set(handles_of(group, store, [0, 2], "without one")))
        assert (group.rank(), group.size(), total(group)) == (1 - RANK // 2, 2, 101)
    handles = handles_of(group, store, range(3), "all")
    if RANK == 1:
        refused(lambda: total(group), "rank")  # it was left behind
    change(group, 4, handles)
    assert (group.rank(), group.size(), total(group)) == (RANK, 3, 111)
    report("reconfigure orders, shrinks and grows")


def limited():
    """A call's own timeout, and one that the group is given later: each far below what the group was made with."""
    soon = timedelta(seconds=0.3)
    for is_of_call in (True, False):
        group = dist.new_group(list(range(3)), timeout=timedelta(seconds=100), backend="tandem")
        opts = dist.BarrierOptions()
        if is_of_call:
            opts.timeout = soon
        elif hasattr(dist, "set_timeout"):
            dist.set_timeout(soon, group)
        else:
            group.set_timeout(soon)
        if RANK == 0:
            start = time.monotonic()
            refused(lambda: group.barrier(opts).wait(), "as long as the timeout allows")
            assert time.monotonic() - start < 50
        dist.barrier()
    report("timeouts of a call and of set_timeout() hold")


def ended():
    all_ranks = list(range(3))
    first, second, third = (dist.new_group(all_ranks, backend="tandem") for _ in range(3))
    kept = dist.all_reduce(torch.ones(100_000), group=first, async_op=True)
    kept.wait()
    dist.all_reduce(torch.ones(4), group=second)
    for group in (first, second) if RANK else (second, first):
        dist.destroy_process_group(group)
    assert kept.is_completed() and kept.wait()
    if IN_TORCH:  # older versions leave a group as it is until its last reference is gone
        refused(lambda: total(second), "destroyed")  # noqa: F821 - it is deleted below
    assert total(third) == 111
    started = dist.all_reduce(torch.ones(4), group=third, async_op=True)
    started.wait()
    del first, second, third, group
    dist.destroy_process_group()
    assert started.is_success()
    report("groups end in any order")


def main():
    options = {"enable_reconfigure": True} if IN_TORCH else {}
    dist.init_process_group("tandem", timeout=timedelta(seconds=60), **options)
    group, store = dist.group.WORLD, distributed_c10d._get_default_store()
    if IN_TORCH:
        refused(lambda: total(group), "no members yet")
        change(group, 0, handles_of(group, store, range(3), "first"))
    observed(group, store)
    outlived()
    split(group)
    merged(group, store)
    short(group)
    absent(group)
    reconfigured(group, store)
    limited()
    ended()
    report("all groups agree")


if __name__ == "__main__":
    main()
