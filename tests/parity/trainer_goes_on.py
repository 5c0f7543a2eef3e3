#!/usr/bin/env python3
"""Hugging Face's Trainer goes on from tandem's checkpoints as tandem itself does.

    trainer_goes_on.py TANDEM

tandem trains a tiny BERT without dropout for 20 steps and leaves checkpoint-10; the Trainer resumes from that with
`resume_from_checkpoint`. Over its ten steps the learning rates must be tandem's, and the weights at the end at most 1e-6 of their norm
and 1e-5 of the way that they went in these steps apart. Every optimizer, several schedules, and two ranks on both sides. Needs torch, transformers and accelerate; exits 77, which means skipped, when build/test-data/venv (or TANDEM_PARITY_PYTHON)
does not have them.
"""

import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO = ROOT / "examples/demo"
MODEL = ROOT / "tests/parity/golden/hf_checkpoint/checkpoint-10"
VENV_PYTHON = pathlib.Path(os.environ.get("TANDEM_PARITY_PYTHON", ROOT / "build/test-data/venv/bin/python"))
QUESTIONS, LENGTH, STRIDE, BATCH, STEPS, HALF = 60, 64, 24, 4, 20, 10
TOLERANCE, TOLERANCE_OF_WAY = 1e-6, 1e-5
# The loss does not depend on these: the same number added to all keys, or to all logits, changes no softmax. Their gradients are
# rounding errors of zero, which optimizers with a second moment blow up to steps of full size, in another direction at each run.
WITHOUT_GRADIENT = ("attention.self.key.bias", "encoder.layer.1.output.LayerNorm.bias", "qa_outputs.bias")

# Name, ranks, arguments of both.
CASES = [
    ("adamw, linear", 1, {"weight_decay": 0.01}),
    ("adamw, cosine with warm-up", 1, {"weight_decay": 0.01, "lr_scheduler_type": "cosine", "warmup_steps": 13}),
    ("adamw, constant", 1, {"lr_scheduler_type": "constant", "adam_beta1": 0.8, "adam_epsilon": 1e-7}),
    ("adamw, accumulation", 1, {"gradient_accumulation_steps": 3}),
    ("sgd", 1, {"optim": "sgd", "learning_rate": 0.05}),
    ("adagrad", 1, {"optim": "adagrad", "weight_decay": 0.01}),
    ("adafactor", 1, {"optim": "adafactor", "lr_scheduler_type": "polynomial"}),
    ("adamw, two ranks", 2, {"weight_decay": 0.01}),
]

try:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import accelerate  # noqa: F401: the Trainer asks for it late
    import torch
    import transformers
    from safetensors.torch import load_file
except ImportError:
    if not VENV_PYTHON.exists() or os.environ.get("TANDEM_CHECK_IN_VENV"):
        print("SKIPPED: needs the packages torch, transformers and accelerate: install them into build/test-data/venv, or name a Python that has "
              "them in TANDEM_PARITY_PYTHON")
        sys.exit(77)
    os.execve(VENV_PYTHON, [str(VENV_PYTHON), *sys.argv], {**os.environ, "TANDEM_CHECK_IN_VENV": "1"})


def arguments_of(options):
    return {"per_device_train_batch_size": BATCH, "max_steps": STEPS, "learning_rate": 1e-3, "save_steps": HALF, "logging_steps": 1, **options}


def train_with_tandem(tandem, folder, ranks, options):
    flags = [word for key, value in arguments_of(options).items() for word in (f"--{key}", str(value))]
    command = [tandem, "run_qa", "--model_name_or_path", MODEL, "--train_file", DEMO / "train.json", "--output_dir", folder, "--do_train",
               "--max_train_samples", QUESTIONS, "--max_seq_length", LENGTH, "--doc_stride", STRIDE, "--pad_to_max_length", "true",
               "--logical_shards", ranks, *flags]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stderr[-3000:]}")


def trainer_loads_with_two_ranks():
    """transformers 4 reads the optimizer's state of several ranks with the numbered device cpu:N, which torch may not know."""
    if int(transformers.__version__.split(".")[0]) >= 5:
        return True
    saved = io.BytesIO()
    torch.save(torch.zeros(1), saved)
    saved.seek(0)
    try:
        torch.load(saved, map_location=torch.device("cpu", 0))
        return True
    except RuntimeError:
        return False


def go_on_with_trainer(folder, options):
    """Run by a process of its own per rank: the Trainer from checkpoint-10, its weights and learning rates left in folder/trainer."""
    import hf_reference

    torch.set_num_threads(1)
    checkpoint = folder / f"checkpoint-{HALF}"
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    rows = hf_reference.read_squad(DEMO / "train.json")[:QUESTIONS]
    features = hf_reference.features(tokenizer, rows, LENGTH, STRIDE, True)
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(MODEL, dtype=torch.float32)
    trainer = transformers.Trainer(
        model, transformers.TrainingArguments(str(folder / "trainer"), use_cpu=True, report_to=[], disable_tqdm=True, save_strategy="no",
                                              **{key: value for key, value in arguments_of(options).items() if key != "save_steps"}),
        train_dataset=hf_reference.training_inputs(features), processing_class=tokenizer)
    trainer.train(resume_from_checkpoint=str(checkpoint))
    if trainer.is_world_process_zero():
        trainer.save_model()
        (folder / "trainer" / "rates.json").write_text(json.dumps(rates(trainer.state.log_history)))


def rates(history):
    return {str(entry["step"]): entry["learning_rate"] for entry in history if "learning_rate" in entry and entry["step"] > HALF}


def distance(first, second):
    return sum(float((first[name].double() - second[name].double()).square().sum()) for name in first if not name.endswith(WITHOUT_GRADIENT)) ** 0.5


def compare(name, folder):
    ours, theirs = (load_file(folder / place / "model.safetensors") for place in (f"checkpoint-{STEPS}", "trainer"))
    middle = load_file(folder / f"checkpoint-{HALF}" / "model.safetensors")
    ours_rates = rates(json.loads((folder / f"checkpoint-{STEPS}" / "trainer_state.json").read_text())["log_history"])
    their_rates = json.loads((folder / "trainer" / "rates.json").read_text())
    zeros = {key: torch.zeros_like(value) for key, value in ours.items()}
    apart, norm, way = distance(ours, theirs), distance(ours, zeros), distance(ours, middle)
    same_rates = ours_rates.keys() == their_rates.keys() and all(
        abs(ours_rates[step] - their_rates[step]) <= 1e-12 for step in ours_rates) and len(ours_rates) == STEPS - HALF
    good = apart <= TOLERANCE * norm and apart <= TOLERANCE_OF_WAY * way and same_rates
    print(f"{name}: weights {apart / norm:.1e} of their norm apart, {apart / way:.1e} of their way; learning rates "
          f"{'equal' if same_rates else f'{list(their_rates.values())} instead of {list(ours_rates.values())}'}: {'ok' if good else 'WRONG'}", flush=True)
    return good


def main():
    tandem, good = pathlib.Path(sys.argv[1]).resolve(), True
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, accelerate {accelerate.__version__}")
    with tempfile.TemporaryDirectory() as scratch:
        skipped = []
        for number, (name, ranks, options) in enumerate(CASES):
            if ranks > 1 and not trainer_loads_with_two_ranks():
                skipped.append(name)
                continue
            folder = pathlib.Path(scratch) / str(number)
            train_with_tandem(tandem, folder, ranks, options)
            launcher = [] if ranks == 1 else ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks)]
            done = subprocess.run([sys.executable, *launcher, __file__, "--trainer", str(folder), json.dumps(options)], capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"{name}: the Trainer ended with {done.returncode}:\n{done.stderr[-3000:]}")
            good &= compare(name, folder)
    for name in skipped:
        print(f"SKIPPED: {name}: the Trainer of transformers {transformers.__version__} cannot go on with two ranks, not from its own checkpoints either: "
              f"it reads them with map_location=cpu:0, which torch {torch.__version__} refuses; use transformers 5")
    return 0 if good else 1


if __name__ == "__main__":
    if sys.argv[1] == "--trainer":
        go_on_with_trainer(pathlib.Path(sys.argv[2]), json.loads(sys.argv[3]))
    else:
        sys.exit(main())
