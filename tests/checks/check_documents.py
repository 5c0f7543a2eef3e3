#!/usr/bin/env python3
"""Checks that the documents do not point at nothing (relative links, and paths in `code` that look like files of ours), and that the pages of docs/results and README's figures are what docs/results/data say."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import make_results  # noqa: E402

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("tests/**/*.md"), *ROOT.glob("examples/**/*.md"), *ROOT.glob("src/**/*.md"), *ROOT.glob("deploy/**/*.md")])
# Where a path in `code` may start.
TOPS = ("src/", "apps/", "scripts/", "tools/", "tests/", "examples/", "docs/", "cmake/", "bench/", "deploy/", ".ci/")

findings = []
for document in DOCUMENTS:
    for number, line in enumerate(document.read_text(encoding="utf-8").split("\n"), 1):
        where = f"{document.relative_to(ROOT)}:{number}"
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", line):
            if "://" not in target and not (document.parent / target).exists():
                findings.append(f"{where}: the link to {target} leads nowhere")
        for path in re.findall(r"`([\w.\-/]+)`", line):
            if path.startswith(TOPS) and not (ROOT / path).exists():
                findings.append(f"{where}: {path} does not exist")
findings += make_results.differences(ROOT)
transcribed, records = make_results.count_transcribed(make_results.load(ROOT / "docs/results/data"))
for finding in findings:
    print(finding)
print(f"check_documents: {len(DOCUMENTS)} documents, {len(findings)} findings; of {records} records {transcribed} were transcribed")
sys.exit(1 if findings or not DOCUMENTS else 0)
