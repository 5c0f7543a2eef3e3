#!/usr/bin/env python3
"""Prints the slowest tests and outputs of the build, why tests were skipped, and the closing line of scripts/test.sh, from ctest's JUnit file.

    tools/summarize_tests.py RESULTS.xml CTEST_EXIT_STATUS [--whole]
    tools/summarize_tests.py --self-test

A test that tests/required_tests.txt requires of this machine and that was skipped counts as failed. `--whole`: every test was to run, so a pattern of that list
which no test has fails too, and a line reports if README's count of tests is that of a tree with many fewer. The reports of the first failed tests are shown.
Missing capabilities of this machine are listed last, before the closing line, which is `N passed, N failed, N skipped`. Exits 1 if a test failed, if ctest failed for another reason, or if no test ran.
"""

import collections
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

import make_results
import required_tests


def skip_reason(case):
    """The text after GoogleTest's "Skipped" line, or the line of a script that begins with SKIPPED, else ctest's message."""
    output = case.findtext("system-out") or ""
    match = re.search(r": Skipped\n(.+?)\n(?:\s*\n|\[)", output, re.DOTALL) or re.search(r"^SKIPPED:? *(.+)$", output, re.MULTILINE)
    if match:
        return " ".join(match.group(1).split())
    message = case.find("skipped")
    return (message.get("message") if message is not None else None) or "no reason given"


def name_of(case):
    """A test's name without the value of its parameter, which ctest appends."""
    return case.get("name").partition("  # GetParam()")[0]


SHOWN_LINES, SHOWN_TESTS = 12, 10


def failure_lines(case):
    """The first lines of what a failed test reported: from GoogleTest's first failure on, else its last lines."""
    lines = [line for line in (case.findtext("system-out") or "").splitlines() if line.strip()]
    first = next((at for at, line in enumerate(lines) if re.search(r": (error: )?Failure$", line)), None)
    shown = lines[-SHOWN_LINES:] if first is None else lines[first : first + SHOWN_LINES]
    return [f"    {line[:300]}" for line in shown]


def sort_cases(cases):
    """Names that passed, names that failed, and [(name, reason)] of the skipped ones."""
    passed, failed, skipped = [], [], []
    for case in cases:
        if case.get("status") == "run" and case.find("failure") is None:
            passed.append(name_of(case))
        elif case.find("skipped") is not None and case.get("status") != "fail":
            skipped.append((name_of(case), skip_reason(case)))
        else:
            failed.append(name_of(case))
    return passed, failed, skipped


SLOWEST = 20


def slowest(seconds, what):
    """Lines for the largest of {name: seconds}, or none."""
    rows = sorted(seconds.items(), key=lambda row: -row[1])[:SLOWEST]
    if not rows:
        return []
    total = sum(seconds.values())
    return [f"the slowest of {len(seconds)} {what}, {total:.0f} s in all:", *(f"    {s:7.1f} s  {name}" for name, s in rows)]


def object_seconds(ninja_log):
    """{object: seconds of its last compilation} from ninja's log; links and generated files count too."""
    seconds = {}
    for line in ninja_log.splitlines()[1:]:
        fields = line.split("\t")
        if len(fields) >= 4:
            seconds[fields[3]] = (int(fields[1]) - int(fields[0])) / 1000
    return seconds


def test_seconds(text):
    """{test: seconds} from the text of the JUnit file."""
    try:
        cases = ElementTree.fromstring(text).iter("testcase")
        return {name_of(case): float(case.get("time") or 0) for case in cases}
    except (ElementTree.ParseError, ValueError):
        return {}


def stale_lines(texts, names):
    """Failures for the lines of {list of tests: its text} with which no name begins."""
    for name, text in texts.items():
        for line in text.splitlines():
            if line and not line.startswith("#") and not any(re.match(line, found) for found in names):
                yield f"FAILED {line}: tests/{name} has it, and no test is called so"


def summarize(text, status, requirements=None, whole=False, missing=(), lists=None):
    """The lines to print and the exit code, from the text of the JUnit file and ctest's own exit status."""
    try:
        cases = list(ElementTree.fromstring(text).iter("testcase"))
    except ElementTree.ParseError as error:
        return [f"test: ctest left no results ({error})", "0 passed, 1 failed, 0 skipped"], 1
    passed, failed, skipped = sort_cases(cases)
    reasons, failures = collections.defaultdict(list), [f"FAILED {name}" for name in failed]
    for name, reason in skipped:
        required = requirements and requirements.why(name)
        if required:
            failures.append(f"FAILED {name}: it was skipped, but must run where there is {required}: {reason}")
        else:
            reasons[reason].append(name)
    for pattern in requirements.unmatched([name_of(case) for case in cases]) if requirements and whole else []:
        failures.append(f"FAILED {pattern}: tests/required_tests.txt requires it, and no test is called so")
    if whole:
        failures += stale_lines(lists or {}, [name_of(case) for case in cases])
    if status != 0 and not failed:
        failures.append(f"FAILED ctest: it ended with status {status} although no test failed")
    lines = []
    for reason, names in sorted(reasons.items()):
        lines.append(f"SKIPPED {len(names)}: {reason}")
        lines.append(f"    {', '.join(names[:6])}{', …' if len(names) > 6 else ''}")
    for case in [case for case in cases if name_of(case) in failed][:SHOWN_TESTS]:
        lines += [f"{name_of(case)}:", *failure_lines(case)]
    lines += [*failures, *missing, f"{len(passed)} passed, {len(failures)} failed, {sum(map(len, reasons.values()))} skipped"]
    return lines, 1 if failures or not passed else 0


def self_test():
    passing = '<testcase name="a" status="run"/>'
    failing = '<testcase name="b" status="fail"><failure message="Failed"/></testcase>'
    skipping = (
        '<testcase name="c" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>'
        "<system-out>x_test.cc:3: Skipped\nneeds a CPU\nwith AMX\n\n[  SKIPPED ] c (0 ms)\n</system-out></testcase>"
    )
    scripted = '<testcase name="d" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/><system-out>SKIPPED: no package\n</system-out></testcase>'
    expectations = [
        (passing, 0, "1 passed, 0 failed, 0 skipped", 0),
        (passing + failing, 8, "1 passed, 1 failed, 0 skipped", 1),
        (passing + skipping + scripted, 0, "1 passed, 0 failed, 2 skipped", 0),
        (passing, 8, "1 passed, 1 failed, 0 skipped", 1),  # ctest itself failed
        (skipping, 0, "0 passed, 0 failed, 1 skipped", 1),  # nothing ran
    ]
    wrong = 0
    for cases, status, last, code in expectations:
        lines, found = summarize(f"<testsuite>{cases}</testsuite>", status)
        if (lines[-1], found) != (last, code):
            print(f"self-test: found {lines[-1]!r} and {found}, expected {last!r} and {code}")
            wrong += 1
    lines, code = summarize("<testsuite>", 0)
    wrong += code != 1
    reasons = summarize(f"<testsuite>{skipping}{scripted}</testsuite>", 0)[0]
    wrong += "SKIPPED 1: needs a CPU with AMX" not in reasons or "SKIPPED 1: no package" not in reasons
    reporting = '<testcase name="e" status="fail"><failure message="Failed"/><system-out>noise\nx_test.cc:3: Failure\nExpected: 1\n</system-out></testcase>'
    wrong += summarize(f"<testsuite>{reporting}</testsuite>", 8)[0][:3] != ["e:", "    x_test.cc:3: Failure", "    Expected: 1"]
    wrong += self_test_of_requirements(passing, skipping)
    wrong += test_seconds('<testsuite><testcase name="a" time="1.5"/></testsuite>') != {"a": 1.5} or test_seconds("<") != {}
    wrong += object_seconds("# ninja log v5\n0\t2500\t7\tx.o\t1\n") != {"x.o": 2.5}
    wrong += slowest({"a": 1.0, "b": 2.0}, "tests")[:2] != ["the slowest of 2 tests, 3 s in all:", "        2.0 s  b"] or slowest({}, "") != []
    print(f"self-test: {wrong} wrong")
    return 1 if wrong else 0


def self_test_of_requirements(passing, skipping):
    """A skipped test that is required fails, one that is required elsewhere does not; how many of these are wrong."""
    both = f"<testsuite>{passing}{skipping}</testsuite>"
    here = required_tests.Requirements("[any]\na\n[avx2]\nc\n", {"avx2"})
    elsewhere = required_tests.Requirements("[any]\na\n[amx]\nc\n", {"avx2"})
    stale = required_tests.Requirements("[any]\nrenamed\n", set())
    of_parameter = required_tests.Requirements("[any]\nd/x\n", set())
    gone = ["MISSING ../shared/data: it is not there"]
    expectations = [
        (summarize(both, 0, here), "1 passed, 1 failed, 0 skipped", 1, "FAILED c: it was skipped, but must run where there is avx2: needs a CPU with AMX"),
        (summarize(both, 0, elsewhere, whole=True), "1 passed, 0 failed, 1 skipped", 0, "SKIPPED 1: needs a CPU with AMX"),
        (
            summarize(both, 0, stale, whole=True),
            "1 passed, 1 failed, 1 skipped",
            1,
            "FAILED renamed: tests/required_tests.txt requires it, and no test is called so",
        ),
        (
            summarize('<testsuite><testcase name="d/x  # GetParam() = 5" status="run"/></testsuite>', 0, of_parameter, whole=True),
            "1 passed, 0 failed, 0 skipped",
            0,
            "1 passed, 0 failed, 0 skipped",
        ),
        (
            summarize(both, 0, whole=True, lists={"slow_tests.txt": "# names\na\nrenamed[.]\n"}),
            "1 passed, 1 failed, 1 skipped",
            1,
            "FAILED renamed[.]: tests/slow_tests.txt has it, and no test is called so",
        ),
        (summarize(both, 0, stale), "1 passed, 0 failed, 1 skipped", 0, "SKIPPED 1: needs a CPU with AMX"),
        (summarize(both, 0, elsewhere, missing=gone), "1 passed, 0 failed, 1 skipped", 0, gone[0]),
    ]
    wrong = 0
    for (lines, code), last, expected_code, line in expectations:
        if (lines[-1], code) != (last, expected_code) or line not in lines:
            print(f"self-test: found {lines} and {code}, expected {line!r}, {last!r} and {expected_code}")
            wrong += 1
    # A reader of the last lines of a long log sees what was missing.
    wrong += summarize(both, 0, elsewhere, missing=gone)[0][-2] != gone[0]
    return wrong


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    results = pathlib.Path(sys.argv[1])
    text = results.read_text(encoding="utf-8", errors="replace") if results.exists() else ""
    requirements = required_tests.Requirements(required_tests.LIST.read_text(encoding="utf-8"), required_tests.machine(results.parent))
    whole, missing = "--whole" in sys.argv[3:], required_tests.missing_things()
    if whole:  # not as failed: it is this run that will be recorded
        missing = make_results.tests_away(make_results.load(make_results.ROOT / "docs/results/data"), text.count("<testcase ")) + missing
    lists = {path.name: path.read_text(encoding="utf-8") for path in required_tests.LIST.parent.glob("*_tests.txt") if path != required_tests.LIST}
    lines, code = summarize(text, int(sys.argv[2]), requirements, whole, missing, lists)
    if whole:
        log = results.parent / ".ninja_log"
        compiled = object_seconds(log.read_text(encoding="utf-8", errors="replace")) if log.exists() else {}
        lines = slowest(compiled, "outputs of the build") + slowest(test_seconds(text), "tests") + lines
    print("\n".join(lines))
    return code


if __name__ == "__main__":
    sys.exit(main())
