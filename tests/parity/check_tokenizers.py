#!/usr/bin/env python3
"""Fuzzed texts give the same tokens in tandem and in the package `tokenizers`.

    check_tokenizers.py TANDEM [--texts N] [MODEL...]

For each model directory (default: those of tests/parity/golden and examples/demo, and ../shared's if they are there) N texts and N/4 lists of words from fixed seeds go through `tandem inspect tokens`
and through the package, which reads the same tokenizer.json; ids, offsets and words must be equal. Runs itself again with the Python of build/test-data/venv (scripts/fetch_python_packages.sh); exits
77, which means skipped, when that is absent.
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
VENV_PYTHON = ROOT / "build/test-data/venv/bin/python"

try:
    import tokenizers
except ImportError:
    if not VENV_PYTHON.exists() or os.environ.get("TANDEM_CHECK_IN_VENV"):
        print("SKIPPED: needs the package tokenizers: run scripts/fetch_python_packages.sh")
        sys.exit(77)
    os.execve(VENV_PYTHON, [str(VENV_PYTHON), *sys.argv], {**os.environ, "TANDEM_CHECK_IN_VENV": "1"})

MODELS = [
    ROOT / "examples/demo/model",
    *(ROOT / "tests/parity/golden/tokenizers" / name for name in ("deberta", "deberta_5", "modernbert", "roberta", "xlmr", "xlmr_older")),
    ROOT.parent / "shared/data/golden/next/tokenizers/deberta-v3",
    *(ROOT.parent / "shared/data/golden/tasks/models" / name for name in ("tiny-electra", "tiny-roberta", "tiny-xlmr", "tiny-xlmr-hub")),
    ROOT / "build/test-data/minilm",
]

# Ranges from which characters are drawn, and how often. Up to Unicode 15, which tandem's ICU knows.
RANGES = [
    (12, 0x20, 0x7E),
    (3, 0, 0x1F),
    (3, 0x7F, 0xFF),
    (2, 0x100, 0x24F),
    (4, 0x300, 0x36F),
    (2, 0x370, 0x52F),
    (2, 0x590, 0x6FF),
    (2, 0x900, 0xDFF),
    (1, 0xE00, 0xFFF),
    (2, 0x1100, 0x11FF),
    (2, 0x1E00, 0x1FFF),
    (4, 0x2000, 0x206F),
    (3, 0x2070, 0x218F),
    (2, 0x2400, 0x26FF),
    (1, 0x2E80, 0x30FF),
    (2, 0x3000, 0x33FF),
    (2, 0x4E00, 0x9FFF),
    (2, 0xA000, 0xD7FF),
    (1, 0xE000, 0xF8FF),
    (2, 0xF900, 0xFDFF),
    (3, 0xFE00, 0xFE2F),
    (3, 0xFE30, 0xFFFF),
    (1, 0x10000, 0x1FFFF),
    (3, 0x1F1E6, 0x1F1FF),
    (4, 0x1F300, 0x1FAFF),
    (1, 0x20000, 0x2A6DF),
    (1, 0xE0000, 0x10FFFF),
]
PIECES = [
    " ",
    "  ",
    "   ",
    "\n",
    "\r\n",
    "\t",
    "\u00a0",
    "\u200d",
    "\ufe0f",
    "\u0301",
    "e\u0301",
    "'s",
    "'re",
    "'ll",
    "<mask>",
    " <mask> ",
    "<s>",
    "</s>",
    "<pad>",
    "[MASK]",
    "[SEP]",
    "\u2581",
    "\u0120",
    "the",
    " of",
    "ing",
    "tion",
    "Hello",
    "World",
    "123",
    "4,5",
    "...",
    "\u4e2d\u6587",
    "\ufb01",
    "\u00bd",
    "\ufdfa",
    "\u3000",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\U0001f1eb\U0001f1f7",
    "\uac00\u11a8",
    "\u0928\u094d\u0924",
    "\u212b",
    "\u0130",
    "\u1e9e",
]


def random_text(rng, most):
    parts = []
    for _ in range(rng.randrange(most)):
        if rng.random() < 0.4:
            parts.append(rng.choice(PIECES))
        else:
            _, low, high = rng.choices(RANGES, [weight for weight, _, _ in RANGES])[0]
            c = rng.randint(low, high)
            parts.append(chr(c) if not 0xD800 <= c < 0xE000 else " ")
    text = "".join(parts)
    return text * rng.randrange(2, 40) if rng.random() < 0.03 else text  # some long words


def expected(tokenizer, text):
    encoding = tokenizer.encode(text, is_pretokenized=isinstance(text, list))
    return {"input_ids": encoding.ids, "offsets": [list(offsets) for offsets in encoding.offsets], "word_ids": encoding.word_ids}


def check(tandem, model, texts, prefix_space):
    content = json.loads((model / "tokenizer.json").read_text(encoding="utf-8"))
    content["truncation"] = content["padding"] = None
    if prefix_space:
        content["pre_tokenizer"]["add_prefix_space"] = content["post_processor"]["add_prefix_space"] = True
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(content))
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        file.writelines(json.dumps(text) + "\n" for text in texts)
        file.flush()
        command = [tandem, "inspect", "tokens", "--json", "--model", str(model), "--file", file.name] + (["--add_prefix_space"] if prefix_space else [])
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return [f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-1000:]}"]
    lines = done.stdout.splitlines()
    findings = [] if len(lines) == len(texts) else [f"{len(lines)} lines for {len(texts)} texts"]
    for text, line in zip(texts, map(json.loads, lines)):
        want = expected(tokenizer, text)
        different = [key for key in want if line[key] != want[key]]
        if different:
            findings.append(f"{ascii(text)}: {different[0]} is {line[different[0]]}, expected {want[different[0]]}")
    return findings


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tandem")
    parser.add_argument("models", nargs="*", type=pathlib.Path, default=MODELS)
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    count = failed = 0
    for model in options.models:
        if not (model / "tokenizer.json").exists():
            print(f"{model} is not there")
            continue
        rng = random.Random(options.seed)
        texts = [random_text(rng, 40) for _ in range(options.texts)]
        texts += [[random_text(rng, 6) for _ in range(rng.randrange(8))] for _ in range(options.texts // 4)]
        byte_level = json.loads((model / "tokenizer.json").read_text(encoding="utf-8"))["model"].get("type") == "BPE"
        for prefix_space in (False, True) if byte_level else (False,):
            findings = check(str(pathlib.Path(options.tandem).resolve()), model, texts, prefix_space)
            count += len(texts)
            failed += len(findings)
            for finding in findings[:3]:
                print(f"{model.name}{' with a space in front' if prefix_space else ''}: {finding[:1500]}")
    print(f"check_tokenizers: {count} texts compared with tokenizers {tokenizers.__version__}, {failed} findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
