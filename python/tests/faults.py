"""What survivors see when a rank of three fails, and after how long: python python/tests/faults.py [case …]

Starts the ranks itself, over a FileStore. Each case prints a line per survivor with its seconds and message, and fails
if a survivor saw no error, one that names no rank, or saw it too late."""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from datetime import timedelta

RANKS = 3
LIMIT = 8  # seconds that the group gives every wait
VICTIM = 1

# case: (what the message says, at most so many seconds after the fault)
CASES = {
    "killed": ("rank 1", 2),
    "stopped": ("rank 1", LIMIT + 4),
    "shapes": ("all_reduce", 2),
    "order": ("broadcast", 2),
    "absent": ("rank 1", LIMIT + 4),
    "leaves": ("rank 1", 2),
    "backward": ("rank 1", 5),  # with the making of the model
    "interrupt": ("KeyboardInterrupt", 2),
    "fork": ("forked", 2),
    "exit": ("", 2),
}


def fault(case, rank, torch, dist):
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
    elif case == "backward":
        net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(300, 300))
        loss = net(torch.ones(2, 300)).sum()
        if rank == VICTIM:
            os.kill(os.getpid(), signal.SIGKILL)
        loss.backward()
    elif case == "interrupt":
        if rank == VICTIM:
            time.sleep(LIMIT + 20)
        if rank == 0:
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            signal.signal(signal.SIGALRM, signal.default_int_handler)
        dist.all_reduce(ones)
    elif case == "fork":
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                dist.all_reduce(ones)
            except dist.DistBackendError as error:
                os.write(writing, str(error).encode())
            os._exit(0)
        os.waitpid(child, 0)
        dist.all_reduce(ones)  # the parent goes on
        raise dist.DistBackendError(os.read(reading, 4096).decode())
    elif case == "exit":
        dist.all_reduce(ones)  # and then the end of Python, without destroy_process_group


def run_rank(case, rank, store):
    import torch
    import torch.distributed as dist

    import tandem_torch  # noqa: F401

    dist.init_process_group("tandem", store=dist.FileStore(store, RANKS), rank=rank, world_size=RANKS,
                            timeout=timedelta(seconds=LIMIT))
    dist.barrier()
    start = time.monotonic()
    try:
        fault(case, rank, torch, dist)
        print(f"{time.monotonic() - start:.2f} no error", flush=True)
    except (RuntimeError, ValueError, KeyboardInterrupt) as error:
        print(f"{time.monotonic() - start:.2f} {type(error).__name__}: {error}".replace("\n", " "), flush=True)


def run_case(case):
    """Returns whether every survivor saw what it should."""
    expected, most = CASES[case]
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        ranks = [subprocess.Popen([sys.executable, __file__, "--rank", str(rank), "--store", folder + "/store", case],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in range(RANKS)]
        good = True
        symmetric = case in ("shapes", "order", "fork", "exit")
        survivors = [r for r in range(RANKS) if symmetric or (r != VICTIM and not (case == "interrupt" and r != 0))]
        for rank in survivors:
            try:
                out, err = ranks[rank].communicate(timeout=60)
            except subprocess.TimeoutExpired:
                out, err = "", "did not end within 60 s"
            lines = out.splitlines()
            line = lines[-1] if lines else f"999 nothing, exit code {ranks[rank].returncode}: {err[-300:]}"
            seconds, _, text = line.partition(" ")
            fine = expected in text and float(seconds) <= most and ("no error" in text) == (case == "exit")
            good = good and fine and (ranks[rank].returncode == 0)
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
    parser.add_argument("cases", nargs="*")
    arguments = parser.parse_args()
    if arguments.rank is not None:
        return run_rank(arguments.cases[0], arguments.rank, arguments.store)
    return 0 if all([run_case(case) for case in arguments.cases or CASES]) else 1


if __name__ == "__main__":
    sys.exit(main())
