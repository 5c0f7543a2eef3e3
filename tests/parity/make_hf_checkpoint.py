#!/usr/bin/env python3
"""A checkpoint of the Hugging Face Trainer and the losses behind it: golden/hf_checkpoint.

    python make_hf_checkpoint.py

20 steps of a tiny BERT without dropout on the first 60 questions of examples/demo/train.json, padded to
64 tokens; checkpoint-10 and the losses of all steps are kept. tests/e2e/hf_checkpoint_test.cc resumes from the checkpoint with tandem.
"""

import json
import os
import shutil
import tempfile

import torch
import transformers
from transformers import AutoTokenizer, BertConfig, BertForQuestionAnswering, Trainer, TrainingArguments, set_seed

import hf_reference

HERE = os.path.dirname(os.path.abspath(__file__))
DEMO = os.path.join(HERE, "..", "..", "examples", "demo")
TARGET = os.path.join(HERE, "golden", "hf_checkpoint")
QUESTIONS, LENGTH, STRIDE, BATCH, STEPS = 60, 64, 24, 4, 20


class RecordingTrainer(Trainer):
    losses = []

    def training_step(self, *arguments, **keywords):
        loss = super().training_step(*arguments, **keywords)
        self.losses.append(loss.item())
        return loss


def main():
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(os.path.join(DEMO, "model"))
    rows = hf_reference.read_squad(os.path.join(DEMO, "train.json"))[:QUESTIONS]
    features = hf_reference.features(tokenizer, rows, LENGTH, STRIDE, True)
    set_seed(42)
    model = BertForQuestionAnswering(
        BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=LENGTH,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = RecordingTrainer(
            model,
            TrainingArguments(
                folder,
                max_steps=STEPS,
                save_steps=10,
                logging_steps=1,
                learning_rate=1e-2,
                weight_decay=0.01,
                lr_scheduler_type="cosine",
                warmup_steps=3,
                per_device_train_batch_size=BATCH,
                use_cpu=True,
                report_to=[],
                disable_tqdm=True,
            ),
            train_dataset=hf_reference.training_inputs(features),
            processing_class=tokenizer,
        )
        trainer.train()
        shutil.rmtree(TARGET, ignore_errors=True)
        shutil.copytree(os.path.join(folder, "checkpoint-10"), os.path.join(TARGET, "checkpoint-10"), ignore=shutil.ignore_patterns("training_args.bin"))
    with open(os.path.join(TARGET, "losses.json"), "w") as file:
        json.dump(
            {
                "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
                "features": len(features),
                "losses": trainer.losses,
                "grad_norms": [entry["grad_norm"] for entry in trainer.state.log_history if "grad_norm" in entry],
            },
            file,
        )
        file.write("\n")


if __name__ == "__main__":
    main()
