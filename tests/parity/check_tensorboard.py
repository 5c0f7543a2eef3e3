#!/usr/bin/env python3
"""The official `tensorboard` package reads the events that tandem writes.

    check_tensorboard.py TANDEM

Trains the demo model for some steps with `--report_to tensorboard`, evaluating on the way and at the end, and checks what TensorBoard's own
reader finds: the tags of transformers' TensorBoardCallback, every value of trainer_state.json's log_history at its step, the texts. Then the ranks that write die one after another in an
elastic job: every entry is there once. Runs itself again with the Python of build/test-data/venv (scripts/fetch_python_packages.sh); exits 77, which means skipped, when that is absent.
"""

import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO = ROOT / "examples/demo"
VENV_PYTHON = ROOT / "build/test-data/venv/bin/python"

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    if not VENV_PYTHON.exists() or os.environ.get("TANDEM_CHECK_IN_VENV"):
        print("SKIPPED: needs the package tensorboard: run scripts/fetch_python_packages.sh")
        sys.exit(77)
    os.execve(VENV_PYTHON, [str(VENV_PYTHON), *sys.argv], {**os.environ, "TANDEM_CHECK_IN_VENV": "1"})


def tag(key):
    for prefix in ("eval_", "test_"):
        if key.startswith(prefix):
            return f"{prefix[:-1]}/{key[len(prefix) :]}"
    return f"train/{key}"


def scalars_of(directory, name):
    reader = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    reader.Reload()
    return [(event.step, event.value) for event in reader.Scalars(name)]


def kill_who_writes(tandem, output, expect):
    """A resumed job writes the log again from its beginning: a lost host may take the newest entries of its file along."""
    runs = output / "runs"
    logged = output.with_name("stderr")
    job = subprocess.Popen(
        [
            tandem,
            "run",
            "--standalone",
            "--nproc-per-node",
            "2",
            "run_qa.py",
            "--model_name_or_path",
            DEMO / "model",
            "--train_file",
            DEMO / "train.json",
            "--output_dir",
            output,
            "--do_train",
            "--max_train_samples",
            "200",
            "--max_steps",
            "300",
            "--logging_steps",
            "5",
            "--save_strategy",
            "no",
            "--max_seq_length",
            "128",
            "--doc_stride",
            "32",
            "--report_to",
            "tensorboard",
            "--logging_dir",
            runs,
        ],
        stdout=subprocess.DEVNULL,
        stderr=logged.open("w"),
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 120
    for files in (1, 2):
        while (
            job.poll() is None
            and time.monotonic() < deadline
            and not any(file.read_bytes().count(b"train/loss") >= 4 * files for file in sorted(runs.glob("*"))[files - 1 :])
        ):
            time.sleep(0.01)
        if job.poll() is not None:
            expect(
                False,
                f"the elastic job ended with {job.returncode} before its writer was killed for the {files}. time; files {sorted(os.listdir(runs))}:\n{logged.read_text()}",
            )
            return
        workers = pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
        writer = next(pid for pid in workers if any(link.startswith(str(runs)) for link in links_of(pid)))
        cut = sorted(runs.glob("*"))[-1]  # files are named in the order in which they are begun
        os.kill(int(writer), signal.SIGKILL)
        os.truncate(cut, 2048)  # as if its newest pages had not come to the file server
    expect(job.wait(120) == 0, f"the elastic job failed with {job.returncode}:\n{logged.read_text()}")
    history = json.loads((output / "trainer_state.json").read_text())["log_history"]
    expected = [(entry["step"], entry["loss"]) for entry in history if "loss" in entry]
    found = scalars_of(runs, "train/loss")
    expect(
        len(expected) == 60 and [step for step, _ in found] == [step for step, _ in expected], f"train/loss of an elastic job at {[step for step, _ in found]}"
    )
    expect(all(math.isclose(a, b, rel_tol=1e-6) for (_, a), (_, b) in zip(found, expected)), "train/loss of an elastic job")
    expect(len(list(runs.glob("*"))) > 2, "no rank wrote that had not written before")


def links_of(pid):
    for link in pathlib.Path(f"/proc/{pid}/fd").glob("*"):
        try:
            yield os.readlink(link)
        except OSError:  # it has just been closed
            pass


def main():
    findings = []

    def expect(condition, what):
        if not condition:
            findings.append(what)

    with tempfile.TemporaryDirectory() as scratch:
        output = pathlib.Path(scratch) / "out"
        subprocess.run(
            [
                sys.argv[1],
                "run_qa",
                "--model_name_or_path",
                DEMO / "model",
                "--train_file",
                DEMO / "train.json",
                "--validation_file",
                DEMO / "held_out.json",
                "--output_dir",
                output,
                "--do_train",
                "--do_eval",
                "--max_train_samples",
                "40",
                "--max_eval_samples",
                "20",
                "--max_steps",
                "8",
                "--logging_steps",
                "2",
                "--eval_strategy",
                "steps",
                "--eval_steps",
                "4",
                "--save_strategy",
                "no",
                "--max_seq_length",
                "128",
                "--doc_stride",
                "32",
                "--report_to",
                "tensorboard",
            ],
            check=True,
            capture_output=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        [events] = output.glob("runs/*/events.out.tfevents.*")
        reader = EventAccumulator(str(events.parent), size_guidance={"scalars": 0, "tensors": 0})
        reader.Reload()
        scalars = {name: {event.step: event.value for event in reader.Scalars(name)} for name in reader.Tags()["scalars"]}
        texts = {name: reader.Tensors(name)[0].tensor_proto.string_val[0].decode() for name in reader.Tags()["tensors"]}

        history = json.loads((output / "trainer_state.json").read_text())["log_history"]
        expected = 0
        for entry in history:
            for key in entry:
                # The last evaluation is done twice, with the same answers in another time.
                if key == "step" or key.startswith("eval_") and key.endswith(("_runtime", "_per_second")):
                    continue
                expected += 1
                found = scalars.get(tag(key), {}).get(entry["step"])
                # The last step has several entries: the log of the step, an evaluation and the end of training; the last one of a tag counts.
                later = [other for other in history if other["step"] == entry["step"] and key in other][-1][key]
                expect(
                    found is not None and math.isclose(found, later, rel_tol=1e-6, abs_tol=1e-30),
                    f"{tag(key)} at step {entry['step']} is {found}, expected {later}",
                )
        for name in ("train/loss", "train/grad_norm", "train/learning_rate", "train/epoch", "train/train_loss", "eval/f1", "eval/exact_match", "eval/runtime"):
            expect(name in scalars, f"there is no {name}; there are {sorted(scalars)}")
        expect(sorted(scalars["train/loss"]) == [2, 4, 6, 8], f"train/loss at {sorted(scalars['train/loss'])}")
        expect(sorted(scalars["eval/f1"]) == [4, 8], f"eval/f1 at {sorted(scalars['eval/f1'])}")
        results = json.loads((output / "eval_results.json").read_text())
        expect(math.isclose(scalars["eval/f1"][8], results["eval_f1"], rel_tol=1e-6), "eval/f1 is not that of eval_results.json")
        expect(sorted(texts) == ["args/text_summary", "model_config/text_summary"], f"the texts are {sorted(texts)}")
        expect(json.loads(texts["args/text_summary"])["max_steps"] == 8, "args does not hold max_steps")
        expect(json.loads(texts["model_config/text_summary"])["model_type"] == "bert", "model_config does not hold model_type")

    with tempfile.TemporaryDirectory() as scratch:
        kill_who_writes(sys.argv[1], pathlib.Path(scratch) / "out", expect)

    for finding in findings:
        print(finding)
    print(f"check_tensorboard: {len(scalars)} tags, {expected} values, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
