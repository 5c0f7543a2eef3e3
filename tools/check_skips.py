#!/usr/bin/env python3
"""Compares the places where tests skip with tests/skips.txt, so that a new skip is listed with its reason.

tools/check_skips.py              # exits 1 if a skip is not listed, or if a listed one is gone
tools/check_skips.py --self-test
"""

import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "skips.txt"
SKIP = re.compile(r"GTEST_SKIP\(\)\s*<<\s*(.*?);", re.DOTALL)
LEAST_WORDS = 4


def skips_of(text):
    """The text that each GTEST_SKIP of a source prints, in one line."""
    return [" ".join(found.split()) for found in SKIP.findall(text)]


def parse(text):
    """({(file, message): how often} of the class of the processor, [regular expressions of FILE: MESSAGE of the others], problems)."""
    by_class, others, problems, heading = {}, [], [], None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith("["):
            heading = line.strip("[]")
        elif heading == "class of the processor":
            parts = [part.strip() for part in line.split(" | ")]
            if len(parts) != 4 or not parts[2].isdigit() or len(parts[3].split()) < LEAST_WORDS:
                problems.append(f"line {number}: expected FILE | MESSAGE | HOW OFTEN | REASON, a reason of at least {LEAST_WORDS} words")
            else:
                by_class[parts[0], parts[1]] = int(parts[2])
        elif heading == "other":
            others.append(re.compile(line))
        else:
            problems.append(f"line {number}: expected a heading, [class of the processor] or [other]")
    return by_class, others, problems


def compare(sources, text):
    """Problems, from {file: text of the source} and the text of the list."""
    by_class, others, problems = parse(text)
    found = collections.Counter((file, message) for file, source in sources.items() for message in skips_of(source))
    for (file, message), count in sorted(found.items()):
        listed = by_class.get((file, message), 0)
        if listed and listed != count:
            problems.append(f"{file}: found the skip '{message}' {count} times, expected {listed}; correct tests/skips.txt")
        elif not listed and not any(pattern.fullmatch(f"{file}: {message}") for pattern in others):
            problems.append(f"{file}: the skip '{message}' is not listed; add it to tests/skips.txt with its reason")
    problems += [f"{file}: the listed skip '{message}' was not found; remove it from tests/skips.txt" for file, message in sorted(set(by_class) - set(found))]
    texts = [f"{file}: {message}" for file, message in found]
    problems += [
        f"no skip matches '{pattern.pattern}'; remove it from tests/skips.txt" for pattern in others if not any(pattern.fullmatch(text) for text in texts)
    ]
    return problems


def self_test():
    text = '[class of the processor]\na.cc | "no AMX" | 1 | only the hardware shows it\n[other]\n.*: "needs .*\n'
    both = 'GTEST_SKIP() << "no AMX";\nGTEST_SKIP()\n  << "needs "\n  << root;\n'
    wrong = 0
    for sources, listed, expected in (
        ({"a.cc": both}, text, 0),
        ({"a.cc": both, "b.cc": 'GTEST_SKIP() << "no AMX";'}, text, 1),
        ({"a.cc": 'GTEST_SKIP() << "needs it";'}, text, 1),
        ({"a.cc": 'GTEST_SKIP() << "no AMX";'}, text, 1),
        ({"a.cc": both + both}, text, 1),
        ({"a.cc": both}, text.replace("only the hardware shows it", "why"), 2),
        ({}, "a line\n", 1),
    ):
        problems = compare(sources, listed)
        if len(problems) != expected:
            print(f"self-test: found {problems}, expected {expected} problems")
            wrong += 1
    print(f"self-test: {wrong} wrong")
    return 1 if wrong else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    files = [path for folder in ("src", "apps", "tests") for kind in ("*.cc", "*.h") for path in (ROOT / folder).rglob(kind)]
    problems = compare({str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in files}, LIST.read_text(encoding="utf-8"))
    print("\n".join(problems) or "every skip is listed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
