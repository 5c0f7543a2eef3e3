#!/usr/bin/env python3
"""Checks that C++ sources have the project's form (.clang-format).

    tools/check_format.py [ROOT]       # default: the checkout that holds this file
    tools/check_format.py --self-test  # plants one violation of every rule in a scratch tree and expects each to be found

Rules:
  columns  no line is longer than 100 columns; raw string literals are what they quote, and may be
  format   clang-format, of the version that the project uses, would change nothing
Prints file:line and the broken rule for each finding; exits 1 if there is one, 77 if clang-format is not there or of another version
(versions differ in what they write) and all lines are short enough.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

COLUMNS = 100
CLANG_FORMAT_VERSION = 14
FOLDERS = ("apps", "bench", "examples", "src", "tests")
SUFFIXES = (".h", ".hpp", ".cc", ".c")
RAW_STRING = re.compile(r'R"([^\s()\\]*)\(')


def sources(root):
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES:
                yield path


def long_lines(path):
    """Numbers of the lines that are too long, but for those that hold a part of a raw string literal."""
    end = None  # what closes the raw string that is open
    for number, line in enumerate(path.read_text().splitlines(), 1):
        raw = end is not None
        position = 0
        while True:
            if end is not None:
                position = line.find(end, position)
                if position < 0:
                    break
                position, end = position + len(end), None
            opening = RAW_STRING.search(line, position)
            if not opening:
                break
            raw, position, end = True, opening.end(), f'){opening.group(1)}"'
        if len(line) > COLUMNS and not raw:
            yield number, len(line)


def clang_format():
    """The program, or None when this machine has none of the version."""
    for name in (f"clang-format-{CLANG_FORMAT_VERSION}", "clang-format"):
        program = shutil.which(name)
        if not program:
            continue
        version = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60).stdout
        if re.search(rf"version {CLANG_FORMAT_VERSION}\.", version):
            return program
    return None


def format_findings(program, root, paths):
    command = [program, "--dry-run", "--style=file", *[str(path.relative_to(root)) for path in paths]]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=600)
    for finding in re.finditer(r"^(\S+?):(\d+):\d+: warning: .*-Wclang-format-violations", result.stderr, re.MULTILINE):
        yield f"{finding[1]}:{finding[2]}: format: clang-format would change this"
    if result.returncode != 0:
        yield f"clang-format failed: {result.stderr.strip()}"


def check(root):
    """The findings, and whether clang-format was there to look."""
    paths = list(sources(root))
    findings = [
        f"{path.relative_to(root)}:{number}: columns: {length} columns, at most {COLUMNS} are allowed" for path in paths for number, length in long_lines(path)
    ]
    program = clang_format()
    if program:
        findings += format_findings(program, root, paths)
    return findings, program is not None


def self_test():
    project = pathlib.Path(__file__).resolve().parent.parent
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "src").mkdir()
        shutil.copy(project / ".clang-format", root)
        wide = "x" * COLUMNS
        (root / "src" / "good.cc").write_text(f'const char* text =\n    R"({wide}\n{wide})";\n')
        (root / "src" / "long.cc").write_text(f"int a;\n// {wide}\n")
        (root / "src" / "after.cc").write_text(f'const char* text = R"(a)";\n// {wide}\n')
        (root / "src" / "form.cc").write_text("int  a ;\n")
        findings, formatted = check(root)
        expected = ["src/after.cc:2: columns", "src/long.cc:2: columns"] + (["src/form.cc:1: format"] if formatted else [])
        missed = [text for text in expected if not any(found.startswith(text) for found in findings)]
        extra = [found for found in findings if not any(found.startswith(text) for text in expected)]
    for text in missed:
        print(f"not found: {text}")
    for text in extra:
        print(f"found without reason: {text}")
    return 1 if missed or extra else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    findings, formatted = check(root)
    print("\n".join(findings) if findings else "no line is too long")
    if findings:
        return 1
    if not formatted:
        print(f"skipped: clang-format {CLANG_FORMAT_VERSION} is not there (scripts/install_deps.sh --dev)")
        return 77
    return 0


if __name__ == "__main__":
    sys.exit(main())
