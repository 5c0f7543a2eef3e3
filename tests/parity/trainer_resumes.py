#!/usr/bin/env python3
"""Checkpoints cross between tandem and Hugging Face's Trainer: each resumes the other's as its own.

    trainer_resumes.py TANDEM                 all cases, and cells in which each pair of task, family and optimizer occurs
    trainer_resumes.py TANDEM TEXT            all cells and cases whose name contains TEXT; "" for all
    trainer_resumes.py --write-names          makes golden/parameter_names.json

- Cells (checkpoint_cells.py): a task, a family and an optimizer. tandem and the Trainer both train from the same weights to step 10 and save
  checkpoint-5; each then resumes from the other's. The weights at step 10 must be those of the run that wrote the checkpoint.
- Cases: a tiny BERT for question answering with several schedules, gradient accumulation and two ranks. tandem trains for 20 steps and saves checkpoint-10; the Trainer
  resumes from it. The learning rates must be tandem's, too.
- The parameters that the Trainer's optimizer numbers are those of golden/parameter_names.json.

Weights are equal if they are at most 1e-6 of their norm and 1e-5 of the way that they went in the resumed steps apart. Needs torch, transformers and accelerate
(scripts/fetch_torch.sh); exits 77, which means skipped, if neither build/test-data/venv nor build/test-data/torch-venv (or only TANDEM_PARITY_PYTHON, if it is set) has them.
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
PYTHONS = (
    [pathlib.Path(os.environ["TANDEM_PARITY_PYTHON"])]
    if "TANDEM_PARITY_PYTHON" in os.environ
    else [ROOT / "build/test-data" / folder / "bin/python" for folder in ("venv", "torch-venv")]
)
NEEDED = ("torch", "transformers", "accelerate")
CELL_STEPS, CELL_HALF = 10, 5
QUESTIONS, LENGTH, STRIDE, BATCH, STEPS, HALF = 60, 64, 24, 4, 20, 10
TOLERANCE, TOLERANCE_OF_WAY = 1e-6, 1e-5
# The loss does not depend on these: the same number added to all keys, or to all logits, changes no softmax. Their gradients are
# rounding errors of zero, which optimizers with a second moment blow up to steps of full size, in another direction at each run.
WITHOUT_GRADIENT = ("attention.self.key.bias", "attention.k_lin.bias", "attention.attn.k.bias")
WITHOUT_GRADIENT_IN_QUESTIONS = ("layer.1.output.LayerNorm.bias", "layer.1.output_layer_norm.bias", "qa_outputs.bias", "classifier.bias")

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
    import accelerate  # noqa: F401 - the Trainer asks for it late
    import torch
    import transformers
    from safetensors.torch import load_file

    import checkpoint_cells as cells
except ImportError:
    python = next(
        (python for python in PYTHONS if python.exists() and not subprocess.run([python, "-c", "import " + ", ".join(NEEDED)], capture_output=True).returncode),
        None,
    )
    if python is None or os.environ.get("TANDEM_CHECK_IN_VENV"):
        print(f"SKIPPED: needs the packages {', '.join(NEEDED)}: run scripts/fetch_torch.sh, or name a Python that has them in TANDEM_PARITY_PYTHON")
        sys.exit(77)
    os.execve(python, [str(python), *sys.argv], {**os.environ, "TANDEM_CHECK_IN_VENV": "1"})


def arguments_of(options):
    return {"per_device_train_batch_size": BATCH, "max_steps": STEPS, "learning_rate": 1e-3, "save_steps": HALF, "logging_steps": 1, **options}


def train_with_tandem(tandem, folder, ranks, options):
    flags = [word for key, value in arguments_of(options).items() for word in (f"--{key}", str(value))]
    command = [
        tandem,
        "run_qa",
        "--model_name_or_path",
        MODEL,
        "--train_file",
        DEMO / "train.json",
        "--output_dir",
        folder,
        "--do_train",
        "--max_train_samples",
        QUESTIONS,
        "--max_seq_length",
        LENGTH,
        "--doc_stride",
        STRIDE,
        "--pad_to_max_length",
        "true",
        "--logical_shards",
        ranks,
        *flags,
    ]
    run(command)


def run(command):
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


def resume_with_trainer(folder, options):
    """The Trainer from checkpoint-10, its weights and learning rates left in folder/trainer; several ranks are processes of their own."""
    import hf_reference

    torch.set_num_threads(1)
    checkpoint = folder / f"checkpoint-{HALF}"
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    rows = hf_reference.read_squad(DEMO / "train.json")[:QUESTIONS]
    features = hf_reference.features(tokenizer, rows, LENGTH, STRIDE, True)
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(MODEL, dtype=torch.float32)
    trainer = transformers.Trainer(
        model,
        transformers.TrainingArguments(
            str(folder / "trainer"),
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
            save_strategy="no",
            **{key: value for key, value in arguments_of(options).items() if key != "save_steps"},
        ),
        train_dataset=hf_reference.training_inputs(features),
        processing_class=tokenizer,
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train(resume_from_checkpoint=str(checkpoint))
    if trainer.is_world_process_zero():
        trainer.save_model()
        (folder / "trainer" / "rates.json").write_text(json.dumps(rates(trainer.state.log_history)))


def rates(history):
    return {str(entry["step"]): entry["learning_rate"] for entry in history if "learning_rate" in entry and entry["step"] > HALF}


def distance(first, second, left_out):
    return sum(float((first[name].double() - second[name].double()).square().sum()) for name in first if not name.endswith(left_out)) ** 0.5


def apart(whole, resumed, middle, questions):
    """How far the weights of the resumed run are from those of the whole one: of their norm, and of the way from the checkpoint in the middle."""
    whole, resumed, middle = (load_file(folder / "model.safetensors") for folder in (whole, resumed, middle))
    if whole.keys() != resumed.keys():
        sys.exit(f"other tensors: {sorted(whole.keys() ^ resumed.keys())}")
    left_out = WITHOUT_GRADIENT + (WITHOUT_GRADIENT_IN_QUESTIONS if questions else ())
    zeros = {key: torch.zeros_like(value) for key, value in whole.items()}
    difference = distance(whole, resumed, left_out)
    return difference / distance(whole, zeros, left_out), difference / distance(whole, middle, left_out)


def are_equal(of_norm, of_way):
    return of_norm <= TOLERANCE and of_way <= TOLERANCE_OF_WAY


def compare(name, folder):
    ours_rates = rates(json.loads((folder / f"checkpoint-{STEPS}" / "trainer_state.json").read_text())["log_history"])
    their_rates = json.loads((folder / "trainer" / "rates.json").read_text())
    of_norm, of_way = apart(folder / f"checkpoint-{STEPS}", folder / "trainer", folder / f"checkpoint-{HALF}", True)
    same_rates = (
        ours_rates.keys() == their_rates.keys()
        and all(abs(ours_rates[step] - their_rates[step]) <= 1e-12 for step in ours_rates)
        and len(ours_rates) == STEPS - HALF
    )
    good = are_equal(of_norm, of_way) and same_rates
    print(
        f"{name}: weights {of_norm:.1e} of their norm apart, {of_way:.1e} of their way; learning rates "
        f"{'equal' if same_rates else f'{list(their_rates.values())} instead of {list(ours_rates.values())}'}: {'ok' if good else 'WRONG'}",
        flush=True,
    )
    return good


def cell_with_tandem(tandem, folder, task, options, output, checkpoint=None):
    flags = [
        word
        for key, value in {
            **options,
            "max_steps": CELL_STEPS,
            "per_device_train_batch_size": cells.BATCH,
            "max_seq_length": cells.LENGTH,
            "logging_steps": 1,
        }.items()
        for word in (f"--{key}", value)
    ]
    flags += task.flags()
    flags += ["--save_strategy", "no", "--resume_from_checkpoint", checkpoint] if checkpoint else ["--save_steps", CELL_HALF]
    run([tandem, task.command, "--model_name_or_path", folder / "model", "--train_file", task.write(folder), "--output_dir", output, "--do_train", *flags])


def cell_with_trainer(folder, family, features, options, output, checkpoint=None):
    kind = getattr(transformers, json.loads((folder / "model/config.json").read_text())["architectures"][0])
    saving = {"save_strategy": "no"} if checkpoint else {"save_steps": CELL_HALF}
    trainer = transformers.Trainer(
        kind.from_pretrained(folder / "model", dtype=torch.float32),
        transformers.TrainingArguments(
            str(output),
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
            logging_steps=1,
            max_steps=CELL_STEPS,
            per_device_train_batch_size=cells.BATCH,
            **saving,
            **options,
        ),
        train_dataset=features,
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train(resume_from_checkpoint=checkpoint and str(checkpoint))
    trainer.save_model()


def cell(tandem, folder, name, task_name, family, optimizer):
    """Four runs: tandem's and the Trainer's whole ones, and from the checkpoint of each the other's second half."""
    task, options = cells.TASKS[task_name], {"optim": optimizer, **cells.OPTIMIZERS[optimizer]}
    cells.save_model(family, task, folder / "model")
    features = cells.load_features(family, task)
    middle = f"checkpoint-{CELL_HALF}"
    cell_with_tandem(tandem, folder, task, options, folder / "tandem")
    cell_with_trainer(folder, family, features, options, folder / "trainer")
    cell_with_trainer(folder, family, features, options, folder / "to-trainer", folder / "tandem" / middle)
    cell_with_tandem(tandem, folder, task, options, folder / "to-tandem", folder / "trainer" / middle)
    results = [
        apart(folder / first, folder / f"to-{other}", folder / first / middle, task.command == "run_qa")
        for first, other in (("tandem", "trainer"), ("trainer", "tandem"))
    ]
    good = all(are_equal(*result) for result in results)
    print(
        f"{name}: "
        + "; ".join(f"{what} {of_norm:.1e} of the norm, {of_way:.1e} of the way apart" for what, (of_norm, of_way) in zip(("in the Trainer", "back"), results))
        + f": {'ok' if good else 'WRONG'}",
        flush=True,
    )
    return good


def check_cells(tandem, scratch, only):
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"  # of tandem's runs: these models are too small for more
    good, count = True, 0
    for task_name, family, optimizer in cells.all_cells() if only is not None else cells.pairwise_cells():
        name = f"{task_name}, {family}, {optimizer}"
        if (only or "") not in name:
            continue
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            good &= cell(tandem, pathlib.Path(folder), name, task_name, family, optimizer)
        count += 1
    print(f"{count} cells")
    return good


def major_version():
    return transformers.__version__.split(".")[0]


def check_names(scratch):
    """The numbers of the parameters are those that tandem's own test expects (src/tandem/trainer/python_checkpoint_test.cc)."""
    golden = json.loads(cells.NAMES.read_text())["transformers"]
    expected = {**golden["5"], **golden.get(major_version(), {})}
    found = cells.all_numbered_parameters(scratch)
    wrong = [name for name in expected if found.get(name) != expected[name]]
    print(f"numbers of the parameters of {len(found)} models: {'ok' if not wrong else 'WRONG: ' + ', '.join(wrong)}")
    return not wrong and found.keys() == expected.keys()


def write_names():
    """The lists of this version of transformers; of version 4 those that differ from 5."""
    golden = json.loads(cells.NAMES.read_text()) if cells.NAMES.exists() else {"versions": {}, "transformers": {}}
    with tempfile.TemporaryDirectory() as scratch:
        names = cells.all_numbered_parameters(scratch)
    if major_version() != "5":
        names = {name: groups for name, groups in names.items() if groups != golden["transformers"]["5"][name]}
    golden["versions"][major_version()] = transformers.__version__
    golden["transformers"][major_version()] = names
    lines = [
        f"    {json.dumps(version)}: {{\n" + ",\n".join(f"      {json.dumps(name)}: {json.dumps(groups)}" for name, groups in models.items()) + "\n    }"
        for version, models in sorted(golden["transformers"].items())
    ]
    cells.NAMES.write_text(f'{{\n  "versions": {json.dumps(golden["versions"])},\n  "transformers": {{\n' + ",\n".join(lines) + "\n  }\n}\n")
    return 0


def check_cases(tandem, scratch, only):
    good, skipped = True, []
    for number, (name, ranks, options) in enumerate(CASES):
        if (only or "") not in name:
            continue
        if ranks > 1 and not trainer_loads_with_two_ranks():
            skipped.append(name)
            continue
        folder = pathlib.Path(scratch) / f"case-{number}"
        train_with_tandem(tandem, folder, ranks, options)
        if ranks == 1:
            resume_with_trainer(folder, options)
        else:
            launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks)]
            run([sys.executable, *launcher, __file__, "--trainer", folder, json.dumps(options)])
        good &= compare(name, folder)
    for name in skipped:
        print(
            f"SKIPPED: {name}: the Trainer of transformers {transformers.__version__} cannot resume with two ranks, not from its own checkpoints either: "
            f"it reads them with map_location=cpu:0, which torch {torch.__version__} refuses; use transformers 5"
        )
    return good


def main():
    tandem, only = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2] if len(sys.argv) > 2 else None
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, accelerate {accelerate.__version__}")
    with tempfile.TemporaryDirectory() as scratch:
        good = check_names(scratch)
        good &= check_cases(tandem, scratch, only)
        good &= check_cells(tandem, scratch, only)
    return 0 if good else 1


if __name__ == "__main__":
    if sys.argv[1] == "--trainer":
        resume_with_trainer(pathlib.Path(sys.argv[2]), json.loads(sys.argv[3]))
    elif sys.argv[1] == "--write-names":
        sys.exit(write_names())
    else:
        sys.exit(main())
