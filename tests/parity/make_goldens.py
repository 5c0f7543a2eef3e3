#!/usr/bin/env python3
"""Makes tests/parity/golden: what the official Hugging Face packages compute for the shipped demo model and for small odd texts.

    make_goldens.py SCRIPTS                  all but the two-rank trajectory
    make_goldens.py SCRIPTS answers          features.json and postprocess.json only
    make_goldens.py SCRIPTS trajectories     the one-rank trajectories only
    torchrun --nproc_per_node 2 make_goldens.py SCRIPTS     the two-rank trajectory
    make_goldens.py SCRIPTS --verify DIR     compares hf_reference.py with SCRIPTS on the demo, and with goldens of other texts (DIR)

SCRIPTS is a folder with Hugging Face's own run_qa.py and utils_qa.py (official_script.py). Needs torch, transformers, tokenizers, accelerate, safetensors,
numpy (every golden has the versions used). tests/parity/README.md describes every file.
"""

import gzip
import importlib.metadata
import json
import os
import pathlib
import platform
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import (
    AutoConfig,
    AutoModelForQuestionAnswering,
    AutoTokenizer,
    DistilBertConfig,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    default_data_collator,
    set_seed,
)
from transformers.data.metrics import squad_metrics

import hf_reference as reference
from official_script import OfficialScript
from projections import mix, projections

HERE = pathlib.Path(__file__).resolve().parent
DEMO = HERE.parent.parent / "examples/demo"
GOLDEN = HERE / "golden"
MAX_LENGTH, STRIDE = 64, 24  # short, so that some texts need several windows
WORLD, RANK = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))


official = OfficialScript(sys.argv[1])


def versions():
    packages = ("torch", "transformers", "tokenizers", "accelerate", "safetensors", "numpy")
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in packages}}


def write(name, value):
    """One JSON object; top-level lists get a line per item, so that a diff shows which case changed."""
    GOLDEN.mkdir(exist_ok=True)
    parts = []
    for key, item in value.items():
        if isinstance(item, list):
            lines = ",\n".join("  " + json.dumps(entry, separators=(",", ":")) for entry in item)
            parts.append(f"{json.dumps(key)}:[\n{lines}\n]")
        else:
            parts.append(f"{json.dumps(key)}:{json.dumps(item, separators=(',', ':'))}")
    (GOLDEN / name).write_text("{" + ",\n".join(parts) + "}\n", encoding="utf-8")
    print(name, (GOLDEN / name).stat().st_size)


def tokenizer():
    return AutoTokenizer.from_pretrained(DEMO / "model", use_fast=True)


# --------------------------------------------------------------------------------------------------------------- questions


def row(name, context, question, *answers):
    """answers: (text, which occurrence) or (text, start) when the text is repeated."""
    starts = [context.index(text) if start is None else start for text, start in answers]
    return {"id": name, "title": "odd", "context": context, "question": question, "answers": {"text": [text for text, _ in answers], "answer_start": starts}}


def odd_questions():
    """Short and long contexts, answers at the edges of windows, several answers, none, and characters of several bytes."""
    long_context = " ".join(f"The sails of the Calgull{'' if n == 0 else ' number ' + str(n)} are red." for n in range(7))
    last_token = "Dorla commands the Melqueen. The cargo of the Melqueen is silk"
    accents = "Caf\u00e9 owners \u2014 na\u00efve ones \u2014 like to eat fish \U0001f600 and bread in \u4e2d\u6587 towns."
    rows = [
        row("first-token", last_token, "Who commands the Melqueen?", ("Dorla", None)),
        row("last-token", last_token, "What is the cargo of the Melqueen?", ("silk", None)),
        row("last-two-tokens", last_token, "What is the cargo?", ("is silk", None)),
        row("whole-context", "fish", "What does Marla like to eat?", ("fish", None)),
        row("several-answers", last_token, "Which ship?", ("Melqueen", None), ("the Melqueen", None)),
        row("no-answer", last_token, "When was the Melqueen launched?"),
        row("spaces-before-question", last_token, " \t\u00a0 Who commands the Melqueen?", ("Dorla", None)),
        row("inside-a-word", last_token, "Which letters?", ("queen", None)),
        row("accents", accents, "What do na\u00efve owners like to eat?", ("fish", None)),
        row("accents-answer", accents, "Who likes fish?", ("na\u00efve ones", None)),
        row("after-emoji", accents, "What else?", ("bread", None)),
        row("special-token-in-text", "The flag of Forby [SEP] is red. People wave it.", "Which colour has the flag?", ("red", None)),
        row("empty-question", last_token, "", ("Dorla", None)),
    ]
    # One question per word of a long context: every window edge is hit by some answer, the last token of a window included.
    position, occurrence = 0, 0
    for word in long_context.split(" "):
        start = long_context.index(word, position)
        position = start + len(word)
        rows.append(row(f"long-{occurrence:02d}", long_context, "Which word is it?", (word.strip("."), start)))
        occurrence += 1
    return rows


def demo_questions(name, paragraphs):
    rows = reference.read_squad(DEMO / name)
    return rows[: 5 * paragraphs]


# --------------------------------------------------------------------------------------------------------------- goldens

TEXTS = [
    "",
    " ",
    "\t\n",
    "Dorla commands the Melqueen.",
    "The Melqueen sails to Norford.",
    "TORBURG lies on the river TORWATER!",
    "1742",
    "1999",
    "x1742y",
    "Since 1742 the Garwind has been at sea.",
    "don't",
    "a-b",
    "a/b.c",
    "...!?",
    "(red)",
    '"green"',
    "caf\u00e9",
    "cafe\u0301",
    "CAF\u00c9 \u00dcBER",
    "\u00c5ngstr\u00f6m",
    "na\u00efve",
    "stra\u00dfe",
    "\u0130stanbul",
    "\u03a3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2",
    "\u4e2d\u6587 text",
    "x\u4e2dy",
    "\u3000wide\u3000space",
    "a\u00a0b",
    "zero\u200bwidth",
    "soft\u00adhyphen",
    "nul\u0000inside",
    "rep\ufffdlacement",
    "bell\u0007",
    "tab\tsep",
    "line\nbreak",
    "[SEP]",
    "x[SEP]y",
    "[CLS] [MASK] [PAD] [UNK]",
    "[sep]",
    "[ SEP]",
    "##burg",
    "# #burg",
    "e\u0301\u0301\u0301",
    "\u0301\u0302",
    " \u0301x",
    "A\u030a\u0301",
    "\U0001f600 red \U0001f600",
    "\U0001f468\u200d\U0001f469",
    "emoji\U0001f600inside",
    "q" * 99,
    "q" * 100,
    "q" * 101,
    "dor" * 40,
    "\u00e9" * 100,
    "e\u0301" * 51,
    "\u2028separator\u2029",
    "\ufeffbom",
    "mixed\u6c49\u5b57words",
    "\u201cquoted\u201d \u2018text\u2019 \u2014 dash \u2026",
    "\u00bfqu\u00e9?",
    "\u00ab\u00bb",
    "\uff21\uff22\uff23",
    "\ufb01ne",
    "\u00bd \u00b2",
    "\u0928\u092e\u0938\u094d\u0924\u0947",
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629",
    "\ud55c\uad6d\uc5b4",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "\u00aa\u00ba",
    "_under_score_",
    "a_b",
    "$5.00",
    "50%",
    "#1",
    "a&b",
    "C++",
    "a\\b",
    "^~`|<>+=",
]


def make_tokens():
    tok = tokenizer()
    texts = list(
        dict.fromkeys(TEXTS + [r["context"] for r in demo_questions("held_out.json", 12)] + [r["question"] for r in demo_questions("held_out.json", 3)])
    )
    cases = []
    for text in texts:
        encoded = tok(text, return_offsets_mapping=True)
        cases.append({"text": text, "input_ids": encoded["input_ids"], "offsets": [list(o) for o in encoded["offset_mapping"]]})
    write("tokens.json", {"versions": versions(), "cases": cases})


def make_features():
    """Features of the odd questions: padded to MAX_LENGTH and not padded (the labels of a last context token differ)."""
    rows = odd_questions()
    (GOLDEN / "odd_questions.json").write_text(json.dumps({"data": rows}, indent=1) + "\n", encoding="utf-8")
    tok, result = tokenizer(), {"versions": versions(), "file": "odd_questions.json", "max_seq_length": MAX_LENGTH, "doc_stride": STRIDE}
    hit, first_long = 0, [r["id"] for r in rows].index("long-00")
    for pad in (True, False):
        cases = []
        for feature in official.features(tok, rows, MAX_LENGTH, STRIDE, pad):
            n_real = sum(feature["attention_mask"])
            hit += feature["start"] > feature["end"]
            case = {
                "example": feature["example"],
                "n_real": n_real,
                "first_type1": (feature["token_type_ids"] + [1]).index(1),
                "start": feature["start"],
                "end": feature["end"],
            }
            if feature["example"] <= first_long:  # the other questions about the long context have the same tokens
                case["input_ids"] = feature["input_ids"][:n_real]
                case["offsets"] = [list(o) if o else None for o in feature["offsets"][:n_real]]
            cases.append(case)
        result["padded" if pad else "unpadded"] = cases
    assert hit > 0, "no feature shows run_qa.py's label for an answer in the last context token"
    write("features.json", result)


def make_distilbert():
    """A small DistilBERT encoder in F16, made by formula: value i of tensor t = (number of ones in hash(t, i) - 32) / 4 · scale."""
    tok = tokenizer()
    config = DistilBertConfig(
        vocab_size=len(tok),
        dim=64,
        n_layers=2,
        n_heads=2,
        hidden_dim=128,
        max_position_embeddings=128,
        dropout=0.0,
        attention_dropout=0.0,
        qa_dropout=0.0,
        architectures=["DistilBertModel"],
    )
    folder = GOLDEN / "distilbert"
    folder.mkdir(parents=True, exist_ok=True)
    skeleton = AutoModelForQuestionAnswering.from_config(config).distilbert.state_dict()

    def values(number, shape):
        z = mix((np.arange(int(np.prod(shape)), dtype=np.uint64) + np.uint64(number << 32)) * np.uint64(0x9E3779B97F4A7C15))
        ones = np.unpackbits(z.view(np.uint8).reshape(-1, 8), axis=1).sum(1).astype(np.float32)
        return torch.from_numpy(((ones - 32) / 4).reshape(shape))

    weights = {}
    for number, (name, tensor) in enumerate(skeleton.items()):
        if "LayerNorm" in name or "layer_norm" in name:
            base, scale = (1.0, 0.0625) if name.endswith("weight") else (0.0, 0.0625)
        elif name.endswith("bias"):
            base, scale = 0.0, 0.0625
        else:
            base, scale = 0.0, 0.5 if "embeddings" in name else 0.125
        weights[name] = (base + scale * values(number, tuple(tensor.shape))).to(torch.float16).contiguous()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    settings = {key: value for key, value in config.to_diff_dict().items() if key != "transformers_version"}
    (folder / "config.json").write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")
    for name in ("tokenizer.json", "vocab.txt"):
        (folder / name).write_bytes((DEMO / "model" / name).read_bytes())
    settings = json.loads((DEMO / "model/tokenizer_config.json").read_text()) | {"tokenizer_class": "DistilBertTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")


def load_model(folder, dtype=torch.float32, attention="sdpa"):
    """As run_qa.py does: the seed, then the model, whose new head draws from it."""
    set_seed(42)
    config = AutoConfig.from_pretrained(folder)
    AutoTokenizer.from_pretrained(folder, use_fast=True)
    model = AutoModelForQuestionAnswering.from_pretrained(folder, config=config, attn_implementation=attention, dtype=torch.float32)
    return model.to(dtype).train()


def make_batch(feats, distilbert, length):
    def column(key, pad):
        return torch.tensor([(f[key] + [pad] * length)[:length] for f in feats])

    batch = {"input_ids": column("input_ids", 0), "attention_mask": column("attention_mask", 0)}
    if not distilbert:
        batch["token_type_ids"] = column("token_type_ids", 0)
    batch["start_positions"] = torch.tensor([f["start"] for f in feats])
    batch["end_positions"] = torch.tensor([f["end"] for f in feats])
    return batch


def make_model_goldens(name, folder):
    """Logits, loss and all gradients of eight features, padded to the maximum and to the longest; f32, float64, and bf16 autocast."""
    tok = AutoTokenizer.from_pretrained(folder, use_fast=True)
    distilbert = name == "distilbert"
    result = {"versions": versions(), "model": name, "max_seq_length": MAX_LENGTH, "doc_stride": STRIDE}
    tensors = {}
    for padding in ("max_length", "longest"):
        # Windows of a long text, answers in a last context token; the second batch is shorter than MAX_LENGTH.
        rows = odd_questions()[:6] + odd_questions()[20:22] if padding == "max_length" else odd_questions()[:8]
        feats = official.features(tok, rows, MAX_LENGTH, STRIDE, padding == "max_length")[:8]
        length = max(len(f["input_ids"]) for f in feats)
        batch = make_batch(feats, distilbert, length)
        runs = {}
        for kind, dtype, attention in (("f32", torch.float32, "sdpa"), ("f64", torch.float64, "eager")):
            model = load_model(folder, dtype, attention)
            output = model(**batch)
            output.loss.backward()
            runs[kind] = model, output
            for side in ("start", "end"):
                tensors[f"{padding}.{side}_logits.{kind}"] = getattr(output, f"{side}_logits").detach().contiguous()
        model = load_model(folder)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            bf16 = model(**batch)
        bf16.loss.backward()
        exact = dict(runs["f64"][0].named_parameters())
        gradients = []
        for parameter_name, parameter in runs["f32"][0].named_parameters():
            gradient, truth = parameter.grad.flatten(), exact[parameter_name].grad.flatten()
            bf16_gradient = dict(model.named_parameters())[parameter_name].grad.flatten()
            gradients.append(
                {
                    "name": parameter_name,
                    "shape": list(parameter.shape),
                    "norm": float(truth.norm()),
                    "sum": float(truth.sum()),
                    "first16": truth[:16].tolist(),
                    "projections": projections(truth),
                    "f32_error": float((gradient.double() - truth).norm()),
                    "bf16_error": float((bf16_gradient.double() - truth).norm()),
                }
            )
        result[padding] = {
            "length": length,
            "questions": [r["id"] for r in rows],
            "features": [{"example": f["example"], "n_real": sum(f["attention_mask"]), "start": f["start"], "end": f["end"]} for f in feats],
            "loss_f32": runs["f32"][1].loss.item(),
            "loss_f64": runs["f64"][1].loss.item(),
            "loss_bf16_autocast": bf16.loss.item(),
            "gradient_norm": float(torch.sqrt(sum(p.grad.pow(2).sum() for p in exact.values()))),
            "gradients": gradients,
        }
    save_file(tensors, GOLDEN / f"model_{name}.safetensors")
    write(f"model_{name}.json", result)


def make_postprocessing():
    """Answers of v1 and v2 from given logits, with texts of several windows and questions without answers, and both metrics' figures."""
    tok, rows = tokenizer(), odd_questions()[:13] + odd_questions()[20:32]
    feats = official.features(tok, rows, MAX_LENGTH, STRIDE, True)
    generator = np.random.default_rng(7)
    start = generator.normal(0, 3, (len(feats), MAX_LENGTH)).astype(np.float32)
    end = generator.normal(0, 3, (len(feats), MAX_LENGTH)).astype(np.float32)
    for k, f in enumerate(feats):
        if k % 3 != 2:  # mostly right, so that the metrics are not all zero
            start[k, f["start"]] += 12
            end[k, f["end"]] += 12
    save_file({"start_logits": torch.tensor(start), "end_logits": torch.tensor(end)}, GOLDEN / "postprocess.safetensors")
    result = {"versions": versions(), "questions": [r["id"] for r in rows], "max_seq_length": MAX_LENGTH, "doc_stride": STRIDE}
    for v2 in (False, True):
        answers, lists, odds = official.postprocess(rows, feats, start, end, v2=v2)
        part = {"predictions": answers, "nbest": lists}
        if v2:
            part["null_odds"] = odds
        part["per_question"] = {}
        for r in rows:
            gold = [t for t in r["answers"]["text"] if squad_metrics.normalize_answer(t)] or [""]
            part["per_question"][r["id"]] = {
                "exact": max(squad_metrics.compute_exact(g, answers[r["id"]]) for g in gold),
                "f1": max(squad_metrics.compute_f1(g, answers[r["id"]]) for g in gold),
            }
        answered = [r["id"] for r in rows if r["answers"]["text"]]
        ids = [r["id"] for r in rows]
        mean = lambda key, of: 100 * sum(part["per_question"][i][key] for i in of) / len(of)
        part["metrics"] = {"exact": mean("exact", ids), "f1": mean("f1", ids), "HasAns_exact": mean("exact", answered), "HasAns_f1": mean("f1", answered)}
        result["v2" if v2 else "v1"] = part
    write("postprocess.json", result)


# --------------------------------------------------------------------------------------------------------------- trajectory


class Recorder(TrainerCallback):
    """Where every parameter is after some steps, described by its way from the start: most of them move by less than a thousandth of their norm in 30 steps,
    so norms of weights show little."""

    def __init__(self, steps):
        self.steps, self.start, self.parameters = steps, {}, {}

    def on_train_begin(self, args, state, control, model=None, **_):
        self.start = {n: p.detach().double().clone() for n, p in getattr(model, "module", model).named_parameters()}

    def on_step_end(self, args, state, control, model=None, **_):
        if state.global_step in (2, 10, self.steps):  # the rate of the first step of a warm-up is 0
            model = getattr(model, "module", model)
            self.parameters[state.global_step] = [self.record(n, p.detach().double()) for n, p in model.named_parameters()]
        control.should_training_stop = state.global_step >= self.steps

    def record(self, name, weights):
        way = (weights - self.start[name]).flatten()
        at = way.abs().topk(min(8, way.numel())).indices
        return {
            "name": name,
            "norm": float(weights.norm()),
            "moved": float(way.norm()),
            "projections": projections(way),
            "at": at.tolist(),
            "values": weights.flatten()[at].tolist(),
        }


def make_trajectory(name, batch_size, accumulation, steps=30, bf16=False):
    """The first steps of the Trainer on 150 questions, padded, dropout 0, with warm-up, clipping and weight decay. 150 is not a
    multiple of any batch, and 30 steps reach the third epoch: short last batches and reshuffling are seen."""
    folder = DEMO / "model"
    tok = tokenizer()
    feats = official.features(tok, demo_questions("train.json", 30), 80, STRIDE, True)
    assert len(feats) == 150
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=batch_size,
        gradient_accumulation_steps=accumulation,
        learning_rate=2e-4,
        warmup_steps=5,
        weight_decay=0.01,
        num_train_epochs=3,
        seed=42,
        use_cpu=True,
        report_to=[],
        logging_steps=1,
        save_strategy="no",
        disable_tqdm=True,
        remove_unused_columns=False,
        log_level="error",
        bf16=bf16,
        ddp_backend="gloo" if WORLD > 1 else None,
    )
    model = load_model(folder)
    order, batches, losses = [], [], []

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return len(feats)

        def __getitem__(self, i):
            order.append(int(i))
            return {
                k: feats[i][v]
                for k, v in (
                    ("input_ids", "input_ids"),
                    ("token_type_ids", "token_type_ids"),
                    ("attention_mask", "attention_mask"),
                    ("start_positions", "start"),
                    ("end_positions", "end"),
                )
            }

    class Recording(Trainer):
        def training_step(self, *arguments, **keywords):
            loss = super().training_step(*arguments, **keywords)
            losses.append(float(loss))
            return loss

    def collate(items):
        batches.append(order[-len(items) :])
        return default_data_collator(items)

    recorder = Recorder(steps)
    trainer = Recording(model=model, args=args, train_dataset=Data(), data_collator=collate, callbacks=[recorder])
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    mine = {"rank": RANK, "batches": batches[: len(losses)], "losses": losses}  # the loader reads ahead
    ranks = [mine]
    if WORLD > 1:
        ranks = [None] * WORLD
        torch.distributed.all_gather_object(ranks, mine)
    if RANK == 0:
        log = [{k: entry[k] for k in ("step", "grad_norm", "learning_rate", "epoch")} for entry in trainer.state.log_history if "loss" in entry]
        write(
            name,
            {
                "versions": versions(),
                "world_size": WORLD,
                "batch_size": batch_size,
                "gradient_accumulation_steps": accumulation,
                "learning_rate": 2e-4,
                "warmup_steps": 5,
                "weight_decay": 0.01,
                "num_train_epochs": 3,
                "seed": 42,
                "max_seq_length": 80,
                "doc_stride": STRIDE,
                "questions": 150,
                "max_steps": trainer.state.max_steps,
                "bf16": bf16,
                "ranks": ranks,
                "steps": log,
                "parameters": recorder.parameters,
            },
        )


def make_trajectories():
    make_trajectory("trajectory_one_rank.json", 12, 1)
    make_trajectory("trajectory_accumulation.json", 4, 3)
    make_trajectory("trajectory_bf16.json", 12, 1, bf16=True)


# --------------------------------------------------------------------------------------------------------------- verify


def verify(folder):
    """hf_reference.py against the original scripts: all features and answers of the demo's questions and the odd ones, then goldens of real questions."""
    tok, same = tokenizer(), True
    for rows, length in ((odd_questions(), MAX_LENGTH), (reference.read_squad(DEMO / "train.json"), 80), (reference.read_squad(DEMO / "held_out.json"), 96)):
        for pad in (True, False):
            theirs = official.features(tok, rows, length, STRIDE, pad)
            same &= reference.features(tok, rows, length, STRIDE, pad) == theirs
            if pad:
                logits = np.random.default_rng(3).normal(0, 3, (2, len(theirs), length)).astype(np.float32)
                same &= all(
                    reference.postprocess(rows, theirs, *logits, v2=v2)[0] == official.postprocess(rows, theirs, *logits, v2=v2)[0] for v2 in (False, True)
                )
    print(f"features and answers of the demo: {'equal' if same else 'DIFFERENT'}")
    from safetensors.numpy import load_file

    folder = pathlib.Path(folder)
    rows = reference.read_squad(folder.parent / "squad/xquad.en.json")
    logits = load_file(folder / "eval_logits.safetensors")
    golden = json.loads(gzip.decompress((folder / "eval_nbest.json.gz").read_bytes()))
    minilm = HERE.parent.parent / "build/test-data/minilm"
    feats = reference.features(AutoTokenizer.from_pretrained(minilm, use_fast=True), rows, 384, 128, True)
    chosen = [feats[i] for i in logits["feature"]]
    ids = {r["id"] for r in rows} & golden["nbest"].keys()
    _, lists, _ = reference.postprocess(rows, chosen, logits["start_logits"], logits["end_logits"])
    fields = ("text", "start_logit", "end_logit")  # probabilities may differ in the last bit
    same = sum([[c[k] for k in fields] for c in lists[i]] == [[c[k] for k in fields] for c in golden["nbest"][i]] for i in ids)
    print(f"n-best lists equal: {same} of {len(ids)}")
    present = sorted({f["example"] for f in chosen})
    remap = {e: k for k, e in enumerate(present)}
    part = [dict(f, example=remap[f["example"]]) for f in chosen]
    answers, _, odds = reference.postprocess([rows[e] for e in present], part, logits["start_logits"], logits["end_logits"], v2=True)
    same = sum(answers[i] == golden["v2_predictions"][i] and abs(odds[i] - golden["v2_null_odds"][i]) < 1e-6 for i in ids)
    print(f"v2 answers and null odds equal: {same} of {len(ids)}")


def main():
    torch.set_num_threads(1)
    if sys.argv[2:3] == ["--verify"]:
        verify(sys.argv[3])
    elif sys.argv[2:] == ["answers"]:
        make_features()
        make_postprocessing()
    elif sys.argv[2:] == ["trajectories"]:
        make_trajectories()
    elif WORLD > 1:
        make_trajectory("trajectory_two_ranks.json", 6, 1)
    else:
        GOLDEN.mkdir(exist_ok=True)
        make_tokens()
        make_features()
        make_distilbert()
        make_model_goldens("bert", DEMO / "model")
        make_model_goldens("distilbert", GOLDEN / "distilbert")
        make_postprocessing()
        make_trajectories()


if __name__ == "__main__":
    main()
