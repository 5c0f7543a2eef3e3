"""A BERT or DeBERTa-v3 for question answering with random weights, as a directory of a model: its size matters to a bench, its answers do not."""

import array
import json
import random
import shutil
import struct

import rivals

POSITIONS, SEED, SPREAD, POOL = 512, 7, 0.02, 1 << 20


def shapes(config):
    """Names and shapes of the tensors, as transformers calls them."""
    hidden, between = config["hidden_size"], config["intermediate_size"]
    linear = lambda name, outputs, inputs: {f"{name}.weight": [outputs, inputs], f"{name}.bias": [outputs]}
    norm = lambda name: {f"{name}.LayerNorm.weight": [hidden], f"{name}.LayerNorm.bias": [hidden]}
    deberta = config["model_type"] == "deberta-v2"
    base, suffix = ("deberta", "_proj") if deberta else ("bert", "")
    found = {f"{base}.embeddings.word_embeddings.weight": [config["vocab_size"], hidden]}
    if deberta:
        found |= {f"{base}.encoder.rel_embeddings.weight": [2 * config["position_buckets"], hidden]} | norm(f"{base}.encoder")
    else:
        found |= {f"{base}.embeddings.{name}_embeddings.weight": [rows, hidden] for name, rows in (("position", POSITIONS), ("token_type", 2))}
    found |= norm(f"{base}.embeddings")
    for layer in range(config["num_hidden_layers"]):
        at = f"{base}.encoder.layer.{layer}"
        for name in ("query", "key", "value"):
            found |= linear(f"{at}.attention.self.{name}{suffix}", hidden, hidden)
        found |= linear(f"{at}.attention.output.dense", hidden, hidden) | norm(f"{at}.attention.output")
        found |= linear(f"{at}.intermediate.dense", between, hidden)
        found |= linear(f"{at}.output.dense", hidden, between) | norm(f"{at}.output")
    return found | linear("qa_outputs", 2, hidden)


def values(name, count, pool, chance):
    if not name.endswith(".weight") or "LayerNorm" in name:
        return array.array("f", [1.0 if name.endswith("LayerNorm.weight") else 0.0]) * count
    # Pieces of one pool, each from another place: a value of its own for every weight would take minutes.
    found = array.array("f")
    while len(found) < count:
        begin = chance.randrange(POOL)
        found += pool[begin : begin + min(POOL - begin, count - len(found))]
    return found


def write(folder, size, tokenizer):
    """`size` of rivals.MODELS, of BERT's family or DeBERTa's; the tokenizer of the directory `tokenizer`, which has 30,522 tokens."""
    shutil.copytree(tokenizer, folder)
    for weights in [*folder.glob("*.safetensors"), *folder.glob("*.bin")]:
        weights.unlink()
    family, kind = rivals.FAMILIES.get(size, ("bert", "Bert"))
    config = {
        "architectures": [f"{kind}ForQuestionAnswering"],
        "model_type": family,
        "vocab_size": 30522,
        "max_position_embeddings": POSITIONS,
        "type_vocab_size": 2,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "initializer_range": SPREAD,
        "pad_token_id": 0,
        "position_embedding_type": "absolute",
        **rivals.MODELS[size],
    }
    (folder / "config.json").write_text(json.dumps(config))
    chance = random.Random(SEED)
    pool = array.array("f", (chance.gauss(0, SPREAD) for _ in range(POOL)))
    header, end = {"__metadata__": {"format": "pt"}}, 0
    count = lambda shape: shape[0] * (shape[1] if len(shape) > 1 else 1)
    tensors = shapes(config)
    for name, shape in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end := end + 4 * count(shape)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name, shape in tensors.items():
            values(name, count(shape), pool, chance).tofile(out)
