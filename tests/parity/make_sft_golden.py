#!/usr/bin/env python3
"""Makes tests/parity/golden/sft.json: what TRL's SFTTrainer makes of rows, and how it trains on them.

    python3 -m venv VENV; VENV/bin/pip install torch transformers==4.57.6 datasets trl==1.16.0
    VENV/bin/python tests/parity/make_sft_golden.py ../shared/data/golden/next

The tokenizer is golden/tokenizers/modernbert without special tokens around texts. The model of the trajectories, tiny-llama, is read from the folder.
"""

import json
import os
import pathlib
import shutil
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
HERE = pathlib.Path(__file__).resolve().parent
TEMPLATE = "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + eos_token + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
SENTENCES = (
    "The boat sails to Norford.",
    "Dorla commands it.",
    "It carries silk, wine and 1742 coins.",
    "Rain falls on the harbour at night, and the crew waits for the wind.",
    "Yes.",
)


def rows_of(form):
    """14 rows of a form."""
    rows = []
    for i in range(14):
        question = f"Question {i}: " + SENTENCES[i % 5] + (" " + SENTENCES[(i + 2) % 5] if i % 3 == 0 else "")
        answer = SENTENCES[(i + 1) % 5] * (1 + i % 4)
        if form == "text":
            rows.append({"text": question + "\n" + answer})
        elif form == "completion":
            rows.append({"prompt": question + ("\n" if i % 2 else ""), "completion": answer})
        elif form == "messages":
            rows.append({"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]})
        else:
            rows.append({"prompt": [{"role": "user", "content": question}], "completion": [{"role": "assistant", "content": answer}]})
    return rows


def decoder_tokenizer(folder):
    """The tokenizer of a decoder: golden/tokenizers/modernbert without special tokens around texts."""
    source = HERE / "golden/tokenizers/modernbert"
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    tokenizer["post_processor"] = None
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|endoftext|>",
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "chat_template": TEMPLATE,
        "model_input_names": ["input_ids", "attention_mask"],
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def trainer_of(folder, model, tokenizer, rows, **options):
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    given = {
        "output_dir": str(folder / "out"),
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "save_strategy": "no",
        "logging_steps": 1,
        "disable_tqdm": True,
    } | options
    return SFTTrainer(
        model=model, args=SFTConfig(**given), train_dataset=Dataset.from_list(rows), eval_dataset=Dataset.from_list(rows[:6]), processing_class=tokenizer
    )


def samples_of(trainer):
    data = trainer.train_dataset
    return [{name: row[name] for name in ("input_ids", "labels", "seq_lengths") if name in row} for row in data]


CASES = [
    ("text", {}),
    ("text", {"max_length": 24}),
    ("text", {"max_length": 48, "packing": True}),
    ("text", {"max_length": 24, "packing": True, "packing_strategy": "bfd_split"}),
    ("completion", {}),
    ("completion", {"max_length": 32}),
    ("completion", {"max_length": 32, "truncation_mode": "keep_end"}),
    ("completion", {"completion_only_loss": False}),
    ("completion", {"max_length": 64, "packing": True}),
    ("messages", {}),
    ("messages", {"max_length": 96, "packing": True}),
    ("conversations", {}),
]
RUNS = [("text", {}), ("completion", {}), ("completion", {"packing": True, "max_length": 120}), ("completion", {"gradient_accumulation_steps": 2})]


def main():
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM
    import transformers
    import trl

    shared = pathlib.Path(sys.argv[1])
    golden = {
        "trl": trl.__version__,
        "transformers": transformers.__version__,
        "chat_template": TEMPLATE,
        "rows": {form: rows_of(form) for form in ("text", "completion", "messages", "conversations")},
        "cases": [],
        "runs": [],
    }
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        decoder_tokenizer(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        for form, options in CASES:
            model = LlamaForCausalLM(
                LlamaConfig(vocab_size=432, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=256)
            )
            trainer = trainer_of(folder, model, tokenizer, golden["rows"][form], **options)
            golden["cases"].append({"form": form, "options": options, "samples": samples_of(trainer)})
        llama = folder / "llama"
        shutil.copytree(shared / "models/tiny-llama", llama)
        for path in (llama, *llama.iterdir()):
            path.chmod(0o755)
        own = AutoTokenizer.from_pretrained(llama)
        for form, options in RUNS:
            arguments = {"max_steps": 6, "per_device_train_batch_size": 4, "learning_rate": 1e-3, "per_device_eval_batch_size": 4, "max_length": 120} | options
            trainer = trainer_of(folder, AutoModelForCausalLM.from_pretrained(llama), own, golden["rows"][form], **arguments)
            trainer.train()
            history = [entry for entry in trainer.state.log_history if "loss" in entry]
            result = trainer.evaluate()
            golden["runs"].append(
                {
                    "form": form,
                    "options": options,
                    "losses": [e["loss"] for e in history],
                    "grad_norms": [e["grad_norm"] for e in history],
                    "eval_loss": result["eval_loss"],
                    "eval_mean_token_accuracy": result["eval_mean_token_accuracy"],
                }
            )
    text = json.dumps(golden, ensure_ascii=False)
    (HERE / "golden/sft.json").write_text(text.replace('{"form"', '\n{"form"') + "\n")


if __name__ == "__main__":
    main()
