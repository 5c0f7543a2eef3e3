#!/usr/bin/env python3
"""Makes tests/parity/golden/families: tiny models of every family, and what transformers computes with the head of every task.

    make_family_goldens.py

Needs torch, transformers, safetensors (every golden has the versions used). tests/parity/README.md describes the files; src/tandem/models/{task,masked_language}_golden_test.cc read them.
"""

import importlib.metadata
import json
import pathlib
import platform

import torch
from safetensors.torch import save_file
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    BertConfig,
    DebertaV2Config,
    DistilBertConfig,
    ElectraConfig,
    MPNetConfig,
    RobertaConfig,
    XLMRobertaConfig,
    set_seed,
)
from transformers.trainer_pt_utils import LabelSmoother

from projections import projections

GOLDEN = pathlib.Path(__file__).resolve().parent / "golden/families"
NO_DROPOUT = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
SHAPE = dict(vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, max_position_embeddings=20)
CONFIGS = {
    "bert": BertConfig(**SHAPE, **NO_DROPOUT),
    # Distances from 2 on share buckets.
    "deberta-v3": DebertaV2Config(
        **SHAPE,
        **NO_DROPOUT,
        type_vocab_size=0,
        relative_attention=True,
        position_buckets=4,
        share_att_key=True,
        norm_rel_ebd="layer_norm",
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
    ),
    "distilbert": DistilBertConfig(
        vocab_size=50,
        dim=16,
        n_layers=2,
        n_heads=2,
        hidden_dim=24,
        max_position_embeddings=20,
        dropout=0.0,
        attention_dropout=0.0,
        qa_dropout=0.0,
        seq_classif_dropout=0.0,
    ),
    "electra": ElectraConfig(**SHAPE, **NO_DROPOUT, embedding_size=12),
    "mpnet": MPNetConfig(**SHAPE, **NO_DROPOUT, layer_norm_eps=1e-5),
    "roberta": RobertaConfig(**SHAPE, **NO_DROPOUT, type_vocab_size=1, layer_norm_eps=1e-5),
    "xlmr": XLMRobertaConfig(**SHAPE, **NO_DROPOUT, type_vocab_size=1, layer_norm_eps=1e-5),
}
TASKS = {
    "single": (AutoModelForSequenceClassification, 3, None),
    "regression": (AutoModelForSequenceClassification, 1, None),
    "multilabel": (AutoModelForSequenceClassification, 3, "multi_label_classification"),
    "ner": (AutoModelForTokenClassification, 5, None),
    "qa": (AutoModelForQuestionAnswering, 2, None),
    "mlm": (AutoModelForMaskedLM, 0, None),
}


def versions():
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in ("torch", "transformers", "safetensors")}}


def make_model(name):
    """Random weights in F16, wide and every parameter away from its default, saved as the bare encoder."""
    set_seed(7)
    model = AutoModel.from_config(type(CONFIGS[name])(**CONFIGS[name].to_dict() | {"initializer_range": 0.3}))
    with torch.no_grad():
        for key, tensor in model.named_parameters():
            if key.endswith("bias") or "LayerNorm" in key or "layer_norm" in key:
                tensor.add_(0.2 * torch.randn_like(tensor))
    folder = GOLDEN / "models" / f"tiny-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    save_file({key: tensor.half().contiguous() for key, tensor in model.state_dict().items()}, folder / "model.safetensors", metadata={"format": "pt"})
    settings = {key: value for key, value in CONFIGS[name].to_dict().items() if key in CONFIGS[name].to_diff_dict() or key == "model_type"}
    settings.pop("transformers_version", None)
    (folder / "config.json").write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")
    return folder


def inputs_of(task, config):
    """Four texts of 9, 5, 12 and 2 tokens, one with the padding's id inside, padded to 12.

    The loss of questions counts pad rows, which differ in DeBERTa (docs/differences.md): these texts have 12 tokens each.
    """
    whole = task == "qa" and config.model_type == "deberta-v2"
    pad, lengths, longest = config.pad_token_id, (12, 12, 12, 12) if whole else (9, 5, 12, 2), 12
    rows = [[(7 * i + 11 * k + 5 * i * k) % 45 + 4 for k in range(n)] for i, n in enumerate(lengths)]
    rows[2][6] = pad
    batch = {
        "input_ids": torch.tensor([row + [pad] * (longest - len(row)) for row in rows]),
        "attention_mask": torch.tensor([[1] * n + [0] * (longest - n) for n in lengths]),
    }
    if config.model_type in ("bert", "electra"):
        batch["token_type_ids"] = torch.tensor([[int(3 <= k < n) for k in range(longest)] for n in lengths])
    if task == "single":
        batch["labels"] = torch.tensor([2, 0, 1, 2])
    elif task == "regression":
        batch["labels"] = torch.tensor([0.5, 3.25, 0.0, 5.0])
    elif task == "multilabel":
        batch["labels"] = torch.tensor([[1.0, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 1]])
    elif task == "ner":
        batch["labels"] = torch.tensor([[(i + k) % 5 if 0 < k < n - 1 and k != 4 else -100 for k in range(longest)] for i, n in enumerate(lengths)])
    elif task == "mlm":
        chosen = {(0, 1), (0, 5), (1, 2), (2, 6), (2, 10), (3, 0)}
        batch["labels"] = torch.tensor([[(5 * i + 9 * k) % 50 if (i, k) in chosen else -100 for k in range(longest)] for i in range(4)])
    else:
        batch["start_positions"], batch["end_positions"] = torch.tensor([1, 3, 0, 40]), torch.tensor([4, 4, 11, 1])
    return batch


def load(folder, task, dtype):
    """As the scripts do: the seed, then the model, whose new head draws from it."""
    kind, labels, problem = TASKS[task]
    set_seed(42)
    config = AutoConfig.from_pretrained(folder, **({} if task in ("qa", "mlm") else {"num_labels": labels, "problem_type": problem}))
    model, info = kind.from_pretrained(folder, config=config, attn_implementation="eager", dtype=torch.float32, output_loading_info=True)
    return model.to(dtype).train(), info


def logits_of(task, inputs, output):
    if task == "qa":
        return {"start_logits_f64": output.start_logits.tolist(), "end_logits_f64": output.end_logits.tolist()}
    if task == "mlm":
        return {"logits_at_labels_f64": output.logits[inputs["labels"] != -100].tolist(), "logits_row_0_f64": output.logits[0, 0].tolist()}
    return {"logits_f64": output.logits.tolist()}


def golden(name, task, folder, heads):
    model, info = load(folder, task, torch.float64)
    single, _ = load(folder, task, torch.float32)
    missing = sorted(info["missing_keys"])
    for key, tensor in single.named_parameters():
        if key in missing:
            heads[f"{name}.{task}.{key}"] = tensor.detach().contiguous()
    inputs = inputs_of(task, model.config)
    batch = {key: value.double() if value.is_floating_point() else value for key, value in inputs.items()}
    output = model(**batch)
    output.loss.backward()
    gradients = {}
    for key, tensor in model.named_parameters():
        grad = tensor.grad if tensor.grad is not None else torch.zeros_like(tensor)
        gradients[key] = {"norm_f64": float(grad.norm()), "first8_f64": grad.flatten()[:8].tolist(), "projections_f64": projections(grad.flatten())}
        if "word_embeddings" in key or "position_embeddings" in key:
            row = int(inputs["input_ids"][0][1]) if "word" in key else 3
            gradients[key] |= {"row": row, "row_first8_f64": grad[row][:8].tolist()}
    record = {
        "versions": versions(),
        "model": name,
        "task": task,
        "num_labels": TASKS[task][1],
        "class": type(model).__name__,
        "missing_keys": missing,
        "unexpected_keys": sorted(info["unexpected_keys"]),
        "inputs": {key: value.tolist() for key, value in inputs.items()},
        **logits_of(task, inputs, output),
        "loss_f64": float(output.loss),
        "gradients": gradients,
        "grad_norm_total_f64": sum(g["norm_f64"] ** 2 for g in gradients.values()) ** 0.5,
    }
    if task in ("single", "ner"):
        record["loss_label_smoothing_0.1_f64"] = float(LabelSmoother(0.1)({"logits": output.logits}, inputs["labels"]))
    (GOLDEN / f"batch_{name}_{task}.json").write_text(json.dumps(record, separators=(",", ":")) + "\n")


def scratch():
    """The first values of a new model of every family, and of BERT without a shared output matrix."""
    changes = {name: {} for name in CONFIGS} | {"bert_untied": {"tie_word_embeddings": False}, "distilbert_fixed": {"sinusoidal_pos_embds": True}}
    models = {}
    for name, change in changes.items():
        config = CONFIGS[name.split("_")[0]]
        config = type(config)(**config.to_dict() | change)
        set_seed(42)
        model = AutoModelForMaskedLM.from_config(config)
        parameters = {}
        for key, tensor in model.named_parameters():
            flat = tensor.detach().flatten()
            parameters[key] = {"norm": float(flat.double().norm()), "first8": flat[:8].tolist(), "last8": flat[-8:].tolist()}
        models[name] = {"config": config.to_diff_dict() | {"model_type": config.model_type} | change, "parameters": parameters}
    (GOLDEN / "scratch.json").write_text(json.dumps({"versions": versions(), "models": models}, separators=(",", ":")) + "\n")


def main():
    scratch()
    heads = {}
    for name in CONFIGS:
        folder = make_model(name)
        for task in TASKS:
            golden(name, task, folder, heads)
    save_file(heads, GOLDEN / "heads.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
