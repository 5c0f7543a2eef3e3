#!/usr/bin/env python3
"""Tests tools/make_results.py: README's figures, the least favourable run, and that --check notices every difference."""

import json
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import make_results  # noqa: E402
import result_rows  # noqa: E402

MACHINE = {"cpu": "x", "class": "avx2", "cores": 2}


def rivals_run(ratio, model="minilm", skip=3, allocator="tcmalloc", valid=True):
    side = lambda name, seconds: {
        "side": name,
        "allocator": "" if name == "tandem" else allocator,
        "dtype": "bf16",
        "seconds": {"median": seconds, "min": seconds, "max": seconds},
    }
    return {"valid": valid, "rival": "torch", "model": model, "lengths": "padded", "skip": skip, "results": [side("tandem", 1.0), side("eager", ratio)]}


def rivals_of(*runs):
    return {"subject": "rivals", "name": "m", "machine": MACHINE, "records": [{"command": "c --tcmalloc f", "date": "2026-01-02", "runs": list(runs)}]}


def tests_on(date, passed):
    return {
        "subject": "tests",
        "name": "m",
        "machine": MACHINE,
        "records": [{"command": "c", "date": date, "versions": {"tandem": "abc"}, "runs": [{"rows": [{"passed": passed, "failed": 0, "skipped": 1}]}]}],
    }


def check_headlines():
    """README shows the least favourable of enough warm-up, with tcmalloc and huge pages measured, rounded down."""
    shown = lambda *runs: make_results.readme_rivals({"rivals": [rivals_of(*runs)]})
    assert "| m | bf16 | 2.9 times as fast | not recorded |" in shown(rivals_run(2.99)) and "one run each" in shown(rivals_run(2.99)), shown(rivals_run(2.99))
    several = shown(rivals_run(2.99), rivals_run(2.5), rivals_run(1.1, valid=False), rivals_run(3.5, allocator="glibc"), rivals_run(5.0, "bert-base"))
    assert "| 2.5 times as fast | 5.0 times" in several and "of 1 to 2 runs each" in several, several
    assert "| 2.0 times as fast |" in shown(rivals_run(2.5), rivals_run(2.0, allocator="glibc")), "the memory in which the rival is best"
    for unfair in (rivals_run(2.5, skip=1), rivals_run(2.5, allocator="glibc")):
        assert "times as fast" not in shown(unfair), "a rival without warm-up or without tcmalloc"


def check_decoder_rows():
    """A row for each form of the rival, with the memory of both sides."""
    side = lambda name, seconds, memory: {
        "side": name,
        "allocator": "" if name == "tandem" else "tcmalloc",
        "dtype": "bf16",
        "seconds": {"median": seconds, "min": seconds, "max": seconds},
        "memory": memory,
    }
    run = {"what": "lora", "rival": "peft", "model": "SmolLM2-135M", "lengths": "full", "batch": 2, "length": 512, "skip": 3, "command": "c"}
    rows = list(result_rows.rows_of_decoder_rivals({**run, "results": [side("tandem", 1.0, 900), side("sdpa", 3.0, 2000), side("half", 2.0, 1500)]}))
    assert [(row["what"], row["form"], row["length"], row["tandem_memory"], row["memory"]) for row in rows] == [
        ("LoRA step", "sdpa", 512, 900, 2000),
        ("LoRA step", "half", 512, 900, 1500),
    ], rows


def check_rows():
    found = {"tests": [tests_on("2026-01-02", 7)]}
    assert "7 passed, 0 failed, 1 skipped" in make_results.readme_tests(found) and "commit abc" in make_results.readme_tests(found)
    older = tests_on("2026-01-02", 5)
    assert "7 passed" in make_results.readme_tests({"tests": [older, tests_on("2026-01-02", 7)]}), "the newest tree of a day counts"
    assert not make_results.tests_away(found, 8) and make_results.tests_away(found, 9) and make_results.tests_away(found, 7)
    one_seed = {"seeds": 3, "hf_seeds": 1, "within": True}
    result_rows.with_spread_of_both(one_seed)
    assert one_seed["within"] is None
    row = lambda outcome, tests: {"torch": "2", "asked_for": "tandem", "ranks": 4, "outcome": outcome, "tests": tests}
    section = make_results.SECTIONS["torch_tests"]
    document = {"records": [{"command": "c", "date": "2026-01-02", "runs": [{"rows": [row("passed", 3), row("skipped", 1), row("passed", 4)]}]}]}
    assert [entry["row"]["tests"] for entry in make_results.least_favourable(section, document)] == [7, 1], "tests of one outcome are summed"
    faults = {"records": [{"command": "c", "date": "2026-01-02", "runs": [{"rows": [{"case": "a", "seconds": 1.0}, {"case": "a", "seconds": 2.0}]}]}]}
    worst = make_results.least_favourable(make_results.SECTIONS["torch_faults"], faults)
    assert [(entry["row"]["seconds"], entry["runs"]) for entry in worst] == [(2.0, 1)], worst


def check_definitions():
    """Every form, reader and derivation that the pages name exists."""
    for page in make_results.PAGES:
        for section in page["sections"]:
            assert all(form in result_rows.FORMS for _, _, form in section["columns"]), section["subject"]
    assert {*result_rows.READERS, *result_rows.DERIVE} <= set(make_results.SECTIONS)
    assert make_results.wrapped("a " * 60 + "`b c`").count("\n") == 1 and result_rows.cell("number", None) == ""


def check_files():
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        (root / "docs/results/data").mkdir(parents=True)
        write = lambda name, document: (root / "docs/results/data" / name).write_text(json.dumps(document))
        write("rivals.m.json", rivals_of(rivals_run(4.0), rivals_run(2.0), rivals_run(1.0, valid=False)))
        write("tests.m.json", tests_on("2026-01-02", 7))
        write("tests.old.json", tests_on("2026-01-01", 5))
        (root / "docs/results/archive.md").write_text("by hand")
        (root / "README.md").write_text("a\n<!-- results: rivals -->\n<!-- end of results -->\n<!-- results: tests -->\n<!-- end of results -->\n")
        assert make_results.differences(root), "nothing was made yet"
        for path, content in make_results.wanted(root).items():
            path.write_text(content, encoding="utf-8")
        assert not make_results.differences(root), make_results.differences(root)
        page = root / "docs/results/rivals.md"
        assert "2.0 times as fast" in (root / "README.md").read_text() and "| 2.00 | 2 |" in page.read_text(), "not the least favourable of the valid runs"
        for path, old, new in ((root / "README.md", "2.0 times", "2.1 times"), (root / "README.md", "7 passed", "8 passed"), (page, "2.00", "2.10")):
            content = path.read_text()
            path.write_text(content.replace(old, new))
            assert len(make_results.differences(root)) == 1, f"{path.name} with {new} for {old} was not noticed"
            path.write_text(content)
        (root / "docs/results/old.md").write_text("x")
        assert len(make_results.differences(root)) == 1, "a page without data was not noticed"
        write("unknown.m.json", tests_on("2026-01-02", 7))
        try:
            make_results.differences(root)
            raise AssertionError("an unknown subject was not noticed")
        except SystemExit as error:
            assert "unknown subject" in str(error)


if __name__ == "__main__":
    for check in (check_headlines, check_decoder_rows, check_rows, check_definitions, check_files):
        check()
    print("check_make_results: passed")
