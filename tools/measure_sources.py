#!/usr/bin/env python3
"""Measures how large the parts of tandem are: lines, files and functions of every folder, the longest functions, the
widest classes, include cycles.

    tools/measure_sources.py [ROOT] [--longer-than N]
    tools/measure_sources.py --check      # changes nothing; names what is larger than it may be and exits with 1
    tools/measure_sources.py --write      # writes the sums of docs/architecture.md anew
    tools/measure_sources.py --self-test

Findings of --check: functions of more than 45 lines and files of more than 500 that are not in LONG, names in LONG that are no longer long, classes
with more than 15 data members, cycles of includes between folders, and sums in docs/architecture.md that are more than a tenth away from the truth.

A function's length is its lines from the one that opens its body to the one that closes it. Tests count in their own columns. It reads
the form that clang-format gives (tools/check_format.py holds it): a body opens with `{` at the end of a line that is indented like the
`}` which closes it.
"""

import argparse
import pathlib
import re
import statistics
import sys
import tempfile

FOLDERS = ("src/tandem", "apps")
DOCUMENT = "docs/architecture.md"
BEGIN, END = "<!-- made by tools/measure_sources.py --write -->\n", "<!-- end of sizes -->\n"
MOST_LINES_OF_FUNCTION = 45
MOST_LINES_OF_FILE = 500
MOST_DATA_MEMBERS = 15  # of a class
AWAY = 0.1  # how far the document's sums may be from the truth, as a share
# Longer functions and files, each with the reason why it is one thing.
LONG = {
    "apps/arguments/machine_flags.cc rank_flags": "a table of flags",
    "apps/arguments/quantization_flags.cc quantization_flags": "a table of flags",
    "apps/arguments/training_flags.cc logging_flags": "a table of flags",
    "apps/arguments/training_flags.cc step_flags": "a table of flags",
    "apps/serve/http_server.cc": "one state machine for connections",
    "src/tandem/kernels/attention_simd.h": "one algorithm, forward and backward",
    "src/tandem/kernels/kernel_set.cc tables": "the table of operations",
    "src/tandem/formats/torch_pickle.cc step": "a case for each instruction of pickle",
    "src/tandem/tasks/text_classification/command_line.cc data_flags": "a table of flags",
    "src/tandem/trainer/train_step.cc train_step": "the algorithm of a step",
}
KEYWORDS = re.compile(r"^\s*(?:namespace|class|struct|enum|union|extern|if|for|while|switch|do|else|try|catch|return|case|default)\b")
CLASS = re.compile(r"^(\s*)class (\w+)(?: final)?(?: : [^;]*)?\s*\{$")
NO_MEMBER = re.compile(r"^\s*(?:template <.*>|friend .*|using .*|enum .*|struct .*|class .*)$")
ACCESS = re.compile(r"^(?:public|protected|private):$")
ONE_LINE = re.compile(r"^(?:[^(]*[\s*&])?([~\w:]+|operator\S+)\s*\([^{}]*\)(?:\s*(?:const|noexcept|override|final|&+|->.*|:.*))*\s*$")
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


def one_line_function(line):
    """The name of a function that is declared and closed on this line, as in `int size() const { return size_; }`."""
    declaration = line.partition("{")[0]
    if not line.endswith("}") or line.lstrip().startswith("//") or KEYWORDS.match(declaration) or "=" in re.sub(r"\(.*\)|operator\S+", "", declaration):
        return None
    name = ONE_LINE.match(declaration)
    return name and name[1]


def functions(text):
    """(name, first line, length) of every function that has a body."""
    lines = text.split("\n")
    index = 0
    while index < len(lines):
        line = lines[index]
        if name := one_line_function(line):
            yield name, index + 1, 1
        elif line.endswith("{") and not line.lstrip().startswith("//") and "(" in heading(lines, index)[0]:
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


def public_members(text):
    """(class, how many functions and fields it shows) of every class; a struct is all public and mostly data, so it does not count."""
    lines = text.split("\n")
    for first, line in enumerate(lines):
        opening = CLASS.match(line)
        if not opening or not line.endswith("{"):
            continue
        member = opening[1] + "  "
        count, public, begins = 0, False, True
        for line in lines[first + 1 :]:
            if line.startswith(opening[1] + "}"):
                break
            if access := ACCESS.match(line.strip()):
                public = access[0] == "public:"
            elif public and begins and line.startswith(member) and line[len(member)] not in " /}" and not NO_MEMBER.match(line):
                count += 1
            if not line.strip().startswith(("//", "template <")) or line.endswith(";"):
                begins = not line.strip() or line.endswith((";", "}", "{", ":")) or line.strip().startswith("//")
        yield opening[2], count


def data_members(text):
    """(class, how many data members it has) of every class: declarations at its own indentation whose name ends with an underscore."""
    lines = text.split("\n")
    for first, line in enumerate(lines):
        opening = re.match(r"^(\s*)class ([\w:]+)(?: final)?(?: : [^;]*)?\s*\{$", line)
        if not opening:
            continue
        indent, count, unfinished = opening[1] + "  ", 0, False
        for line in lines[first + 1 :]:
            if line.startswith(opening[1] + "}"):
                break
            declaration = line.split("//")[0].rstrip()
            if declaration.startswith(indent) and declaration[len(indent) : len(indent) + 1] not in ("", " ", "}"):
                # A declaration that continues in the next line begins with its type; its name ends the line, or comes with the next.
                count += (
                    len(re.findall(r"(?<=[\s&*])\w+_(?= = |\{|;|, |$)", re.sub(r"\(.*\)", "", declaration)))
                    if not declaration.endswith("}") or "(" not in declaration
                    else 0
                )
            elif unfinished and re.match(rf"^{indent}    \w+_(?: = .*|\{{.*\}})?;$", declaration):
                count += 1
            unfinished = re.match(rf"^{indent}[^\s}}][^(]*[^;{{}}:]$", declaration) is not None
        yield opening[2], count


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


class Measured:
    """Content of a tree: a row for each folder, the length of each function of the product, and the long ones."""

    def __init__(self, root):
        self.rows, self.lengths, self.long_functions, self.long_files, self.classes, self.members = {}, [], [], [], [], []
        paths = sorted(p for folder in FOLDERS for p in (root / folder).rglob("*") if p.suffix in (".h", ".cc"))
        for path in paths:
            self.add(root, path)
        self.cycles = cycles(root, [path for path in paths if not is_test(path)])

    def add(self, root, path):
        row = self.rows.setdefault(folder_of(root, path), {"files": 0, "lines": 0, "test_lines": 0, "lengths": [], "longest_file": 0})
        text = path.read_text()
        count = text.count("\n")
        if is_test(path):
            row["test_lines"] += count
            return
        row["files"] += 1
        row["lines"] += count
        row["longest_file"] = max(row["longest_file"], count)
        if count > MOST_LINES_OF_FILE:
            self.long_files.append((count, str(path.relative_to(root))))
        for name, line, length in functions(text):
            row["lengths"].append(length)
            self.lengths.append(length)
            self.long_functions.append((length, str(path.relative_to(root)), line, name))
        self.members += [(count, name, str(path.relative_to(root))) for name, count in data_members(text)]
        self.classes += [(count, name, str(path.relative_to(root))) for name, count in public_members(text)]

    def sum(self, key):
        return sum(row[key] for row in self.rows.values())

    def sums(self):
        """The document's table: what is counted, and its number."""
        return {
            "folders": len(self.rows),
            "files": self.sum("files"),
            "lines": self.sum("lines"),
            "lines of their tests": self.sum("test_lines"),
            "functions": len(self.lengths),
            "lines of a function, median": statistics.median(self.lengths),
            "lines of a function, 90th percentile": percentile(self.lengths, 0.9),
            "public members of the widest class": max(self.classes, default=(0,))[0],
        }


def table(sums):
    rows = (f"| {name} | {number:,g} |" if isinstance(number, float) else f"| {name} | {number:,} |" for name, number in sums.items())
    return "\n".join(["| | |", "|---|---|", *rows]) + "\n"


def differences(sums, document):
    """Figures of the document's table that are more than AWAY from the truth."""
    if BEGIN not in document or END not in document:
        return [f"{DOCUMENT}: there is no table between {BEGIN.strip()} and {END.strip()}"]
    logged = dict(re.findall(r"^\| (\S.*?) \| ([\d.,]+) \|$", document.split(BEGIN)[1].split(END)[0], re.MULTILINE))
    return [
        f"{DOCUMENT}: {name}: {logged.get(name, 'nothing')}, counted {number:,}; tools/measure_sources.py --write"
        for name, number in sums.items()
        if name not in logged or abs(float(logged[name].replace(",", "")) - number) > AWAY * number
    ]


def findings(measured, document, allowed):
    found = {
        f"{path} {name}": f"{path}:{line}: {name} has {length} lines, more than {MOST_LINES_OF_FUNCTION}"
        for length, path, line, name in measured.long_functions
        if length > MOST_LINES_OF_FUNCTION
    }
    found |= {path: f"{path}: {count} lines, more than {MOST_LINES_OF_FILE}" for count, path in measured.long_files}
    lines = [text + "; cut it, or add it to LONG where it is one table or one algorithm" for key, text in sorted(found.items()) if key not in allowed]
    lines += [f"LONG: {key}: is not long any more; take it out" for key in allowed if key not in found]
    lines += [
        f"{path}: class {name} has {count} data members, more than {MOST_DATA_MEMBERS}; group them by subject"
        for count, name, path in measured.members
        if count > MOST_DATA_MEMBERS
    ]
    lines += ["a cycle of includes: " + ", ".join(cycle) for cycle in measured.cycles]
    return lines + differences(measured.sums(), document)


def print_report(measured, longer_than):
    print("| folder | files | lines | longest file | functions: median | p90 | longest | lines of tests |")
    print("|---|---|---|---|---|---|---|---|")
    for folder, row in sorted(measured.rows.items()):
        lengths = row["lengths"]
        print(
            f"| {folder} | {row['files']} | {row['lines']} | {row['longest_file']} | {statistics.median(lengths) if lengths else 0:g} "
            f"| {percentile(lengths, 0.9)} | {max(lengths, default=0)} | {row['test_lines']} |"
        )
    print()
    print(table(measured.sums()))
    print("cycles between folders: " + ("; ".join(", ".join(cycle) for cycle in measured.cycles) or "none"))
    print("\nclasses with the most public members:")
    for count, name, path in sorted(measured.classes, reverse=True)[:5]:
        print(f"{count:4d}  {path}  {name}")
    print(f"\nfunctions of more than {longer_than} lines:")
    for length, path, line, name in sorted(measured.long_functions, reverse=True):
        if length > longer_than:
            print(f"{length:4d}  {path}:{line}  {name}  {LONG.get(f'{path} {name}', '')}".rstrip())


def self_test():
    short = "int one() { return 1; }\n\nint two() {\n  return 2;\n}\n"
    long = "void Box::fill(\n    int x) {\n" + "  use(x);\n" * 60 + "}\n"
    assert list(functions(short)) == [("one", 1, 1), ("two", 3, 3)], list(functions(short))
    held = "  int size() const { return size_; }\n  explicit Box(int x) : size_(x) {}\n  Box box{f(1), 2};\n  if (x) { y(); }\n  auto f = [](int x) { return x; };\n"
    assert [name for name, *_ in functions(held)] == ["size", "Box"], list(functions(held))
    assert [(name, length) for name, _, length in functions(long)] == [("Box::fill", 62)], list(functions(long))
    shown = "class A : public B {\n public:\n  A();\n  // why\n  template <class T>\n  void f(int a,\n         int b) {\n    g();\n  }\n  int x = 0;\n\n private:\n  int y_;\n};\n"
    assert list(public_members(shown)) == [("A", 3)], list(public_members(shown))
    kept = "class A {\n public:\n  int x() const { return x_; }\n  void set(int x) { x_ = x; }\n\n private:\n  struct B {\n    int b_;\n  };\n  int x_ = 0, y_ = 1;\n  std::map<int, int> z_;  // why_\n  std::vector<int>\n      long_;\n  B& b_;\n};\n"
    assert list(data_members(kept)) == [("A", 5)], list(data_members(kept))
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in {
            "src/tandem/a/x.cc": long + '#include "tandem/b/y.h"\n',
            "src/tandem/b/y.h": '#include "tandem/a/z.h"\n',
            "src/tandem/a/z.h": "\n" * 501,
            "src/tandem/c/w.h": "class Wide {\n" + "  int a_;\n" * 16 + "};\n",
            "src/tandem/a/x_test.cc": long,
        }.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        measured = Measured(root)
        document = BEGIN + table(measured.sums()) + END
        found = findings(measured, document, {"src/tandem/a/z.h": "", "src/tandem/a/z.h gone": ""})
        expected = ["Box::fill has 62 lines", "z.h gone: is not long any more", "class Wide has 16 data members", "a cycle of includes: a, b"]
        assert len(found) == len(expected) and all(words in line for words, line in zip(expected, found)), found
        off = {"lines": 1000, "files": 105, "functions": 3}
        assert len(differences(off, BEGIN + table({"lines": 800, "files": 100}) + END)) == 2
    print("measure_sources: self-test passed")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("root", nargs="?", default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--longer-than", type=int, default=MOST_LINES_OF_FUNCTION, metavar="N", help="list functions of more lines than this")
    parser.add_argument("--check", action="store_true", help="name what is larger than it may be")
    parser.add_argument("--write", action="store_true", help=f"write the sums of {DOCUMENT}")
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        return self_test()
    root = pathlib.Path(options.root).resolve()
    measured = Measured(root)
    if not options.check and not options.write:
        print_report(measured, options.longer_than)
        return 0
    document = (root / DOCUMENT).read_text()
    if options.write:
        before, rest = document.split(BEGIN)
        (root / DOCUMENT).write_text(before + BEGIN + table(measured.sums()) + END + rest.split(END)[1])
        return 0
    found = findings(measured, document, LONG)
    print("\n".join(found) if found else f"measure_sources: {len(measured.lengths)} functions, nothing is too long")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
