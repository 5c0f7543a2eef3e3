#!/usr/bin/env python3
"""Models that label texts or words go from tandem to transformers and back, and `tandem predict` predicts what transformers' pipelines predict.

    hf_labels.py TANDEM

For a BERT, a DistilBERT, a RoBERTa, an XLM-R and an ELECTRA, which transformers saved as safetensors without a head:
1. tandem trains each as run_glue and as run_ner (the BERT also on several labels and on numbers) on the rows of golden/labels.json; transformers loads the saved
   directory without a missing or unexpected tensor, and its pipeline gives the labels and scores of `tandem predict`, and for words the entities under every
   --aggregation_strategy.
2. transformers saves a model of labels with weights of its own; `tandem predict` gives the scores of its pipeline.
Scores are compared to 2e-5. Needs torch and transformers; exits 77, which means skipped, when build/test-data/venv (or TANDEM_PARITY_PYTHON) does not have them.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/parity/golden"
DEMO = ROOT / "examples/demo/model"
VENV_PYTHON = pathlib.Path(os.environ.get("TANDEM_PARITY_PYTHON", ROOT / "build/test-data/venv/bin/python"))
TOLERANCE = 2e-5
STRATEGIES = ("none", "simple", "first", "average", "max")
TEXTS = [
    "Ada Lovelace lived in London.",
    "Anna Maria Berg, of Port Calm, met Tom!",
    "don't sell the old harbour's ferry to Ada-Berg (London)",
    "Caf\u00e9 M\u00fcller \u2014 na\u00efve Tom \U0001f600 left Port  Calm",
    "unbelievably \u4e2d\u6587 London",
]
# Words that only blanks part, blanks of other kinds, and characters that are not tokens.
BLANKS = [
    "TOM",
    "It rained .",
    "Where did Ada go after Tom had sold the ferry to Port Calm ?",
    "  Ada   Lovelace\tand\u00a0Tom ",
    "Ada \u2603\u2603 Tom\u2603s ferry",
]

try:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import torch
    import transformers
    from transformers import (
        AutoModelForSequenceClassification,
        AutoModelForTokenClassification,
        AutoTokenizer,
        BertModel,
        DebertaV2Config,
        DebertaV2Model,
        DistilBertModel,
        ElectraConfig,
        ElectraModel,
        ModernBertConfig,
        ModernBertModel,
        MPNetConfig,
        MPNetModel,
        RobertaConfig,
        RobertaModel,
        XLMRobertaConfig,
        XLMRobertaModel,
        pipeline,
        set_seed,
    )
except ImportError:
    if not VENV_PYTHON.exists() or os.environ.get("TANDEM_CHECK_IN_VENV"):
        print(
            "SKIPPED: needs the packages torch and transformers: install them into build/test-data/venv, or name a Python that has them in TANDEM_PARITY_PYTHON"
        )
        sys.exit(77)
    os.execve(VENV_PYTHON, [str(VENV_PYTHON), *sys.argv], {**os.environ, "TANDEM_CHECK_IN_VENV": "1"})

DEBERTA_FORM = dict(share_att_key=True, norm_rel_ebd="layer_norm", pos_att_type=["p2c", "c2p"], position_biased_input=False)
SHAPE = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, initializer_range=0.2)


def save_encoder(name, folder):
    """As people find it on the Hub: an encoder, its tokenizer, no head."""
    set_seed(3)
    source = {
        "deberta-v2": GOLDEN / "tokenizers/deberta",
        "modernbert": GOLDEN / "tokenizers/modernbert",
        "mpnet": GOLDEN / "tokenizers/mpnet",
        "roberta": GOLDEN / "tokenizers/roberta",
        "xlm-roberta": GOLDEN / "tokenizers/xlmr_older",
    }.get(name, DEMO)
    # A DistilBERT has no token types, which the tokenizer of the demo's BERT gives.
    tokenizer = AutoTokenizer.from_pretrained(source, **({"model_input_names": ["input_ids", "attention_mask"]} if name == "distilbert" else {}))
    positions = dict(max_position_embeddings=66, type_vocab_size=1, pad_token_id=1, layer_norm_eps=1e-5)
    model = {
        "bert": lambda: BertModel.from_pretrained(DEMO, dtype=torch.float32),
        "distilbert": lambda: DistilBertModel.from_pretrained(GOLDEN / "distilbert", dtype=torch.float32),
        "deberta-v2": lambda: DebertaV2Model(
            DebertaV2Config(vocab_size=len(tokenizer), max_position_embeddings=64, relative_attention=True, position_buckets=8, **DEBERTA_FORM, **SHAPE)
        ),
        "modernbert": lambda: ModernBertModel(
            ModernBertConfig(vocab_size=len(tokenizer), pad_token_id=430, max_position_embeddings=64, local_attention=16, **SHAPE)
        ),
        "mpnet": lambda: MPNetModel(MPNetConfig(vocab_size=len(tokenizer), max_position_embeddings=66, layer_norm_eps=1e-5, **SHAPE)),
        "roberta": lambda: RobertaModel(RobertaConfig(vocab_size=len(tokenizer), **SHAPE, **positions)),
        "xlm-roberta": lambda: XLMRobertaModel(XLMRobertaConfig(vocab_size=len(tokenizer), **SHAPE, **positions)),
        "electra": lambda: ElectraModel(ElectraConfig(vocab_size=len(tokenizer), embedding_size=16, max_position_embeddings=64, **SHAPE)),
    }[name]()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    assert (folder / "model.safetensors").exists()
    return folder


def run(*command, input=None):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, input=input)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stderr[-3000:]}")
    return done.stdout


def predict(tandem, model, texts, *flags):
    lines = run(tandem, "predict", "--model", model, "--file", "-", "--json", *flags, input="".join(text + "\n" for text in texts))
    return [json.loads(line) for line in lines.splitlines()]


def load(kind, folder):
    model, info = kind.from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
    return model.eval(), [f"{what}: {sorted(names)}" for what, names in info.items() if names]


def texts_differ(tandem, folder, texts, complaints):
    """Differences between `tandem predict` and the pipeline, and the largest difference of a score."""
    model, found = load(AutoModelForSequenceClassification, folder)
    complaints += found
    theirs = pipeline("text-classification", model=model, tokenizer=AutoTokenizer.from_pretrained(folder), top_k=None)(
        [{"text": text[0], "text_pair": text[1]} if isinstance(text, tuple) else text for text in texts]
    )
    pairs = isinstance(texts[0], tuple)
    ours = predict(tandem, folder, ["\t".join(text) if pairs else text for text in texts], "--top_k", 100, *(["--pairs"] if pairs else []))
    worst = 0.0
    for a, b in zip(ours, theirs, strict=True):
        a, b = ({entry["label"]: entry["score"] for entry in entries} for entries in (a["labels"], b))
        if a.keys() != b.keys():
            complaints.append(f"labels {sorted(a)} instead of {sorted(b)}")
            continue
        worst = max(worst, *(abs(a[label] - b[label]) for label in a))
    return worst


def words_differ(tandem, folder, complaints):
    model, found = load(AutoModelForTokenClassification, folder)
    complaints += found
    worst, entities = 0.0, 0
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for strategy in STRATEGIES:
        texts = TEXTS + BLANKS
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the words that blanks part
            theirs = pipeline("token-classification", model=model, tokenizer=tokenizer, aggregation_strategy=strategy)(texts)
        ours = predict(tandem, folder, texts, "--aggregation_strategy", strategy)
        for text, a, b in zip(texts, ours, theirs, strict=True):
            entities += len(b)
            key = "entity" if strategy == "none" else "entity_group"
            spans = [[(entity[key], entity["start"], entity["end"]) for entity in side] for side in (a["entities"], b)]
            if spans[0] != spans[1]:
                complaints.append(f"{strategy}, {text!r}: {spans[0]} instead of {spans[1]}")
                continue
            worst = max([worst, *(abs(x["score"] - y["score"]) for x, y in zip(a["entities"], b))])
    return worst, entities


def report(what, worst, complaints):
    good = not complaints and worst <= TOLERANCE
    print(f"{what}: largest difference of a score {worst:.2e}{'; ' + '; '.join(complaints) if complaints else ''}: {'ok' if good else 'WRONG'}", flush=True)
    return good


def train(tandem, model, task, folder):
    rows = folder.parent / f"{task['name']}.json"
    rows.write_text("".join(json.dumps(row) + "\n" for row in task["rows"]))
    run(
        tandem,
        task["command"],
        "--model_name_or_path",
        model,
        "--do_train",
        "--train_file",
        rows,
        "--max_seq_length",
        32,
        "--max_steps",
        60,
        "--learning_rate",
        2e-3,
        "--per_device_train_batch_size",
        8,
        "--save_strategy",
        "no",
        "--output_dir",
        folder,
    )


def from_tandem(tandem, name, encoder, tasks, scratch):
    good = True
    for task_name in ("pair", "ner", *(("multilabel", "regression") if name == "bert" else ())):
        task, folder, complaints = tasks[task_name], scratch / f"{name}-{task_name}", []
        train(tandem, encoder, task, folder)
        what = f"tandem \u2192 transformers, {name}, {task_name}"
        if task_name == "ner":
            worst, entities = words_differ(tandem, folder, complaints)
            what += f", {entities} entities"
        else:
            texts = (
                [(row["sentence1"], row["sentence2"]) for row in task["rows"] if row["sentence1"] and row["sentence2"]]
                if task_name == "pair"
                else TEXTS + BLANKS
            )
            worst = texts_differ(tandem, folder, texts, complaints)
        good &= report(what, worst, complaints)
    return good


def from_transformers(tandem, name, encoder, scratch):
    good, names = True, {0: "yes", 1: "no", 2: "it depends"}
    set_seed(11)
    for kind in (AutoModelForSequenceClassification, AutoModelForTokenClassification):
        folder, complaints = scratch / f"{name}-{kind.__name__}", []
        labels = names if kind is AutoModelForSequenceClassification else {0: "O", 1: "B-x", 2: "I-x"}
        model = kind.from_pretrained(encoder, id2label=labels, label2id={label: i for i, label in labels.items()}, dtype=torch.float32)
        for parameter, values in model.named_parameters():
            if parameter.startswith("classifier"):
                torch.nn.init.normal_(values, std=0.5)  # logits of several units
        model.save_pretrained(folder)
        AutoTokenizer.from_pretrained(encoder).save_pretrained(folder)
        what = f"transformers \u2192 tandem, {name}, {kind.__name__}"
        if kind is AutoModelForSequenceClassification:
            good &= report(what, texts_differ(tandem, folder, TEXTS + BLANKS, complaints), complaints)
        else:
            worst, entities = words_differ(tandem, folder, complaints)
            good &= report(f"{what}, {entities} entities", worst, complaints)
    return good


def main():
    tandem, good = pathlib.Path(sys.argv[1]).resolve(), True
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    tasks = {task["name"]: task for task in json.loads((GOLDEN / "labels.json").read_text())["tasks"]}
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        for name in ("bert", "deberta-v2", "distilbert", "modernbert", "mpnet", "roberta", "xlm-roberta", "electra"):
            encoder = save_encoder(name, scratch / name)
            good &= from_tandem(tandem, name, encoder, tasks, scratch)
            good &= from_transformers(tandem, name, encoder, scratch)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
