#!/usr/bin/env python3
"""Weights in every form, both ways; needs torch and transformers, so it is run by hand.

    python hf_weight_forms.py TANDEM_PROGRAM

A small BERT is saved by transformers as one safetensors file, as safetensors in shards, as pytorch_model.bin, and as that
in shards; `tandem inspect weights` must see the same bytes in all of them. Then tandem trains a few steps with
--save_safetensors false and torch and transformers load what it wrote.
"""

import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers

DEMO = pathlib.Path(__file__).resolve().parents[2] / "examples" / "demo"


def hashes_by_torch(state):
    return {name: hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest() for name, tensor in state.items()}


def hashes_by_tandem(tandem, path):
    lines = subprocess.run([tandem, "inspect", "weights", str(path)], check=True, capture_output=True, text=True).stdout
    return {row["name"]: row["sha256"] for row in map(json.loads, lines.splitlines())}


def main():
    tandem = sys.argv[1]
    transformers.logging.set_verbosity_error()
    torch.manual_seed(1)
    config = transformers.BertConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, vocab_size=500)
    model = transformers.BertForQuestionAnswering(config)
    expected = hashes_by_torch(model.state_dict())
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        for name, options in {
            "safetensors": {},
            "safetensors in shards": {"max_shard_size": "100KB"},
            "torch": {"safe_serialization": False},
            "torch in shards": {"safe_serialization": False, "max_shard_size": "100KB"},
        }.items():
            folder = scratch / name.replace(" ", "_")
            model.save_pretrained(folder, **options)
            found = hashes_by_tandem(tandem, folder)
            assert found == expected, f"{name}: {set(found.items()) ^ set(expected.items())}"
            print(f"{name}: {len(list(folder.glob('*model*')))} files, {len(found)} tensors, the same bytes")

        out = scratch / "out"
        subprocess.run(
            [
                tandem,
                "run_qa",
                "--model_name_or_path",
                str(DEMO / "model"),
                "--train_file",
                str(DEMO / "train.json"),
                "--do_train",
                "--max_steps",
                "2",
                "--save_safetensors",
                "false",
                "--output_dir",
                str(out),
            ],
            check=True,
            capture_output=True,
        )
        assert not (out / "model.safetensors").exists()
        state = torch.load(out / "pytorch_model.bin", weights_only=True)
        loaded, report = transformers.AutoModelForQuestionAnswering.from_pretrained(out, output_loading_info=True)
        assert not report["missing_keys"] and not report["unexpected_keys"], report
        assert hashes_by_torch(loaded.state_dict()) == hashes_by_torch(state) == hashes_by_tandem(tandem, out)
        print(f"written by tandem: torch {torch.__version__} and transformers {transformers.__version__} load {len(state)} tensors, the same bytes")


main()
