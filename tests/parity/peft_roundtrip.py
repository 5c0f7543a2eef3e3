#!/usr/bin/env python3
"""Adapters go from tandem to PEFT and back with the same numbers.

    peft_roundtrip.py TANDEM

For a text classification with BERT, and for Llama, Qwen3 and GPT-2 of the shared golden data: tandem trains an adapter, PEFT loads it on its base model, and transformers
loads what `tandem merge` wrote; then PEFT saves an adapter of another form, which tandem evaluates, merges and answers with. Scores, losses and logits must be within 1e-5,
greedy tokens equal. Runs itself again with the Python of build/test-data/torch-venv; exits 77, which means skipped, without peft or the shared data.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared/data/golden/next"
VENV_PYTHON = ROOT / "build/test-data/torch-venv/bin/python"
os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}

try:
    import torch
    from peft import AutoPeftModelForCausalLM, AutoPeftModelForSequenceClassification, LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
except ImportError:
    if not VENV_PYTHON.exists() or os.environ.get("TANDEM_CHECK_IN_VENV"):
        print("SKIPPED: needs the package peft: scripts/fetch_torch.sh && build/test-data/torch-venv/bin/pip install peft==0.21.2")
        sys.exit(77)
    os.execve(VENV_PYTHON, [str(VENV_PYTHON), *sys.argv], {**os.environ, "TANDEM_CHECK_IN_VENV": "1"})
if not SHARED.exists():
    print(f"SKIPPED: needs the shared test data, which is absent: {SHARED}")
    sys.exit(77)

TANDEM = str(pathlib.Path(sys.argv[1]).resolve())
TOLERANCE = 1e-5
TEXTS = ["The Valgull carries glass.", "Since 1655 the Salwave has been at sea.", "rain, and the wind from the north", "The pilot left the harbour at dawn."]
BLOCK = 32
PROMPT = "The ship"
findings = []


def run(*words):
    done = subprocess.run([TANDEM, *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"tandem {' '.join(map(str, words))}\nended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def expect_equal(found, expected, what):
    difference = (torch.as_tensor(found) - torch.as_tensor(expected)).abs().max().item()
    print(f"{what}: {difference:.1e}")
    if not difference <= TOLERANCE:
        findings.append(f"{what}: found a difference of {difference}, expected at most {TOLERANCE}")


def expect_another(found, base, what):
    """An adapter that changes nothing would show nothing."""
    difference = (found - base).abs().max().item()
    if difference < 1e-2:
        findings.append(f"{what}: the adapter changes its base by {difference} alone")


def stir(model):
    """Values of all trained parameters away from the initial ones."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))


class Classification:
    """Two labels of texts."""

    def __init__(self, folder):
        self.base = SHARED / "models/tiny-bert"
        self.rows = folder / "rows.json"
        self.rows.write_text("".join(json.dumps({"sentence": text, "label": number % 2}) + "\n" for number, text in enumerate(TEXTS)))
        self.batch = AutoTokenizer.from_pretrained(self.base)(TEXTS, padding=True, return_tensors="pt")

    command = "run_glue"
    adapted = staticmethod(AutoPeftModelForSequenceClassification.from_pretrained)
    plain = staticmethod(AutoModelForSequenceClassification.from_pretrained)
    settings = {
        "r": 3,
        "lora_alpha": 5,
        "use_rslora": True,
        "target_modules": r".*layer\.\d\.attention\.self\.(query|key)",
        "rank_pattern": {"key": 2},
        "task_type": "SEQ_CLS",
    }

    def flags(self):
        return ["--train_file", self.rows, "--validation_file", self.rows]

    def compare_answers(self, directory, logits, what):
        lines = [json.loads(line) for text in TEXTS for line in run("predict", "--model", directory, "--json", "--top_k", 2, text).splitlines()]
        scores = [{label["label"]: label["score"] for label in line["labels"]} for line in lines]
        names = sorted(scores[0])
        expect_equal([[line[name] for name in names] for line in scores], logits.softmax(-1), what)

    def loss(self, logits):
        return torch.nn.functional.cross_entropy(logits, torch.arange(len(TEXTS)) % 2)


class Generation:
    """The next tokens of texts, in blocks."""

    def __init__(self, folder, family, settings):
        self.base = SHARED / f"models/tiny-{family}"
        self.tokenizer = AutoTokenizer.from_pretrained(self.base)
        self.settings = {**settings, "task_type": "CAUSAL_LM"}
        self.rows = folder / f"{family}.txt"
        lines = [text + "\n" for text in TEXTS * 4]
        self.rows.write_text("".join(lines))
        ids = [token for line in lines for token in self.tokenizer(line)["input_ids"]]
        count = len(ids) // BLOCK
        self.batch = {"input_ids": torch.tensor(ids[: count * BLOCK]).view(count, BLOCK)}

    command = "run_clm"
    adapted = staticmethod(AutoPeftModelForCausalLM.from_pretrained)
    plain = staticmethod(AutoModelForCausalLM.from_pretrained)

    def flags(self):
        return ["--train_file", self.rows, "--validation_file", self.rows, "--block_size", BLOCK]

    def loss(self, logits):
        """As the Trainer counts: divided by the labels before the shift."""
        labels = self.batch["input_ids"]
        return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), reduction="sum") / labels.numel()

    def compare_answers(self, directory, _, what):
        prompt = self.tokenizer(PROMPT, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            tokens = self.adapted(str(directory)).eval().generate(input_ids=prompt, max_new_tokens=12, do_sample=False)
        expected = [token for token in tokens[0, prompt.shape[1] :].tolist() if token != self.tokenizer.eos_token_id]
        found = json.loads(run("generate", "--model", directory, "--prompt", PROMPT, "--max_new_tokens", 12, "--json"))["tokens"]
        print(f"{what}: {len(found)} tokens")
        if [token for token in found if token != self.tokenizer.eos_token_id] != expected:
            findings.append(f"{what}: found the tokens {found}, expected {expected}")


def logits_of(task, model):
    with torch.no_grad():
        return model.eval()(**task.batch).logits


def compare(task, directory, folder, what):
    """An adapter as PEFT and as tandem compute it, and what `tandem merge` makes of it."""
    logits = logits_of(task, task.adapted(str(directory)))
    torch.manual_seed(0)
    expect_another(logits, logits_of(task, task.plain(str(task.base))), what)
    if not (directory / "config.json").exists():
        expect_equal(logits_of(task, task.plain(str(directory))), logits, f"{what}: as transformers loads it")
    task.compare_answers(directory, logits, f"{what}: answers")
    evaluation, merged = folder / f"{what}: evaluation", folder / f"{what}: merged"
    words = ["--model_name_or_path", directory, "--use_peft", "--do_eval", "--output_dir", evaluation]
    run(task.command, *words, *task.flags())
    results = json.loads((evaluation / "all_results.json").read_text())
    expect_equal(results["eval_loss"], task.loss(logits), f"{what}: loss next to the frozen base")
    run("merge", directory, "--output_dir", merged)
    expect_equal(logits_of(task, task.plain(str(merged))), logits, f"{what}: merged")


def both_ways(task, folder, name):
    trained, saved = folder / f"{name}-tandem", folder / f"{name}-peft"
    words = ["--do_train", "--use_peft", "--lora_r", 4, "--max_steps", 10, "--learning_rate", 2e-2]
    run(task.command, "--model_name_or_path", task.base, "--output_dir", trained, *words, *task.flags())
    compare(task, trained, folder, f"{name} of tandem")
    torch.manual_seed(1)
    model = get_peft_model(task.plain(str(task.base)), LoraConfig(**task.settings))
    stir(model)
    model.save_pretrained(saved)
    AutoTokenizer.from_pretrained(task.base).save_pretrained(saved)
    compare(task, saved, folder, f"{name} of PEFT")


with tempfile.TemporaryDirectory() as temporary:
    place = pathlib.Path(temporary)
    both_ways(Classification(place), place, "bert")
    both_ways(Generation(place, "llama", {"r": 4, "lora_alpha": 8, "target_modules": "all-linear"}), place, "llama")
    both_ways(Generation(place, "qwen3", {"r": 4, "use_rslora": True, "modules_to_save": ["lm_head"], "alpha_pattern": {"v_proj": 3}}), place, "qwen3")
    both_ways(Generation(place, "gpt2", {"r": 4, "lora_alpha": 8, "fan_in_fan_out": True}), place, "gpt2")
print("\n".join(findings) or "peft_roundtrip: no findings")
sys.exit(bool(findings))
