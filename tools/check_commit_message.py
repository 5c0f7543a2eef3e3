#!/usr/bin/env python3
"""Checks a commit message: `area: imperative` in at most 72 characters, the reason in the body.

    tools/check_commit_message.py FILE         as a commit-msg hook
    tools/check_commit_message.py --self-test

To install it as a hook:
    printf '#!/bin/sh\\nexec python3 tools/check_commit_message.py "$1"\\n' > .git/hooks/commit-msg
    chmod +x .git/hooks/commit-msg
"""

import pathlib
import re
import sys

SUBJECT_COLUMNS = 72
BODY_COLUMNS = 100
SUBJECT = re.compile(r"[a-z0-9_.+/-]+(?:, [a-z0-9_.+/-]+)*: (\w[\w-]*)\b")
NOT_IMPERATIVE = re.compile(r"(?:\w+ing|\w+ed|adds|fixes|makes|uses|removes|moves|reads|takes|gives|has|is|are|was|were)", re.I)
# Imperatives that look like other forms.
IMPERATIVE = {"bring", "embed", "feed", "need", "seed", "shed", "speed", "string", "bed", "bound"}
OPENING = re.compile(r"(?:^|[.:;] )(?:Who|Whoever|Whose|Whom|Nobody)\b")


def findings_of(message):
    lines = [line for line in message.split("\n") if not line.startswith("#")]
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines or not lines[0].strip():
        return ["the message is empty; expected `area: imperative`"]
    subject, findings = lines[0], []
    if subject.startswith("Merge "):
        return ["found a merge commit; rebase instead"]
    if len(subject) > SUBJECT_COLUMNS:
        findings.append(f"the subject has {len(subject)} characters; expected at most {SUBJECT_COLUMNS}")
    match = SUBJECT.match(subject)
    if match is None:
        findings.append(f"found subject '{subject}'; expected `area: imperative`, in lower case")
    elif NOT_IMPERATIVE.fullmatch(match[1]) and match[1] not in IMPERATIVE:
        findings.append(f"found '{match[1]}' behind the area; expected an imperative")
    if subject.endswith("."):
        findings.append("the subject ends with a period; leave it out")
    if len(lines) > 1 and lines[1].strip():
        findings.append("the second line is not empty; the body begins in the third")
    findings += [
        f"line {number} has {len(line)} characters; expected at most {BODY_COLUMNS}"
        for number, line in enumerate(lines[1:], 2)
        if len(line) > BODY_COLUMNS and " " in line.strip()
    ]
    findings += [f"line {number} begins a sentence without a noun as subject" for number, line in enumerate(lines, 1) if OPENING.search(line)]
    return findings


def self_test():
    for good in (
        "comm: check a frame before its data enters a sum\n\nA bit that flips changed the weights.\n",
        "tests/e2e: add a case\n# comment\n",
        "core: seed the generator",
    ):
        assert not findings_of(good), findings_of(good)
    for wrong in (
        "",
        "Merge branch 'x'",
        "Fix it",
        "comm: fixed it",
        "comm: adds a check",
        "comm: " + "a" * 70,
        "comm: add a check.",
        "comm: add\nmore",
        "comm: add x\n\nNobody knows.",
        "comm: add x\n\n" + "word " * 30,
    ):
        assert findings_of(wrong), wrong
    print("check_commit_message: self-test passed")
    return 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    findings = findings_of(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    for finding in findings:
        print(f"commit message: {finding}", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
