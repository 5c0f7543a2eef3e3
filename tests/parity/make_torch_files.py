#!/usr/bin/env python3
"""Makes golden/torch: what torch.save writes for a model, its optimizer and schedule, and for odd values.

python make_torch_files.py          # needs torch; every value is a formula of its position, so that the C++ test can compute it
"""

import collections
import pathlib

import torch
from transformers import TrainingArguments

FOLDER = pathlib.Path(__file__).parent / "golden" / "torch"


class Unknown:
    """A type of this script: a reader that imports nothing must refuse it by name."""


def values(*shape, dtype=torch.float32, start=0.0):
    count = torch.Size(shape).numel()
    return (torch.arange(count, dtype=torch.float64) * 0.5 + start).reshape(shape).to(dtype)


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    model = torch.nn.Linear(2, 3)
    with torch.no_grad():
        model.weight.copy_(values(3, 2))
        model.bias.copy_(values(3, start=-1))
    torch.save(model.state_dict(), FOLDER / "pytorch_model.bin")
    torch.save(model.state_dict(), FOLDER / "legacy.bin", _use_new_zipfile_serialization=False)

    optimizer = torch.optim.AdamW([{"params": [model.weight], "weight_decay": 0.01}, {"params": [model.bias], "weight_decay": 0.0}], lr=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 10)
    for _ in range(2):
        model.weight.grad = torch.full((3, 2), 0.25)
        model.bias.grad = torch.full((3,), -0.5)
        optimizer.step()
        schedule.step()
    torch.save(optimizer.state_dict(), FOLDER / "optimizer.pt")
    torch.save(schedule.state_dict(), FOLDER / "scheduler.pt")

    shared = values(4)
    torch.save(
        {
            "half": values(2, 2, dtype=torch.float16),
            "bfloat16": values(3, dtype=torch.bfloat16),
            "double": values(2, dtype=torch.float64),
            "long": values(4, dtype=torch.int64),
            "int": values(4, dtype=torch.int32),
            "short": values(4, dtype=torch.int16),
            "char": values(4, dtype=torch.int8),
            "byte": values(4, dtype=torch.uint8),
            "bool": torch.tensor([True, False]),
            "scalar": torch.tensor(3.0),
            "empty": torch.zeros(0, 3),
            "parameter": torch.nn.Parameter(values(2)),
            "whole": shared,
            "view": shared[1:3],
            "column": values(3, 1).t(),
            "values": (None, True, False, -5, 70000, 2**40, -(2**40), 1.5, "ünicode", [1, [2, []]], {1: "one"}),
            "ordered": collections.OrderedDict(a=1),
        },
        FOLDER / "odd_values.pt",
    )
    torch.save({"t": values(2, 3).t()}, FOLDER / "transposed.pt")
    torch.save({"who": Unknown()}, FOLDER / "unknown.pt")
    torch.save({"a": torch.ones(1)}, FOLDER / "protocol4.pt", pickle_protocol=4)
    # The file that the Trainer leaves in every checkpoint (transformers 4.57.6); logging_dir would name the machine.
    torch.save(
        TrainingArguments("out", logging_dir="out/runs", per_device_train_batch_size=4, gradient_accumulation_steps=2, data_seed=7, use_cpu=True, report_to=[]),
        FOLDER / "training_args.bin",
    )


main()
