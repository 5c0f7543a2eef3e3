#!/usr/bin/env python3
"""Times tandem's collectives and those of other libraries alternately, and prints the ratios.

    bench/compare_comm.py build/release/bin/tandem [--op all_reduce] [--sizes 8,512,4096,...] [--rounds 5] [--rivals mpich,openmpi,gloo]

A round runs each program once, so all meet the same state of the machine. Two ranks, one core each, private buffers of 4 KiB pages (and
tandem's communicator memory as well); bench/comm_mpi.c is compiled with each rival's own mpicc, bench/comm_gloo.cc with g++. Rivals: mpich,
openmpi, gloo, impi (Intel MPI: pip install impi-rt into an environment DIR, then --impi DIR) and oneccl (pip install --no-deps oneccl
oneccl-devel intel-cmplr-lib-rt into an environment DIR, then, because they write the same files, oneccl-cpu with --force-reinstall; then
--oneccl DIR). torch is torch.distributed over its own Gloo, with --torch PYTHON. A ratio is the best rival's median over tandem's; above 1 tandem is faster. --json FILE writes all figures.

--hosts runs the two ranks on two hosts, made of two network namespaces of this machine that a pair of virtual interfaces connects (needs
root, and ip of iproute2); they are removed at the end. --before PROGRAM adds a column: another build of tandem, measured alternately with this one. Rivals there: gloo, and mpich over UCX's tcp.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import rivals as step_rivals

MPI_SOURCE, GLOO_SOURCE, ONECCL_SOURCE = "comm_mpi.c", "comm_gloo.cc", "comm_oneccl.cc"
RIVALS = {
    "mpich": {"cc": "mpicc.mpich", "run": ["mpiexec.mpich", "-n", "2"]},
    "openmpi": {"cc": "mpicc.openmpi", "run": ["mpiexec.openmpi", "-n", "2", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]},
    "gloo": {"cc": "g++", "flags": ["-std=c++17"], "source": GLOO_SOURCE, "libraries": ["-lgloo", "-pthread"], "threads": True},
    "impi": {"cc": "mpicc.mpich", "run": ["mpiexec.hydra", "-n", "2"]},  # one binary interface with MPICH
    "torch": {"script": "comm_torch.py", "threads": True},  # Gloo as torch.distributed calls it
    "oneccl": {"cc": "g++", "flags": ["-std=c++17"], "source": ONECCL_SOURCE, "libraries": ["-lccl", "-Wl,--allow-shlib-undefined"]},
}
PACKAGES = {
    "mpich": "libmpich-dev mpich",
    "openmpi": "libopenmpi-dev openmpi-bin",
    "gloo": "libgloo-dev",
    "impi": "libmpich-dev",
    "oneccl": "g++",
    "torch": "pip install torch",
}
OUT_OF_PLACE = {"all_gather", "reduce_scatter", "all_to_all", "reduce", "gather"}


class OneHost:
    def inside(self, rank, command, bound):
        return command

    def mpi_run(self, command):
        return command

    def environment(self, rank):
        return {}


class TwoHosts:
    """Two network namespaces, A and B, and a pair of virtual interfaces between them."""

    ADDRESSES = ["10.231.77.1", "10.231.77.2"]

    def __init__(self):
        self.names = [f"tdm{os.getpid()}{side}" for side in "ab"]
        self.folder = pathlib.Path(tempfile.mkdtemp())

    def __enter__(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "add", name], check=True)
            subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        subprocess.run(["ip", "link", "add", "eth7", "netns", self.names[0], "type", "veth", "peer", "name", "eth7", "netns", self.names[1]], check=True)
        for name, address in zip(self.names, self.ADDRESSES):
            subprocess.run(["ip", "-n", name, "address", "add", f"{address}/24", "dev", "eth7"], check=True)
            subprocess.run(["ip", "-n", name, "link", "set", "eth7", "up"], check=True)
        for name in self.names:  # UCX does not see a link that is not running yet
            for _ in range(500):
                if "LOWER_UP" in subprocess.run(["ip", "-n", name, "link", "show", "eth7"], check=True, capture_output=True, text=True).stdout:
                    break
                time.sleep(0.01)
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def inside(self, rank, command, bound):
        # Both are number 0 on their host, and one machine: without this tandem's ranks would bind themselves to one core.
        cores = sorted(os.sched_getaffinity(0))
        return ["ip", "netns", "exec", self.names[rank], *(["taskset", "-c", str(cores[rank % len(cores)])] if bound else []), *command]

    def mpi_run(self, command):
        """Hydra, started on the first host, with a launcher that enters the other one instead of ssh."""
        launcher = self.folder / "launcher"
        launcher.write_text(f'#!/bin/sh\nwhile [ "${{1#-}}" != "$1" ]; do shift; done\nshift\nexec ip netns exec {self.names[1]} sh -c "$*"\n')
        launcher.chmod(0o755)
        return [
            "ip",
            "netns",
            "exec",
            self.names[0],
            command[0],
            "-launcher",
            "ssh",
            "-launcher-exec",
            str(launcher),
            "-hosts",
            ",".join(self.ADDRESSES),
            "-ppn",
            "1",
            "-genv",
            "UCX_TLS",
            "tcp,self",
            "-genv",
            "UCX_NET_DEVICES",
            "eth7",
            *command[1:],
        ]

    def environment(self, rank):
        return {"MASTER_ADDR": self.ADDRESSES[0], "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GLOO_HOST": self.ADDRESSES[rank]}


def free_port():
    with socket.socket() as found:
        found.bind(("", 0))
        return found.getsockname()[1]


def run_ranks(hosts, command, timeout, environment=None, bound=True):
    """Two processes; what rank 0 printed. `bound`: on two hosts each to a core of its own."""
    port = str(free_port())
    ranks = []
    for rank in range(2):
        variables = {
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            **hosts.environment(rank),
            **(environment(rank) if environment else {}),
        }
        ranks.append(subprocess.Popen(hosts.inside(rank, command, bound), env=variables, stdout=subprocess.PIPE, text=True))
    texts = [rank.communicate(timeout=timeout)[0] for rank in ranks]
    for rank in ranks:
        if rank.returncode != 0:
            raise RuntimeError(f"{command[0]} ended with {rank.returncode}")
    return texts[0]


def run_tandem(program, operation, sizes, memory, seconds, dtype, hosts):
    found = {}
    for size in sizes:
        command = [
            program,
            "bench",
            "comm",
            "--op",
            operation,
            "--min",
            str(size),
            "--max",
            str(size),
            "--memory",
            memory,
            "--rounds",
            "1",
            "--seconds",
            str(seconds),
            "--no-limits",
            "--dtype",
            dtype,
            "--json",
        ]
        result = json.loads(run_ranks(hosts, command, 300))
        found[size] = result["results"][0]["microseconds"]["median"]
    return found


def remove(store):
    """The folder or the file in which the ranks of a rival met."""
    shutil.rmtree(store, ignore_errors=True)
    if store.exists():
        store.unlink()


# Threads of its own need a core in addition to the ranks': which threads share one is decided at the start and stays, and in some of these patterns each call
# waits for a time slice (4 ms), less often where a thread that wakes up does not displace the sender (SCHED_BATCH). So such a rival shows its best round of
# several starts, with and without.
WAYS_TO_START_THREADS = 2 * ([], ["chrt", "--batch", "0"])


def run_rival(rival, binary, operation, sizes, seconds, hosts):
    found = {}
    for way in WAYS_TO_START_THREADS if rival.get("threads") else ([],):
        for size, microseconds in start_rival(rival, [*way, *map(str, binary)], operation, sizes, seconds, hosts):
            found[size] = min(microseconds, found.get(size, float("inf")))
    return found


def start_rival(rival, program, operation, sizes, seconds, hosts):
    """Its output: a size and microseconds for each of its rounds."""
    line = pathlib.Path("/dev/shm") / f"compare_comm_{os.getpid()}"
    store = line.with_suffix(".store")
    line.unlink(missing_ok=True)
    remove(store)
    way = "out_of_place" if operation in OUT_OF_PLACE else "in_place"
    command = [*program, str(line), way, str(seconds), "3" if rival.get("threads") else "1", operation, *map(str, sizes)]
    if "run" in rival or "arguments" in rival:
        variables = {**os.environ, **rival.get("environment", {})}
        command = rival["arguments"](command) if "arguments" in rival else [*hosts.mpi_run(rival["run"]), *command]
        text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600, env=variables).stdout
    else:
        text = run_ranks(hosts, command, 600, rival.get("rank_environment"), bound=False)  # Gloo has threads of its own
    line.unlink(missing_ok=True)
    remove(store)
    rows = (line.split() for line in text.splitlines() if line.startswith(operation + " "))  # without the library's own lines
    return [(int(size), float(microseconds)) for _, size, microseconds in rows]


def use_intel_mpi(folder):
    """Its mpiexec and library where pip put them."""
    launcher = next(pathlib.Path(folder).rglob("mpiexec.hydra"))
    library = next(path for path in pathlib.Path(folder).rglob("libmpi.so.12") if "debug" not in str(path))
    RIVALS["impi"]["run"][0] = str(launcher)
    root = launcher.parent.parent
    libfabric = [str(path.parent) for path in pathlib.Path(folder).rglob("libfabric.so.1")]
    RIVALS["impi"]["environment"] = {
        "LD_LIBRARY_PATH": ":".join([str(library.parent), *libfabric]),
        "I_MPI_ROOT": str(root),
        "FI_PROVIDER_PATH": ":".join(str(path) for path in pathlib.Path(folder).rglob("prov")),
        "I_MPI_FABRICS": "shm",
        "I_MPI_PIN": "0",
    }


def use_oneccl(folder):
    """Its headers and libraries where pip put them, without a progress thread, because there is no core for it; over Intel MPI, its default, if that is
    there, else over libfabric's tcp."""
    rival = RIVALS["oneccl"]
    rival["flags"] += [f"-I{folder}/include"]
    rival["libraries"] += [f"-L{folder}/lib"]
    variables = {"LD_LIBRARY_PATH": f"{folder}/lib", "CCL_ROOT": str(folder), "CCL_WORKER_OFFLOAD": "0", "CCL_LOG_LEVEL": "error"}
    mpi = RIVALS["impi"].get("environment")
    if not mpi:
        rival["rank_environment"] = lambda rank: {
            **variables,
            "CCL_ATL_TRANSPORT": "ofi",
            "CCL_PROCESS_LAUNCHER": "none",
            "CCL_LOCAL_RANK": str(rank),
            "CCL_LOCAL_SIZE": "2",
        }
        return
    rival["environment"] = {**mpi, **variables, "LD_LIBRARY_PATH": f"{folder}/lib:{mpi['LD_LIBRARY_PATH']}", "CCL_ATL_TRANSPORT": "mpi"}
    rank = lambda number, command: ["-n", "1", "-env", "RANK", str(number), "-env", "WORLD_SIZE", "2", *command]
    rival["arguments"] = lambda command: [RIVALS["impi"]["run"][0], *rank(0, command), ":", *rank(1, command)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tandem")
    parser.add_argument("--op", default="all_reduce")
    parser.add_argument("--sizes", default="8,64,512,4096,32768,262144,1048576,4194304,16777216,67108864,268435456")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--rivals", default="mpich,openmpi")
    parser.add_argument("--json")
    parser.add_argument("--before", metavar="PROGRAM", help="another build of tandem, with private buffers")
    parser.add_argument("--impi", metavar="DIR", help="where pip installed impi-rt")
    parser.add_argument("--torch", metavar="PYTHON", help="a Python that has torch")
    parser.add_argument("--oneccl", metavar="DIR", help="where pip installed oneccl, oneccl-cpu and oneccl-devel")
    parser.add_argument("--hosts", action="store_true", help="two hosts, over tcp")
    arguments = parser.parse_args()
    if arguments.impi:
        use_intel_mpi(arguments.impi)
    if arguments.oneccl:
        use_oneccl(arguments.oneccl)
    sizes = [int(size) for size in arguments.sizes.split(",")]
    if arguments.hosts:
        arguments.rivals = ",".join(name for name in arguments.rivals.split(",") if name in ("gloo", "mpich"))
    RIVALS["torch"]["cc"] = arguments.torch or "no Python given by --torch"
    rivals = {name: RIVALS[name] for name in arguments.rivals.split(",") if name in RIVALS and shutil.which(RIVALS[name]["cc"])}
    for name in arguments.rivals.split(","):
        if name not in rivals:
            print(f"{name}: no {RIVALS[name]['cc']} (Debian: {PACKAGES[name]})", file=sys.stderr)
    columns = ["tandem private", *([] if arguments.hosts else ["tandem communicator"]), *(["before private"] if arguments.before else []), *rivals]
    times = {column: {size: [] for size in sizes} for column in columns}
    with tempfile.TemporaryDirectory() as scratch, TwoHosts() if arguments.hosts else contextlib.nullcontext(OneHost()) as hosts:
        binaries = {}
        for name, rival in rivals.items():
            if "script" in rival:
                binaries[name] = [rival["cc"], pathlib.Path(__file__).parent / rival["script"]]
                continue
            binaries[name] = [pathlib.Path(scratch) / f"comm_{name}"]
            source = pathlib.Path(__file__).parent / rival.get("source", MPI_SOURCE)
            subprocess.run([rival["cc"], "-O2", *rival.get("flags", []), "-o", *binaries[name], source, *rival.get("libraries", [])], check=True)
        for number in range(arguments.rounds):
            for column in step_rivals.rotated(columns, number):
                if column in rivals:
                    found = run_rival(rivals[column], binaries[column], arguments.op, sizes, arguments.seconds, hosts)
                else:
                    build, memory = column.split()
                    program = arguments.tandem if build == "tandem" else arguments.before
                    found = run_tandem(program, arguments.op, sizes, memory, arguments.seconds, "f32", hosts)
                for size, time in found.items():
                    times[column][size].append(time)
    place = "on two hosts, " if arguments.hosts else ""
    print(f"{arguments.op} f32, 2 ranks, {place}{'out of' if arguments.op in OUT_OF_PLACE else 'in'} place, medians of {arguments.rounds} rounds in us")
    print(f"{'bytes':>10}" + "".join(f"{column:>22}" for column in columns) + "   best rival / tandem")
    summary = {}
    for size in sizes:
        median = {column: statistics.median(times[column][size]) for column in columns}
        best = min((median[name] for name in rivals), default=float("nan"))
        ratios = [best / median[column] for column in columns if column.startswith("tandem")]
        print(f"{size:>10}" + "".join(f"{median[column]:>22.2f}" for column in columns) + "".join(f"{ratio:>12.2f}" for ratio in ratios))
        summary[size] = {"median": median, "all": {column: times[column][size] for column in columns}, "ratios": ratios}
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps({"operation": arguments.op, "dtype": "f32", "rounds": arguments.rounds, "results": summary}))


if __name__ == "__main__":
    main()
