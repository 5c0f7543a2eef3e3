#!/usr/bin/env python3
"""Measures how large the parts of tandem are: lines, files and functions of every folder, the longest functions, include cycles.

    tools/measure_sources.py [ROOT] [--longer-than N]

A function's length is its lines from the one that opens its body to the one that closes it. Tests count in their own columns. It reads
the form that clang-format gives (tools/check_format.py holds it): a body opens with `{` at the end of a line that is indented like the
`}` which closes it.
"""

import argparse
import pathlib
import re
import statistics
import sys

FOLDERS = ("src/tandem", "apps")
KEYWORDS = re.compile(r"^\s*(?:namespace|class|struct|enum|union|extern|if|for|while|switch|do|else|try|catch|return|case|default)\b")
ACCESS = re.compile(r"^(?:public|protected|private):$")
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


def folder_of(root, path):
    """src/tandem/comm/node/x.h → comm/node; apps/bench/x.cc → apps/bench."""
    parts = path.relative_to(root).parts[:-1]
    return "/".join(parts[2:] if parts[0] == "src" else parts)


def is_test(path):
    return path.stem.endswith("_test") or path.stem.startswith(("test_", "double_")) or "test" in path.stem.split("_")


def heading(lines, opening):
    """The declaration whose body opens at line `opening`, on one line; its first line's index."""
    first = opening
    while first > 0:
        above = lines[first - 1].strip()
        if not above or above.endswith((";", "}", "{")) or above.startswith(("//", "#")) or ACCESS.match(above):
            break
        first -= 1
    return " ".join(line.strip() for line in lines[first : opening + 1]), first


def functions(text):
    """(name, first line, length) of every function that has a body of more than one line."""
    lines = text.split("\n")
    index = 0
    while index < len(lines):
        line = lines[index]
        if line.endswith("{") and not line.lstrip().startswith("//") and "(" in heading(lines, index)[0]:
            declaration, first = heading(lines, index)
            # The body closes at the indentation of the declaration's first line.
            indent = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
            name = re.search(r"([~\w:]+|operator\S+)\s*\(", re.sub(r"template\s*<[^(]*?>\s", "", declaration))
            initializer = re.match(r"^[^(]*=\s*[^(]*\{", declaration) or re.search(r"=\s*\[?\{$|=.*\]\(?.*\)?\s*\{$", declaration)
            if name and not KEYWORDS.match(declaration) and not initializer:
                end = next((i for i in range(index + 1, len(lines)) if lines[i].startswith(indent + "}")), None)
                if end is not None:
                    yield name[1], first + 1, end - index + 1
                    index = end
        index += 1


def cycles(root, paths):
    """Cycles of includes between folders, as sorted tuples of folders (strongly connected components of more than one)."""
    edges = {}
    for path in paths:
        source = folder_of(root, path)
        for name in INCLUDE.findall(path.read_text()):
            target = root / ("src" if name.startswith("tandem/") else "apps") / name
            if target.exists() and folder_of(root, target) != source:
                edges.setdefault(source, set()).add(folder_of(root, target))

    def reachable(start):
        seen, stack = set(), [start]
        while stack:
            for target in edges.get(stack.pop(), ()):
                if target not in seen:
                    seen.add(target)
                    stack.append(target)
        return seen

    reach = {folder: reachable(folder) for folder in edges}
    return sorted({tuple(sorted(g for g in reach if g in reach[f] and f in reach[g])) for f in reach if f in reach[f]})


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("root", nargs="?", default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--longer-than", type=int, default=45, metavar="N", help="list functions of more lines than this")
    options = parser.parse_args()
    root = pathlib.Path(options.root).resolve()
    paths = sorted(p for folder in FOLDERS for p in (root / folder).rglob("*") if p.suffix in (".h", ".cc"))

    rows, product, long_functions = {}, [], []
    for path in paths:
        row = rows.setdefault(folder_of(root, path), {"files": 0, "lines": 0, "test_lines": 0, "lengths": [], "longest_file": 0})
        text = path.read_text()
        count = text.count("\n")
        if is_test(path):
            row["test_lines"] += count
            continue
        row["files"] += 1
        row["lines"] += count
        row["longest_file"] = max(row["longest_file"], count)
        for name, line, length in functions(text):
            row["lengths"].append(length)
            product.append(length)
            if length > options.longer_than:
                long_functions.append((length, f"{path.relative_to(root)}:{line}", name))

    print("| folder | files | lines | longest file | functions: median | p90 | longest | lines of tests |")
    print("|---|---|---|---|---|---|---|---|")
    for folder, row in sorted(rows.items()):
        lengths = row["lengths"]
        print(f"| {folder} | {row['files']} | {row['lines']} | {row['longest_file']} | {statistics.median(lengths) if lengths else 0:g} "
              f"| {percentile(lengths, 0.9)} | {max(lengths, default=0)} | {row['test_lines']} |")
    print(f"\n{len(product)} functions of more than one line: median {statistics.median(product):g}, p90 {percentile(product, 0.9)}, "
          f"longest {max(product)}")
    found = cycles(root, [path for path in paths if not is_test(path)])
    print("cycles between folders: " + ("; ".join(", ".join(cycle) for cycle in found) or "none"))
    print(f"\nfunctions of more than {options.longer_than} lines:")
    for length, where, name in sorted(long_functions, reverse=True):
        print(f"{length:4d}  {where}  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
