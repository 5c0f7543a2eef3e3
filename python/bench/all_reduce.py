"""all_reduce through torch.distributed between two ranks of this machine, alternately with tandem-torch and with Gloo:

    python python/bench/all_reduce.py [--turns 3] [--json FILE]

Each turn starts the ranks of one backend after those of the other. As in bench/compare_comm.py Gloo is started several
times, twice under SCHED_BATCH, and the best of its rounds counts: which of its threads share a core is decided at the
start. With both, calls follow each other as in a training loop, with no barrier before them. Every sum is verified.

Prints, per size, the median over the turns of a round's median microseconds of the slowest rank, with tandem also of a
tensor in memory of the communicator (tandem_torch.share_memory), and for 8 bytes what a call costs that waits for no other rank
(a group of one): what Python and the library take of every call."""

import argparse
import json
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import compare_comm  # noqa: E402

SIZES = [8, 256, 4096, 65536, 1 << 20, 4 << 20, 16 << 20, 64 << 20]
ALONE = "a call that waits for no other rank"
SECONDS = 0.05  # of a round
ROUNDS = {"tandem": 1, "gloo": 3}  # of a start
WAYS = {"tandem": [[]], "gloo": compare_comm.WAYS_TO_START_THREADS}


def verify(dist, data):
    """Sums of whole numbers are exact."""
    import torch

    given = lambda rank: ((torch.arange(data.numel()) + rank) % 7).float()
    data.copy_(given(dist.get_rank()))
    dist.all_reduce(data)
    if not torch.equal(data, given(0) + given(1)):
        sys.exit(f"wrong sums of {data.numel()}")
    data.zero_()


def microseconds(dist, data, calls, group=None):
    """The median over calls that follow each other of the slowest rank's time."""
    import torch

    times = torch.empty(calls, dtype=torch.float64)
    for number in range(calls):
        begin = time.perf_counter()
        dist.all_reduce(data, group=group)
        times[number] = time.perf_counter() - begin
    if group is None:
        dist.all_reduce(times, dist.ReduceOp.MAX)
    return times.median().item() * 1e6


def rank_of(backend):
    """A rank: prints a line of JSON for each figure of each round."""
    import torch
    import torch.distributed as dist

    import tandem_torch

    torch.set_num_threads(1)
    dist.init_process_group(backend)

    def report(**figure):
        if dist.get_rank() == 0:
            print(json.dumps({**figure, "torch": torch.__version__}), flush=True)

    for size in SIZES:
        data = {backend: torch.zeros(size // 4)}
        if backend == "tandem":
            data["shared"] = torch.zeros(size // 4)
            assert tandem_torch.share_memory(data["shared"], dist.group.WORLD)
        for column, tensor in data.items():
            verify(dist, tensor)
            trial = microseconds(dist, tensor, 5)
            for _ in range(ROUNDS[backend]):
                calls = max(5, min(2000, int(SECONDS * 1e6 / max(trial, 0.1))))
                report(what="all_reduce", bytes=size, column=column, microseconds=microseconds(dist, tensor, calls))
    groups = [dist.new_group([rank], backend=backend) for rank in range(dist.get_world_size())]
    own = groups[dist.get_rank()]
    report(what=ALONE, bytes=8, column=backend, microseconds=microseconds(dist, torch.zeros(2), 2000, own))
    dist.barrier()
    dist.destroy_process_group()


def start(backend, found, versions):
    """Adds to found[what, bytes, column] the best of all starts and rounds."""
    best = {}
    for way in WAYS[backend]:
        command = [*way, sys.executable, __file__, "--backend", backend]
        text = compare_comm.run_ranks(compare_comm.OneHost(), command, 600)
        for line in (line for line in text.splitlines() if line.startswith("{")):
            figure = json.loads(line)
            key = figure["what"], figure["bytes"], figure["column"]
            best[key] = min(figure["microseconds"], best.get(key, float("inf")))
            versions["torch"] = figure["torch"]
    for key, value in best.items():
        found.setdefault(key, []).append(value)


def rows_of(found):
    """One for each operation and size, of the medians over the turns."""
    median = {key: statistics.median(values) for key, values in found.items()}
    for what, size in [*(("all_reduce", size) for size in SIZES), (ALONE, 8)]:
        row = {
            "what": what,
            "ranks": 2,
            "bytes": size,
            "tandem": median[what, size, "tandem"],
            "gloo": median[what, size, "gloo"],
            "shared": median.get((what, size, "shared")),
        }
        yield row if what == ALONE else {**row, "gloo_starts": len(WAYS["gloo"])}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json")
    parser.add_argument("--backend", choices=ROUNDS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.backend:
        return rank_of(arguments.backend)
    found, versions = {}, {}
    for turn in range(arguments.turns):
        for backend in ("tandem", "gloo") if turn % 2 == 0 else ("gloo", "tandem"):
            start(backend, found, versions)
    rows = list(rows_of(found))
    for row in rows:
        shared = f"shared {row['shared']:.1f} us\t" if row["shared"] else ""
        print(
            f"{row['what']}\t{row['bytes']} bytes\ttandem {row['tandem']:.1f} us\t{shared}gloo {row['gloo']:.1f} us\t{row['gloo'] / row['tandem']:.1f} times",
            flush=True,
        )
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps({"versions": versions, "rows": rows}))


if __name__ == "__main__":
    main()
