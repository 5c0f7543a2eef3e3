#!/usr/bin/env python3
"""Models go from tandem to transformers and back with the same logits.

    hf_roundtrip.py TANDEM        with a Python that has torch and transformers

1. tandem fine-tunes the demo BERT and the small DistilBERT; transformers loads each saved directory (no missing and no unexpected
   tensors) and evaluates the held-out questions.
2. transformers saves a BERT and a DistilBERT for question answering; tandem evaluates them.
Compared are, for version 1 and version 2, the answers, the null odds and the n-best lists, which carry the logits: the texts must be equal and the
logits within 2e-5 (docs/numerics.md).
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer, set_seed

import hf_reference as reference

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO = ROOT / "examples/demo"
MODELS = {"bert": DEMO / "model", "distilbert": ROOT / "tests/parity/golden/distilbert"}
MAX_LENGTH, STRIDE, N_BEST = 96, 32, 5
LOGIT_TOLERANCE = 2e-5


def run_qa(tandem, *flags):
    command = [tandem, "run_qa", "--max_seq_length", MAX_LENGTH, "--doc_stride", STRIDE, "--pad_to_max_length", "true", "--n_best_size", N_BEST, *flags]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stderr[-3000:]}")


def load(folder):
    """The model in f32, and what loading it complained about."""
    model, info = AutoModelForQuestionAnswering.from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
    return model.eval(), [f"{kind}: {sorted(names)}" for kind, names in info.items() if names]


def results_of(model, folder, v2, n_best=N_BEST):
    """(answers, n-best lists, null odds) of the held-out questions with the tokenizer of the folder."""
    tokenizer = AutoTokenizer.from_pretrained(folder, use_fast=True)
    rows = reference.read_squad(DEMO / "held_out.json")
    feats = reference.features(tokenizer, rows, MAX_LENGTH, STRIDE, True)
    names = ["input_ids", "attention_mask"] + (["token_type_ids"] if model.config.model_type == "bert" else [])
    start, end = [], []
    with torch.no_grad():
        for low in range(0, len(feats), 32):
            output = model(**{name: torch.tensor([f[name] for f in feats[low : low + 32]]) for name in names})
            start += list(output.start_logits.numpy())
            end += list(output.end_logits.numpy())
    return reference.postprocess(rows, feats, start, end, v2=v2, n_best=n_best)


def compare(name, folder, tandem_output, v2):
    model, complaints = load(folder)
    answers, theirs, odds = results_of(model, folder, v2)
    ours = json.loads((tandem_output / "eval_nbest_predictions.json").read_text())
    our_answers = json.loads((tandem_output / "eval_predictions.json").read_text())
    worst, texts, total = 0.0, 0, 0
    for key in theirs:
        for a, b in zip(theirs[key], ours[key], strict=True):
            total += 1
            texts += a["text"] == b["text"]
            if a["text"] == b["text"]:
                worst = max(worst, abs(a["start_logit"] - b["start_logit"]), abs(a["end_logit"] - b["end_logit"]))
    good = not complaints and texts == total and worst <= LOGIT_TOLERANCE and our_answers == answers
    if v2:  # odds are sums of four logits
        our_odds = json.loads((tandem_output / "eval_null_odds.json").read_text())
        good &= our_odds.keys() == odds.keys() and all(abs(our_odds[key] - odds[key]) <= 4 * LOGIT_TOLERANCE for key in odds)
    print(
        f"{name}, {'v2' if v2 else 'v1'}: {texts} of {total} n-best texts equal, largest difference of a logit {worst:.2e}"
        f"{'; ' + '; '.join(complaints) if complaints else ''}: {'ok' if good else 'WRONG'}",
        flush=True,
    )
    return good


def main():
    tandem, good = pathlib.Path(sys.argv[1]).resolve(), True
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        for name, model in MODELS.items():
            out = scratch / f"tandem-{name}"
            run_qa(
                tandem,
                "--model_name_or_path",
                model,
                "--do_train",
                "--train_file",
                DEMO / "train.json",
                "--do_eval",
                "--validation_file",
                DEMO / "held_out.json",
                "--max_steps",
                60,
                "--learning_rate",
                1e-3,
                "--per_device_train_batch_size",
                16,
                "--save_strategy",
                "no",
                "--output_dir",
                out,
            )
            good &= compare(f"tandem → transformers, {name}", out, out, False)
            again = scratch / f"tandem-{name}-v2"
            run_qa(
                tandem,
                "--model_name_or_path",
                out,
                "--do_eval",
                "--validation_file",
                DEMO / "held_out.json",
                "--version_2_with_negative",
                "--output_dir",
                again,
            )
            good &= compare(f"tandem → transformers, {name}", out, again, True)
        for name, model in MODELS.items():
            set_seed(7)
            saved, out = scratch / f"transformers-{name}", scratch / f"evaluated-{name}"
            trained = AutoModelForQuestionAnswering.from_pretrained(model, dtype=torch.float32)
            torch.nn.init.normal_(trained.qa_outputs.weight, std=0.5)  # logits of several units
            trained.save_pretrained(saved)
            AutoTokenizer.from_pretrained(model, use_fast=True).save_pretrained(saved)
            for v2 in (False, True):
                run_qa(
                    tandem,
                    "--model_name_or_path",
                    saved,
                    "--do_eval",
                    "--validation_file",
                    DEMO / "held_out.json",
                    *(["--version_2_with_negative"] if v2 else []),
                    "--output_dir",
                    out,
                )
                good &= compare(f"transformers → tandem, {name}", saved, out, v2)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
