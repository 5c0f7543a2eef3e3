#!/usr/bin/env python3
"""Compares tests/matrix.txt with the tasks and families of the program and with the tests of a build.

    check_matrix.py TANDEM BUILD_FOLDER
    check_matrix.py --self-test

Exits 77 (skipped) if a test is missing and some test programs are not built.
"""

import ast
import fnmatch
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = ROOT / "tests/matrix.txt"
CELLS = ROOT / "tests/parity/checkpoint_cells.py"
COLUMNS = ("resume in tandem", "resume in Python", "back", "int8", "report page", "serve with the client", "several ranks", "kill and join", "adapters")
NO_TEST, LEAST_WORDS = "no test:", 4


class Table:
    """The lists and rows of a table; `problems` are lines that have no known form."""

    def __init__(self, text):
        self.lists, self.rows, self.problems = {"tasks": [], "families": []}, {}, []
        column = None
        for number, line in enumerate(text.splitlines(), 1):
            name, colon, rest = line.partition(":")
            if not line.strip() or line.startswith("#"):
                continue
            if line.startswith("["):
                column = line.strip("[]")
                self.rows[column] = []
            elif name in self.lists and column is None:
                self.lists[name] = rest.split()
            elif colon and column is not None and len(name.split()) == 2:
                self.rows[column].append((*name.split(), rest.strip()))
            else:
                self.problems.append(f"line {number}: expected TASK FAMILY: TEST... under a [column], found '{line}'")

    def entry(self, column, task, family):
        """The text of a cell's most specific row, or nothing."""
        matching = [(row, family_of, text) for row, family_of, text in self.rows.get(column, ()) if row in ("*", task) and family_of in ("*", family)]
        return min(matching, key=lambda row: row[:2].count("*"), default=(None, None, None))[2]


def problems_of_cell(text, task, family, tests, cells):
    if text is None:
        return ["no row"]
    if text.startswith(NO_TEST):
        words = len(text.removeprefix(NO_TEST).split())
        return [] if words >= LEAST_WORDS else [f"the reason has {words} words, expected at least {LEAST_WORDS}"]
    problems = [] if text else ["no test and no reason"]
    for name in text.format(task=task, family=family.replace("-", "_")).split():
        test, bracket, _ = name.partition("[")
        if not fnmatch.filter(tests, test):
            problems.append(f"the test {test} does not exist")
        if bracket and (task not in cells["TASKS"] or family not in cells["FAMILIES"]):
            problems.append(f"{CELLS.name} has no cell for it")
    return problems


def compare(table, program, tests, cells):
    """Problems. program: the same lists as the table's; cells: the tables of checkpoint_cells.py."""
    problems = list(table.problems)
    for kind, names in program.items():
        if set(names) != set(table.lists[kind]):
            problems.append(f"{kind}: found {' '.join(sorted(table.lists[kind]))}, expected those of the program: {' '.join(sorted(names))}")
    for column in set(table.rows) ^ set(COLUMNS):
        problems.append(f"column [{column}]: found in one of {TABLE.name} and {pathlib.Path(__file__).name}, expected in both")
    for column in COLUMNS:
        for task in program["tasks"]:
            for family in program["families"]:
                problems += [
                    f"[{column}] {task} {family}: {problem}" for problem in problems_of_cell(table.entry(column, task, family), task, family, tests, cells)
                ]
    return problems


def read_program(tandem):
    """The tasks that --help lists, and the families that the refusal of an unknown one lists."""
    help_text = subprocess.run([tandem, "--help"], capture_output=True, text=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text('{"model_type": "none"}')
        asked = subprocess.run([tandem, "ask", "--model", folder, "--context", __file__, "question"], capture_output=True, text=True, check=False)
    supported = re.search(r"model_type is none; tandem supports ([\w, -]+)", " ".join(asked.stderr.split()))
    if supported is None:
        sys.exit(f"the program lists no families: {asked.stderr}")
    return {"tasks": re.findall(r"^  (run_\w+) ", help_text, re.MULTILINE), "families": re.split(r", | and ", supported.group(1))}


def read_cells():
    """The keys of the tables, without what follows a comma. The file itself needs packages."""
    keys = {}
    for node in ast.parse(CELLS.read_text(encoding="utf-8")).body:
        name = getattr(node.targets[0], "id", None) if isinstance(node, ast.Assign) else None
        if name in ("TASKS", "FAMILIES"):
            keys[name] = {key.value.partition(",")[0] for key in node.value.keys}
    return keys


def read_tests(build):
    """(the names of tests, the programs that are not built), from what ctest has read: asking it anew would replace its log."""
    tests = {
        name.partition("  # GetParam")[0]
        for kind in ("CTestTestfile.cmake", "*_tests.cmake")
        for path in build.rglob(kind)
        for name in re.findall(r"add_test\(\[=\[(.*?)\]=\]", path.read_text(errors="replace"))
    }
    included = [path for path in build.rglob("*_include.cmake") if "add_test(" in path.read_text(errors="replace")]
    absent = [path.name for path in included if not path.with_name(path.name.replace("_include", "_tests")).exists()]
    return sorted(tests), absent


def self_test():
    rows = "".join(f"[{column}]\n* *: A.{{task}}_{{family}}\n" for column in COLUMNS)
    text = f"tasks: t\nfamilies: f-g\n{rows}"
    program, cells, tests = {"tasks": ["t"], "families": ["f-g"]}, {"TASKS": {"t"}, "FAMILIES": {"f-g"}}, ["A.t_f_g", "B"]
    last = "* *: A.{task}_{family}\n"
    wrong = 0
    for changed, new_program, expected in (
        (text, program, 0),
        (text, {**program, "tasks": ["t", "u"]}, 1 + len(COLUMNS)),
        (text, {**program, "families": ["f-g", "h"]}, 1 + len(COLUMNS)),
        (text + "t f-g: B\n", program, 0),
        (text + "t f-g: C\n", program, 1),
        (text + "t f-g: no test: why\n", program, 1),
        (text + "t f-g: no test: its head has no weights\n", program, 0),
        (text + "t *: B[{task},{family}]\n", program, 0),
        (text.removesuffix(last), program, 1),
        (text + "t: B\n", program, 1),
        (text + "[another]\n", program, 1),
    ):
        problems = compare(Table(changed), new_program, tests, cells)
        if len(problems) != expected:
            print(f"self-test: found {problems}, expected {expected} problems")
            wrong += 1
    print(f"self-test: {wrong} wrong")
    return 1 if wrong else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    tandem, build = sys.argv[1:]
    tests, absent = read_tests(pathlib.Path(build))
    problems = compare(Table(TABLE.read_text(encoding="utf-8")), read_program(tandem), tests, read_cells())
    if absent and problems and all(problem.endswith("does not exist") for problem in problems):
        print(f"SKIPPED: some programs of tests are not built: {', '.join(absent)}")
        return 77
    print("\n".join(problems) or f"{len(COLUMNS)} columns: every cell has its test or its reason")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
