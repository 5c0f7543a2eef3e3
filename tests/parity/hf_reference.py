"""The computation of run_qa.py, written anew on top of the official packages: features, labels, post-processing.

The tokenizer, the models, the Trainer and the metrics of the goldens are Hugging Face's own; these three are scripts there, not
library code, so they are restated here. `make_goldens.py --verify` compares them with goldens that the original scripts made.
"""

import json

import numpy as np


def read_squad(path):
    """SQuAD tree → list of {id, context, question, answers: {text, answer_start}} in file order."""
    with open(path, encoding="utf-8") as file:
        data = json.load(file)["data"]
    if data and "paragraphs" not in data[0]:
        return data
    return [
        {
            "id": qa["id"],
            "context": paragraph["context"],
            "question": qa["question"],
            "answers": {"text": [a["text"] for a in qa["answers"]], "answer_start": [a["answer_start"] for a in qa["answers"]]},
        }
        for article in data
        for paragraph in article["paragraphs"]
        for qa in paragraph["qas"]
    ]


def encode(tokenizer, rows, max_length, stride, pad):
    return tokenizer(
        [row["question"].lstrip() for row in rows],
        [row["context"] for row in rows],
        truncation="only_second",
        max_length=max_length,
        stride=stride,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        padding="max_length" if pad else False,
    )


def label(offsets, sequence_ids, answers, cls):
    """Positions of the first answer in one window; (cls, cls) when it is not wholly inside. The scan for the start may leave the
    context, whose neighbours have the offsets (0, 0): that is run_qa.py's behaviour for an answer in the last context token."""
    if not answers["answer_start"]:
        return cls, cls
    begin = answers["answer_start"][0]
    end = begin + len(answers["text"][0])
    context = [i for i, s in enumerate(sequence_ids) if s == 1]
    first, last = context[0], context[-1]
    if not (offsets[first][0] <= begin and offsets[last][1] >= end):
        return cls, cls
    while first < len(offsets) and offsets[first][0] <= begin:
        first += 1
    while offsets[last][1] >= end:
        last -= 1
    return first - 1, last + 1


def features(tokenizer, rows, max_length, stride, pad):
    """One dict per window, with labels and with the offsets of evaluation (None outside the context)."""
    encoded = encode(tokenizer, rows, max_length, stride, pad)
    result = []
    for k, ids in enumerate(encoded["input_ids"]):
        example = encoded["overflow_to_sample_mapping"][k]
        sequence_ids, offsets = encoded.sequence_ids(k), encoded["offset_mapping"][k]
        start, end = label(offsets, sequence_ids, rows[example]["answers"], ids.index(tokenizer.cls_token_id))
        result.append(
            {
                "example": example,
                "input_ids": ids,
                "attention_mask": encoded["attention_mask"][k],
                "token_type_ids": encoded["token_type_ids"][k] if "token_type_ids" in encoded else None,
                "sequence_ids": sequence_ids,
                "start": start,
                "end": end,
                "offsets": [tuple(o) if s == 1 else None for o, s in zip(offsets, sequence_ids)],
            }
        )
    return result


def training_inputs(feats):
    """Features as the Trainer takes them: what the model is called with, one dict per feature."""
    return [
        {
            "input_ids": feature["input_ids"],
            "token_type_ids": feature["token_type_ids"],
            "attention_mask": feature["attention_mask"],
            "start_positions": feature["start"],
            "end_positions": feature["end"],
        }
        for feature in feats
    ]


def postprocess(rows, feats, start_logits, end_logits, v2=False, n_best=20, max_answer_length=30, threshold=0.0):
    """(answers, n-best lists, null odds) as run_qa.py's post-processing gives them; equal logits are taken lowest index first."""

    def largest(values):
        return sorted(range(len(values)), key=lambda i: (-values[i], i))[:n_best]

    by_example = {}
    for k, feature in enumerate(feats):
        by_example.setdefault(feature["example"], []).append(k)
    answers, lists, odds = {}, {}, {}
    for number, row in enumerate(rows):
        candidates, null = [], None
        for k in by_example.get(number, []):
            start, end, offsets = np.float32(start_logits[k]), np.float32(end_logits[k]), feats[k]["offsets"]
            if null is None or start[0] + end[0] < null["score"]:
                null = {"offsets": (0, 0), "score": start[0] + end[0], "start_logit": start[0], "end_logit": end[0]}
            for s in largest(start):
                for e in largest(end):
                    inside = s < len(offsets) and e < len(offsets) and offsets[s] is not None and offsets[e] is not None
                    if inside and s <= e and e - s + 1 <= max_answer_length:
                        candidates.append({"offsets": (offsets[s][0], offsets[e][1]), "score": start[s] + end[e], "start_logit": start[s], "end_logit": end[e]})
        if v2 and null is not None:
            candidates.append(null)
        kept = sorted(candidates, key=lambda c: -c["score"])[:n_best]
        if v2 and null is not None and not any(c["offsets"] == (0, 0) for c in kept):
            kept.append(null)
        for c in kept:
            c["text"] = row["context"][c["offsets"][0] : c["offsets"][1]]
        if not kept or (len(kept) == 1 and kept[0]["text"] == ""):
            kept.insert(0, {"text": "empty", "start_logit": 0.0, "end_logit": 0.0, "score": 0.0})
        scores = np.array([c["score"] for c in kept], dtype=np.float32)
        exponentials = np.exp(scores - scores.max())
        for c, p in zip(kept, exponentials / exponentials.sum()):
            c["probability"] = p
        if v2:
            best = next((c for c in kept if c["text"] != ""), kept[0])
            difference = float(null["score"] - best["start_logit"] - best["end_logit"])
            odds[row["id"]] = difference
            answers[row["id"]] = "" if difference > threshold else best["text"]
        else:
            answers[row["id"]] = kept[0]["text"]
        lists[row["id"]] = [{key: c[key] if key == "text" else float(c[key]) for key in ("text", "start_logit", "end_logit", "probability")} for c in kept]
    return answers, lists, odds
