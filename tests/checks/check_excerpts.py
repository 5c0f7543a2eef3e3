#!/usr/bin/env python3
"""Checks that the code which a document quotes stands in the source that it names, so that the suite compiles it.

    check_excerpts.py [--self-test]

A quotation is a block of C++ in docs/extending below the line `<!-- from PATH -->`. Every such block must have that line.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"(?:<!-- from (\S+) -->\n)?```cpp\n(.*?)```", re.S)


def findings_of(name, text, read):
    for match in BLOCK.finditer(text):
        where = f"{name}:{text[: match.start()].count(chr(10)) + 1}"
        source = read(match[1]) if match[1] else None
        if source is None:
            yield f"{where}: code without a source that is there: {match[1] or 'none is named'}"
        elif match[2] not in source:
            yield f"{where}: this code does not stand in {match[1]}"


def read_source(path):
    file = ROOT / path
    return file.read_text(encoding="utf-8") if file.is_file() else None


def self_test():
    def found(text):
        return len(list(findings_of("x.md", text, lambda path: "int a;\nint b;\n" if path == "a.cc" else None)))

    good, other, absent, unnamed = (
        f"{line}```cpp\n{code}```\n"
        for line, code in (("<!-- from a.cc -->\n", "int b;\n"), ("<!-- from a.cc -->\n", "int c;\n"), ("<!-- from b.cc -->\n", "int b;\n"), ("", "int b;\n"))
    )
    return 0 if [found(text) for text in (good, other, absent, unnamed)] == [0, 1, 1, 1] else 1


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    pages = sorted((ROOT / "docs/extending").glob("*.md"))
    findings = [finding for page in pages for finding in findings_of(page.relative_to(ROOT).as_posix(), page.read_text(encoding="utf-8"), read_source)]
    for finding in findings:
        print(finding)
    print(f"check_excerpts: {len(pages)} pages, {len(findings)} findings")
    return 1 if findings or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
