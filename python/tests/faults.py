"""Errors that survivors see when a rank of three fails, and their delay: python python/tests/faults.py [case …]

Starts the ranks itself, over a FileStore. Each case prints a line per survivor with its seconds and message, and fails
if a survivor saw no error, one that names no rank, or saw it too late."""

import argparse
import atexit
import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import types
from datetime import timedelta

RANKS = 3
LIMIT = 8  # seconds that the group gives every wait
SOON = LIMIT - 2  # by itself, not because a wait was over; a busy machine is slow
VICTIM = 1

# case: (text of the message, at most so many seconds after the fault)
CASES = {
    "killed": ("rank 1", SOON),
    "stopped": ("rank 1", LIMIT + 4),
    "shapes": ("all_reduce", SOON),
    "order": ("broadcast", SOON),
    "absent": ("rank 1", LIMIT + 4),
    "leaves": ("rank 1", SOON),
    # In the backward of DistributedDataParallel.
    "backward-killed": ("rank 1", SOON),
    "backward-stopped": ("rank 1", LIMIT + 4),
    "backward-shapes": ("all_reduce", SOON),
    "backward-order": ("broadcast", SOON),
    "backward-absent": ("rank 1", LIMIT + 4),
    "interrupt": ("KeyboardInterrupt", SOON),
    "start-interrupt": ("KeyboardInterrupt", SOON),
    "backward-interrupt": ("KeyboardInterrupt", SOON),
    "fork": ("forked", 60),  # the child ends first, for which torch takes seconds on a busy machine
    "shrink": ("continued with 2 ranks", SOON),
    # The end of Python without destroy_process_group; the seconds are those until its last exit handler.
    "exit": ("", SOON),
    "exit-under-way": ("", SOON),
}
# The exception that the survivors see, where that is not a DistBackendError.
KINDS = {**{case: "KeyboardInterrupt" for case in CASES if case.endswith("interrupt")}, **{case: "no error" for case in CASES if case.startswith("exit")}}


def loss_of(case, rank, torch, dist):
    """(a loss whose backward() sums gradients, what has to live until then)"""
    net = torch.nn.Sequential(torch.nn.Linear(300, 300), torch.nn.Linear(300, 300))
    net = torch.nn.parallel.DistributedDataParallel(net)
    if case == "backward-shapes" and rank == VICTIM:
        net.register_comm_hook(
            None, lambda _, bucket: dist.all_reduce(bucket.buffer()[:7], async_op=True).get_future().then(lambda future: (future.value(), bucket.buffer())[1])
        )
    return net(torch.ones(2, 300)).sum(), net


def press_ctrl_c_soon():
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.5)


def interrupt(rank, call):
    """Rank 0 is interrupted in call(), in which it waits for another rank."""
    if rank == VICTIM:
        time.sleep(LIMIT + 20)
    if rank == 0:
        press_ctrl_c_soon()
    call()


def in_child(code):
    """The text that the child of a fork writes in code(writing), after it has ended as Python does."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code(writing)
        sys.exit(0)
    os.close(writing)
    logged = os.read(reading, 4096).decode()
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    return logged


def use_in_child(torch, dist):
    def use(writing):
        try:
            dist.all_reduce(torch.ones(4))
        except dist.DistBackendError as error:
            os.write(writing, str(error).encode())

    return in_child(use)


def backward(case, rank, loss, torch, dist):
    if rank == VICTIM:
        if case == "backward-killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif case == "backward-stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif case == "backward-order":
            dist.broadcast(torch.ones(7), 0)
        elif case == "backward-absent":
            time.sleep(LIMIT + 20)
    if case == "backward-interrupt":
        return interrupt(rank, loss.backward)
    loss.backward()


def shrink(rank, torch, dist):
    """One dies, and the others continue without it."""
    group, store = dist.group.WORLD, dist.distributed_c10d._get_default_store()
    store.set(f"handle/{rank}", group.get_reconfigure_handle())
    handles = [store.get(f"handle/{other}").decode() for other in range(RANKS)]
    dist.barrier()
    if rank == VICTIM:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        dist.all_reduce(torch.ones(4))
    except dist.DistBackendError as error:
        assert "rank 1" in str(error), error
    left = [handle for other, handle in enumerate(handles) if other != VICTIM]
    group.reconfigure(types.SimpleNamespace(uuid=1, handles=left, timeout=None)).wait()
    ones = torch.ones(4)
    dist.all_reduce(ones)
    raise dist.DistBackendError(f"continued with {ones[0]:.0f} ranks")


def fault(case, rank, loss, torch, dist):
    """One rank's part; raises what it sees."""
    ones = torch.ones(100_000)
    if case == "killed":
        if rank == VICTIM:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(ones)
    elif case == "stopped":
        if rank == VICTIM:
            os.kill(os.getpid(), signal.SIGSTOP)
        dist.all_reduce(ones)
    elif case == "shapes":
        dist.all_reduce(torch.ones(7 if rank == VICTIM else 9))
    elif case == "order":
        if rank == VICTIM:
            dist.broadcast(ones, 0)
        else:
            dist.all_reduce(ones)
    elif case == "absent":
        if rank == VICTIM:
            time.sleep(LIMIT + 20)
        dist.all_reduce(ones)
    elif case == "leaves":
        if rank == VICTIM:
            dist.destroy_process_group()
            sys.exit(0)
        dist.all_reduce(ones)
    elif case.startswith("backward-"):
        backward(case, rank, loss, torch, dist)
    elif case == "interrupt":
        interrupt(rank, lambda: dist.all_reduce(ones))
    elif case == "fork":
        message = use_in_child(torch, dist)
        dist.all_reduce(ones)  # the parent continues
        raise dist.DistBackendError(message)
    elif case == "shrink":
        shrink(rank, torch, dist)
    elif case == "exit":
        dist.all_reduce(ones)
    elif case == "exit-under-way":
        if rank == VICTIM:
            time.sleep(LIMIT + 20)
        dist.all_reduce(ones, async_op=True).get_future()  # a thread waits for it


def run_rank(case, rank, store):
    start, process = time.monotonic(), os.getpid()

    def report(what):
        print(f"{time.monotonic() - start:.2f} {what}".replace("\n", " "), flush=True)

    if case.startswith("exit"):  # before the wheel's own handler, so that it is called after that
        atexit.register(lambda: os.getpid() == process and report("no error"))
    import torch
    import torch.distributed as dist

    import tandem_torch  # noqa: F401

    def meet():
        dist.init_process_group("tandem", store=dist.FileStore(store, RANKS), rank=rank, world_size=RANKS, timeout=timedelta(seconds=LIMIT))

    loss = None
    if case != "start-interrupt":
        meet()
        loss, _net = loss_of(case, rank, torch, dist) if case.startswith("backward-") else (None, None)
        dist.barrier()
    start = time.monotonic()
    try:
        if case == "start-interrupt":
            interrupt(rank, meet)
        else:
            fault(case, rank, loss, torch, dist)
        report("no error")
    except (RuntimeError, ValueError, KeyboardInterrupt) as error:
        report(f"{type(error).__name__}: {error}")


def run_case(case, rows):
    """Returns whether every survivor saw what it should; appends a row for each to `rows`."""
    expected, most = CASES[case]
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        ranks = [
            subprocess.Popen(
                [sys.executable, __file__, "--rank", str(rank), "--store", folder + "/store", case], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            for rank in range(RANKS)
        ]
        good = True
        symmetric = case in ("shapes", "order", "fork", "exit", "backward-shapes", "backward-order")
        survivors = [r for r in range(RANKS) if symmetric or (r != VICTIM and not (case.endswith("interrupt") and r != 0))]
        for rank in survivors:
            try:
                out, err = ranks[rank].communicate(timeout=60)
            except subprocess.TimeoutExpired:
                out, err = "", "did not end within 60 s"
            lines = out.splitlines()
            line = lines[-1] if lines else f"999 nothing, exit code {ranks[rank].returncode}: {err[-300:]}"
            seconds, _, text = line.partition(" ")
            kind = KINDS.get(case, "DistBackendError")
            fine = text.startswith(kind) and expected in text and float(seconds) <= most
            good = good and fine and (ranks[rank].returncode == 0)
            rows.append({"case": case, "rank": rank, "seconds": float(seconds), "message": re.sub(", pid [0-9]+", "", text)})
            print(f"{case}, rank {rank}, {seconds} s{'' if fine else ' (NOT AS EXPECTED)'}: {text}", flush=True)
        for process in ranks:
            if process.poll() is None:
                process.kill()
            process.wait()
        print(f"{case}: {'as expected' if good else 'FAILED'} ({time.monotonic() - start:.1f} s)", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int)
    parser.add_argument("--store")
    parser.add_argument("--json", help="writes what each survivor saw as bench/record.py keeps it")
    parser.add_argument("cases", nargs="*")
    arguments = parser.parse_args()
    if arguments.rank is not None:
        return run_rank(arguments.cases[0], arguments.rank, arguments.store)
    rows = []
    good = all([run_case(case, rows) for case in arguments.cases or CASES])
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"versions": {"torch": importlib.metadata.version("torch")}, "rows": rows}, file)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
