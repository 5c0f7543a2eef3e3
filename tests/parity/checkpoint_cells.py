"""The cells of trainer_resumes.py: tasks, families and optimizers whose checkpoints cross between tandem and transformers' Trainer.

A cell's model is tiny, has its head and no dropout. Its features are padded, as the scripts pad them, and the same on both sides.
"""

import itertools
import json
import os
import pathlib
import shutil

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import transformers
from tokenizers import pre_tokenizers
from transformers import PreTrainedTokenizerFast, set_seed

import hf_reference

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO = ROOT / "examples/demo"
GOLDEN = ROOT / "tests/parity/golden"
NAMES = GOLDEN / "parameter_names.json"
LENGTH, STRIDE, QUESTIONS, BATCH = 48, 16, 28, 4

SHAPE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "initializer_range": 0.2,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
# The window reaches every token, since the loss of questions counts pad rows, and those without a token in the window differ (docs/differences.md).
# Pad rows without a token in their window differ (docs/differences.md): every text has the four tokens that this window needs.
MODERN_SHAPE = {
    **{key: value for key, value in SHAPE.items() if not key.endswith("dropout_prob")},
    **{"bos_token_id": 428, "cls_token_id": 428, "eos_token_id": 429, "sep_token_id": 429, "pad_token_id": 430},
    **{"max_position_embeddings": 64, "global_attn_every_n_layers": 2, "local_attention": 120},
}
ROBERTA_SHAPE = {**SHAPE, "max_position_embeddings": 66, "type_vocab_size": 1, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "layer_norm_eps": 1e-5}
FAMILIES = {
    "bert": ("Bert", DEMO / "model", {**SHAPE, "max_position_embeddings": 64}),
    "distilbert": (
        "DistilBert",
        DEMO / "model",
        {
            "dim": 32,
            "n_layers": 2,
            "n_heads": 4,
            "hidden_dim": 64,
            "initializer_range": 0.2,
            "max_position_embeddings": 64,
            "dropout": 0.0,
            "attention_dropout": 0.0,
            "qa_dropout": 0.0,
            "seq_classif_dropout": 0.0,
        },
    ),
    "deberta-v2": (
        "DebertaV2",
        GOLDEN / "tokenizers/deberta",
        {
            **SHAPE,
            "max_position_embeddings": 64,
            "relative_attention": True,
            "position_buckets": 8,
            "share_att_key": True,
            "norm_rel_ebd": "layer_norm",
            "pos_att_type": ["p2c", "c2p"],
            "position_biased_input": False,
        },
    ),
    "modernbert": ("ModernBert", GOLDEN / "tokenizers/modernbert", MODERN_SHAPE),
    "mpnet": ("MPNet", GOLDEN / "tokenizers/mpnet", {key: value for key, value in ROBERTA_SHAPE.items() if key != "type_vocab_size"}),
    "roberta": ("Roberta", GOLDEN / "tokenizers/roberta", ROBERTA_SHAPE),
    "xlm-roberta": ("XLMRoberta", GOLDEN / "tokenizers/xlmr_older", ROBERTA_SHAPE),
    "electra": ("Electra", DEMO / "model", {**SHAPE, "embedding_size": 16, "max_position_embeddings": 64}),
}

OPTIMIZERS = {
    "adamw_torch": {"weight_decay": 0.01, "learning_rate": 1e-3},
    "sgd": {"weight_decay": 0.01, "learning_rate": 0.02},
    "adagrad": {"weight_decay": 0.01, "learning_rate": 1e-3},
    "adafactor": {"weight_decay": 0.01, "learning_rate": 1e-2},
    **({"adamw_hf": {"weight_decay": 0.01, "learning_rate": 1e-3}} if int(transformers.__version__.split(".")[0]) < 5 else {}),
}


def golden_rows(task):
    return next(entry["rows"] for entry in json.loads((GOLDEN / "labels.json").read_text())["tasks"] if entry["name"] == task)


def one_text(row):
    return {"sentence": f"{row['sentence1']} {row['sentence2']}", "label": row["label"]}


class Task:
    """A command, the rows that it reads, and what its features are for the Trainer."""

    command, head, problem_type = "run_glue", "SequenceClassification", "single_label_classification"

    def __init__(self, rows):
        self.rows = rows
        self.names = sorted({name for row in rows for name in self.labels_in(row)})

    def labels_in(self, row):
        return [row["label"]]

    def write(self, folder):
        path = folder / "rows.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in self.rows))
        return path

    def flags(self):
        """The flags of tandem beyond those of all cells."""
        return []

    def encode(self, tokenizer, texts):
        return tokenizer(*texts, padding="max_length", max_length=LENGTH, truncation=True)

    def features(self, tokenizer, keys):
        texts = [[row[key] for row in self.rows] for key in self.rows[0] if key != "label"]
        encoded = self.encode(tokenizer, texts)
        return [{**{key: encoded[key][i] for key in keys}, "labels": self.label_of(row)} for i, row in enumerate(self.rows)]

    def label_of(self, row):
        return self.names.index(row["label"])


class SeveralLabels(Task):
    command, problem_type = "run_classification", "multi_label_classification"

    def labels_in(self, row):
        return row["label"]

    def label_of(self, row):
        return [float(name in row["label"]) for name in self.names]


class OneLabel(Task):
    command = "run_classification"


class Number(Task):
    command, problem_type = "run_classification", "regression"

    def labels_in(self, row):
        return []

    def label_of(self, row):
        return row["label"]


class Words(Task):
    command, head, problem_type = "run_ner", "TokenClassification", None

    def labels_in(self, row):
        return row["ner_tags"]

    def features(self, tokenizer, keys):
        # As run_ner.py asks for RoBERTa, but not for ModernBERT.
        if isinstance(tokenizer.backend_tokenizer.pre_tokenizer, pre_tokenizers.ByteLevel) and tokenizer.cls_token == "<s>":
            tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        encoded = tokenizer([row["tokens"] for row in self.rows], padding="max_length", max_length=LENGTH, truncation=True, is_split_into_words=True)
        return [{**{key: encoded[key][i] for key in keys}, "labels": self.labels_of(encoded.word_ids(i), row["ner_tags"])} for i, row in enumerate(self.rows)]

    def labels_of(self, word_ids, tags):
        """The first token of a word has its label."""
        return [-100 if word is None or word == before else self.names.index(tags[word]) for before, word in zip([None, *word_ids], word_ids)]


class Questions(Task):
    command, head, problem_type = "run_qa", "QuestionAnswering", None

    def labels_in(self, row):
        return []

    def write(self, folder):
        return DEMO / "train.json"

    def flags(self):
        return ["--max_train_samples", QUESTIONS, "--doc_stride", STRIDE, "--pad_to_max_length", "true"]

    def features(self, tokenizer, keys):
        return [
            {**{key: feature[key] for key in keys}, "start_positions": feature["start"], "end_positions": feature["end"]}
            for feature in hf_reference.features(tokenizer, self.rows, LENGTH, STRIDE, True)[:QUESTIONS]
        ]


class MaskedWords(Task):
    """Every word is chosen, and each of its tokens becomes the mask: masks that need no random number."""

    command, head, problem_type = "run_mlm", "MaskedLM", None

    def labels_in(self, row):
        return []

    def write(self, folder):
        path = folder / "rows.txt"
        path.write_text("".join(row + "\n" for row in self.rows))
        return path

    def flags(self):
        return ["--line_by_line", "--whole_word_mask", "--mlm_probability", 1, "--pad_to_max_length", "true", "--validation_split_percentage", 0]

    def features(self, tokenizer, keys):
        encoded = tokenizer(self.rows, padding="max_length", max_length=LENGTH, truncation=True, return_special_tokens_mask=True)
        return [self.masked(tokenizer, {key: encoded[key][i] for key in keys}, encoded["special_tokens_mask"][i]) for i in range(len(self.rows))]

    @staticmethod
    def masked(tokenizer, feature, special):
        tokens = feature["input_ids"]
        return {
            **feature,
            "input_ids": [token if fixed else tokenizer.mask_token_id for token, fixed in zip(tokens, special)],
            "labels": [-100 if fixed else token for token, fixed in zip(tokens, special)],
        }


TASKS = {
    "run_qa": Questions(hf_reference.read_squad(DEMO / "train.json")[:QUESTIONS]),
    "run_glue": Task(golden_rows("pair")),
    "run_classification": OneLabel([one_text(row) for row in golden_rows("pair")]),
    "run_classification, several labels": SeveralLabels(golden_rows("multilabel")),
    "run_classification, numbers": Number(golden_rows("regression")),
    "run_ner": Words(golden_rows("ner")),
    "run_mlm": MaskedWords([text for row in golden_rows("pair") if (text := one_text(row)["sentence"]).strip()]),
}


# The loss of questions counts pad rows, which differ in DeBERTa (docs/differences.md).
LEFT_OUT = {("run_qa", "deberta-v2")}


def all_cells():
    return [cell for cell in itertools.product(TASKS, FAMILIES, OPTIMIZERS) if cell[:2] not in LEFT_OUT]


def pairwise_cells():
    """Every task with every family, and each of both with every optimizer: the optimizers take turns along both sides of the table."""
    optimizers = list(OPTIMIZERS)
    found = [(task, family, optimizers[(row + column) % len(optimizers)]) for row, task in enumerate(TASKS) for column, family in enumerate(FAMILIES)]
    found = [cell for cell in found if cell[:2] not in LEFT_OUT]
    for first, second in itertools.combinations(range(3), 2):
        missing = {(cell[first], cell[second]) for cell in all_cells()} - {(cell[first], cell[second]) for cell in found}
        if missing:
            raise AssertionError(f"no cell has {sorted(missing)}: there are more optimizers than tasks or families")
    return found


def load_tokenizer(folder):
    """As in the files: transformers 5 makes some tokenizers anew from their class."""
    config = json.loads((folder / "tokenizer_config.json").read_text())
    special = {key: config[key] for key in ("cls_token", "sep_token", "pad_token", "unk_token", "mask_token")}
    return PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"),
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **{key: value["content"] if isinstance(value, dict) else value for key, value in special.items()},
    )


def make_model(family, task):
    prefix, source, shape = FAMILIES[family]
    labels = {} if not task.names else {"id2label": dict(enumerate(task.names)), "label2id": {name: i for i, name in enumerate(task.names)}}
    if task.problem_type == "regression":
        labels = {"num_labels": 1}
    config = getattr(transformers, f"{prefix}Config")(vocab_size=len(load_tokenizer(source)), problem_type=task.problem_type, **shape, **labels)
    set_seed(5)
    return getattr(transformers, f"{prefix}For{task.head}")(config).float()


def save_model(family, task, folder):
    """The initial state of both sides."""
    make_model(family, task).save_pretrained(folder)
    source = FAMILIES[family][1]
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt", "vocab.json", "merges.txt"):
        if (source / name).exists():
            shutil.copy(source / name, folder)


def load_features(family, task):
    keys = ["input_ids", "attention_mask", *(["token_type_ids"] if family in ("bert", "electra") else [])]
    return task.features(load_tokenizer(FAMILIES[family][1]), keys)


def numbered_parameters(family, task, folder):
    """The names of the parameters in each group of the Trainer's optimizer, those with weight decay first."""
    model = make_model(family, task)
    trainer = transformers.Trainer(model, transformers.TrainingArguments(str(folder), use_cpu=True, report_to=[], weight_decay=0.01))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [[names[id(parameter)] for parameter in group["params"]] for group in trainer.create_optimizer().param_groups]


def all_numbered_parameters(folder):
    heads = {task.head: task for task in TASKS.values()}
    return {f"{family} {head}": numbered_parameters(family, task, folder) for family in FAMILIES for head, task in heads.items()}
