#!/usr/bin/env python3
"""Checks that relative links of the documents, and paths in `code` that look like files of the project, exist, and that links to a heading find it. The version is that of
CMakeLists.txt in CITATION.cff, in the changelog, and in every name of a released file."""

import functools
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("tests/**/*.md"),
        *ROOT.glob("examples/**/*.md"),
        *ROOT.glob("src/**/*.md"),
        *ROOT.glob("deploy/**/*.md"),
    ]
)
# Where a path in `code` may start.
TOPS = ("src/", "apps/", "scripts/", "tools/", "tests/", "examples/", "docs/", "cmake/", "bench/", "deploy/", ".ci/")


@functools.cache
def headings_of(document):
    """Anchors of a document, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.M | re.S)
    titles = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in re.findall(r"^#+ (.*)$", text, re.M)]
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


findings = []
for document in DOCUMENTS:
    for number, line in enumerate(document.read_text(encoding="utf-8").split("\n"), 1):
        where = f"{document.relative_to(ROOT)}:{number}"
        for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", line):
            path = (document.parent / target).resolve() if target else document
            if "://" in target:
                continue
            if not path.exists():
                findings.append(f"{where}: the link to {target} leads nowhere")
            elif anchor and path.suffix == ".md" and anchor not in headings_of(path):
                findings.append(f"{where}: {target} has no heading #{anchor}")
        for path in re.findall(r"`([\w.\-/]+)`", line):
            if path.startswith(TOPS) and not (ROOT / path).exists():
                findings.append(f"{where}: {path} does not exist")
version = re.search(r"^project\(.*VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"), re.M)[1]
for name, pattern in (("CITATION.cff", rf"^version: {re.escape(version)}$"), ("CHANGELOG.md", rf"^## .*\b{re.escape(version)}\b")):
    if not re.search(pattern, (ROOT / name).read_text(encoding="utf-8"), re.M):
        findings.append(f"{name} lacks version {version} of CMakeLists.txt")
for document in DOCUMENTS:
    for name, found in re.findall(r"\b(tandem(?:_cpu)?[-_](\d+\.\d+\.\d+)[-_]\S*)", document.read_text(encoding="utf-8")):
        if found != version:
            findings.append(f"{document.relative_to(ROOT)}: {name} is not of version {version} of CMakeLists.txt")

for finding in findings:
    print(finding)
print(f"check_documents: {len(DOCUMENTS)} documents, {len(findings)} findings")
sys.exit(1 if findings or not DOCUMENTS else 0)
