#!/usr/bin/env python3
"""Times tandem's collectives and those of MPI libraries in turns, and prints the ratios.

    bench/compare_comm.py build/release/bin/tandem [--op all_reduce] [--sizes 8,512,4096,...] [--rounds 5] [--rivals mpich,openmpi]

A round runs each program once, so all meet the same state of the machine. Two ranks, one core each, private buffers of 4 KiB pages (and
tandem's communicator memory beside it); bench/comm_mpi.c is compiled with each rival's own mpicc. A ratio is the rival's median over
tandem's; above 1 tandem is faster. --json FILE writes all figures.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

RIVALS = {
    "mpich": {"cc": "mpicc.mpich", "run": ["mpiexec.mpich", "-n", "2"]},
    "openmpi": {"cc": "mpicc.openmpi",
                "run": ["mpiexec.openmpi", "-n", "2", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]},
}
OUT_OF_PLACE = {"all_gather", "reduce_scatter", "all_to_all", "reduce"}


def run_tandem(program, operation, sizes, memory, seconds, dtype):
    found = {}
    for size in sizes:
        command = [program, "bench", "comm", "--op", operation, "--min", str(size), "--max", str(size), "--memory", memory,
                   "--rounds", "1", "--seconds", str(seconds), "--no-limits", "--dtype", dtype, "--json"]
        result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout)
        found[size] = result["results"][0]["microseconds"]["median"]
    return found


def run_rival(rival, binary, operation, sizes, seconds):
    line = pathlib.Path("/dev/shm") / f"compare_comm_{os.getpid()}"
    line.unlink(missing_ok=True)
    way = "out_of_place" if operation in OUT_OF_PLACE else "in_place"
    command = [*rival["run"], str(binary), str(line), way, str(seconds), "1", operation, *map(str, sizes)]
    text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout
    line.unlink(missing_ok=True)
    return {int(size): float(time) for _, size, time in (row.split() for row in text.splitlines())}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tandem")
    parser.add_argument("--op", default="all_reduce")
    parser.add_argument("--sizes", default="8,64,512,4096,32768,262144,1048576,4194304,16777216,67108864,268435456")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--rivals", default="mpich,openmpi")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.sizes.split(",")]
    rivals = {name: RIVALS[name] for name in arguments.rivals.split(",") if shutil.which(RIVALS[name]["cc"])}
    for name in arguments.rivals.split(","):
        if name not in rivals:
            print(f"{name}: no {RIVALS[name]['cc']} (Debian: {'libmpich-dev mpich' if name == 'mpich' else 'libopenmpi-dev openmpi-bin'})",
                  file=sys.stderr)
    source = pathlib.Path(__file__).parent / "comm_mpi.c"
    columns = ["tandem private", "tandem communicator", *rivals]
    times = {column: {size: [] for size in sizes} for column in columns}
    with tempfile.TemporaryDirectory() as scratch:
        binaries = {}
        for name, rival in rivals.items():
            binaries[name] = pathlib.Path(scratch) / f"comm_{name}"
            subprocess.run([rival["cc"], "-O2", "-o", binaries[name], source], check=True)
        for _ in range(arguments.rounds):
            for column in columns:
                if column in rivals:
                    found = run_rival(rivals[column], binaries[column], arguments.op, sizes, arguments.seconds)
                else:
                    found = run_tandem(arguments.tandem, arguments.op, sizes, column.split()[1], arguments.seconds, "f32")
                for size, time in found.items():
                    times[column][size].append(time)
    print(f"{arguments.op} f32, 2 ranks, {'out of' if arguments.op in OUT_OF_PLACE else 'in'} place, medians of {arguments.rounds} rounds in us")
    print(f"{'bytes':>10}" + "".join(f"{column:>22}" for column in columns) + "   best rival / private   / communicator")
    summary = {}
    for size in sizes:
        median = {column: statistics.median(times[column][size]) for column in columns}
        best = min((median[name] for name in rivals), default=float("nan"))
        ratios = (best / median["tandem private"], best / median["tandem communicator"])
        print(f"{size:>10}" + "".join(f"{median[column]:>22.2f}" for column in columns) + f"{ratios[0]:>23.2f}{ratios[1]:>16.2f}")
        summary[size] = {"median": median, "all": {column: times[column][size] for column in columns}, "ratios": ratios}
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(summary, indent=1))


if __name__ == "__main__":
    main()
