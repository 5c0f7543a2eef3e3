#!/usr/bin/env python3
"""Checks the layers of tandem and a few rules that the compiler cannot see.

    tools/check_layers.py [ROOT]       # default: the checkout that holds this file
    tools/check_layers.py --self-test  # plants one violation of every rule in a scratch tree and expects each to be found

Rules:
  layers     a file under src/tandem/<folder> or apps/<folder> includes only its own folder, the folders of its line in LAYERS, and core
  order      a line names only folders of lines above it, so there is no cycle
  edges      every folder is there, and every edge is used by a file that is not a test
  picture    the table in docs/architecture.md is the same
  folders    the same between the folders of a library that has some (FOLDERS)
  tasks      nothing under src/ but its own folder, and tests, includes a header of one task: tandem/tasks/<task>/x.h
  slot       only families, kinds of layers and tests include a header of a kind of layer: tandem/models/layers/<kind>/x.h
  apps       nothing under src/ includes a header of apps/ or tests/ (tests may use tests/support)
  json       nlohmann/json.hpp is included by src/tandem/core/json.h only, which keeps its templates from being compiled again
  slow       a header includes simdjson, CLI11 or JSON's values only where SLOW_HEADERS lets it: each costs a source seconds
  html       only report/ and apps/ write HTML
  header     every header begins with `#pragma once`
  getenv     the environment is read in src/tandem/core/env.cc only
  polling    poll and its kin are called in src/tandem/net/event_loop.cc and in the files of POLLING_ALLOWED only (docs/design/0031)
  printing   libraries neither print nor end the process; they throw (docs/errors.md)
Prints file:line and the broken rule for each finding; exits 1 if there is one.
"""

import pathlib
import re
import sys
import tempfile

# The edges of docs/architecture.md: what each folder may include besides itself and core. The lowest come first, and a line names
# only folders above it. An edge is not transitive: trainer may use models, but reaches kernels only if its line has them.
# docs/design/0002-layer-edges.md explains why some lines are longer than a picture of the layers would suggest.
# "apps" are the files that lie in apps/ itself: they wire the others together.
LAYERS = {
    "core": [],
    "kernels": [],
    "nn": ["kernels"],
    "optim": ["nn", "kernels"],
    "text": [],
    "formats": ["text"],
    "models": ["formats", "nn", "kernels"],
    "net": [],
    "rendezvous": ["net"],
    "comm": ["net", "rendezvous", "kernels"],
    "dist": ["optim", "comm", "kernels"],
    "hub": ["formats"],
    "flags": [],
    "launch": ["flags", "net", "rendezvous"],
    "elastic": ["launch", "dist", "optim", "hub", "text", "comm", "net", "rendezvous", "kernels"],
    "data": ["formats", "text"],
    "tasks": ["formats", "models", "data", "flags", "text", "hub", "nn", "kernels"],
    "quant": ["tasks", "data", "formats", "models", "comm", "nn", "kernels"],
    "trainer": ["tasks", "dist", "optim", "data", "formats", "models", "comm", "nn", "kernels"],
    "report": ["trainer", "tasks"],
    "job": ["report", "trainer", "quant", "tasks", "dist", "optim", "models", "text", "hub", "comm", "elastic", "net", "rendezvous", "nn", "kernels"],
    "apps/manual": [],
    "apps/arguments": ["apps/manual", "job", "trainer", "quant", "tasks", "flags", "hub"],
    "apps/command": ["apps/manual", "flags", "formats", "hub", "kernels"],
    "apps/answering": ["apps/command", "quant", "tasks", "data", "text", "hub", "models", "nn", "kernels"],
    "apps/serve": ["apps/answering", "apps/command", "text"],
    "apps/monitor": ["apps/serve", "launch", "elastic", "hub", "trainer"],
    "apps/doctor": ["apps/command", "launch", "hub", "net", "rendezvous"],
    "apps/manifest": ["apps/command", "formats"],
    "apps/bench": ["apps/answering", "apps/command", "flags", "trainer", "tasks", "dist", "optim", "data", "hub", "text", "models", "comm", "net", "kernels"],
    "apps/plan": ["apps/bench", "apps/command", "dist", "elastic", "launch", "comm", "models"],
    "apps": ["everything"],
}

EVERYTHING = ["everything"]

HEADERS = (".h", ".hpp")  # the second are oneCCL's names for what programs include
SOURCES = (*HEADERS, ".cc")

# The same inside a library that has folders: what each of them may include of the others; "." are the files next to the folders, which may include all of them.
# Tests may include all.
FOLDERS = {
    "launch": {
        "process": [],
        "control": [],
        "run": ["process", "control"],
        "mpirun": ["process", "control", "run"],
    },
    "models": {
        "encoder": [],
        "layers": ["encoder"],
        "families": ["encoder", "layers"],
        "pretrained": ["encoder"],
        "heads": ["encoder", "pretrained"],
    },
    "kernels": {
        "simd": [],
        "amx": ["simd"],
    },
    "comm": {
        "algorithms": [],
        "failure": ["algorithms"],
        "node": ["algorithms"],
        "network": ["algorithms", "failure", "node"],
        "collectives": [".", "algorithms", "failure", "node", "network"],
        "c": [".", "algorithms", "collectives"],
        "oneccl": ["."],
        "plugins": ["network"],
    },
    "elastic": {
        "protocol": [],
        "lock": ["protocol"],
        "worker": [],
        "transfer": ["worker"],
        "agent": ["protocol", "lock", "worker"],
    },
}

TEST_HEADERS = {"test_ranks.h", "product_checks.h", "interleaving.h"}

INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]')
GETENV = re.compile(r"\b(?:secure_)?getenv\s*\(|\bsetenv\s*\(|\bputenv\s*\(|\benviron\b")
HTML = re.compile(r"</(?:b|div|details|form|h[1-6]|html|mark|p|small|span|svg|t[dhr]|table)>")
PRINTING = re.compile(
    r"\bstd::c(?:out|err|log)\b|\b(?:std::)?f?printf\s*\(|\b(?:std::)?puts\s*\(|\bfmt::print(?:ln)?\s*\("
    r"|(?<![\w:.>])(?:std::)?_?(?:exit|_Exit|quick_exit)\s*\("
)
POLLING = re.compile(r"(?<!\w)::p?(?:poll|select)\s*\(|(?<![\w:.>])p?poll\s*\(&?[\w.()]+,[^;,]+,|\bepoll_\w+\s*\(")
# The loop; waits for the progress of collectives, which last microseconds; the server and its test client, where libmicrohttpd owns the descriptors.
POLLING_ALLOWED = {
    "src/tandem/net/event_loop.cc",
    "src/tandem/comm/collectives/worker.cc",
    "src/tandem/comm/network/plugin_transport.cc",
    "src/tandem/comm/network/stream_transport.cc",
    "apps/serve/http_server.cc",
    "apps/serve/serve_process.h",
}
# Our bug ends the process by design; nothing else may.
PRINTING_ALLOWED = {"src/tandem/core/error.cc"}


def code_lines(text):
    """The lines with comments and string literals blanked out, so that prose cannot break a rule."""

    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))

    pattern = r'//[^\n]*|/\*.*?\*/|R"([^ ()\\]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\''
    return re.sub(pattern, blank, text, flags=re.DOTALL).split("\n")


def folder_of_file(name):
    """The folder of LAYERS that a source file is in, or None: apps/main.cc → apps, apps/bench/gemm.cc → apps/bench."""
    parts = name.split("/")
    if parts[0] == "src":
        return parts[2]
    return "/".join(parts[:-1][:2]) if parts[0] == "apps" else None


def layer_of_include(path):
    """The folder of LAYERS that an include names, or None: "tandem/core/error.h" → core."""
    if path.startswith("apps/"):
        return folder_of_file(path)
    parts = path.split("/")
    return parts[1] if parts[0] == "tandem" and len(parts) > 2 else None


# Headers of libraries that take seconds to compile, and the headers of ours that may include them: the sources of one folder share these.
SLOW_HEADERS = {
    "simdjson.h": ("src/tandem/text/tokenizer_json.h", "src/tandem/text/tokenizer_model.h"),
    "CLI/CLI.hpp": ("apps/command/command_line.h",),
    # Headers with members, templates or inline functions of JSON; a declaration needs a name only.
    "tandem/core/json.h": (
        "apps/bench/report.h",
        "apps/cli_program.h",
        "apps/serve/inference_service.h",
        "apps/serve/request_json.h",
        "apps/serve/serve_process.h",
        "src/tandem/core/whole_number.h",
        "src/tandem/flags/value.h",
        "src/tandem/job/arguments.h",
        "src/tandem/job/elastic.h",
        "src/tandem/job/quantize.h",
        "src/tandem/models/heads/module_files.h",
        "src/tandem/report/model_card.h",
        "src/tandem/report/run_record.h",
        "src/tandem/tasks/evaluation.h",
        "src/tandem/tasks/token_classification/test_data.h",
        "src/tandem/text/tokenizer_files.h",
        "src/tandem/text/tokenizer_json.h",
        "src/tandem/text/tokenizer_model.h",
        "src/tandem/trainer/step_history.h",
        "src/tandem/trainer/trainer.h",
        "src/tandem/trainer/trainer_state.h",
    ),
}

# Folders under tasks/ that are not tasks, and features of texts: every task may include them.
SHARED_BY_TASKS = (
    "tandem/tasks/causal_language/causal_language_task.h",
    "tandem/tasks/causal_language/causal_samples.h",
    "tandem/tasks/corpus/",
    "tandem/tasks/ranking/",
    "tandem/tasks/text_classification/text_features.h",
)


# Folders that may include a header of a kind of layer; the last two are test support.
USERS_OF_LAYERS = ("src/tandem/models/layers/", "src/tandem/models/families/", "src/tandem/models/double_model.h", "src/tandem/models/test_models.h")


def is_test(name):
    return name.endswith(("_test.cc", "_bench.cc", "_probe.cc", "_test_support.h"))  # a probe is a program that a test starts


def includes(lines):
    for number, line in enumerate(lines, 1):
        if match := INCLUDE.match(line):
            yield number, match.group(1)


def check_includes(name, lines):
    folder = folder_of_file(name)
    for number, target in includes(lines):
        if folder is None:
            continue  # examples may include everything
        if name.startswith("src/") and target.startswith(("apps/", "tests/")) or "../" in target:
            yield number, f'a library includes "{target}"; name headers of libraries from src, as "tandem/…"'
            continue
        if target == "nlohmann/json.hpp" and name != "src/tandem/core/json.h":
            yield number, 'include "tandem/core/json.h" instead, or nlohmann/json_fwd.hpp where a name is enough'
        if name.endswith(".h") and name not in SLOW_HEADERS.get(target, (name,)):
            yield number, f"<{target}> takes seconds to compile: include it in sources, or a header that only names its types (SLOW_HEADERS)"
        of_one_task = target.startswith("tandem/tasks/") and target.count("/") > 2 and not target.startswith(SHARED_BY_TASKS)
        if of_one_task and name.startswith("src/") and not is_test(name):
            if not name.startswith("src/" + target[: target.rindex("/") + 1]):
                yield number, f'"{target}" is one task\'s; {folder} knows what all tasks share'
        if target.startswith("tandem/models/layers/") and not is_test(name) and not name.startswith(USERS_OF_LAYERS):
            yield number, f'"{target}" is one kind of layer\'s; {folder} knows what all kinds share (tandem/models/encoder/layer.h)'
        layer = layer_of_include(target)
        if layer and layer not in LAYERS:
            yield number, f'"{target}": the folder {layer} is not in the table of layers'
        elif layer and layer not in (folder, "core", *LAYERS[folder]) and LAYERS[folder] != EVERYTHING:
            allowed = ", ".join([*LAYERS[folder], "core"] if folder != "core" else ["nothing of ours"])
            yield number, f'{folder} may not include {layer} ("{target}"); it may include: {allowed}'


def check_table(layers, used):
    """Faults of the table itself: `used` has the edges (folder, layer) of all files that are not tests."""
    above = {"core"}
    for folder, allowed in layers.items():
        for layer in allowed:
            if allowed == EVERYTHING:
                continue
            if layer not in above:
                yield f"{folder} → {layer}: a line names only folders of lines above it, else there are cycles"
            elif (folder, layer) not in used:
                yield f"{folder} → {layer}: no file uses this edge; take it out of the table"
        if (folder, folder) not in used:
            yield f"{folder}: no such folder; take it out of the table"
        above.add(folder)


def edges_of_document(text):
    """The table in docs/architecture.md: lines "name   what it is   edges" in the first ``` block, columns by the heading's places."""
    block = text.split("## Layers", 1)[-1].split("```")
    edges = {}
    for line in block[1].strip("\n").split("\n") if len(block) > 2 else []:
        name, *rest = re.split(r"\s{2,}", line.strip())
        edges[name] = set(rest[1].split()) if len(rest) > 1 else set()
    return edges


def check_document(layers, text):
    pictured = edges_of_document(text)
    for folder in layers.keys() | pictured.keys():
        if folder not in pictured:
            yield f"{folder} is not in the table of docs/architecture.md"
        elif folder not in layers:
            yield f"docs/architecture.md: {folder} is not in the table of layers"
        elif pictured[folder] != set(layers[folder]):
            difference = ", ".join(sorted(pictured[folder] ^ set(layers[folder])))
            yield f"docs/architecture.md: the edges of {folder} are others than those checked: {difference}"


def check_folders(name, lines):
    """The folders inside a library: src/tandem/comm/network/x.h includes nothing of src/tandem/comm/collectives."""
    parts = name.split("/")
    table = FOLDERS.get(parts[2]) if name.startswith("src/tandem/") else None
    # Headers of tests are in the same folders; only tests may include them.
    if table is None or len(parts) < 5 or is_test(name) or parts[-1] in TEST_HEADERS:
        return
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        target = match.group(1).split("/") if match else []
        if target[:2] != ["tandem", parts[2]]:
            continue
        folder = target[2] if len(target) > 3 else "."
        allowed = table.get(parts[3], [])
        if folder not in (parts[3], *allowed):
            yield (
                number,
                (f'{parts[2]}/{parts[3]} may not include {parts[2]}/{folder} ("{match.group(1)}"); it may include: {", ".join(allowed) or "no other folder"}'),
            )


def check_file(root, path):
    name = path.relative_to(root).as_posix()
    text = path.read_text(encoding="utf-8")
    raw, code = text.split("\n"), code_lines(text)
    findings = [*check_includes(name, raw), *check_folders(name, raw)]
    if path.suffix in HEADERS and "#pragma once" not in code_lines(text)[:40] and "#pragma once" not in raw:
        findings.append((1, "a header without #pragma once"))
    if name.startswith("src/") and not name.startswith("src/tandem/report/") and not is_test(name):
        found = (number for number, line in enumerate(raw, 1) if HTML.search(line.split("//")[0]))
        findings += [(number, "only report/ writes HTML: hand it the content") for number in found]
    for number, line in enumerate(code, 1):
        if name != "src/tandem/core/env.cc" and not is_test(name) and GETENV.search(line):
            findings.append((number, "the environment is read in src/tandem/core/env.cc only: pass an Environment"))
        if name.startswith("src/") and not is_test(name) and name not in PRINTING_ALLOWED and PRINTING.search(line):
            findings.append((number, "libraries neither print nor exit: throw an Error, or hand the text to the caller"))
        if not is_test(name) and name not in POLLING_ALLOWED and POLLING.search(line):
            findings.append((number, "descriptors and deadlines are waited for in net::EventLoop: add to a loop, or call net::wait_readable()"))
    return [f"{name}:{number}: {what}" for number, what in sorted(findings)]


def used_edges(root):
    """(folder, layer) of every include of a file that is not a test; (folder, folder) means that the folder has such a file."""
    edges = set()
    for top in ("src", "apps"):
        for path in (root / top).rglob("*"):
            name = path.relative_to(root).as_posix()
            if path.suffix in SOURCES and not is_test(name):
                folder = folder_of_file(name)
                edges.add((folder, folder))
                edges |= {(folder, layer_of_include(target)) for _, target in includes(path.read_text(encoding="utf-8").split("\n"))}
    return edges


def check_tree(root):
    findings = []
    folders = [f"src/tandem/{path.name}" for path in sorted((root / "src/tandem").iterdir()) if path.is_dir()]
    folders += sorted({path.parent.relative_to(root).as_posix() for path in (root / "apps").rglob("*.cc")})
    for folder in folders:
        if folder.removeprefix("src/tandem/") not in LAYERS:
            findings.append(f"{folder}: the folder is not in the table of layers (tools/check_layers.py)")
    count = 0
    for top in ("src", "apps", "examples"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in SOURCES:
                if top != "examples" and folder_of_file(path.relative_to(root).as_posix()) not in LAYERS:
                    continue  # already reported
                count += 1
                findings += check_file(root, path)
    return count, findings


def check_picture(root):
    """The table against the files that use it, and the document against the table."""
    text = (root / "docs/architecture.md").read_text(encoding="utf-8")
    return [*check_table(LAYERS, used_edges(root)), *check_document(LAYERS, text)]


def self_test():
    """Each planted line must be found where it is, and the innocent ones must not."""
    planted = {
        "src/tandem/core/a.h": ('#pragma once\n#include "tandem/kernels/b.h"\n', ["core/a.h:2: core may not include kernels"]),
        "src/tandem/kernels/b.h": ('#include "tandem/core/a.h"\n', ["kernels/b.h:1: a header without #pragma once"]),
        "src/tandem/comm/c.cc": ('#include "tandem/kernels/b.h"\n#include "tandem/nn/d.h"\n', ["comm/c.cc:2: comm may not include nn"]),
        "src/tandem/comm/node/c.cc": (
            '#include "tandem/comm/algorithms/a.h"\n#include "tandem/comm/collectives/b.h"\n',
            ["comm/node/c.cc:2: comm/node may not include comm/collectives"],
        ),
        "src/tandem/kernels/simd/v.h": ('#pragma once\n#include "tandem/kernels/b.h"\n', ["simd/v.h:2: kernels/simd may not include kernels/."]),
        "src/tandem/kernels/k.h": ('#pragma once\n#include "tandem/kernels/simd/v.h"\n', []),
        "src/tandem/comm/d.hpp": ('#include "tandem/nn/d.h"\n', ["comm/d.hpp:1: a header without", "comm/d.hpp:1: comm may not include nn"]),
        "src/tandem/comm/node/c_test.cc": ('#include "tandem/comm/collectives/b.h"\n', []),
        "src/tandem/nn/d.cc": ('int main() { return getenv("HOME") != 0; }\n', ["nn/d.cc:1: the environment is read"]),
        "src/tandem/text/e.cc": (
            '// std::cout << "prose"\nvoid f() { std::cout << 1; }\nvoid g() { std::exit(1); }\n',
            ["text/e.cc:2: libraries neither print", "text/e.cc:3: libraries neither print"],
        ),
        "src/tandem/data/f.cc": (
            '#include "apps/console.h"\nauto s = "printf(1)"; // exit(1)\nvoid g() { loop.exit(1); }\n',
            ["data/f.cc:1: a library includes"],
        ),
        "src/tandem/mystery/g.h": ("#pragma once\n", ["src/tandem/mystery: the folder is not in the table"]),
        "src/tandem/hub/wait.cc": (
            "void f() { ::poll(&wait, 1, 0); }\nvoid Worker::poll() { worker.poll(); }\nint g() { return ::ppoll(&wait, 1, &t, nullptr); }\nint h() { return poll(&wait, 1, 0); }\n",
            ["hub/wait.cc:1: descriptors and deadlines", "hub/wait.cc:3: descriptors and deadlines", "hub/wait.cc:4: descriptors and deadlines"],
        ),
        "src/tandem/net/event_loop.cc": ("void f() { ::poll(&wait, 1, 0); }\n", []),
        "src/tandem/hub/hub_test.cc": ('void f() { printf("tests may print"); }\n', []),
        "apps/main.cc": ('#include "tandem/trainer/x.h"\nvoid f() { printf("apps may print"); }\n', []),
        "apps/manual/page.cc": (
            '#include "apps/manual/x.h"\n#include "apps/arguments/x.h"\n',
            ["manual/page.cc:2: apps/manual may not include apps/arguments"],
        ),
        "apps/command/line.cc": ('#include "apps/x.h"\n', ["command/line.cc:1: apps/command may not include apps"]),
        "src/tandem/trainer/t.cc": ('#include "tandem/tasks/task.h"\n#include "tandem/tasks/toy/toy.h"\n', ['trainer/t.cc:2: "tandem/tasks/toy/toy.h" is one']),
        "src/tandem/trainer/t_test.cc": ('#include "tandem/tasks/toy/toy.h"\n', []),
        "src/tandem/tasks/toy/toy.cc": ('#include "tandem/tasks/toy/toy.h"\n', []),
        "src/tandem/quant/q.cc": ('#include "tandem/models/layers/toy/toy.h"\n', ['quant/q.cc:1: "tandem/models/layers/toy/toy.h" is one kind']),
        "src/tandem/models/families/toy.cc": ('#include "tandem/models/layers/toy/toy.h"\n', []),
        "src/tandem/core/json.h": ("#pragma once\n#include <nlohmann/json.hpp>\n", []),
        "src/tandem/core/slow.h": ("#pragma once\n#include <simdjson.h>\n", ["core/slow.h:2: <simdjson.h> takes seconds"]),
        "src/tandem/core/values.h": ('#pragma once\n#include "tandem/core/json.h"\n', ["core/values.h:2: <tandem/core/json.h> takes seconds"]),
        "src/tandem/core/names.h": ("#pragma once\n#include <nlohmann/json_fwd.hpp>\n", []),
        "src/tandem/core/slow.cc": ("#include <simdjson.h>\n#include <CLI/CLI.hpp>\n", []),
        "src/tandem/text/tokenizer_json.h": ("#pragma once\n#include <simdjson.h>\n", []),
        "src/tandem/optim/o.cc": ("#include <nlohmann/json.hpp>\n", ['optim/o.cc:1: include "tandem/core/json.h" instead']),
        "src/tandem/tasks/toy/page.cc": ('auto a = "<b>x</b>";\nauto b = "</s>";  // </b>\n', ["toy/page.cc:1: only report/ writes HTML"]),
        "src/tandem/report/page.cc": ('auto a = "<b>x</b>";\n', []),
        "apps/toys/x.cc": ("", ["apps/toys: the folder is not in the table"]),
    }
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        (root / "examples").mkdir()
        for name, (text, _) in planted.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        _, findings = check_tree(root)
    expected = [what for _, wanted in planted.values() for what in wanted]
    layers = {"core": [], "low": [], "high": ["low", "later"], "later": ["high", "low"], "absent": []}
    used = {(name, name) for name in layers if name != "absent"} | {("high", "low"), ("high", "later"), ("later", "high")}
    picture = "# x\n## Layers\n```\nlater  last  high low\nhigh   second   low\ncore   the first\nold   gone   core\nlow  b\n```\n"
    findings += [*check_table(layers, used), *check_document(layers, picture)]
    expected += [
        "high → later: a line names only",
        "later → low: no file uses",
        "absent: no such folder",
        "absent is not in the table of docs",
        "old is not in the table of layers",
        "the edges of high are others than those checked: later",
    ]
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
    findings += check_picture(root)
    for finding in findings:
        print(finding)
    print(f"check_layers: {count} files, {len(findings)} findings")
    return 1 if findings or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
