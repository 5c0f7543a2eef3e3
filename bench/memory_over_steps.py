#!/usr/bin/env python3
"""The memory of a training job, step by step: bench/memory_over_steps.py [--model bert-large] [--steps 500] MODEL_DIR TRAIN_FILE [-- FLAG...]

Makes a model of the named size with random weights and the tokenizer of MODEL_DIR, trains it in bf16 with a batch of 12 and at most 384 tokens, and reads what is resident (VmRSS) when a
step's loss is printed. Printed are the highest value of each tenth of the steps and the job's own lines: what it planned and what it used. FLAGs go to the job (--pad_to_max_length True).
"""
import argparse
import array
import json
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

from rivals import MODELS


def shapes_of(config):
    """{name: shape} of a BERT encoder."""
    hidden, intermediate = config["hidden_size"], config["intermediate_size"]
    shapes = {}

    def linear(name, rows, columns):
        shapes[f"{name}.weight"] = [rows, columns]
        shapes[f"{name}.bias"] = [rows]

    def layer_norm(name):
        shapes[f"{name}.weight"] = [hidden]
        shapes[f"{name}.bias"] = [hidden]

    for table, rows in (("word", config["vocab_size"]), ("position", config["max_position_embeddings"]), ("token_type", config["type_vocab_size"])):
        shapes[f"embeddings.{table}_embeddings.weight"] = [rows, hidden]
    layer_norm("embeddings.LayerNorm")
    for index in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{index}"
        for part in ("query", "key", "value"):
            linear(f"{layer}.attention.self.{part}", hidden, hidden)
        linear(f"{layer}.attention.output.dense", hidden, hidden)
        layer_norm(f"{layer}.attention.output.LayerNorm")
        linear(f"{layer}.intermediate.dense", intermediate, hidden)
        linear(f"{layer}.output.dense", hidden, intermediate)
        layer_norm(f"{layer}.output.LayerNorm")
    return {f"bert.{name}": shape for name, shape in shapes.items()}


def write_model(name, tokenizer_folder, folder):
    folder.mkdir()
    for file in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        shutil.copy(tokenizer_folder / file, folder)
    config = {**json.loads((tokenizer_folder / "config.json").read_text()), **MODELS[name]}
    (folder / "config.json").write_text(json.dumps(config))
    shapes, header, end = shapes_of(config), {}, 0
    for tensor, shape in shapes.items():
        begin, end = end, end + 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[tensor] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    noise = array.array("f", (random.Random(42).gauss(0, 0.02) for _ in range(1_000_003))).tobytes()
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor, entry in header.items():
            size = entry["data_offsets"][1] - entry["data_offsets"][0]
            if len(entry["shape"]) == 1:
                file.write(array.array("f", [1.0 if tensor.endswith("LayerNorm.weight") else 0.0]).tobytes() * (size // 4))
            else:
                file.write((noise * (size // len(noise) + 1))[:size])


def resident(pid):
    """MiB"""
    return int(re.search(r"VmRSS:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", metavar="MODEL_DIR", type=pathlib.Path)
    parser.add_argument("train_file")
    parser.add_argument("--model", choices=MODELS, default="bert-large")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--tandem", default="build/release/bin/tandem")
    parser.add_argument("flags", nargs="*")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder) / options.model
        write_model(options.model, options.tokenizer, model)
        command = [options.tandem, "run_qa", "--model_name_or_path", model, "--train_file", options.train_file, "--do_train", "--max_steps", options.steps, "--bf16",
                   "--per_device_train_batch_size", 12, "--max_seq_length", 384, "--doc_stride", 128, "--logging_steps", 1, "--save_strategy", "no",
                   "--output_dir", f"{folder}/out", *options.flags]
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        samples, tail = [], []
        for line in process.stdout:
            tail = [*tail[-20:], line]
            if "'loss':" in line:
                samples.append(resident(process.pid))
            if " - memory" in line:
                print(line.strip(), flush=True)
            if samples and len(samples) * 10 % options.steps == 0 and "'loss':" in line:
                tenth = samples[-max(1, options.steps // 10):]
                print(f"steps {len(samples) - len(tenth) + 1} to {len(samples)}: at most {max(tenth):.1f} MiB resident", flush=True)
        if process.wait():
            sys.exit("".join(tail))


if __name__ == "__main__":
    main()
