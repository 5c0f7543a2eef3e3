#!/usr/bin/env python3
"""Fairness of a comparison, checked without timing anything: the order of the columns, the settings of a rival, when it is trusted, and what is recorded."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "python/bench")]
import all_reduce  # noqa: E402
import compare_comm  # noqa: E402
import compare_elastic  # noqa: E402
import compare_failures  # noqa: E402
import record  # noqa: E402
import rivals  # noqa: E402


def options(**given):
    return types.SimpleNamespace(**{"allocators": "glibc,hugepages,tcmalloc,iomp", "tcmalloc": None, "iomp": None, **given})


def check_columns():
    for columns in (list("ab"), list("abc"), list("abcd")):
        orders = [rivals.rotated(columns, number) for number in range(2 * len(columns))]
        assert all(sorted(order) == columns for order in orders)
        assert sorted(order[0] for order in orders) == sorted(2 * columns), "a column is the first more often than another"
        for column in columns[: len(columns) if len(columns) > 2 else 0]:
            behind = {order[order.index(column) - 1] for order in orders if order[0] != column}
            assert len(behind) > 1, f"{column} is always behind the same one"
    assert sorted(rivals.environments(options())) == ["glibc", "hugepages"]
    given = rivals.environments(options(tcmalloc="t.so", iomp="i.so"))
    assert given["glibc"] == {}, "as installed is as installed"
    for name in ("hugepages", "tcmalloc", "iomp"):
        assert given[name]["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=1" and given[name]["THP_MEM_ALLOC_ENABLE"] == "1" and given[name]["OMP_PROC_BIND"], name
    assert given["tcmalloc"]["LD_PRELOAD"] == "t.so" and given["iomp"]["LD_PRELOAD"] == "i.so:t.so"


def check_belief():
    assert rivals.LEAST_WARM_UP >= 3
    assert rivals.has_learned([6.0, 5.9, 5.8, 5.7, 5.6])
    assert not rivals.has_learned([6.0, 6.0, 6.0, 6.0, 6.0]), "a step that learns nothing did nothing"
    assert not rivals.has_learned([6.0, 5.0, 4.0, float("nan")]) and not rivals.has_learned([6.0])


def check_batches():
    """A rival gets texts of the lengths that tandem has, and labels where the official scripts put them."""
    try:
        import numpy  # noqa: F401
    except ImportError:
        print("check_bench_scripts: no numpy: the rivals' batches are not checked")
        return
    for task, padding, width in (
        ("question-answering", "max", 16),
        ("text-classification", "longest", 9),
        ("token-classification", "longest", 9),
        ("fill-mask", "longest", 9),
    ):
        batch = rivals.numpy_batch(types.SimpleNamespace(task=task, model="minilm", batch=3, seq=16, rival_padding=padding, text_lengths=[9, 4, 6]))
        assert batch["input_ids"].shape == (3, width) and batch["attention_mask"].sum(axis=1).tolist() == [9, 4, 6], task
        assert "start_positions" in batch if task == "question-answering" else batch["labels"].shape[0] == 3
        if task == "fill-mask":
            assert (batch["labels"] >= 0).sum() == 3 and (batch["labels"][:, 3] == batch["input_ids"][:, 3]).sum() == 3
        if task == "token-classification":
            assert (batch["labels"] != -100).sum(axis=1).tolist() == [7, 2, 4], "special tokens and padding have no label"


def check_turns():
    order = []
    sides = {(name, ""): lambda name=name: order.append(name) or {"seconds": float(len(order)), "versions": {name: "1"}} for name in "ab"}
    values, versions = rivals.in_turns(sides, 2, "f32", "seconds")
    assert order == ["a", "b", "b", "a"], order  # round 2 goes backwards
    assert values == {("a", ""): [1.0, 4.0], ("b", ""): [2.0, 3.0]} and versions == {"a": "1", "b": "1"}


def check_record():
    assert record.command_text(["/somewhere/build/bin/tandem", "bench", "peak"]) == "tandem bench peak", "folders of a machine do not belong into the project"
    assert record.counted("x\n12 passed, 0 failed, 3 skipped\n")["rows"] == [{"passed": 12, "failed": 0, "skipped": 3}]
    assert record.program_of(["scripts/sanitize.sh", "tsan"]).parts[-3:-1] == ("tsan", "bin"), "versions are those of the build that ran"
    with tempfile.TemporaryDirectory() as scratch:
        path = pathlib.Path(scratch) / "peak.m.json"
        for date in ("2026-01-01", "2026-01-02"):
            record.keep(path, {"cpu": "x"}, {"command": "tandem bench peak", "date": date, "runs": [{"valid": True, "results": []}]})
        kept = json.loads(path.read_text())
        assert [entry["date"] for entry in kept["records"]] == ["2026-01-02"], "a command recorded again replaces its record"


PROBE = """
#include "rival_buffers.h"
#include <stdlib.h>
int main(int argc, char** argv) {  /* OPERATION RANK SIZE NUMBER...: are these what the operation must leave on the rank? */
  float out[64];
  for (int i = 4; i < argc; ++i) out[i - 4] = (float)atof(argv[i]);
  return !rival_right(argv[1], atoi(argv[2]), atoi(argv[3]), (size_t)(argc - 4), out);
}
"""


def check_rivals_results():
    """Every collective's result is looked at, as MPI defines it: the right one passes, one wrong element does not."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        print("check_bench_scripts: no C compiler: what the rivals of collectives must compute is not checked")
        return
    size, part = 3, 4
    given = [[(i + rank) % 7 for i in range(size * part)] for rank in range(size)]
    sums = [sum(column) for column in zip(*given)]
    blocks = [x for row in given for x in row[:part]]
    with tempfile.TemporaryDirectory() as scratch:
        program = pathlib.Path(scratch) / "probe"
        subprocess.run([compiler, "-x", "c", "-I", ROOT / "bench", "-o", program, "-"], input=PROBE, text=True, check=True)
        for rank in range(size):
            own = slice(rank * part, (rank + 1) * part)
            results = {
                "all_reduce": sums,
                "broadcast": given[0],
                "all_gather": blocks,
                "reduce_scatter": sums[own],
                "all_to_all": [x for row in given for x in row[own]],
                "reduce": sums if rank == 0 else [],
                "gather": blocks if rank == 0 else [],
            }
            for operation, result in results.items():
                right = lambda numbers: subprocess.run(list(map(str, [program, operation, rank, size, *numbers])), stderr=subprocess.DEVNULL).returncode == 0
                whole = result + [-1] * (size * part - len(result))
                assert right(whole), f"{operation} on rank {rank}"
                for wrong in {0, len(result) - 1} if result else ():
                    assert not right(whole[:wrong] + [whole[wrong] + 1] + whole[wrong + 1 :]), f"{operation} on rank {rank}, element {wrong}"


def check_failures():
    """Time of recovery and repeated steps, from the log lines of a job whose rank 7 was killed at 10 s."""
    line = lambda pid, step: f'{{"pid": {pid}, "step": {step}}}\n'
    run = types.SimpleNamespace(lines=[(8, line(6, 1)), (8, line(7, 1)), (9, line(6, 2)), (9, line(7, 2))])
    side = compare_failures.Rival(options(), "torchrun", "rank", None)
    side.killed = [7]
    assert side.applied(run) == 2 and side.progress_after(run, 10) is None
    run.lines += [(10.1, line(7, 3)), (20, line(8, 2))]  # the last line of the dead one; a step again
    assert side.progress_after(run, 10) is None, "a step that had been applied is not progress"
    run.lines += [(21, line(8, 3))]
    assert side.progress_after(run, 10) == {"seconds": 11, "again": 1}
    run.lines[-2:] = [(11, line(6, 3))]
    assert side.progress_after(run, 10) == {"seconds": 1, "again": 0}, "a survivor computes nothing again"
    ours = compare_failures.Tandem(options(), "tandem", "rank", None)
    run.lines = [(9, "view 2: step 2 is applied, 1.00 s after step 1\n"), (12, "tandem run: view 3: step 57 is applied, 0.12 s after step 56\n")]
    assert ours.progress_after(run, 10) == {"seconds": 2, "again": 0}
    assert compare_failures.spread([3, None, 1, 2]) == [2, 1, 3] and compare_failures.spread([None]) is None

    # A rival whose job fails costs its own row; tandem's ends the bench.
    def fails(*_, **__):
        raise compare_failures.RunFailed("the job ended with 1", "")

    once, compare_failures.run_once = compare_failures.run_once, fails
    assert compare_failures.measure(options(), "torchrun", "host") == {"outcome": "the job ended with 1"}
    try:
        compare_failures.measure(options(), "tandem", "host")
        raise AssertionError("a bench without tandem continues")
    except SystemExit as ended:
        assert ended.code == 1
    compare_failures.run_once = once


def check_confidence():
    """The 40th and the 61st of 100 values bound the median with 95 %."""
    assert compare_elastic.with_confidence([*range(100, 0, -1)]) == [50.5, 40, 61]
    assert compare_elastic.with_confidence([3, 1, 2]) == [2, 1, 3]
    starts = [{"plain": [1, 2, 4], "elastic": [start, 2 * start, 400]} for start in (1.1, 0.9, 1.5, 1.0, 1.2, 1.3)]
    assert compare_elastic.ratio_of(starts, "elastic", "plain") == [1.15, 0.9, 1.5]


def check_gloo():
    """Gloo shows its best round of several starts, and the record has the number of starts."""
    reported = iter(range(100, 0, -1))
    run_ranks, compare_comm.run_ranks = (
        compare_comm.run_ranks,
        lambda hosts, command, timeout: "".join(
            json.dumps({"what": what, "bytes": size, "column": column, "microseconds": next(reported), "torch": "2"}) + "\n"
            for column in ("gloo", "gloo", "tandem")
            for what, size in [("all_reduce", size) for size in all_reduce.SIZES[:1]] + [(all_reduce.ALONE, 8)]
        ),
    )
    found, versions = {}, {}
    all_reduce.start("gloo", found, versions)
    compare_comm.run_ranks = run_ranks
    starts = len(all_reduce.WAYS["gloo"])
    assert starts >= 4 and ["chrt", "--batch", "0"] in all_reduce.WAYS["gloo"]
    assert found["all_reduce", 8, "gloo"] == [100 - 6 * (starts - 1) - 2], "not the best of all starts and rounds"
    sizes, all_reduce.SIZES = all_reduce.SIZES, all_reduce.SIZES[:1]
    rows = list(all_reduce.rows_of(found))
    all_reduce.SIZES = sizes
    assert rows[0]["gloo_starts"] == starts and "gloo_starts" not in rows[1] and versions == {"torch": "2"}


check_columns()
check_gloo()
check_failures()
check_confidence()
check_rivals_results()
check_belief()
check_batches()
check_turns()
check_record()
print("check_bench_scripts: passed")
