#!/usr/bin/env python3
"""Copies a model directory that holds an encoder of BERT and gives it the head of a task, with weights from a fixed seed: answers that mean nothing, but are always the same.

with_head.py ENCODER TARGET ForQuestionAnswering
with_head.py ENCODER TARGET ForSequenceClassification LABEL...
with_head.py ENCODER TARGET ForTokenClassification LABEL...
"""

import json
import pathlib
import random
import shutil
import struct
import sys


def read_safetensors(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def write_safetensors(path, header, data):
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def head_shapes(kind, hidden, labels):
    if kind == "ForQuestionAnswering":
        return {"qa_outputs.weight": [2, hidden], "qa_outputs.bias": [2]}
    shapes = {"classifier.weight": [labels, hidden], "classifier.bias": [labels]}
    if kind == "ForSequenceClassification":
        shapes |= {"bert.pooler.dense.weight": [hidden, hidden], "bert.pooler.dense.bias": [hidden]}
    return shapes


def main():
    encoder, target, kind, labels = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3], sys.argv[4:]
    shutil.copytree(encoder, target)
    config = json.loads((target / "config.json").read_text())
    config["architectures"] = ["Bert" + kind]
    if labels:
        config["id2label"] = {str(i): label for i, label in enumerate(labels)}
        config["label2id"] = {label: i for i, label in enumerate(labels)}
    (target / "config.json").write_text(json.dumps(config))
    header, data = read_safetensors(target / "model.safetensors")
    numbers = random.Random(7)
    # The encoder's pooler, if it has one, gives way to that of the head.
    header = {name: entry for name, entry in header.items() if not name.startswith("pooler.")}
    for name, shape in head_shapes(kind, config["hidden_size"], len(labels)).items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = struct.pack(f"<{count}f", *(numbers.gauss(0, 0.1) for _ in range(count)))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    write_safetensors(target / "model.safetensors", header, data)


if __name__ == "__main__":
    main()
