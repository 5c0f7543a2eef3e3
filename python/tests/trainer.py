"""transformers' Trainer on questions with run_qa.py's flags, on two ranks: with gloo, with tandem in gloo's place, and,
where transformers and Accelerate know it, with --ddp_backend ccl. The losses must be equal.

    python python/tests/trainer.py [run_qa.py's flags]

Needs transformers and accelerate in addition to torch, and the wheels of python/ and python/ccl installed. Without flags: the demo's model and questions of
this tree."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "examples" / "demo"
FLAGS = [
    "--model_name_or_path",
    str(DEMO / "model"),
    "--train_file",
    str(DEMO / "train.json"),
    "--do_train",
    "--per_device_train_batch_size",
    "4",
    "--max_steps",
    "12",
    "--learning_rate",
    "1e-3",
    "--max_seq_length",
    "64",
    "--doc_stride",
    "24",
]


def train():
    """One rank's part; rank 0 leaves its losses and what its group was in losses.json."""
    import torch
    import transformers

    sys.path.insert(0, str(ROOT / "tests" / "parity"))
    import hf_reference

    parser = argparse.ArgumentParser()
    parser.add_argument("--model_name_or_path")
    parser.add_argument("--train_file", type=Path)
    parser.add_argument("--max_seq_length", type=int, default=384)
    parser.add_argument("--doc_stride", type=int, default=128)
    ours, rest = parser.parse_known_args()
    parser = transformers.HfArgumentParser(transformers.TrainingArguments)
    (settings,) = parser.parse_args_into_dataclasses(
        rest + ["--use_cpu", "--report_to", "none", "--disable_tqdm", "true", "--save_strategy", "no", "--logging_steps", "1"]
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(ours.model_name_or_path)
    features = hf_reference.features(tokenizer, hf_reference.read_squad(ours.train_file), ours.max_seq_length, ours.doc_stride, True)
    transformers.set_seed(settings.seed)
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(ours.model_name_or_path, dtype=torch.float32)
    trainer = transformers.Trainer(model, settings, train_dataset=hf_reference.training_inputs(features))
    trainer.train()
    if trainer.is_world_process_zero():
        group = torch.distributed.group.WORLD
        found = {
            "backend": torch.distributed.get_backend(),
            "tandem": type(group).__module__.startswith("tandem_torch"),
            "losses": [entry["loss"] for entry in trainer.state.log_history if "loss" in entry],
        }
        (Path(settings.output_dir) / "losses.json").write_text(json.dumps(found))


def run(flags, environment):
    """The files that rank 0 of two left."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", __file__, *flags, "--output_dir", folder],
            capture_output=True,
            text=True,
            timeout=280,
            env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **environment},
        )
        if done.returncode:
            sys.exit(f"{' '.join(flags)} ended with {done.returncode}:\n{done.stderr[-3000:]}")
        return json.loads((Path(folder) / "losses.json").read_text()), done.stderr


def main():
    try:
        import accelerate
        import transformers
    except ImportError:
        print("SKIPPED: needs transformers and accelerate in addition to torch")
        return 77
    flags = sys.argv[1:] or FLAGS
    print(f"transformers {transformers.__version__}, accelerate {accelerate.__version__}")
    theirs, _ = run(flags, {"TANDEM_TORCH_REPLACE": ""})
    assert not theirs["tandem"] and theirs["backend"] == "gloo" and len(theirs["losses"]) > 1, theirs
    runs = {"in gloo's place": (flags, {"TANDEM_TORCH_REPLACE": "gloo"})}
    if hasattr(accelerate.utils.imports, "is_ccl_available") and int(transformers.__version__.split(".")[0]) < 5:
        runs["--ddp_backend ccl"] = (flags + ["--ddp_backend", "ccl"], {"CCL_WORKER_COUNT": "1"})
    else:
        print("--ddp_backend ccl: these versions do not know it")
    good = True
    for name, (words, environment) in runs.items():
        ours, logged = run(words, environment)
        assert ours["tandem"], f"{name}: the group is not tandem's; are the wheels of python/ and python/ccl installed?"
        equal = ours["losses"] == theirs["losses"]
        print(
            f"{name}: {len(ours['losses'])} losses {'equal to' if equal else 'NOT'} gloo's, backend {ours['backend']}: "
            f"{ours['losses'][0]} to {ours['losses'][-1]}"
        )
        good = good and equal
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(train() or 0 if "RANK" in os.environ else main())
