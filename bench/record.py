#!/usr/bin/env python3
"""Runs a bench several times and keeps every run for docs/results.

    bench/record.py SUBJECT [--runs 3] [--machine NAME] [--folder docs/results/data] -- COMMAND...
    bench/record.py steps -- build/release/bin/tandem bench step --model minilm --batch 12 --dtype bf16
    bench/record.py rivals -- /tmp/peers/bin/python bench/compare_torch.py --types bf16
    bench/record.py tests --runs 1 -- scripts/test.sh
    bench/record.py tests_of_builds --runs 1 -- scripts/aarch64.sh

COMMAND is `tandem bench …`, `kernel_bench …`, a script of bench/, scripts/fuzz.sh, membership_schedules or membership_large_jobs, which take `--json FILE` (`--json` is added here), or scripts/test.sh, aarch64.sh or sanitize.sh with one of its builds, whose last line is kept. The file is FOLDER/SUBJECT.MACHINE.json (MACHINE: the class of the CPU if not given): the machine, and for each command its
date, versions and all runs. Recording a command again replaces its record. A run during which other processes took more than a tenth of the cores, or without enough undisturbed rounds (--undisturbed), is kept and marked as not valid, and another is made, up to twice --runs.
tools/make_results.py makes the pages of these files.
"""

import argparse
import ctypes
import datetime
import json
import os
import pathlib
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]

# The best first; the names of TANDEM_CPU_FEATURES, by what /proc/cpuinfo calls the instructions.
CLASSES = (("amx", "amx_bf16"), ("avx512bf16", "avx512_bf16"), ("avx512", "avx512f"), ("avx2", "avx2"))
LEAST_SHARE_OF_CORES = 0.9
PROGRAMS = ("tandem", "kernel_bench")  # print one JSON object with --json
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
COUNTED = ("test.sh", "aarch64.sh", "sanitize.sh")  # scripts that end with `N passed, N failed, N skipped`
# Their counts, scores and bounds depend on no neighbour.
UNTIMED = (
    *COUNTED,
    "fuzz.sh",
    "quality.sh",
    "quality_hf.py",
    "memory.py",
    "plan_nodes.py",
    "elastic_soak.py",
    "membership_schedules",
    "membership_large_jobs",
    "quality_of_embeddings.py",
    "quality_of_labels.py",
    "quality_of_mlm.py",
    "torch_own_tests.py",
    "faults.py",
    "step_memory.py",
)


def output_of(*command):
    try:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def machine():
    text = output_of("lscpu")
    value = lambda name: (re.search(rf"^{re.escape(name)}:\s*(.*)$", text, re.M) or ["", ""])[1]
    flags = set(value("Flags").split())
    kind = next((name for name, flag in CLASSES if flag in flags), platform.machine())
    system = re.search(r'^PRETTY_NAME="(.*)"', pathlib.Path("/etc/os-release").read_text(), re.M)
    return {
        "cpu": value("Model name"),
        "family": f"{value('CPU family')}/{value('Model')}",
        "class": kind,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{system[1] if system else ''}, Linux {platform.release().split('-')[0]}",
    }


def program_of(command):
    """tandem's program in the command, or where the script's own build has one."""
    for word in command:
        if pathlib.Path(word).name in PROGRAMS and os.access(word, os.X_OK):
            return pathlib.Path(word).resolve()
    name, *words = command
    build = {"fuzz.sh": "fuzz", "aarch64.sh": "aarch64", "sanitize.sh": words[0] if words else "asan"}.get(pathlib.Path(name).name, "release")
    return ROOT / "build" / build / "bin/tandem"


def onednn_version(library):
    """Asked of the library itself: the names of a wheel's files have the major version only."""
    version = ctypes.CDLL(library).dnnl_version
    version.restype = ctypes.POINTER(ctypes.c_int * 2)
    return "{}.{}".format(*version().contents)


def versions(command):
    program = program_of(command)
    tree = program.parent if program.is_file() else ROOT  # what was built for another machine left no program to look at
    found = {"tandem": output_of("git", "-C", tree, "describe", "--always", "--dirty")}
    for folder in program.parents:
        cache = folder / "CMakeCache.txt"
        if cache.is_file():
            compiler = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", cache.read_text(), re.M)
            found["compiler"] = output_of(compiler[1], "--version").split("\n")[0] if compiler else ""
            break
    dnnl = re.search(r"(/\S*libdnnl\.so\S*)", output_of("ldd", program))
    if dnnl:
        found["onednn"] = onednn_version(dnnl[1])
    return {name: text for name, text in found.items() if text}


def command_text(command):
    """The command as others would write it: without this machine's folders."""
    words = []
    for word in command:
        path = pathlib.Path(word)
        words.append(path.name if path.is_absolute() and path.parts[1] != "usr" else word)
    return " ".join(words)


def counted(output):
    """The counts in the last line of a script that runs tests, of which a failed one is a result, too."""
    counts = re.findall(r"^(\d+) passed, (\d+) failed, (\d+) skipped", output, re.M)
    if not counts:
        sys.exit("no line `N passed, N failed, N skipped`")
    return {"valid": True, "rows": [dict(zip(("passed", "failed", "skipped"), map(int, counts[-1])))]}


def is_untimed(command):
    return any(word.endswith(UNTIMED) for word in command[:2])


def busy_seconds():
    """Busy seconds of all cores since the machine started, including the hypervisor's share."""
    user, nice, system, _, _, irq, softirq, steal = map(int, pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def adopt_orphans():
    """From now on processes whose parents are killed become this one's."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_orphans():
    """Memory of children that have exited belongs to the command."""
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        pass


def alone(command, work):
    """Result of `work`, marked as not valid if others took more than a tenth of the cores meanwhile."""
    own = lambda: sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    begin, busy, used = time.monotonic(), busy_seconds(), own()
    run = work()
    reap_orphans()
    cores = os.cpu_count() * (time.monotonic() - begin)
    others = max(0.0, (busy_seconds() - busy) - (own() - used)) / cores
    run["taken_by_others"] = round(others, 3)
    run["valid"] = run["valid"] and (is_untimed(command) or others <= 1 - LEAST_SHARE_OF_CORES)
    return run


def is_tandem(command):
    """Whether it is tandem itself, or kernel_bench, that runs: `env NAME=VALUE… tandem …` is."""
    words = [word for word in command[1:] if "=" not in word] if command[0] == "env" else command
    return pathlib.Path(words[0]).name in PROGRAMS


def run_once(command):
    if is_tandem(command):
        done = subprocess.run([*command, "--json"], stdout=subprocess.PIPE, text=True)
        text = done.stdout
    elif command[0].endswith(COUNTED):
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        return counted(done.stdout)
    else:
        with tempfile.TemporaryDirectory() as scratch:
            file = pathlib.Path(scratch) / "run.json"
            done = subprocess.run([*command, "--json", str(file)])
            text = file.read_text() if file.is_file() else ""
    if done.returncode or not text:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}")
    run = json.loads(text)
    run["valid"] = run.get("share_of_cores", 1.0) >= LEAST_SHARE_OF_CORES and run.get("undisturbed", {}).get("enough", True)
    return run


def compact(value, depth=0):
    """JSON with a line for each result: it is read and compared by people, too."""
    if depth < 5 and isinstance(value, dict) and value:
        inner = (f"{json.dumps(name, ensure_ascii=False)}: {compact(part, depth + 1)}" for name, part in value.items())
    elif depth < 5 and isinstance(value, list) and value and isinstance(value[0], (dict, list)):
        inner = (compact(part, depth + 1) for part in value)
    else:
        return json.dumps(value, ensure_ascii=False)
    pad = " " * depth
    begin, end = "{}" if isinstance(value, dict) else "[]"
    return begin + "\n" + ",\n".join(f"{pad} {text}" for text in inner) + f"\n{pad}{end}"


def keep(path, machine_info, record):
    document = json.loads(path.read_text()) if path.is_file() else {"subject": path.name.split(".")[0], "machine": machine_info, "records": []}
    document["machine"] = machine_info
    document["records"] = [old for old in document["records"] if old["command"] != record["command"]] + [record]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(compact(document) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("subject")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--machine", help="name of this machine in the files; default: the class of its CPU")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "docs/results/data")
    if "--" not in sys.argv:
        parser.error("-- and the command are missing")
    cut = sys.argv.index("--")
    options, command = parser.parse_args(sys.argv[1:cut]), sys.argv[cut + 1 :]
    machine_info, runs = machine(), []
    # Not of tests: they look whether processes whose parents were killed are gone.
    if not is_untimed(command):
        adopt_orphans()
    while sum(run["valid"] for run in runs) < options.runs and len(runs) < 2 * options.runs:
        runs.append(alone(command, lambda: run_once(command)))
    found = versions(command)
    for run in runs:
        found.update(run.pop("versions", {}))
    record = {
        "command": command_text(command),
        "date": datetime.date.today().isoformat(),
        "isa": runs[0].get("cpu", machine_info["class"]),
        "versions": found,
        "runs": runs,
    }
    path = options.folder / f"{options.subject}.{options.machine or machine_info['class']}.json"
    keep(path, machine_info, record)
    valid = sum(run["valid"] for run in runs)
    print(f"{path}: {len(runs)} runs, {valid} valid")
    return 0 if valid else 1


if __name__ == "__main__":
    sys.exit(main())
