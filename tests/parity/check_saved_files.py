#!/usr/bin/env python3
"""The official `safetensors` and `tokenizers` packages read what tandem wrote.

    check_saved_files.py TANDEM

Trains the demo model and the small DistilBERT for two steps, then checks of the saved directory and of its checkpoint: every tensor as
`safetensors` reads it has the bytes that `tandem inspect weights` reports, the header has format pt, and `tokenizers` gives the
token ids and offsets of the goldens. Runs itself again with the Python of build/test-data/venv (scripts/fetch_python_packages.sh);
exits 77, which means skipped, when that is absent.
"""

import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/parity/golden"
VENV_PYTHON = ROOT / "build/test-data/venv/bin/python"

try:
    import numpy
    import safetensors.numpy
    import tokenizers
except ImportError:
    if not VENV_PYTHON.exists() or os.environ.get("TANDEM_CHECK_IN_VENV"):
        print("SKIPPED: needs the packages numpy, safetensors and tokenizers: run scripts/fetch_python_packages.sh")
        sys.exit(77)
    os.execve(VENV_PYTHON, [str(VENV_PYTHON), *sys.argv], {**os.environ, "TANDEM_CHECK_IN_VENV": "1"})

findings = []


def expect(condition, what):
    if not condition:
        findings.append(what)


def check_weights(tandem, folder):
    path = folder / "model.safetensors"
    with safetensors.safe_open(path, framework="numpy") as file:
        expect((file.metadata() or {}).get("format") == "pt", f"{path}: the metadata has no format pt: {file.metadata()}")
    tensors = safetensors.numpy.load_file(path)
    lines = subprocess.run([tandem, "inspect", "weights", folder], check=True, capture_output=True, text=True).stdout.splitlines()
    reported = {line["name"]: line for line in map(json.loads, lines)}
    expect(tensors.keys() == reported.keys(), f"{path}: other tensors than reported: {sorted(tensors.keys() ^ reported.keys())}")
    for name in tensors.keys() & reported.keys():
        tensor, line = tensors[name], reported[name]
        expect(tensor.dtype == numpy.float32 and line["dtype"] == "F32", f"{path}: {name} is {tensor.dtype}, reported {line['dtype']}")
        expect(list(tensor.shape) == line["shape"], f"{path}: {name} has the shape {tensor.shape}, reported {line['shape']}")
        expect(hashlib.sha256(tensor.tobytes()).hexdigest() == line["sha256"], f"{path}: {name} has other bytes than reported")
        expect(numpy.isfinite(tensor).all(), f"{path}: {name} is not finite")
    return len(tensors)


def check_tokenizer(folder):
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    cases = json.loads((GOLDEN / "tokens.json").read_text(encoding="utf-8"))["cases"]
    for case in cases:
        encoding = tokenizer.encode(case["text"])
        expect(encoding.ids == case["input_ids"], f"{folder}: other ids for {case['text']!r}: {encoding.ids}, golden {case['input_ids']}")
        expect([list(o) for o in encoding.offsets] == case["offsets"], f"{folder}: other offsets for {case['text']!r}")
    return len(cases)


def main():
    tandem = str(pathlib.Path(sys.argv[1]).resolve())
    tensors = texts = 0
    for name, model in (("bert", ROOT / "examples/demo/model"), ("distilbert", GOLDEN / "distilbert")):
        with tempfile.TemporaryDirectory() as scratch:
            out = pathlib.Path(scratch) / "out"
            job = [
                tandem,
                "run_qa",
                "--model_name_or_path",
                model,
                "--train_file",
                ROOT / "examples/demo/train.json",
                "--do_train",
                "--max_steps",
                "2",
                "--save_steps",
                "2",
                "--max_train_samples",
                "32",
                "--max_seq_length",
                "96",
                "--doc_stride",
                "32",
                "--output_dir",
                out,
            ]
            done = subprocess.run(list(map(str, job)), capture_output=True, text=True)
            expect(done.returncode == 0, f"{name}: run_qa ended with {done.returncode}: {done.stderr[-2000:]}")
            if done.returncode:
                continue
            for folder in (out, out / "checkpoint-2"):
                tensors += check_weights(tandem, folder)
                texts += check_tokenizer(folder)
    for finding in findings[:20]:
        print(finding)
    print(f"check_saved_files: {tensors} tensors and {texts} texts checked, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
