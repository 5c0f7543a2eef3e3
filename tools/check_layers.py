#!/usr/bin/env python3
"""Checks the layers of tandem and a few rules that the compiler cannot see.

    tools/check_layers.py [ROOT]       # default: the checkout that holds this file
    tools/check_layers.py --self-test  # plants one violation of every rule in a scratch tree and expects each to be found

Rules:
  layers     a file under src/tandem/<folder> includes only its own folder, the folders of its line in LAYERS, and core
  apps       nothing under src/ includes a header of apps/ or tests/ (tests may use tests/support)
  header     every header begins with `#pragma once`
  getenv     the environment is read in src/tandem/core/env.cc only
  printing   libraries neither print nor end the process; they throw (docs/errors.md)
Prints file:line and the broken rule for each finding; exits 1 if there is one.
"""

import pathlib
import re
import sys
import tempfile

# The edges of docs/architecture.md: what each folder may include besides itself and core.
# An edge is not transitive: trainer may use models, but reaches kernels only if its line says so.
# docs/design/0002-layer-edges.md says why some lines are longer than a picture of the layers would suggest.
LAYERS = {
    "core": [],
    "kernels": [],
    "nn": ["kernels"],
    "optim": ["nn", "kernels"],
    "models": ["nn", "kernels"],
    "rendezvous": [],
    "comm": ["rendezvous", "kernels"],
    "dist": ["nn", "optim", "comm", "kernels"],
    "hub": [],
    "text": [],
    "data": ["text", "hub"],
    "tasks": ["models", "data", "text", "nn", "kernels"],
    "quant": ["tasks", "data", "models", "comm", "nn", "kernels"],
    "trainer": ["tasks", "dist", "optim", "data", "models", "comm", "nn", "kernels"],
    "report": ["trainer", "tasks"],
    "launch": ["rendezvous"],
}

INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]')
GETENV = re.compile(r"\b(?:secure_)?getenv\s*\(|\bsetenv\s*\(|\bputenv\s*\(|\benviron\b")
PRINTING = re.compile(
    r"\bstd::c(?:out|err|log)\b|\b(?:std::)?f?printf\s*\(|\b(?:std::)?puts\s*\(|\bfmt::print(?:ln)?\s*\("
    r"|(?<![\w:.>])(?:std::)?_?(?:exit|_Exit|quick_exit)\s*\(")
# Our bug ends the process by design; nothing else may.
PRINTING_ALLOWED = {"src/tandem/core/error.cc"}


def code_lines(text):
    """The lines with comments and string literals blanked out, so that prose cannot break a rule."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))

    pattern = r'//[^\n]*|/\*.*?\*/|R"([^ ()\\]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\''
    return re.sub(pattern, blank, text, flags=re.DOTALL).split("\n")


def layer_of_include(path):
    """The library folder that an include names, or None: "tandem/core/error.h" → core."""
    parts = path.split("/")
    return parts[1] if parts[0] == "tandem" and len(parts) > 2 else None


def check_includes(name, lines):
    parts = name.split("/")
    folder = parts[2] if name.startswith("src/tandem/") else None
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        target = match.group(1)
        if folder is None:
            continue  # apps, examples and tests may include everything
        if target.startswith(("apps/", "tests/")) or "../" in target:
            yield number, f"a library includes \"{target}\"; name headers of libraries from src, as \"tandem/…\""
        layer = layer_of_include(target)
        if layer and layer not in LAYERS:
            yield number, f"\"{target}\": the folder {layer} is not in the table of layers"
        elif layer and layer not in (folder, "core", *LAYERS[folder]):
            allowed = ", ".join([*LAYERS[folder], "core"] if folder != "core" else ["nothing of ours"])
            yield number, f"{folder} may not include {layer} (\"{target}\"); it may include: {allowed}"


def check_file(root, path):
    name = path.relative_to(root).as_posix()
    text = path.read_text(encoding="utf-8")
    raw, code = text.split("\n"), code_lines(text)
    findings = list(check_includes(name, raw))
    is_test = name.endswith(("_test.cc", "_bench.cc", "_probe.cc"))  # a probe is a program that a test starts
    if path.suffix == ".h" and "#pragma once" not in code_lines(text)[:40] and "#pragma once" not in raw:
        findings.append((1, "a header without #pragma once"))
    for number, line in enumerate(code, 1):
        if name != "src/tandem/core/env.cc" and not is_test and GETENV.search(line):
            findings.append((number, "the environment is read in src/tandem/core/env.cc only: pass an Environment"))
        if name.startswith("src/") and not is_test and name not in PRINTING_ALLOWED and PRINTING.search(line):
            findings.append((number, "libraries neither print nor exit: throw an Error, or hand the text to the caller"))
    return [f"{name}:{number}: {what}" for number, what in sorted(findings)]


def check_tree(root):
    findings = []
    folders = [path.name for path in sorted((root / "src/tandem").iterdir()) if path.is_dir()]
    for folder in folders:
        if folder not in LAYERS:
            findings.append(f"src/tandem/{folder}: the folder is not in the table of layers (tools/check_layers.py)")
    count = 0
    for top in ("src", "apps", "examples"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in (".h", ".cc"):
                parts = path.relative_to(root).parts
                if parts[0] == "src" and parts[2] not in LAYERS:
                    continue  # already reported
                count += 1
                findings += check_file(root, path)
    return count, findings


def self_test():
    """Each planted line must be found where it is, and the innocent ones must not."""
    planted = {
        "src/tandem/core/a.h": ('#pragma once\n#include "tandem/kernels/b.h"\n', ["core/a.h:2: core may not include kernels"]),
        "src/tandem/kernels/b.h": ('#include "tandem/core/a.h"\n', ["kernels/b.h:1: a header without #pragma once"]),
        "src/tandem/comm/c.cc": ('#include "tandem/kernels/b.h"\n#include "tandem/nn/d.h"\n',
                                 ["comm/c.cc:2: comm may not include nn"]),
        "src/tandem/nn/d.cc": ('int main() { return getenv("HOME") != 0; }\n', ["nn/d.cc:1: the environment is read"]),
        "src/tandem/text/e.cc": ('// std::cout << "prose"\nvoid f() { std::cout << 1; }\nvoid g() { std::exit(1); }\n',
                                 ["text/e.cc:2: libraries neither print", "text/e.cc:3: libraries neither print"]),
        "src/tandem/data/f.cc": ('#include "apps/console.h"\nauto s = "printf(1)"; // exit(1)\nvoid g() { loop.exit(1); }\n',
                                 ["data/f.cc:1: a library includes"]),
        "src/tandem/mystery/g.h": ("#pragma once\n", ["src/tandem/mystery: the folder is not in the table"]),
        "src/tandem/hub/hub_test.cc": ('void f() { printf("tests may print"); }\n', []),
        "apps/main.cc": ('#include "tandem/trainer/x.h"\nvoid f() { printf("apps may print"); }\n', []),
    }
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        (root / "examples").mkdir()
        for name, (text, _) in planted.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        _, findings = check_tree(root)
    expected = [what for _, wanted in planted.values() for what in wanted]
    missed = [what for what in expected if not any(what in finding for finding in findings)]
    surplus = [finding for finding in findings if not any(what in finding for what in expected)]
    for what in missed:
        print(f"self-test: not found: {what}")
    for finding in surplus:
        print(f"self-test: found without reason: {finding}")
    print(f"self-test: {len(expected) - len(missed)} of {len(expected)} planted violations found, {len(surplus)} false alarms")
    return 1 if missed or surplus else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    count, findings = check_tree(root)
    for finding in findings:
        print(finding)
    print(f"check_layers: {count} files, {len(findings)} findings")
    return 1 if findings or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
