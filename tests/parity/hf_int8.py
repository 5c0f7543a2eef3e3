#!/usr/bin/env python3
"""transformers with the package compressed-tensors reads int8 models that tandem wrote, and tandem reads what transformers saves of them.

    hf_int8.py TANDEM        with a Python that has torch, transformers and compressed-tensors

tandem fine-tunes the demo BERT and the small DistilBERT and quantizes both, static and dynamic. For each int8 directory:
1. AutoModelForQuestionAnswering.from_pretrained loads it without missing or unexpected tensors, and every quantized module has the bytes of the file.
2. It evaluates the held-out questions in f32 as that package computes int8 models (weights and inputs rounded to their grid, products in floats). The
   logits are compared with tandem's: a value that lies between two steps of the grid may be rounded to the other one, which moves logits a little, so
   the mean difference must be at most a tenth of what quantization itself changed, and the best answers must be equal for 97 % of the questions.
3. transformers saves the loaded model, and tandem evaluates that directory with exactly the answers and logits of its own.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer

from hf_roundtrip import DEMO, MAX_LENGTH, MODELS, STRIDE, load, results_of

N_BEST = 20
FLAGS = [
    "--max_seq_length",
    MAX_LENGTH,
    "--doc_stride",
    STRIDE,
    "--pad_to_max_length",
    "true",
    "--n_best_size",
    N_BEST,
    "--validation_file",
    DEMO / "held_out.json",
    "--do_eval",
]


def run_qa(tandem, *flags):
    command = [tandem, "run_qa", *FLAGS, *flags]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stderr[-3000:]}")


def stored_bytes_differ(model, folder):
    """Quantized tensors of the loaded model that are not those of the file."""
    stored, loaded = load_file(folder / "model.safetensors"), model.state_dict()
    names = [name for name in stored if name.endswith((".weight_scale", ".input_scale", ".input_zero_point")) or stored[name].dtype == torch.int8]
    return len(names), [name for name in names if name not in loaded or not torch.equal(loaded[name], stored[name])]


def read_nbest(folder):
    return json.loads((folder / "eval_nbest_predictions.json").read_text())


def difference(a, b):
    """(mean difference of the logits of candidates that both lists have, share of questions with the same best answer)"""
    total, count, same = 0.0, 0, 0
    for key in a:
        same += a[key][0]["text"] == b[key][0]["text"]
        # A text may come from several places: the better one counts, as it comes first.
        others = {}
        for candidate in b[key]:
            others.setdefault(candidate["text"], candidate)
        for candidate in a[key][:5]:
            other = others.get(candidate["text"])
            if other is not None:
                total += abs(candidate["start_logit"] - other["start_logit"]) + abs(candidate["end_logit"] - other["end_logit"])
                count += 2
    return total / count, same / len(a)


def check(tandem, name, approach, f32, scratch):
    folder, again = scratch / f"{name}-{approach}", scratch / f"{name}-{approach}-again"
    run_qa(
        tandem,
        "--model_name_or_path",
        f32,
        "--apply_quantization",
        "--quantization_approach",
        approach,
        "--tolerance_criterion",
        1,
        *(["--do_train", "--train_file", DEMO / "train.json"] if approach == "static" else []),
        "--output_dir",
        folder,
    )
    model, complaints = load(folder)
    tensors, differing = stored_bytes_differ(model, folder)
    ours = read_nbest(folder)
    theirs_mean, theirs_same = difference(ours, results_of(model, folder, False, N_BEST)[1])
    f32_mean, f32_same = difference(ours, read_nbest(f32))

    saved = scratch / f"{name}-{approach}-saved"
    load(folder)[0].save_pretrained(saved)
    AutoTokenizer.from_pretrained(folder, use_fast=True).save_pretrained(saved)
    run_qa(tandem, "--model_name_or_path", saved, "--output_dir", again)
    equal_again = read_nbest(again) == ours

    good = not complaints and not differing and theirs_mean <= 0.1 * f32_mean and theirs_same >= 0.97 and equal_again
    print(
        f"{name}, {approach}: {tensors} quantized tensors, {len(differing)} differ; logits differ by {theirs_mean:.2e} in the mean ({f32_mean:.2e} between "
        f"int8 and f32), best answers equal {theirs_same:.1%} ({f32_same:.1%}); saved by transformers and read by tandem: "
        f"{'equal' if equal_again else 'DIFFERENT'}{'; ' + '; '.join(complaints) if complaints else ''}: {'ok' if good else 'WRONG'}",
        flush=True,
    )
    return good


def main():
    tandem, good = pathlib.Path(sys.argv[1]).resolve(), True
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        for name, model in MODELS.items():
            f32 = scratch / name
            run_qa(
                tandem,
                "--model_name_or_path",
                model,
                "--do_train",
                "--train_file",
                DEMO / "train.json",
                "--max_steps",
                200,
                "--learning_rate",
                1e-3,
                "--per_device_train_batch_size",
                16,
                "--save_strategy",
                "no",
                "--output_dir",
                f32,
            )
            for approach in ("static", "dynamic"):
                good &= check(tandem, name, approach, f32, scratch)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
