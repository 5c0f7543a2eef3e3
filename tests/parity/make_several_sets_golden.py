#!/usr/bin/env python3
"""Writes golden/several_sets.json: the rows of each batch that the Trainer of sentence-transformers
5.7 trains with several data sets. The argument is the directory of a tiny bi-encoder."""

import json
import pathlib
import sys
import tempfile

import accelerate
import sentence_transformers
import torch
import transformers
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers import SentenceTransformerTrainingArguments as Arguments
from sentence_transformers.losses import MultipleNegativesRankingLoss

SIZES = {"a": 13, "b": 5, "c": 8}


def data_sets():
    """Rows whose first text is their number; every fourth row of a set shares its second text."""
    first, sets = 0, {}
    for name, size in SIZES.items():
        rows = range(first, first + size)
        other = [f"{name} {row if row % 4 else 'shared'}" for row in rows]
        sets[name] = Dataset.from_dict({"text": [str(row) for row in rows], "other": other})
        first += size
    return sets


class Recorder(transformers.TrainerCallback):
    """Batches by epoch: those that the collator has seen, cut to those that were trained."""

    def __init__(self):
        self.fetched, self.trained = [], []

    def on_epoch_begin(self, *_args, **_kwargs):
        self.fetched.append([])
        self.trained.append(0)

    def on_step_end(self, *_args, **_kwargs):
        self.trained[-1] += 1

    def watch(self, collate):
        def collated(features):
            if self.fetched:
                self.fetched[-1].append([int(row["text"]) for row in features])
            return collate(features)

        return collated

    def batches(self):
        return [rows[:count] for rows, count in zip(self.fetched, self.trained, strict=True)]


def batches_of(model, **arguments):
    with tempfile.TemporaryDirectory() as folder:
        trainer = SentenceTransformerTrainer(
            model=SentenceTransformer(model),
            args=Arguments(
                output_dir=folder,
                num_train_epochs=3,
                save_strategy="no",
                report_to="none",
                use_cpu=True,
                **arguments,
            ),
            train_dataset=data_sets(),
            loss=MultipleNegativesRankingLoss(SentenceTransformer(model)),
        )
        recorder = Recorder()
        inner = trainer.data_collator
        loader = trainer.get_train_dataloader

        def watched():
            made = loader()
            base = getattr(made, "base_dataloader", made)
            base.collate_fn = recorder.watch(inner)
            return made

        trainer.get_train_dataloader = watched
        trainer.add_callback(recorder)
        # The loss belongs to another copy of the model: only the order of batches counts.
        trainer.loss = MultipleNegativesRankingLoss(trainer.model)
        trainer.train()
        return recorder.batches()


def main():
    model = sys.argv[1]
    runs = []
    for order in ("proportional", "round_robin"):
        for sampler in ("batch_sampler", "no_duplicates"):
            for batch_size, drop_last in ((4, False), (4, True), (5, False)):
                run = {
                    "multi_dataset_batch_sampler": order,
                    "batch_sampler": sampler,
                    "per_device_train_batch_size": batch_size,
                    "dataloader_drop_last": drop_last,
                    "seed": 7,
                }
                runs.append({**run, "batches": batches_of(model, **run)})
    versions = {m.__name__: m.__version__ for m in (sentence_transformers, transformers, torch, accelerate)}
    golden = {"versions": versions, "sizes": list(SIZES.values()), "runs": runs}
    target = pathlib.Path(__file__).with_name("golden") / "several_sets.json"
    target.write_text(json.dumps(golden, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
