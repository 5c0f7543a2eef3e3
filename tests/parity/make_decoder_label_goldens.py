#!/usr/bin/env python3
"""Makes tests/parity/golden/decoders/labels.json: decoders that label texts and score pairs, as transformers and sentence-transformers compute and train them.

python3 -m venv VENV; VENV/bin/pip install torch transformers==5.24.0 sentence-transformers==6.2.0 datasets accelerate
VENV/bin/python tests/parity/make_decoder_label_goldens.py

classes     a tiny model of every family with …ForSequenceClassification: config.json, the names of its parameters, logits, loss and gradients in float64
            (weights: weight_of(); the second text ends with the padding token, which the head does not read)
texts       ten steps of the Trainer on texts with three labels; the model is golden/decoders/qwen2 with the first score.weight of the file
pairs       ten steps of the CrossEncoderTrainer with BinaryCrossEntropyLoss, and scores of the pairs before them
logits      the same of a …ForCausalLM with LogitScore, whose chat template joins a pair; the last pair is cut
"""

import json
import pathlib
import shutil
import tempfile
import zlib

from make_decoder_goldens import ARGUMENTS, GOLDEN, LOADS, SHIPS, gradients_of, way_of, write, write_tokenizer

import torch
from datasets import Dataset
from sentence_transformers import CrossEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss
from sentence_transformers.cross_encoder.modules import LogitScore
from transformers import (
    AutoModelForSequenceClassification,
    GPT2Config,
    LlamaConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForSequenceClassification,
    Qwen3Config,
    Trainer,
    TrainingArguments,
    set_seed,
)

PADDING = 5
ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}}
SHAPE = {
    "vocab_size": 64,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 32,
    "tie_word_embeddings": True,
}
CONFIGS = {
    "llama": lambda: LlamaConfig(**SHAPE, **ROPE),
    "qwen2": lambda: Qwen2Config(**SHAPE, **ROPE),
    "qwen3": lambda: Qwen3Config(**SHAPE, **ROPE, head_dim=16),
    "gpt2": lambda: GPT2Config(vocab_size=64, n_embd=16, n_layer=2, n_head=2, n_positions=32, embd_pdrop=0, attn_pdrop=0, resid_pdrop=0),
}
LABELS = 3
TOKENS = {"true_token_id": 100, "false_token_id": 101}
INSTRUCTION = "judge"
TEMPLATE = """<I>{{ messages | selectattr("role", "eq", "system") | map(attribute="content") | first | default("find") }}
<Q>{{ messages | selectattr("role", "eq", "query") | map(attribute="content") | first }}
<D>{{ messages | selectattr("role", "eq", "document") | map(attribute="content") | first }}<|endoftext|>
it: """


def weight_of(name, count):
    """Multiples of 1/512 in [-0.5, 0.5), and 1 more for norms: the same in every program."""
    index = torch.arange(count, dtype=torch.int64)
    mixed = (index * 2654435761 + zlib.crc32(name.encode())) % 2**32
    return (mixed // 2**20 % 512).double() / 512 - 0.5 + (1.0 if "norm" in name or ".ln_" in name else 0.0)


def make_class(name):
    config = CONFIGS[name]()
    config.num_labels = LABELS
    config.pad_token_id = PADDING
    model = AutoModelForSequenceClassification.from_config(config).double().train()
    with torch.no_grad():
        for key, values in model.named_parameters():
            values.copy_(weight_of(key, values.numel()).view_as(values))
    rows = [[(7 * i + 11 * k) % 50 + 8 for k in range(n)] for i, n in enumerate((12, 7))]
    rows[1].append(PADDING)
    longest = len(rows[0])
    batch = {
        "input_ids": torch.tensor([row + [PADDING] * (longest - len(row)) for row in rows]),
        "attention_mask": torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows]),
        "labels": torch.tensor([2, 0]),
    }
    output = model(**batch, use_cache=False)
    output.loss.backward()
    return {
        "config": json.loads(config.to_json_string(use_diff=False)) | {"architectures": [type(model).__name__]},
        "rows": rows,
        "labels": [2, 0],
        "loss_f64": float(output.loss),
        "logits_f64": output.logits.tolist(),
        "gradients": gradients_of(model),
        "parameters": {key: list(values.shape) for key, values in model.named_parameters()},
    }


def labeller(folder, labels):
    shutil.copytree(GOLDEN / "qwen2", folder, dirs_exist_ok=True)
    write_tokenizer(folder)
    set_seed(11)
    model = Qwen2ForSequenceClassification.from_pretrained(folder, num_labels=labels)
    with torch.no_grad():
        model.score.weight.normal_(0, 0.4)
    return model, PreTrainedTokenizerFast.from_pretrained(folder)


def steps_of(trainer, losses):
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    return [
        {"losses": [loss], "grad_norm": float(entry["grad_norm"]), "learning_rate": entry["learning_rate"]} for loss, entry in zip(losses, logged, strict=True)
    ]


def train(model, trainer):
    """The steps and the ways of the parameters of a trainer whose training_step() is noted."""
    before = {name: values.detach().clone() for name, values in model.named_parameters()}
    losses, step = [], trainer.training_step

    def noted(*arguments, **named):
        losses.append(float(loss := step(*arguments, **named)))
        return loss

    trainer.training_step = noted
    trainer.train()
    ways = [way_of(name, before[name], values.detach()) for name, values in model.named_parameters()]
    return steps_of(trainer, losses), ways


def make_texts(folder):
    rows = [{"sentence": f"The {ship} sails with {LOADS[number % 3]}.", "label": number % 3} for number, ship in enumerate(SHIPS)]
    rows += [{"sentence": f"{LOADS[number % 3]} comes on the {ship}", "label": number % 3} for number, ship in enumerate(SHIPS)]
    model, tokenizer = labeller(folder / "model", LABELS)
    found = {"score": model.score.weight.tolist(), "rows": rows, "arguments": ARGUMENTS}
    columns = [{**tokenizer(row["sentence"]), "labels": row["label"]} for row in rows]
    for column in columns:
        column.pop("token_type_ids", None)
    arguments = TrainingArguments(str(folder), **ARGUMENTS, logging_steps=1, save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True)
    trainer = Trainer(model=model, args=arguments, train_dataset=columns, processing_class=tokenizer)
    found["steps"], found["parameters"] = train(model, trainer)
    return found


def rows_of_pairs():
    return [
        {"query": f"What does the {ship} carry?", "passage": f"The cargo of the {other} is {LOADS[number % 4]}.", "label": float(ship == other)}
        for number, ship in enumerate(SHIPS)
        for other in (ship, SHIPS[(number + 3) % 8])
    ]


def train_pairs(encoder, rows, folder, **more):
    common = {"logging_steps": 1, "save_strategy": "no", "report_to": [], "use_cpu": True, "disable_tqdm": True}
    arguments = CrossEncoderTrainingArguments(str(folder), **ARGUMENTS, **common, **more)
    columns = Dataset.from_dict({name: [row[name] for row in rows] for name in rows[0]})
    trainer = CrossEncoderTrainer(model=encoder, args=arguments, train_dataset=columns, loss=BinaryCrossEntropyLoss(encoder))
    return train(encoder[0].model, trainer)


def make_logits(folder):
    rows = [*rows_of_pairs(), {"query": "Where does it go? " * 3, "passage": "To Norford, and then to the sea. " * 4, "label": 0.0}]
    shutil.copytree(GOLDEN / "qwen2", folder / "model")
    write_tokenizer(folder / "model")
    (folder / "model/chat_template.jinja").write_text(TEMPLATE)
    transformer = Transformer(str(folder / "model"), transformer_task="text-generation")
    transformer.processor = PreTrainedTokenizerFast.from_pretrained(folder / "model", model_max_length=64)
    encoder = CrossEncoder(modules=[transformer, LogitScore(**TOKENS)], device="cpu")
    found = {"loss": "BinaryCrossEntropyLoss", "template": TEMPLATE, "instruction": INSTRUCTION, "tokens": TOKENS, "rows": rows, "arguments": ARGUMENTS}
    pairs = [(row["query"], row["passage"]) for row in rows]
    found["scores"] = encoder.predict(pairs, prompt=INSTRUCTION).tolist()
    found["scores_without_instruction"] = encoder.predict(pairs).tolist()
    found["steps"], found["parameters"] = train_pairs(encoder, rows, folder, prompts=INSTRUCTION)
    return found


def make_pairs(folder):
    rows = rows_of_pairs()
    model, tokenizer = labeller(folder / "model", 1)
    model.save_pretrained(folder / "model")
    encoder = CrossEncoder(str(folder / "model"), device="cpu")
    encoder[0].processor = tokenizer
    found = {"model": "qwen2", "loss": "BinaryCrossEntropyLoss", "score": encoder[0].model.score.weight.tolist(), "rows": rows, "arguments": ARGUMENTS}
    found["scores"] = encoder.predict([(row["query"], row["passage"]) for row in rows]).tolist()
    found["steps"], found["parameters"] = train_pairs(encoder, rows, folder)
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        record = {"classes": {name: make_class(name) for name in CONFIGS}}
        record["texts"] = make_texts(folder / "texts")
        record["pairs"] = make_pairs(folder / "pairs")
        record["logits"] = make_logits(folder / "logits")
    write("labels.json", record)
