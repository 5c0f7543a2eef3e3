#!/usr/bin/env python3
"""Makes tests/parity/golden/decoders: a tiny Qwen2, what transformers computes with it, and how sentence-transformers trains it as a bi-encoder.

    python3 -m venv VENV; VENV/bin/pip install torch transformers==5.24.0 sentence-transformers==6.2.0 datasets accelerate
    VENV/bin/python tests/parity/make_decoder_goldens.py

    qwen2/            config.json and weights, tied, as transformers saves them
    batch.json        logits, loss, hidden states and gradients in float64, in the form of ../shared/data/golden/next/decoders
    embeddings.json   embeddings of the last token, normalized, and ten steps with MultipleNegativesRankingLoss

The tokenizer is golden/tokenizers/modernbert with <|endoftext|> behind every text, as Qwen3-Embedding has it.
"""

import importlib.metadata
import json
import os
import pathlib
import shutil
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.losses import MultipleNegativesRankingLoss
from sentence_transformers.models import Normalize, Pooling, Transformer
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, set_seed

from projections import projections

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE / "golden/decoders"
END = "<|endoftext|>"
ARGUMENTS = {"per_device_train_batch_size": 4, "learning_rate": 1e-3, "max_steps": 10}
PROMPT = "find: "
TEXTS = ["The boat sails to Norford.", "", "Dorla commands it, and the crew waits for the wind.", "rain 1742"]
SHIPS = ["Garqueen", "Kalstar", "Calwave", "Rinwave", "Salgull", "Nelbird", "Salwave", "Calgull"]
LOADS = ["wine", "wool", "salt", "iron"]


def make_model():
    # With a small base of the angles every column of a key counts, also its bias: Adam makes steps of noise of what does not.
    config = Qwen2Config(
        vocab_size=432,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        rope_parameters={"rope_type": "default", "rope_theta": 100.0},
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=1,
        pad_token_id=430,
    )
    set_seed(7)
    model = Qwen2ForCausalLM(config)
    with torch.no_grad():
        for name, values in model.named_parameters():
            values.normal_(1.0 if name.endswith("norm.weight") else 0.0, 0.4 if "embed" in name else 0.15)
    shutil.rmtree(GOLDEN / "qwen2", ignore_errors=True)
    model.save_pretrained(GOLDEN / "qwen2")
    (GOLDEN / "qwen2/generation_config.json").unlink()


def gradients_of(model):
    return {
        name: {
            "norm_f64": float(values.grad.norm()),
            "first8_f64": values.grad.flatten()[:8].tolist(),
            "projections_f64": projections(values.grad.flatten()),
        }
        for name, values in model.named_parameters()
    }


def make_batch():
    model = AutoModelForCausalLM.from_pretrained(GOLDEN / "qwen2").double().train()
    lengths = (24, 13)
    rows = [[(7 * i + 11 * k + 5 * i * k) % 400 + 8 for k in range(n)] for i, n in enumerate(lengths)]
    padded = [row + [2] * (lengths[0] - len(row)) for row in rows]
    labels = [row + [-100] * (lengths[0] - len(row)) for row in rows]
    labels[0][:5] = [-100] * 5
    batch = {"input_ids": padded, "attention_mask": [[1] * n + [0] * (lengths[0] - n) for n in lengths], "labels": labels}
    output = model(**{key: torch.tensor(value) for key, value in batch.items()}, output_hidden_states=True, use_cache=False)
    output.loss.backward()
    found = (0, 7, 23)
    return {
        "model": "qwen2",
        "inputs": batch,
        "loss_f64": float(output.loss),
        "logits_rows": found,
        "logits_f64": [output.logits[0, k].tolist() for k in found],
        "hidden_states_f64": [states[0].tolist() for states in output.hidden_states],
        "gradients": gradients_of(model),
        "grad_norm_total_f64": float(sum(float(p.grad.norm()) ** 2 for p in model.parameters()) ** 0.5),
        "parameters": {name: list(values.shape) for name, values in model.named_parameters()},
    }


def write_tokenizer(folder):
    tokenizer = json.loads((HERE / "golden/tokenizers/modernbert/tokenizer.json").read_text())
    text, end = {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": END, "type_id": 0}}
    pair = [text, end, {"Sequence": {"id": "B", "type_id": 0}}, end]
    ids = {END: {"id": END, "ids": [1], "tokens": [END]}}
    tokenizer["post_processor"] = {"type": "TemplateProcessing", "single": [text, end], "pair": pair, "special_tokens": ids}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "pad_token": "[PAD]", "unk_token": "[UNK]", "padding_side": "left"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def bi_encoder(folder):
    shutil.copytree(GOLDEN / "qwen2", folder, dirs_exist_ok=True)
    write_tokenizer(folder)
    encoder = Transformer(str(folder))
    # The class that tokenizer_config.json names; transformers 5 takes that of config.json's model_type.
    encoder.processor = PreTrainedTokenizerFast.from_pretrained(folder)
    return SentenceTransformer(modules=[encoder, Pooling(16, pooling_mode="lasttoken"), Normalize()], device="cpu")


def training_rows():
    carried = [(ship, LOADS[number % 4]) for number, ship in enumerate(SHIPS)]
    rows = [{"anchor": f"What does the {ship} carry?", "positive": f"The cargo of the {ship} is {load}."} for ship, load in carried]
    return rows + [{"anchor": f"Where is the {ship} bound?", "positive": f"The {ship} sails to Norford with {load}."} for ship, load in carried]


class Trainer(SentenceTransformerTrainer):
    """Notes the loss of every step, which the log rounds."""

    losses = ()

    def training_step(self, *arguments, **named):
        loss = super().training_step(*arguments, **named)
        self.losses = (*self.losses, float(loss))
        return loss


def train(model, folder):
    rows = training_rows()
    before = {name: values.detach().clone() for name, values in model.named_parameters()}
    arguments = SentenceTransformerTrainingArguments(
        str(folder), **ARGUMENTS, prompts={"anchor": PROMPT}, logging_steps=1, save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True
    )
    columns = Dataset.from_dict({name: [row[name] for row in rows] for name in rows[0]})
    trainer = Trainer(model=model, args=arguments, train_dataset=columns, loss=MultipleNegativesRankingLoss(model))
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    steps = [
        {"losses": [loss], "grad_norm": float(entry["grad_norm"]), "learning_rate": entry["learning_rate"]}
        for loss, entry in zip(trainer.losses, logged, strict=True)
    ]
    return rows, steps, [way_of(name, before[name], values.detach()) for name, values in model.named_parameters()]


def way_of(name, before, after):
    way = (after.double() - before.double()).flatten()
    at = way.abs().topk(min(8, way.numel())).indices
    return {"name": name, "moved": float(way.norm()), "projections": projections(way), "at": at.tolist(), "values": after.flatten()[at].tolist()}


def make_embeddings():
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        model = bi_encoder(folder / "model")
        found = {"model": "qwen2", "texts": TEXTS, "prompt": PROMPT}
        found["embeddings"] = model.encode(TEXTS).tolist()
        found["prompted"] = model.encode(TEXTS, prompt=PROMPT).tolist()
        found["arguments"] = ARGUMENTS
        found["rows"], found["steps"], found["parameters"] = train(model, folder / "out")
    return found


def write(name, record):
    versions = {package: importlib.metadata.version(package) for package in ("torch", "transformers", "sentence-transformers")}
    lines = [f"{json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in ({"versions": versions} | record).items()]
    (GOLDEN / name).write_text("{" + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    make_model()
    write("batch.json", {"qwen2": make_batch()})
    write("embeddings.json", make_embeddings())
