#!/usr/bin/env python3
"""Converts libFuzzer's logs of its runs (FOLDER/TARGET.log) for bench/record.py.

tools/fuzz_results.py build/fuzz TARGET...
tools/fuzz_results.py --self-test
"""

import json
import pathlib
import re
import sys
import tempfile


def row_of(target, log):
    """A run that was cut off logs neither its time nor its end: it has no row."""
    runs = re.search(r"^Done (\d+) runs in (\d+) second", log, re.M)
    stats = dict(re.findall(r"^stat::(\w+):\s+(\d+)", log, re.M))
    findings = len(re.findall(r"Test unit written to \S*/(?!slow-unit)\S+", log))
    inputs = runs[1] if runs else stats.get("number_of_executed_units")
    if inputs is None:
        raise SystemExit(f"{target}: its log does not state what it has done")
    return {
        "target": target,
        "seconds": int(runs[2]) if runs else None,
        "inputs": int(inputs),
        "kept": int(stats.get("new_units_added", 0)),
        "megabytes": int(stats.get("peak_rss_mb", 0)),
        "findings": findings,
    }


def result(folder, targets):
    rows = [row_of(name, (folder / f"{name}.log").read_text(errors="replace")) for name in targets]
    return {"rows": rows}


def self_test():
    ended = "#9 NEW\nDone 1234 runs in 61 second(s)\nstat::new_units_added: 7\nstat::peak_rss_mb: 90\n"
    failed = "stat::number_of_executed_units: 5\nartifact_prefix='a'; Test unit written to f/x-crash-1\n"
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        for name, log in (("whole", ended), ("bad", failed), ("cut", "#9 NEW\n")):
            (folder / f"{name}.log").write_text(log)
        whole, bad = result(folder, ["whole", "bad"])["rows"]
        assert whole == {"target": "whole", "seconds": 61, "inputs": 1234, "kept": 7, "megabytes": 90, "findings": 0}, whole
        assert bad["findings"] == 1 and bad["seconds"] is None, bad
        try:
            result(folder, ["cut"])
            raise AssertionError("a log without figures has a row")
        except SystemExit:
            pass
    print("fuzz_results: self-test passed")


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        self_test()
    else:
        print(json.dumps(result(pathlib.Path(sys.argv[1]), sys.argv[2:])))
