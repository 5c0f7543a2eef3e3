#!/usr/bin/env python3
"""Shows the lines that tests execute, from gcovr's JSON (scripts/coverage.sh).

    tools/summarize_coverage.py build/coverage/coverage.json [--regions 10]

Prints a table of the folders under src/tandem, and the longest runs of lines that no test executes. Lines without code (comments, blank ones) do not end a run.
"""

import argparse
import collections
import json


def folder_of(path):
    parts = path.split("/")
    return "/".join(parts[2:-1]) or "."


def regions_of(file):
    """The runs of uncovered lines of a file: (lines, first, last)."""
    run = []
    for line in [*file["lines"], {"line_number": 0, "count": 1}]:
        if line.get("gcovr/noncode"):
            continue
        if line["count"] == 0:
            run.append(line["line_number"])
            continue
        if run:
            yield len(run), run[0], run[-1]
        run = []


def summarize(report, num_regions):
    lines, covered, regions = collections.Counter(), collections.Counter(), []
    for file in report["files"]:
        code = [line for line in file["lines"] if not line.get("gcovr/noncode")]
        for name in (folder_of(file["file"]), "total"):
            lines[name] += len(code)
            covered[name] += sum(line["count"] > 0 for line in code)
        regions += [(count, file["file"], first, last) for count, first, last in regions_of(file)]
    table = [f"{name:<28} {lines[name]:>7} lines {100 * covered[name] / max(1, lines[name]):6.1f} %" for name in sorted(lines, key=lambda n: (n == "total", n))]
    longest = [f"{count:>4} lines  {path}:{first}-{last}" for count, path, first, last in sorted(regions, key=lambda r: (-r[0], r[1:]))[:num_regions]]
    return [*table, "", "the longest regions that no test executes:", *longest]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report")
    parser.add_argument("--regions", type=int, default=10)
    options = parser.parse_args()
    with open(options.report, encoding="utf-8") as file:
        print(*summarize(json.load(file), options.regions), sep="\n")


if __name__ == "__main__":
    main()
