"""Shared by the checks of pods, volumes, clusters and images: verdicts, commands, agents, waits."""

import json
import os
import pathlib
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO = ROOT / "examples/demo"
GUIDES = ROOT.parent / "shared/data/guides"


class Skipped(Exception):
    """Why nothing can be shown here."""


class Failed(Exception):
    """The list of faults."""


def verdict(name, check):
    """Runs check(), which returns the message of success; an exit code. 77 is for skipped."""
    try:
        print(f"{name}: {check()}")
        return 0
    except Skipped as reason:
        print(f"SKIPPED: {reason}")
        return 77
    except Failed as problem:
        print(f"{name}: {problem}")
        return 1


class Scratch:
    """A folder whose mounts and files are gone at the end of the block."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        path = pathlib.Path(self.folder.name)
        path.chmod(0o755)
        return path

    def __exit__(self, *_):
        for line in reversed(pathlib.Path("/proc/mounts").read_text().splitlines()):
            if line.split(" ")[1].startswith(self.folder.name):
                call("umount", "-l", line.split(" ")[1])
        self.folder.cleanup()


def call(*words, timeout=60, **options):
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=timeout, check=False, **options)


def must(*words, error=Failed, **options):
    """The output of a command that succeeds."""
    done = call(*words, **options)
    if done.returncode:
        raise error(f"{' '.join(map(str, words))[:300]}: ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:].strip()}")
    return done.stdout


def expect(text, *wanted):
    for word in wanted:
        if word not in text:
            raise Failed(f"expected '{word}' in:\n{text[-3000:]}")


def wait_for(condition, what, seconds=90, reported=lambda: ""):
    """Until condition(); told() adds details if it takes too long."""
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            raise Failed(f"waited {seconds} s for {what}, which did not come:\n{reported()[-6000:]}")
        time.sleep(0.05)


def questions(source, count):
    data = json.loads(source.read_text())
    paragraphs = [paragraph for article in data["data"] for paragraph in article["paragraphs"]][:count]
    return json.dumps({**data, "data": [{"title": "some", "paragraphs": paragraphs}]})


def many_questions():
    """A file whose features are worth keeping: some megabytes, of which a job takes few questions."""
    data = json.loads((DEMO / "train.json").read_text())

    def copy(number):
        text = json.dumps(data["data"])
        return json.loads(text.replace('"id": "', f'"id": "{number}-'))

    return json.dumps({**data, "data": [article for number in range(5) for article in copy(number)]})


def job_flags(output, *more, steps=100000):
    return [
        "--model_name_or_path",
        DEMO / "model",
        "--train_file",
        DEMO / "train.json",
        "--do_train",
        "--max_steps",
        steps,
        "--per_device_train_batch_size",
        "4",
        "--max_seq_length",
        "128",
        "--doc_stride",
        "32",
        "--max_train_samples",
        "100",
        "--logging_steps",
        "2",
        "--save_steps",
        "2",
        "--output_dir",
        output,
        *more,
    ]


def environment(more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KUBE", "TANDEM_", "PET_", "HF_"))}
    return {**kept, "OMP_NUM_THREADS": "1", "TANDEM_FEATURE_CACHE": "off", **more}


class Process:
    """A program with its log in a file. It is ended with the block."""

    def __init__(self, folder, name, *words, more=None):
        self.name = name
        self.log = folder / f"{name}.log"
        with open(self.log, "w", encoding="utf-8") as file:
            self.process = subprocess.Popen(list(map(str, words)), env=environment(more or {}), stdout=file, stderr=file)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def text(self):
        return self.log.read_text(errors="replace")

    def wait_for(self, condition, what, seconds=90):
        wait_for(lambda: condition() or self.process.poll() is not None, f"{what} ({self.name})", seconds, self.text)
        if not condition():
            raise Failed(f"{self.name}: it ended before {what}:\n{self.text()[-2500:]}")

    def end(self, code, *logged, seconds=90):
        """Waits for its end, and compares exit code and words; returns its output in one line."""
        wait_for(lambda: self.process.poll() is not None, f"the end of {self.name}", seconds, self.text)
        found = self.process.returncode
        text = " ".join(self.text().split())
        missing = [words for words in logged if words not in text]
        if found != code or missing:
            raise Failed(f"{self.name}: ended with {found}, expected {code} and {missing} in:\n{self.text()[-2500:]}")
        return text
