#!/usr/bin/env python3
"""Makes tests/parity/golden/labels.json: the demo model learns to label texts and words, as transformers' Trainer trains it.

    make_label_goldens.py

Four tasks on the sentences of make_ner_goldens.py: pairs with three classes and numbers (run_glue), several labels per text (run_classification), tags
(run_ner). For each the features, twenty steps without dropout, where the weights went, the evaluation and the prediction file; and cases of GLUE's metrics.
Tokenizer, models, losses, Trainer and scores are the packages' own; labels, columns and the form of the files follow the official scripts, restated here. Needs torch,
transformers, accelerate, seqeval, scikit-learn, scipy; the golden has the versions used. tests/parity/README.md describes the file; tests/e2e/labels_test.cc reads it.
"""

import importlib.metadata
import json
import os
import pathlib
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch
from seqeval.metrics import accuracy_score, f1_score, precision_score, recall_score
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import f1_score as cells_f1_score, matthews_corrcoef
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    DataCollatorForTokenClassification,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)

from make_ner_goldens import labels_of, sentences

HERE = pathlib.Path(__file__).resolve().parent
MODEL = HERE.parent.parent / "examples/demo/model"
LENGTH, BATCH, STEPS, RATE = 32, 4, 20, 1e-3
MOST_MOVED = 8


def pair(words, tags):
    half, tagged = len(words) // 2, sum(tag != "O" for tag in tags)
    return {"sentence1": " ".join(words[:half]), "sentence2": " ".join(words[half:]), "label": ["none", "one", "many"][min(tagged, 2)]}


def number(words, tags):
    return {"sentence": " ".join(words), "label": sum(tag != "O" for tag in tags) / 2}


def several(words, tags):
    return {"sentence": " ".join(words), "label": sorted({tag for tag in tags if tag != "O"})}


def tagged(words, tags):
    return {"tokens": words, "ner_tags": tags}


TASKS = {
    "pair": ("run_glue", pair, "predict_results_None.txt"),
    "regression": ("run_glue", number, "predict_results_None.txt"),
    "multilabel": ("run_classification", several, "predict_results.txt"),
    "ner": ("run_ner", tagged, "predictions.txt"),
}


def names_of(task, rows):
    if task == "regression":
        return []
    if task == "pair":
        return sorted({row["label"] for row in rows})
    return sorted({label for row in rows for label in row["label" if task == "multilabel" else "ner_tags"]})


def features_of(task, tokenizer, rows, names):
    if task == "ner":
        encoded = tokenizer([row["tokens"] for row in rows], truncation=True, max_length=LENGTH, is_split_into_words=True)
        ids = {name: i for i, name in enumerate(names)}
        labels = [labels_of(encoded.word_ids(i), row["ner_tags"], ids, None, False) for i, row in enumerate(rows)]
        return [{**{key: encoded[key][i] for key in encoded}, "labels": labels[i]} for i in range(len(rows))]
    texts = [[row[key] for row in rows] for key in rows[0] if key != "label"]
    encoded = tokenizer(*texts, padding="max_length", max_length=LENGTH, truncation=True)
    label = {
        "pair": lambda row: names.index(row["label"]),
        "regression": lambda row: row["label"],
        "multilabel": lambda row: [float(name in row["label"]) for name in names],
    }[task]
    return [{**{key: encoded[key][i] for key in encoded}, "label": label(row)} for i, row in enumerate(rows)]


def make_model(task, names):
    """In the order of the scripts: the seed, then configuration, tokenizer, model."""
    set_seed(42)
    config = AutoConfig.from_pretrained(MODEL, num_labels=max(1, len(names)), hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    if task == "multilabel":
        config.problem_type = "multi_label_classification"
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    kind = AutoModelForTokenClassification if task == "ner" else AutoModelForSequenceClassification
    return kind.from_pretrained(MODEL, config=config, dtype=torch.float32), tokenizer


def tags_of(logits, features, names):
    """Expected and predicted tags of each sentence; ragged rows were padded by the Trainer."""
    expected, predicted = [], []
    for row, feature in zip(logits, features):
        kept = [(label, row[i]) for i, label in enumerate(feature["labels"]) if label != -100]
        expected.append([names[label] for label, _ in kept])
        predicted.append([names[int(np.argmax(values))] for _, values in kept])
    return expected, predicted


def judge(task, logits, features, names):
    """(scores, prediction file)."""
    if task == "ner":
        expected, predicted = tags_of(logits, features, names)
        scores = {"precision": precision_score, "recall": recall_score, "f1": f1_score, "accuracy": accuracy_score}
        return {key: float(score(expected, predicted)) for key, score in scores.items()}, "".join(" ".join(row) + "\n" for row in predicted)
    labels = np.array([feature["label"] for feature in features])
    if task == "regression":
        values = np.squeeze(logits)
        scores, texts = {"mse": float(((values - labels) ** 2).mean())}, [f"{value:.3f}" for value in values]
    elif task == "multilabel":
        cells = logits > 0
        scores = {"f1": float(cells_f1_score(labels, cells.astype(int), average="micro"))}
        texts = [str([name for name, cell in zip(names, row) if cell]) for row in cells]
    else:
        found = np.argmax(logits, axis=1)
        scores, texts = {"accuracy": float((found == labels).mean())}, [names[i] for i in found]
    return scores, "index\tprediction\n" + "".join(f"{i}\t{text}\n" for i, text in enumerate(texts))


class Recorder(Trainer):
    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.losses = []

    def training_step(self, *arguments, **named):
        loss = super().training_step(*arguments, **named)
        self.losses.append(float(loss))
        return loss


def way_of(name, before, after):
    """How far a parameter went, and the values that went farthest; of a new head all values."""
    way = (after.double() - before.double()).flatten()
    at = range(way.numel()) if "classifier" in name else way.abs().topk(MOST_MOVED).indices.tolist()
    return {"name": name, "moved": float(way.norm()), "at": list(at), "values": [float(after.flatten()[i]) for i in at]}


def run(task):
    command, row_of, file = TASKS[task]
    rows = [row_of(*sentence) for sentence in sentences()]
    names = names_of(task, rows)
    model, tokenizer = make_model(task, names)
    features = features_of(task, tokenizer, rows, names)
    initial = {name: values.detach().clone() for name, values in model.named_parameters()}
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=BATCH,
            per_device_eval_batch_size=8,
            max_steps=STEPS,
            learning_rate=RATE,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            remove_unused_columns=False,
        )
        collator = DataCollatorForTokenClassification(tokenizer) if task == "ner" else default_data_collator
        trainer = Recorder(model=model, args=arguments, train_dataset=features, data_collator=collator)
        trainer.train()
        output = trainer.predict(features)
    scores, predictions = judge(task, output.predictions, features, names)
    steps = [
        {"loss": loss, "grad_norm": entry["grad_norm"], "learning_rate": entry["learning_rate"]}
        for loss, entry in zip(trainer.losses, (entry for entry in trainer.state.log_history if "loss" in entry))
    ]
    assert len(steps) == STEPS
    return {
        "name": task,
        "command": command,
        "labels": names,
        "rows": rows,
        "input_ids": [feature["input_ids"][: sum(feature["attention_mask"])] for feature in features],
        "steps": steps,
        "parameters": [way_of(name, initial[name], values.detach()) for name, values in model.named_parameters()],
        "eval": {"eval_loss": output.metrics["test_loss"], **{f"eval_{key}": value for key, value in scores.items()}},
        "file": file,
        "predictions": predictions,
    }


def metric_cases():
    """Logits and labels of GLUE's tasks with what its metrics make of them, as the module "glue" of evaluate does."""
    rng, cases = np.random.default_rng(5), []
    for case in range(12):
        task = ("cola", "mrpc", "qqp", "stsb", "mnli", "sst2")[case % 6]
        classes, rows = {"stsb": 1, "mnli": 3}.get(task, 2), int(rng.integers(3, 40))
        logits = rng.normal(size=(rows, classes)).astype(np.float32)
        found = np.argmax(logits, axis=1)
        if task == "stsb":
            labels = np.round(np.clip(2.5 + logits[:, 0] + rng.normal(size=rows), 0, 5), 1).astype(np.float32)
            result = {"pearson": float(pearsonr(logits[:, 0], labels)[0]), "spearmanr": float(spearmanr(logits[:, 0], labels)[0])}
        else:
            labels = np.where(rng.random(rows) < 0.7, found, rng.integers(0, classes, rows))
            accuracy = {"accuracy": float((found == labels).mean())}
            result = (
                {"matthews_correlation": float(matthews_corrcoef(labels, found))}
                if task == "cola"
                else accuracy | {"f1": float(cells_f1_score(labels, found))}
                if task in ("mrpc", "qqp")
                else accuracy
            )
        if len(result) > 1:
            result["combined_score"] = float(np.mean(list(result.values())))
        cases.append({"note": f"case {case}", "task": task, "logits": logits.tolist(), "labels": labels.tolist(), "result": result})
    return cases


def main():
    torch.set_num_threads(1)
    packages = ("torch", "transformers", "tokenizers", "accelerate", "seqeval", "scikit-learn", "scipy", "numpy")
    head = {
        "versions": {name: importlib.metadata.version(name) for name in packages},
        "max_seq_length": LENGTH,
        "batch_size": BATCH,
        "max_steps": STEPS,
        "learning_rate": RATE,
    }

    def lines(items):
        return ",\n".join(json.dumps(item, separators=(",", ":")) for item in items)

    path = HERE / "golden/labels.json"
    path.write_text(f'{json.dumps(head)[:-1]}, "tasks": [\n{lines(map(run, TASKS))}\n],\n"glue": [\n{lines(metric_cases())}\n]}}\n', encoding="utf-8")
    print(path.stat().st_size)


if __name__ == "__main__":
    main()
