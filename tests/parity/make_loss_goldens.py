#!/usr/bin/env python3
"""Writes golden/losses.json: the first steps of sentence-transformers 5.7 with the losses that the
goldens of ../shared have no steps of. Arguments: a tiny bi-encoder, a tiny cross-encoder.

    softmax   SoftmaxLoss: the classifier before the first step, and the loss of each step. The
              Trainer never sets the gradient of the classifier to zero; here a callback does.
    gist      GISTEmbedLoss: values and gradients by the embeddings
    in_batch  MultipleNegativesRankingLoss of cross-encoders with all negatives of the batch
"""

import json
import pathlib
import sys
import tempfile

import sentence_transformers
import torch
import transformers
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers import SentenceTransformerTrainingArguments as Arguments
from sentence_transformers.cross_encoder import CrossEncoder, CrossEncoderTrainer
from sentence_transformers.cross_encoder import CrossEncoderTrainingArguments
from sentence_transformers.cross_encoder.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.losses import GISTEmbedLoss, SoftmaxLoss

STEPS = 6
ARGUMENTS = {
    "per_device_train_batch_size": 4,
    "learning_rate": 1e-3,
    "max_steps": STEPS,
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": [],
    "use_cpu": True,
    "max_grad_norm": 1e9,
}
SHIPS = ["Garqueen", "Kalstar", "Calwave", "Rinwave", "Salgull", "Nelbird", "Salwave", "Calgull"]
LOADS = ["wine", "wool", "salt", "iron"]


def without_dropout(model):
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model


def softmax_rows():
    rows = []
    for i in range(12):
        ship, load = SHIPS[i % len(SHIPS)], LOADS[i % len(LOADS)]
        other = [f"The {ship} carries {load}.", f"The {ship} sails.", "Nobody is at sea."][i % 3]
        rows.append({"premise": f"The cargo of the {ship} is {load}.", "hypothesis": other, "label": i % 3})
    return rows


def in_batch_rows():
    rows = []
    for i, ship in enumerate(SHIPS):
        rows.append(
            {
                "query": f"What does the {ship} carry?",
                "positive": f"The cargo of the {ship} is {LOADS[i % 4]}.",
                "negative": f"The {SHIPS[i - 1]} carries {LOADS[(i + 1) % 4]}.",
            }
        )
    return rows


def columns(rows):
    return Dataset.from_dict({name: [row[name] for row in rows] for name in rows[0]})


class Steps(transformers.TrainerCallback):
    """Loss and gradient norm of each step; sets the gradients of `parameters` to zero after it."""

    def __init__(self, parameters=()):
        self.steps, self.parameters = [], list(parameters)

    def on_step_end(self, *_args, **_kwargs):
        for parameter in self.parameters:
            parameter.grad = None

    def on_log(self, _arguments, _state, _control, logs, **_kwargs):
        if "grad_norm" in logs:
            self.steps.append({"loss": logs["loss"], "grad_norm": logs["grad_norm"]})


def exact_losses(trainer):
    """The Trainer rounds what it logs; this notes the losses of the steps."""
    losses, step = [], trainer.training_step

    def noted(*args, **kwargs):
        loss = step(*args, **kwargs)
        losses.append(float(loss))
        return loss

    trainer.training_step = noted
    return losses


def softmax(path):
    model = without_dropout(SentenceTransformer(path, device="cpu"))
    torch.manual_seed(7)
    loss = SoftmaxLoss(model, model.get_embedding_dimension(), num_labels=3)
    classifier = {
        "weight": loss.classifier.weight.detach().flatten().tolist(),
        "bias": loss.classifier.bias.detach().tolist(),
    }
    with tempfile.TemporaryDirectory() as folder:
        trainer = SentenceTransformerTrainer(
            model=model,
            args=Arguments(folder, **ARGUMENTS),
            train_dataset=columns(softmax_rows()),
            loss=loss,
            callbacks=[Steps(loss.classifier.parameters())],
        )
        losses = exact_losses(trainer)
        trainer.train()
    trained = {"bias": loss.classifier.bias.detach().tolist()}
    return {"rows": softmax_rows(), "before": classifier, "losses": losses, "after": trained}


class Embeddings(torch.nn.Module):
    """Stands for a model: its output are given embeddings."""

    def __init__(self, embeddings):
        super().__init__()
        self.embeddings = embeddings
        self.tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=TOKENIZER)
        self.max_seq_length = 16
        self.device = torch.device("cpu")

    def __getitem__(self, index):
        return None

    def forward(self, features):
        return {"sentence_embedding": self.embeddings[features["column"]]}


def gist():
    generator = torch.Generator().manual_seed(3)
    cases = []
    for count, options in [
        (2, {}),
        (3, {}),
        (3, {"temperature": 0.05, "margin_strategy": "relative", "margin": 0.2}),
        (3, {"margin": 0.1, "contrast_anchors": False}),
        (2, {"temperature": 0.1, "contrast_positives": False}),
    ]:
        shape = (count, 6, 8)
        own = torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
        guide = torch.randn(shape, generator=generator, dtype=torch.float64)
        loss = GISTEmbedLoss(Embeddings(own), Embeddings(guide), **options)
        value = loss([{"column": column} for column in range(count)], None)
        value.backward()
        cases.append(
            {
                "options": options,
                "columns": count,
                "embeddings": own.detach().flatten().tolist(),
                "guide": guide.flatten().tolist(),
                "loss": float(value),
                "gradient": own.grad.flatten().tolist(),
            }
        )
    return cases


def in_batch(path):
    model = without_dropout(CrossEncoder(path, device="cpu"))
    steps = Steps()
    with tempfile.TemporaryDirectory() as folder:
        trainer = CrossEncoderTrainer(
            model=model,
            args=CrossEncoderTrainingArguments(folder, **ARGUMENTS),
            train_dataset=columns(in_batch_rows()),
            loss=MultipleNegativesRankingLoss(model, num_negatives=None),
            callbacks=[steps],
        )
        losses = exact_losses(trainer)
        trainer.train()
    norms = [step["grad_norm"] for step in steps.steps]
    return {"rows": in_batch_rows(), "losses": losses, "grad_norms": norms}


def main():
    global TOKENIZER
    bi_encoder, cross_encoder = sys.argv[1:3]
    TOKENIZER = SentenceTransformer(bi_encoder, device="cpu").tokenizer.backend_tokenizer
    golden = {
        "versions": {
            "sentence-transformers": sentence_transformers.__version__,
            "transformers": transformers.__version__,
            "torch": torch.__version__,
        },
        "arguments": {key: ARGUMENTS[key] for key in ("per_device_train_batch_size", "learning_rate", "max_steps")},
        "softmax": softmax(bi_encoder),
        "gist": gist(),
        "in_batch": in_batch(cross_encoder),
    }
    path = pathlib.Path(__file__).parent / "golden" / "losses.json"
    path.write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
