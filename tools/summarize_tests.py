#!/usr/bin/env python3
"""Prints why tests were skipped and the closing line of scripts/test.sh, from ctest's JUnit file.

    tools/summarize_tests.py RESULTS.xml CTEST_EXIT_STATUS
    tools/summarize_tests.py --self-test

The last line is `N passed, N failed, N skipped`. Exits 1 if a test failed, if ctest failed for another reason, or if no test ran.
"""

import collections
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree


def skip_reason(case):
    """The text after GoogleTest's "Skipped" line, or the line of a script that begins with SKIPPED, else ctest's message."""
    output = case.findtext("system-out") or ""
    match = re.search(r": Skipped\n(.+?)\n(?:\s*\n|\[)", output, re.DOTALL) or re.search(r"^SKIPPED:? *(.+)$", output, re.MULTILINE)
    if match:
        return " ".join(match.group(1).split())
    message = case.find("skipped")
    return (message.get("message") if message is not None else None) or "no reason given"


def summarize(text, status):
    """The lines to print and the exit code, from the text of the JUnit file and ctest's own exit status."""
    try:
        cases = list(ElementTree.fromstring(text).iter("testcase"))
    except ElementTree.ParseError as error:
        return [f"test: ctest left no results ({error})", "0 passed, 1 failed, 0 skipped"], 1
    lines, passed, failed, skipped = [], 0, [], collections.defaultdict(list)
    for case in cases:
        if case.get("status") == "run" and case.find("failure") is None:
            passed += 1
        elif case.find("skipped") is not None and case.get("status") != "fail":
            skipped[skip_reason(case)].append(case.get("name"))
        else:
            failed.append(case.get("name"))
    for reason, names in sorted(skipped.items()):
        lines.append(f"SKIPPED {len(names)}: {reason}")
        lines.append(f"    {', '.join(names[:6])}{', …' if len(names) > 6 else ''}")
    lines += [f"FAILED {name}" for name in failed]
    if status != 0 and not failed:
        lines.append(f"test: ctest ended with status {status} although no test failed")
        failed.append("ctest")
    lines.append(f"{passed} passed, {len(failed)} failed, {sum(map(len, skipped.values()))} skipped")
    return lines, 1 if failed or passed == 0 else 0


def self_test():
    passing = '<testcase name="a" status="run"/>'
    failing = '<testcase name="b" status="fail"><failure message="Failed"/></testcase>'
    skipping = ('<testcase name="c" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>'
                "<system-out>x_test.cc:3: Skipped\nneeds a CPU\nwith AMX\n\n[  SKIPPED ] c (0 ms)\n</system-out></testcase>")
    scripted = ('<testcase name="d" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/>'
                "<system-out>SKIPPED: no package\n</system-out></testcase>")
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
    print(f"self-test: {wrong} wrong")
    return 1 if wrong else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    results = pathlib.Path(sys.argv[1])
    lines, code = summarize(results.read_text(encoding="utf-8", errors="replace") if results.exists() else "", int(sys.argv[2]))
    print("\n".join(lines))
    return code


if __name__ == "__main__":
    sys.exit(main())
