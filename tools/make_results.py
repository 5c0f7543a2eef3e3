#!/usr/bin/env python3
"""Makes the pages of docs/results, and the parts of README.md between `<!-- results: NAME -->` and `<!-- end of results -->`.

    tools/make_results.py            writes them
    tools/make_results.py --check    changes nothing, names what differs, exits with 1
    tools/make_results.py --check --build build/release    and compares README's count of tests with that build's

The figures are in docs/results/data: a file SUBJECT.MACHINE.json has records of bench/record.py (command, date, versions, all
runs). tools/result_pages.json has the pages and their tables, one table per subject. tools/result_rows.py reads the records.
If several valid runs measured the same thing, a table shows the least favourable run as a whole row. docs/results/archive.md is
written by hand.
"""

import argparse
import copy
import json
import math
import pathlib
import re
import subprocess
import sys
import textwrap

import result_rows
from result_rows import cell, middle, text

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = json.loads((ROOT / "tools/result_pages.json").read_text(encoding="utf-8"))
SECTIONS = {section["subject"]: section for page in PAGES for section in page["sections"]}
BY_HAND = ("archive",)  # pages that no data make
MADE = "<!-- made by tools/make_results.py from docs/results/data: change it there -->"
LEAST_WARM_UP = 3  # steps, for a figure in README
TESTS_AWAY = 0.05  # largest difference between README's count of tests and that of a build, as a share
README_MODELS = ("minilm", "bert-base")
README_RIVAL = "torch"


# ---- from files to rows -----------------------------------------------------------------------------------------------


def load(folder):
    """{subject: [document]}, each with the name of its machine."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        subject, name = path.name.split(".")[:2]
        if subject not in SECTIONS:
            raise SystemExit(f"{path}: unknown subject {subject}; add a section to tools/result_pages.json")
        document = json.loads(path.read_text(encoding="utf-8"))
        if not all(record["date"] for record in document["records"]):
            raise SystemExit(f"{path}: a record has no date")
        found.setdefault(subject, []).append({**document, "name": name})
    return found


def rows_of_run(section, record, run):
    subject = section["subject"]
    if "rows" not in run and subject not in result_rows.READERS:
        raise SystemExit(f"{subject}: rows of `{record['command']}` cannot be read; add a reader to tools/result_rows.py")
    rows = copy.deepcopy(run["rows"]) if "rows" in run else list(result_rows.READERS[subject]({**run, "command": record["command"]}))
    versions = record.get("versions", {})
    for row in rows:
        row.update(command=record["command"], date=record["date"], commit=versions.get("tandem"))
        if "against" in section["keys"] and row.get("against_dw"):
            row.setdefault("against", versions.get("onednn"))
        if "rivals" in section["keys"]:
            row["rivals"] = "Gloo" if {name for name in result_rows.MPIS if row.get(name)} <= set(result_rows.GLOO) else "MPI"
        if subject in result_rows.DERIVE:
            result_rows.DERIVE[subject](row)
    return summed(section, rows)


def key_of(section, row):
    return tuple(json.dumps(row.get(name)) for name in section["keys"])


def summed(section, rows):
    """The rows of a run; if the section has a field to sum, one row per key with the sum."""
    if "sum" not in section:
        return rows
    sums = {}
    for row in rows:
        first = sums.setdefault(key_of(section, row), row)
        if first is not row:
            first[section["sum"]] += row[section["sum"]]
    return list(sums.values())


def is_worse(section, judged, old):
    return judged is not None and (old is None or (judged < old) == section.get("less_is_worse", True) and judged != old)


def least_favourable(section, document):
    """Per measured thing the least favourable row of a machine and the number of valid runs, in the order of the records."""
    best = {}
    for record in document["records"]:
        for run in (run for run in record["runs"] if run.get("valid", True)):
            seen = set()
            for row in rows_of_run(section, record, run):
                key, judged = key_of(section, row), middle(row.get(section.get("judge")))
                entry = best.setdefault(key, {"row": row, "judged": judged, "runs": 0})
                entry["runs"] += key not in seen
                seen.add(key)
                if is_worse(section, judged, entry["judged"]):
                    entry.update(row=row, judged=judged)
    return list(best.values())


# ---- pages ------------------------------------------------------------------------------------------------------------


def table(headings, lines):
    return "\n".join(["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings), *("| " + " | ".join(line) + " |" for line in lines)])


def wrapped(paragraph):
    """Lines of at most 100 columns that break no code and no link."""
    kept = re.sub(r"`[^`]*`|\]\([^)]*\)", lambda part: part[0].replace(" ", "\0"), paragraph)
    return textwrap.fill(kept, 100, break_long_words=False, break_on_hyphens=False).replace("\0", " ")


def section_text(section, documents):
    columns = section["columns"]
    lines = [
        [document["name"], *(cell(form, entry["row"].get(field)) for _, field, form in columns), str(entry["runs"]), entry["row"]["date"]]
        for document in documents
        for entry in least_favourable(section, document)
    ]
    return "\n".join(
        [f"## {section['title']}", "", wrapped(section["about"]), "", table(["machine", *(column[0] for column in columns), "runs", "date"], lines), ""]
    )


def commands_text(documents):
    """Where the figures come from: each command with its versions."""
    lines = []
    for document in documents:
        for record in document["records"]:
            versions = ", ".join(f"{name} {value}" for name, value in sorted(record.get("versions", {}).items()))
            valid = sum(run.get("valid", True) for run in record["runs"])
            lines.append(
                [
                    document["name"],
                    record["date"],
                    f"{valid} of {len(record['runs'])}",
                    f"`{record['command']}`".replace("|", "\\|"),
                    f"`{versions}`" if versions else "",
                    record.get("note", ""),
                ]
            )
    return "\n".join(["## Commands", "", table(["machine", "date", "valid runs", "command", "versions", "note"], lines), ""])


def page_text(page, found):
    sections = [section for section in page["sections"] if section["subject"] in found]
    shown = "If several valid runs measured the same thing, the least favourable one is shown. Machines are described in the [index](README.md)."
    return "\n".join(
        [
            f"# {page['title']}",
            "",
            MADE,
            "",
            wrapped(f"{page['about']} {shown}"),
            "",
            *(section_text(section, found[section["subject"]]) for section in sections),
            commands_text([document for section in sections for document in found[section["subject"]]]),
        ]
    )


def described(document):
    machine_info = document["machine"]
    parts = (
        machine_info["cpu"],
        f"class {machine_info['class']}",
        f"{machine_info['cores']} cores",
        f"{machine_info['memory_gib']} GiB" if machine_info.get("memory_gib") else "",
        machine_info.get("system", ""),
    )
    return [document["name"], ", ".join(filter(None, parts))]


def pages_with_data(found):
    return [page for page in PAGES if any(section["subject"] in found for section in page["sections"])]


def index_text(found):
    pages = pages_with_data(found)
    named = lambda page: ", ".join(sorted({document["name"] for section in page["sections"] for document in found.get(section["subject"], [])}))
    machines = {document["name"]: described(document) for page in pages for section in page["sections"] for document in found.get(section["subject"], [])}
    about = (
        "Measured figures, each with its machine and its command. `tools/make_results.py` makes the pages, and README's figures, from the records of `bench/record.py` in `docs/results/data`. "
        "The [archive](archive.md) has older figures that were written down by hand; README shows none of them. How to measure: [benchmarking](../benchmarking.md)."
    )
    return "\n".join(
        [
            "# Results",
            "",
            MADE,
            "",
            wrapped(about),
            "",
            table(
                ["page", "tables", "machines"],
                [
                    [
                        f"[{page['title']}]({page['name']}.md)",
                        "; ".join(section["title"] for section in page["sections"] if section["subject"] in found),
                        named(page),
                    ]
                    for page in pages
                ],
            ),
            "",
            "## Machines",
            "",
            table(["name", "machine"], [machines[name] for name in sorted(machines)]),
            "",
        ]
    )


# ---- README -----------------------------------------------------------------------------------------------------------


def at_their_best(document):
    """{(rival, type): {model: entry}} of padded steps with enough warm-up where tcmalloc and huge pages were measured too: of all forms and memories the entry with the lowest ratio."""
    groups = {}
    for entry in least_favourable(SECTIONS["rivals"], document):
        row = entry["row"]
        if row["warm_up"] >= LEAST_WARM_UP and row["lengths"] == "padded" and row["model"] in README_MODELS:
            groups.setdefault((row["rival"], row["type"]), {}).setdefault(row["model"], []).append(entry)
    fair = lambda entries: any("tcmalloc, huge pages" in entry["row"]["allocator"] for entry in entries)
    best = {
        name: {model: min(entries, key=lambda entry: entry["row"]["ratio"]) for model, entries in models.items() if fair(entries)}
        for name, models in groups.items()
    }
    return {name: models for name, models in best.items() if models}


def told_runs(counts):
    least, most = min(counts), max(counts)
    return (
        "one run each"
        if most == 1
        else f"of {least} runs each the least favourable"
        if least == most
        else f"of {least} to {most} runs each the least favourable"
    )


def readme_cell(entry):
    """Rounded down."""
    return f"{math.floor(entry['row']['ratio'] * 10) / 10:.1f} times as fast" if entry else "not recorded"


def headline(document):
    """(type, {model: entry}) against README's rival: the type with the most recorded models, bf16 before f32; None without a record."""
    kinds = {kind: models for (rival, kind), models in at_their_best(document).items() if rival == README_RIVAL}
    return max(kinds.items(), key=lambda one: (len(one[1]), one[0] == "bf16"), default=None)


def readme_rivals(found):
    """A row per machine: the least favourable run of the form and the memory in which the rival is best."""
    best = [(document["name"], *headline(document)) for document in found.get("rivals", []) if headline(document)]
    if not best:
        return "Nothing was recorded yet."
    lines = [[name, kind, *(readme_cell(models.get(model)) for model in README_MODELS)] for name, kind, models in best]
    counts = [entry["runs"] for _, _, models in best for entry in models.values()]
    return (
        table(["CPU class", "type", *map(text, README_MODELS)], lines)
        + f"\n\nRecorded by a command, {told_runs(counts)}, rounded down; PyTorch in its fastest form with tcmalloc and\nhuge pages ([conditions and other rivals](docs/results/rivals.md))."
    )


def newest_tests(found):
    """(document, row) of the newest run of the tests.

    The run with the most tests shows the newest tree of a day; of several of that tree, the one with the fewest
    passed tests counts.
    """
    entries = [(document, entry["row"]) for document in found["tests"] for entry in least_favourable(SECTIONS["tests"], document)]
    newest = max(row["date"] for _, row in entries)
    return max(((document, row) for document, row in entries if row["date"] == newest), key=lambda one: (tests_run(one[1]), -one[1]["passed"]))


def tests_run(row):
    return row["passed"] + row["failed"] + row["skipped"]


def readme_tests(found):
    document, row = newest_tests(found)
    return f"`{row['passed']} passed, {row['failed']} failed, {row['skipped']} skipped`\n({document['name']}, {row['date']}, commit {row['commit']}; [others](docs/results/tests.md))"


README_PARTS = {"rivals": readme_rivals, "tests": readme_tests}


def filled(readme, found):
    for name in re.findall(r"<!-- results: (\w+) -->", readme):
        readme = re.sub(
            rf"(<!-- results: {name} -->\n).*?(<!-- end of results -->)",
            lambda part, name=name: part[1] + README_PARTS[name](found) + "\n" + part[2],
            readme,
            flags=re.S,
        )
    return readme


# ---- the program ------------------------------------------------------------------------------------------------------


def wanted(root):
    """{path: text} of everything that is made."""
    found = load(root / "docs/results/data")
    pages = {root / f"docs/results/{page['name']}.md": page_text(page, found) for page in pages_with_data(found)}
    readme = root / "README.md"
    return {**pages, root / "docs/results/README.md": index_text(found), readme: filled(readme.read_text(encoding="utf-8"), found)}


def differences(root):
    """Files that differ from the data, as lines."""
    made = wanted(root)
    wrong = [
        f"{path.relative_to(root)} differs from docs/results/data; run tools/make_results.py"
        for path, content in made.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != content
    ]
    wrong += [f"{path.relative_to(root)} has no data" for path in sorted((root / "docs/results").glob("*.md")) if path not in made and path.stem not in BY_HAND]
    readme = (root / "README.md").read_text(encoding="utf-8")
    return wrong + [f"README.md has no part <!-- results: {name} -->" for name in README_PARTS if f"<!-- results: {name} -->" not in readme]


def tests_of(build):
    """The number of tests that ctest finds in a build."""
    listed = subprocess.run(["ctest", "--test-dir", build, "-N"], capture_output=True, text=True, check=True).stdout
    return int(re.search(r"Total Tests: (\d+)", listed)[1])


def tests_away(found, registered):
    """A line if README's count of tests is far from `registered`, else none."""
    _, row = newest_tests(found)
    ran = tests_run(row)
    if abs(ran - registered) <= TESTS_AWAY * registered:
        return []
    return [
        f"README.md states that {ran} tests ran (commit {row['commit']}), and the build has {registered}: bench/record.py tests --runs 1 -- scripts/test.sh"
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--build", metavar="DIR", help="with --check: compare README's count of tests with those of this build")
    options = parser.parse_args()
    if options.check:
        wrong = differences(ROOT) + (tests_away(load(ROOT / "docs/results/data"), tests_of(options.build)) if options.build else [])
        print("\n".join([*wrong, f"make_results: {len(wrong)} differences"]))
        return 1 if wrong else 0
    for path, content in wanted(ROOT).items():
        path.write_text(content, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
