#!/usr/bin/env python3
"""What makes a comparison fair, without timing anything: the order of the columns, what a rival is given, when it is believed, and what is recorded."""

import json
import pathlib
import sys
import tempfile
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import record  # noqa: E402
import rivals  # noqa: E402


def options(**given):
    return types.SimpleNamespace(**{"allocators": "glibc,hugepages,tcmalloc,iomp", "tcmalloc": None, "iomp": None, **given})


def check_columns():
    columns = list("abc")
    orders = [rivals.rotated(columns, number) for number in range(6)]
    assert all(sorted(order) == columns for order in orders)
    assert {order[0] for order in orders} == set(columns), "a column is never the first"
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


def check_record():
    assert record.told(["/somewhere/build/bin/tandem", "bench", "peak"]) == "tandem bench peak", "folders of a machine do not belong into the project"
    with tempfile.TemporaryDirectory() as scratch:
        path = pathlib.Path(scratch) / "peak.m.json"
        for date in ("2026-01-01", "2026-01-02"):
            record.keep(path, {"cpu": "x"}, {"command": "tandem bench peak", "date": date, "runs": [{"valid": True, "results": []}]})
        kept = json.loads(path.read_text())
        assert [entry["date"] for entry in kept["records"]] == ["2026-01-02"], "a command recorded again replaces its record"


check_columns()
check_belief()
check_record()
print("check_bench_scripts: passed")
