#!/usr/bin/env python3
"""Runs every command of docs/guide but those that install, and checks that the three languages have the same ones.

    check_guides.py TANDEM

The commands run as they stand, in a folder where the guides' names are directories with the demo's model and some of its questions, and where the
host file names this machine. Only one thing is changed, by the `mpirun` of the folder: the guides' 23 threads of a rank become 1. Exits 77
(skipped) without MPICH's launcher. Two real hosts are the matter of tests/multihost.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
LANGUAGES = ("en", "zh", "ja")
DEMO = ROOT / "examples/demo"


def commands(language):
    text = (ROOT / f"docs/guide/{language}.md").read_text(encoding="utf-8")
    return [re.findall(rf"```{kind}\n(.*?)```", text, re.S) for kind in ("bash", "text", "sh")]


def problem_of_install(language, blocks):
    """Facts that a newcomer needs: the way to install with scripts that exist, and that the first run downloads, how much and where to."""
    text = (ROOT / f"docs/guide/{language}.md").read_text(encoding="utf-8")
    missing = [word for word in ("1.3 GB", "~/.cache/huggingface", "HF_HOME", "HF_ENDPOINT") if word not in text]
    if missing:
        return f"does not mention {missing}"
    install = "".join(blocks)
    scripts = re.findall(r"scripts/\S+", install)
    absent = [script for script in scripts if not (ROOT / script).is_file()]
    if absent or not scripts or "--component program" not in install or "COMPONENT program" not in (ROOT / "apps/CMakeLists.txt").read_text():
        return f"installs with what is not there: {absent or install}"
    return None


def some_questions(source, count):
    data = json.loads(source.read_text())
    paragraphs = [paragraph for article in data["data"] for paragraph in article["paragraphs"]][:count]
    return {**data, "data": [{"title": "some", "paragraphs": paragraphs}]}


def prepare(folder, tandem, launcher):
    model = folder / "google-bert/bert-large-uncased"
    shutil.copytree(DEMO / "model", model)
    (folder / "squad").mkdir()
    for source, name, count in (("train.json", "train.json", 40), ("held_out.json", "validation.json", 20)):
        (folder / "squad" / name).write_text(json.dumps(some_questions(DEMO / source, count)))
    (folder / "hostfile").write_text("localhost\n")
    (folder / "examples").symlink_to(ROOT / "examples")
    tools = folder / "bin"
    tools.mkdir()
    (tools / "tandem").symlink_to(tandem)
    (tools / "mpirun").write_text(f'#!/bin/bash\nexec "{launcher}" "${{@/OMP_NUM_THREADS=23/OMP_NUM_THREADS=1}}"\n')
    (tools / "mpirun").chmod(0o755)
    return tools


def problem_of_labels(folder, output):
    """The demo's texts and words are learnt: names that training did not have are found, and so is a sentence's topic."""
    scores = {name: json.loads((folder / name / "eval_results.json").read_text()) for name in ("topics", "names")}
    if scores["topics"]["eval_accuracy"] < 0.9 or scores["names"]["eval_f1"] < 0.6:
        return f"nothing was learnt: {scores}"
    if not re.search(r"^port\b", output, re.M) or not re.search(r"^Melqueen\s+B-ship\b", output, re.M):
        return "tandem predict found neither that it is about a port nor the ship"
    return None


def main():
    launcher = shutil.which("mpiexec.hydra") or shutil.which("mpirun.mpich")
    if launcher is None:
        print("SKIPPED: needs MPICH's mpiexec.hydra (apt install mpich)")
        return 77
    blocks = {language: commands(language) for language in LANGUAGES}
    for language in LANGUAGES[1:]:
        if blocks[language] != blocks["en"]:
            print(f"docs/guide/{language}.md has other commands than docs/guide/en.md")
            return 1
    for language in LANGUAGES:
        if problem := problem_of_install(language, blocks[language][2]):
            print(f"docs/guide/{language}.md {problem}")
            return 1
    scripts = blocks["en"][0]
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        tools = prepare(folder, pathlib.Path(sys.argv[1]).resolve(), launcher)
        environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        outputs = []
        for number, script in enumerate(scripts, 1):
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=200)
            outputs.append(done.stdout)
            if done.returncode:
                print(f"block {number} of docs/guide/en.md ended with {done.returncode}:\n{script}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}")
                return 1
            if "run_qa" in script:
                expected = script.count("-n 4") * 4 or script.count("-n 2") * 2 or 1
                reported = re.search(r"ranks: +(\d+) ranks on", done.stdout)
                ranks = int(reported[1]) if reported else 1
                if ranks != expected:
                    print(f"block {number}: {ranks} ranks, expected {expected}")
                    return 1
        left = {path.name for path in (folder / "debug_squad").iterdir()}
        missing = {"model.safetensors", "config.json", "eval_results.json", "report.html", "README.md", "runs"} - left
        if missing or not any("(probability " in output for output in outputs):
            print(f"debug_squad lacks {sorted(missing)}; the blocks printed:\n{outputs}")
            return 1
        if problem := problem_of_labels(folder, outputs[-1]):
            print(f"{problem}; the last block printed:\n{outputs[-1]}")
            return 1
    print(f"check_guides: {len(scripts)} blocks of commands ran, the same in {len(LANGUAGES)} languages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
