#!/usr/bin/env python3
"""Goldens of src/tandem/optim: learning rates of every schedule of transformers.get_scheduler, and 50
steps of every optimizer of torch and transformers that tandem has, on a small model.

    python make_optimizer_goldens.py [--transformers446 FOLDER]

Newer transformers have no adamw_hf: FOLDER holds 4.46.3 (`pip install --no-deps --target FOLDER
transformers==4.46.3 tokenizers==0.20.3 huggingface_hub==0.26.5`); without it that golden stays as it is.

The model is a quadratic: loss = sum of a (w - t)^2 / 2 + noise w, with a, t, w and the noise made of
small fractions that f32 holds exactly, so that a test can make them again (torch_golden_test.cc).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

import torch
import transformers
from transformers import get_scheduler

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden", "optim")
STEPS = 50
SHAPES = {"weight": (12, 10), "bias": (12,)}
KEPT_STEPS = (1, 10, 50)

# name, --lr_scheduler_type, warm-up, --lr_scheduler_kwargs
SCHEDULES = [
    ("linear", 0, {}),
    ("linear", 7, {}),
    ("constant", 7, {}),
    ("constant_with_warmup", 7, {}),
    ("cosine", 0, {}),
    ("cosine", 7, {"num_cycles": 1.25}),
    ("cosine_with_restarts", 7, {}),
    ("cosine_with_restarts", 5, {"num_cycles": 3}),
    ("polynomial", 7, {}),
    ("polynomial", 7, {"lr_end": 1e-4, "power": 2.5}),
    ("inverse_sqrt", 0, {}),
    ("inverse_sqrt", 7, {}),
    ("cosine_with_min_lr", 7, {"min_lr": 2e-4}),
    ("cosine_with_min_lr", 7, {"min_lr_rate": 0.1, "num_cycles": 0.75}),
    ("cosine_warmup_with_min_lr", 7, {"min_lr_rate": 0.1}),
    ("cosine_warmup_with_min_lr", 7, {"min_lr": 2e-4, "warmup_lr_rate": 0.3}),
    ("warmup_stable_decay", 7, {"num_decay_steps": 20}),
    ("warmup_stable_decay", 7, {"num_decay_steps": 11, "num_stable_steps": 13, "min_lr_ratio": 0.05, "warmup_type": "cosine", "decay_type": "1-sqrt"}),
    ("warmup_stable_decay", 7, {"num_decay_steps": 20, "warmup_type": "1-sqrt", "decay_type": "linear", "min_lr_ratio": 0.2}),
]

PLATEAUS = [
    {"mode": "max", "patience": 1, "factor": 0.5},
    {"mode": "min", "patience": 0, "factor": 0.3, "threshold": 0.01, "threshold_mode": "abs", "cooldown": 2, "min_lr": 1e-5},
]
GREEDIES = [
    {"mode": "max", "patience": 1, "factor": 0.5, "min_lr": 1e-4, "max_lr": 3e-3, "reset_start": 2},
    {"mode": "min", "patience": 0, "factor": 0.8, "threshold": 0.01, "threshold_mode": "rel", "cooldown": 2, "warmup": 1, "min_lr": 1e-5},
    {"mode": "max", "patience": 0, "factor": 0.9, "smooth": True, "window_size": 4, "min_lr": 0.0},
    {"mode": "min"},
]
METRICS = [50.0, 60.0, 60.001, 60.0, 61.0, 60.9, 60.8, 60.7, 60.6, 59.0, 58.0, 70.0, 69.0, 69.5, 69.9, 70.0, 70.0]

# name of the golden, --optim, schedule, extra settings of the optimizer, weight decay
OPTIMIZERS = [
    ("adamw_torch", "adamw_torch", "linear", {}, 0.1),
    ("sgd", "sgd", "cosine", {}, 0.01),
    ("sgd_momentum", "sgd", "linear", {"momentum": 0.9, "dampening": 0.1}, 0.01),
    ("sgd_nesterov", "sgd", "linear", {"momentum": 0.9, "nesterov": True}, 0.0),
    ("adagrad", "adagrad", "linear", {}, 0.01),
    ("adagrad_settings", "adagrad", "constant", {"lr_decay": 0.01, "initial_accumulator_value": 0.25, "eps": 1e-6}, 0.0),
    ("adafactor", "adafactor", "linear", {}, 0.1),
    ("adafactor_settings", "adafactor", "linear", {"clip_threshold": 0.5, "decay_rate": -0.6}, 0.0),
]
LEARNING_RATE = 0.01


def start(shape):
    count = 1
    for extent in shape:
        count *= extent
    i = torch.arange(count)
    weights = ((i * 53) % 127).float() / 128 - 0.5
    target = ((i * 37) % 101).float() / 64 - 0.75
    slope = 1 + (i % 7).float() / 2
    return weights.view(shape), target.view(shape), slope.view(shape), i.view(shape)


def noise(index, step):
    return (((index * 13 + step * 29) % 97) - 48).float() / 4096


def run(optimizer_class, settings, schedule, decay):
    parameters, parts = {}, {}
    for name, shape in SHAPES.items():
        weights, target, slope, index = start(shape)
        parameters[name] = torch.nn.Parameter(weights)
        parts[name] = (target, slope, index)
    optimizer = optimizer_class([{"params": [parameters["weight"]], "weight_decay": decay}, {"params": [parameters["bias"]], "weight_decay": 0.0}], **settings)
    scheduler = get_scheduler(schedule, optimizer, 5, STEPS)
    rates, kept = [], {}
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        loss = 0
        for name, parameter in parameters.items():
            target, slope, index = parts[name]
            loss = loss + (slope * (parameter - target) ** 2 / 2 + noise(index, step) * parameter).sum()
        loss.backward()
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
        if step in KEPT_STEPS:
            kept[str(step)] = {name: p.detach().flatten().tolist() for name, p in parameters.items()}
    return {"rates": rates, "weights": kept}


def write(name, content):
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    with open(os.path.join(FOLDER, name + ".json"), "w") as file:
        json.dump({"versions": versions, **content}, file)
        file.write("\n")


def rates_after_metrics(name, settings):
    rows = []
    for kwargs in settings:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1e-3)
        scheduler = get_scheduler(name, optimizer, scheduler_specific_kwargs=kwargs)
        metrics = METRICS + METRICS[::-1] + METRICS
        rates = []
        for metric in metrics if name == "greedy" else METRICS:
            scheduler.step(metric)
            rates.append(optimizer.param_groups[0]["lr"])
        rows.append({"kwargs": kwargs, "metrics": metrics if name == "greedy" else METRICS, "rates": rates})
    return rows


def make_schedules():
    rows = []
    for name, warmup, kwargs in SCHEDULES:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1e-3)
        scheduler = get_scheduler(name, optimizer, warmup, STEPS, kwargs)
        rates = []
        for _ in range(STEPS + 3):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        rows.append({"type": name, "warmup": warmup, "kwargs": kwargs, "rates": rates})
    write("schedules", {"total": STEPS, "learning_rate": 1e-3, "schedules": rows, "plateaus": rates_after_metrics("reduce_lr_on_plateau", PLATEAUS)})


# A separate file: transformers 5.23 has greedy but not adamw_hf.
def make_greedy():
    write("greedy", {"learning_rate": 1e-3, "rows": rates_after_metrics("greedy", GREEDIES)})


def make_adamw_hf():
    from transformers.optimization import AdamW

    write(
        "adamw_hf",
        {
            "optim": "adamw_hf",
            "settings": {},
            "schedule": "linear",
            "weight_decay": 0.1,
            **run(AdamW, {"lr": LEARNING_RATE, "eps": 1e-6, "no_deprecation_warning": True}, "linear", 0.1),
        },
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--transformers446")
    parser.add_argument("--only-adamw-hf", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--only-greedy", action="store_true", help="with transformers 5.23 or newer")
    options = parser.parse_args()
    torch.set_num_threads(1)
    os.makedirs(FOLDER, exist_ok=True)
    if options.only_adamw_hf:
        return make_adamw_hf()
    if options.only_greedy:
        return make_greedy()
    from transformers import Trainer, TrainingArguments

    make_schedules()
    for name, optim, schedule, settings, decay in OPTIMIZERS:
        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(folder, optim=optim, learning_rate=LEARNING_RATE, adam_epsilon=1e-6, use_cpu=True, report_to=[])
            optimizer_class, kwargs = Trainer.get_optimizer_cls_and_kwargs(arguments)
        write(
            name,
            {
                "optim": optim,
                "settings": settings,
                "schedule": schedule,
                "weight_decay": decay,
                **run(optimizer_class, {**kwargs, **settings}, schedule, decay),
            },
        )
    if options.transformers446:
        subprocess.run([sys.executable, __file__, "--only-adamw-hf"], check=True, env={**os.environ, "PYTHONPATH": options.transformers446})


if __name__ == "__main__":
    main()
