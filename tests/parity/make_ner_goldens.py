#!/usr/bin/env python3
"""Makes tests/parity/golden/ner.json: tokens, labels and scores of tagged words, as the packages tokenizers and seqeval have them.

    make_ner_goldens.py

The sentences are made here. Tokens come from tokenizers with the tokenizer.json of the demo's model and of golden/tokenizers (RoBERTa's with add_prefix_space,
as run_ner.py loads it); the labels follow from its word ids by the rules of
docs/token_classification.md, restated here. Needs tokenizers and seqeval; the golden has the versions used.
"""

import importlib.metadata
import json
import pathlib
import random

from seqeval.metrics import accuracy_score, classification_report
from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).resolve().parent
MODEL = HERE.parent.parent / "examples/demo/model"
FAMILIES = ("roberta", "xlmr", "xlmr_older")
MAX_LENGTH = 32

PEOPLE = [["Ada"], ["Ada", "Lovelace"], ["Tom"], ["Anna", "Maria", "Berg"]]
PLACES = [["London"], ["Port", "Calm"], ["the", "old", "harbour"]]
FRAMES = [
    ["{p}", "lived", "in", "{l}", "."],
    ["{p}", "met", "{p}", "."],
    ["Nobody", "left", "{l}", "."],
    ["It", "rained", "."],
    ["'s", "", "\u200b", "{p}", "--", "unbelievably", "{l}", "?"],
    [""],
    ["Where", "did", "{p}", "go", "after", "{p}", "had", "sold", "the", "ferry", "to", "{l}", "?"],
]


def sentences():
    rng = random.Random(7)
    rows = []
    for n in range(28):
        words, tags = [], []
        for part in FRAMES[n % len(FRAMES)]:
            entity = {"{p}": ("person", PEOPLE), "{l}": ("location", PLACES)}.get(part)
            pieces = rng.choice(entity[1]) if entity else [part]
            words += pieces
            tags += [f"{'I' if i else 'B'}-{entity[0]}" for i in range(len(pieces))] if entity else ["O"]
        rows.append((words, tags))
    return rows


def labels_of(word_ids, tags, ids, inside, all_tokens):
    labels, before = [], None
    for word in word_ids:
        if word is None:
            labels.append(-100)
        elif word != before:
            labels.append(ids[tags[word]])
        else:
            labels.append(ids[inside[tags[word]]] if all_tokens else -100)
        before = word
    return labels


def load(directory):
    text = json.loads((directory / "tokenizer.json").read_text(encoding="utf-8"))
    if (text["pre_tokenizer"] or {}).get("type") == "ByteLevel":
        text["pre_tokenizer"]["add_prefix_space"] = text["post_processor"]["add_prefix_space"] = True
    return Tokenizer.from_str(json.dumps(text))


def features(tokenizer, rows):
    tokenizer.enable_truncation(MAX_LENGTH)
    tokenizer.no_padding()
    names = sorted({tag for _, tags in rows for tag in tags})
    ids = {name: i for i, name in enumerate(names)}
    inside = {name: name.replace("B-", "I-") if name.startswith("B-") and name.replace("B-", "I-") in ids else name for name in names}
    out = []
    for words, tags in rows:
        encoding = tokenizer.encode(words, is_pretokenized=True)
        out.append(
            {
                "input_ids": encoding.ids,
                "labels": labels_of(encoding.word_ids, tags, ids, inside, False),
                "labels_all_tokens": labels_of(encoding.word_ids, tags, ids, inside, True),
            }
        )
    return names, out


def scores(expected, predicted):
    report = classification_report(expected, predicted, output_dict=True, zero_division=0)
    for name in ("macro avg", "weighted avg"):
        report.pop(name)
    overall = report.pop("micro avg")
    result = {}
    for name, values in report.items():
        result |= {
            f"{name}_precision": values["precision"],
            f"{name}_recall": values["recall"],
            f"{name}_f1": values["f1-score"],
            f"{name}_number": float(values["support"]),
        }
    return {
        key: float(value)
        for key, value in (
            result
            | {
                "overall_precision": overall["precision"],
                "overall_recall": overall["recall"],
                "overall_f1": overall["f1-score"],
                "overall_accuracy": accuracy_score(expected, predicted),
            }
        ).items()
    }


def seqeval_cases():
    rng = random.Random(11)
    cases = []
    for prefixes, types in (("BIO", ["a", "b"]), ("BIOES", ["a", "long-name", "b"]), ("BIO.ULx", ["a", ""]), ("IO", ["only"])):
        tags = sorted({"O" if p == "O" else "." if p == "." else f"{p}-{t}" if t else p for p in prefixes for t in types})
        for _ in range(3):
            lengths = [rng.randint(1, 9) for _ in range(6)]
            expected = [[rng.choice(tags) for _ in range(n)] for n in lengths]
            predicted = [[tag if rng.random() < 0.6 else rng.choice(tags) for tag in row] for row in expected]
            cases.append({"expected": expected, "predicted": predicted, "scores": scores(expected, predicted)})
    return cases


def main():
    texts = sentences()
    names, rows = features(load(MODEL), texts)
    rows = [{"tokens": words, "ner_tags": tags} | row for (words, tags), row in zip(texts, rows)]
    head = {"versions": {name: importlib.metadata.version(name) for name in ("tokenizers", "seqeval")}, "max_seq_length": MAX_LENGTH, "label_list": names}
    lines = [json.dumps(head)[:-1]]
    families = [(name, features(load(HERE / "golden/tokenizers" / name), texts)[1]) for name in FAMILIES]
    for key, items in (("rows", rows), ("seqeval", seqeval_cases()), *families):
        body = ",\n".join("  " + json.dumps(item, ensure_ascii=False, separators=(",", ":")) for item in items)
        lines.append(f"{json.dumps(key)}: [\n{body}\n]")
    (HERE / "golden/ner.json").write_text(",\n".join(lines) + "}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
