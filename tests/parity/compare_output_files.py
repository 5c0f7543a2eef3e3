#!/usr/bin/env python3
"""Compares every file of a tandem run with what transformers' Trainer leaves after the same run.

    compare_output_files.py TANDEM [bert|distilbert] [v1|v2]      with a Python that has torch and transformers; default: all four

Both train some steps with evaluations and a checkpoint, evaluate and predict, as run_qa.py does, and evaluate and predict once more without training; its
QuestionAnsweringTrainer is restated here around hf_reference.py. Compared are the names of the files, and of each its structure: keys and their order, types, indentation, escapes, end of file; for the
tokenizer and the configuration the values too; for models names, shapes, types and metadata. The numbers are compared elsewhere (trajectory
and golden tests). Differences that are meant are listed in EXPECTED with their reasons; the script fails on any other, and on
an entry of EXPECTED that no longer occurs.
"""

import itertools
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from transformers import AutoConfig, AutoModelForQuestionAnswering, AutoTokenizer, Trainer, TrainingArguments, default_data_collator
from transformers.trainer_utils import speed_metrics

import hf_reference as reference

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO = ROOT / "examples/demo"
MODELS = {"bert": DEMO / "model", "distilbert": ROOT / "tests/parity/golden/distilbert"}
MAX_LENGTH, STRIDE, TRAIN, EVAL, STEPS = 96, 32, 48, 20, 6

# Intended differences: (file, difference) → reason. A file may be a pattern; <ckpt> is the checkpoint.
EXPECTED = {
    ("training_args.bin", "missing"): "a Python pickle; training_args.json holds the arguments",
    ("training_args.json", "more"): "instead of training_args.bin",
    ("report.html", "more"): "tandem's report",
    ("report.json", "more"): "the same for tandem report, which compares runs",
    ("*config.json", "transformers_version: .*"): "the version that the model was read with; 4.46 where it names none",
    ("*config.json", "torch_dtype: float32, transformers: .absent."): "called dtype since 4.56; older versions read the old name, newer ones both",
    ("*config.json", "dtype: .absent., transformers: float32"): "as above",
    ("*tokenizer_config.json", "extra_special_tokens: .absent., transformers: {}"): "since 4.47",
    ("README.md", "metadata: ..metrics.. more, .. less"): "exact match and F1, which the card of transformers lacks without a loss",
    ("<ckpt>/training_args.bin", "missing"): "as above",
    ("<ckpt>/training_args.json", "more"): "as above",
    ("<ckpt>/rng_state.pth", "missing"): "random numbers are a function of seed and step",
    ("<ckpt>/tandem_state.json", "more"): "what a bit-identical resume needs",
    ("<ckpt>/manifest.json", "more"): "checksums of the other files",
}

# The keys of the squad and squad_v2 metrics for questions that all have answers; their values are compared elsewhere.
METRICS = {
    False: {"exact_match": 0.0, "f1": 0.0},
    True: {
        "exact": 0.0,
        "f1": 0.0,
        "total": EVAL,
        "HasAns_exact": 0.0,
        "HasAns_f1": 0.0,
        "HasAns_total": EVAL,
        "best_exact": 0.0,
        "best_exact_thresh": 0.0,
        "best_f1": 0.0,
        "best_f1_thresh": 0.0,
    },
}


class Dataset(torch.utils.data.Dataset):
    def __init__(self, features, labels, token_types):
        keys = ["input_ids", "attention_mask"] + (["token_type_ids"] if token_types else [])
        self.rows = [{**{key: f[key] for key in keys}, **({"start_positions": f["start"], "end_positions": f["end"]} if labels else {})} for f in features]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def save_json(path, value):
    path.write_text(json.dumps(value, indent=4) + "\n")


def write_predictions(folder, prefix, rows, features, logits, v2):
    """The three prediction files of utils_qa.py, with 4 spaces and a newline at the end."""
    answers, lists, odds = reference.postprocess(rows, features, *logits, v2=v2)
    ordered = {
        key: [{name: entry[name] for name in ("start_logit", "end_logit", "text", "probability")} for entry in entries] for key, entries in lists.items()
    }
    save_json(folder / f"{prefix}_predictions.json", answers)
    save_json(folder / f"{prefix}_nbest_predictions.json", ordered)
    if v2:
        save_json(folder / f"{prefix}_null_odds.json", odds)


class QuestionAnsweringTrainer(Trainer):
    """run_qa.py's: an evaluation turns logits into answers and metrics, without a loss."""

    def configure(self, rows, features, v2):
        self.rows, self.features, self.v2 = rows, features, v2
        return self

    def run_loop(self, prefix):
        output = self.evaluation_loop(
            self.get_eval_dataloader(self.eval_dataset), description="Evaluation", prediction_loss_only=None, ignore_keys=None, metric_key_prefix=prefix
        )
        return output, [part[:, :MAX_LENGTH] for part in output.predictions]

    def measure(self, prefix, files):
        start = time.time()
        output, logits = self.run_loop(prefix)
        write_predictions(pathlib.Path(self.args.output_dir), files, self.rows, self.features, logits, self.v2)
        metrics = {f"{prefix}_{key}": value for key, value in METRICS[self.v2].items()}
        return {**metrics, **output.metrics, **speed_metrics(prefix, start, num_samples=output.num_samples, num_steps=len(self.rows))}

    def evaluate(self, *_, **__):
        metrics = self.measure("eval", "eval")
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics


def run_transformers(model_dir, out, v2, trains):
    tokenizer = AutoTokenizer.from_pretrained(model_dir, use_fast=True)
    model = AutoModelForQuestionAnswering.from_pretrained(model_dir, config=AutoConfig.from_pretrained(model_dir), dtype=torch.float32)
    token_types = model.config.model_type == "bert"
    rows, eval_rows = reference.read_squad(DEMO / "train.json")[:TRAIN], reference.read_squad(DEMO / "held_out.json")[:EVAL]
    train, evaluation = (reference.features(tokenizer, part, MAX_LENGTH, STRIDE, True) for part in (rows, eval_rows))
    arguments = TrainingArguments(
        output_dir=str(out),
        do_train=trains,
        do_eval=True,
        max_steps=STEPS,
        per_device_train_batch_size=8,
        logging_steps=2,
        eval_strategy="steps",
        eval_steps=3,
        save_strategy="steps",
        save_steps=STEPS,
        seed=42,
        use_cpu=True,
        report_to=[],
        disable_tqdm=False,
    )  # without bars its printer takes total_flos out
    trainer = QuestionAnsweringTrainer(
        model=model,
        args=arguments,
        train_dataset=Dataset(train, True, token_types),
        eval_dataset=Dataset(evaluation, False, token_types),
        processing_class=tokenizer,
        data_collator=default_data_collator,
    ).configure(eval_rows, evaluation, v2)
    if trains:
        result = trainer.train()
        trainer.save_model()
        metrics = {**result.metrics, "train_samples": len(train)}
        trainer.log_metrics("train", metrics)
        trainer.save_metrics("train", metrics)
        trainer.save_state()
    metrics = {**trainer.evaluate(), "eval_samples": len(evaluation)}
    trainer.log_metrics("eval", metrics)
    trainer.save_metrics("eval", metrics)
    metrics = {**trainer.measure("test", "predict"), "predict_samples": len(evaluation)}
    trainer.log_metrics("predict", metrics)
    trainer.save_metrics("predict", metrics)
    trainer.create_model_card(finetuned_from=str(model_dir), tasks="question-answering")


def run_tandem(tandem, model_dir, out, v2, trains):
    training = ["--do_train", "--logging_steps", 2, "--eval_strategy", "steps", "--eval_steps", 3, "--save_steps", STEPS]
    command = [
        tandem,
        "run_qa",
        "--model_name_or_path",
        model_dir,
        "--train_file",
        DEMO / "train.json",
        "--validation_file",
        DEMO / "held_out.json",
        "--output_dir",
        out,
        "--do_eval",
        "--max_steps",
        STEPS,
        "--per_device_train_batch_size",
        8,
        "--max_seq_length",
        MAX_LENGTH,
        "--doc_stride",
        STRIDE,
        "--max_train_samples",
        TRAIN,
        "--max_eval_samples",
        EVAL,
        "--do_predict",
        "--test_file",
        DEMO / "held_out.json",
        "--max_predict_samples",
        EVAL,
        "--pad_to_max_length",
        "true",
        "--report_to",
        "none",
        *(["--version_2_with_negative"] if v2 else []),
        *(training if trains else []),
    ]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stderr[-3000:]}")


# --- comparing ---


def layout(text):
    """How a JSON text was written: the options of json.dumps that give it back, and the end of the file."""
    value = json.loads(text)
    for indent in (2, 4, None):
        for sort_keys in (True, False):
            for ascii_only in (True, False):
                for end in ("\n", ""):
                    if json.dumps(value, indent=indent, sort_keys=sort_keys, ensure_ascii=ascii_only) + end == text:
                        return f"indent {indent}, {'sorted' if sort_keys else 'in order'}, {'newline' if end else 'no newline'} at the end"
    return "not as json.dumps writes it"


def kind(value):
    return "number" if type(value) in (int, float) else type(value).__name__


def structure(value, path=""):
    """(path, type) of every member in order; elements of lists and members of id tables are merged where they are alike."""
    if isinstance(value, dict):
        for key, member in value.items():
            yield from structure(member, f"{path}.{key}")
    elif isinstance(value, list):
        seen = []
        for element in value:
            part = list(structure(element, f"{path}[]"))
            if part not in seen:
                seen.append(part)
                yield from part
    else:
        yield path, kind(value)


VALUES_TOO = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "config.json")


def compare_json(name, theirs, ours):
    a, b = layout(theirs), layout(ours)
    if a != b:
        yield f"written with {b}, transformers: {a}"
    theirs, ours = json.loads(theirs), json.loads(ours)
    base = name.split("/")[-1]
    if base == "tokenizer.json":  # 4.x stores the truncation and padding of the last call
        theirs.update(truncation=None, padding=None)
        ours.update(truncation=None, padding=None)
    if base in VALUES_TOO:
        for key in list(theirs) + [key for key in ours if key not in theirs]:
            if theirs.get(key, "(absent)") != ours.get(key, "(absent)"):
                yield f"{key}: {str(ours.get(key, '(absent)'))[:80]}, transformers: {str(theirs.get(key, '(absent)'))[:80]}"
        if list(theirs) != list(ours) and set(theirs) == set(ours):
            yield "the keys are in another order"
        return
    if base.endswith("predictions.json") or base.endswith("odds.json"):
        if list(theirs) != list(ours):
            yield "other ids or another order"
        theirs, ours = list(theirs.values()), list(ours.values())
    a, b = list(structure(theirs)), list(structure(ours))
    for entry in a:
        if entry not in b:
            yield f"lacks {entry[0]} ({entry[1]})"
    for entry in b:
        if entry not in a:
            yield f"has {entry[0]} ({entry[1]}), transformers has not"
    if sorted(a) == sorted(b) and a != b:
        yield "the members are in another order"


def safetensors_header(path):
    data = path.read_bytes()
    [size] = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + size])


def compare_models(theirs, ours):
    a, b = safetensors_header(theirs), safetensors_header(ours)
    if a.pop("__metadata__") != b.pop("__metadata__"):
        yield "other metadata"
    for name in a.keys() | b.keys():
        x, y = ({key: value for key, value in (h.get(name) or {}).items() if key != "data_offsets"} for h in (a, b))
        if x != y:
            yield f"{name}: {y}, transformers: {x}"


def compare_cards(theirs, ours):
    def parts(text):
        _, head, body = text.split("---\n", 2)
        return (
            [line.split(":")[0] for line in head.splitlines() if re.match(r"\w[\w-]*:", line)],
            re.findall(r"^#+ .*", body, re.M),
            re.findall(r"^- ([a-z_]+):", body, re.M),
        )

    for what, a, b in zip(("metadata", "headings", "hyperparameters"), parts(theirs), parts(ours)):
        if a != b:
            yield f"{what}: {[x for x in b if x not in a]} more, {[x for x in a if x not in b]} less" + ("" if set(a) != set(b) else ", another order")


def compare(theirs, ours):
    def files(folder):
        return {re.sub(r"^checkpoint-\d+", "<ckpt>", p.relative_to(folder).as_posix()): p for p in folder.rglob("*") if p.is_file()}

    a, b = files(theirs), files(ours)
    for name in sorted(a.keys() | b.keys()):
        if name not in b:
            yield name, "missing"
        elif name not in a:
            yield name, "more"
        else:
            x, y = a[name], b[name]
            if name.endswith(".json"):
                found = compare_json(name, x.read_text(), y.read_text())
            elif name.endswith(".safetensors"):
                found = compare_models(x, y)
            elif name.endswith(".md"):
                found = compare_cards(x.read_text(), y.read_text())
            else:
                found = [] if x.read_bytes() == y.read_bytes() else ["other bytes"]
            for difference in found:
                yield name, difference


def main():
    tandem = pathlib.Path(sys.argv[1]).resolve()
    wanted = sys.argv[2:]
    families = [m for m in MODELS if m in wanted] or list(MODELS)
    versions = [v for v in ("v1", "v2") if v in wanted] or ["v1", "v2"]
    torch.set_num_threads(2)
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    unexpected, used = 0, set()
    for family in families:
        for version, trains in itertools.product(versions, (True, False)):
            with tempfile.TemporaryDirectory() as scratch:
                theirs, ours = pathlib.Path(scratch) / "a/run", pathlib.Path(scratch) / "b/run"
                run_transformers(MODELS[family], theirs, version == "v2", trains)
                run_tandem(tandem, MODELS[family], ours, version == "v2", trains)
                differences = list(compare(theirs, ours))
                count = sum(1 for p in theirs.rglob("*") if p.is_file())
            surprises = []
            for name, difference in differences:
                match = next((key for key in EXPECTED if re.fullmatch(re.escape(key[0]).replace(r"\*", ".*"), name) and re.fullmatch(key[1], difference)), None)
                used.add(match)
                if match is None:
                    surprises.append(f"  {name}: {difference}")
            print(
                f"{family} {version}{'' if trains else ', evaluation alone'}: {count} files of transformers compared, {len(differences) - len(surprises)} differences that are meant, {len(surprises)} others"
            )
            print("\n".join(surprises), end="\n" if surprises else "", flush=True)
            unexpected += len(surprises)
    if families == list(MODELS) and versions == ["v1", "v2"]:
        for key in EXPECTED.keys() - used:
            print(f"EXPECTED has {key}, which does not occur")
            unexpected += 1
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
