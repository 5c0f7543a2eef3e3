#!/usr/bin/env python3
"""Sentences per second: `tandem predict` against transformers' pipeline, onnxruntime and OpenVINO, or the evaluation of `tandem run_glue` against the Trainer's, alternately on the same machine.

    bench/compare_predict.py [--what predict|evaluate] [--model minilm|bert-base|bert-large] [--types f32] [--variants ...] [--tcmalloc FILE] [--iomp FILE] ...

Run it with a Python that has torch, transformers, accelerate, onnx, onnxruntime, openvino and nncf. The model has the named size, random weights, two labels and the tokenizer of --tokenizer; the texts are
the first --count of a file with the columns `sentence` and `label`. Columns and rounds: as in rivals.py, whose environments bring the rival to its best.

predict: from texts to labels with scores, twice: without the start of either side (tandem's is the time of a command with one text; a rival's ends when its model is loaded and has run
once), and with it (the whole command; of a rival its imports, the reading of the model and one pass over the texts, not the export to ONNX or its quantization). "rate" is the least favourable to tandem: its start counts, a
rival's does not. `pipeline` takes text by text, as it does by default; `batched` sorts the texts by length and takes --batch at a time; `onnxruntime` the same with the model exported, fused by
onnxruntime's optimizer for BERT and the tokenizer of `tokenizers`; `openvino` the same with the model as it was exported. In bf16 tandem has --bf16 and the pipeline's model is bf16 throughout,
its fastest form; OpenVINO has its hint for bf16; onnxruntime has no such products on CPUs and stands in f32 and int8 only. In int8 each side quantizes the model itself: tandem's has ranges for each
row, and --bf16 for the rest; onnxruntime's has ranges for each input (quantize_dynamic, weights per channel); OpenVINO's has fixed ranges from 300 of the texts (nncf; without VNNI weights of half their range), and bf16 for the rest. Every score of a rival must be tandem's, in int8 but for the errors of both.

evaluate: samples per second as both print them, batches of --batch, padded by the rival to the longest of a batch. In bf16 the Trainer has --bf16_full_eval, its fastest form. The accuracies
must agree.
"""

import argparse
import csv
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import onnx_rival
import rivals

LARGEST_DIFFERENCE = {"f32": 1e-3, "bf16": 0.1, "int8": 0.1}  # of a probability; a model that is bf16 throughout rounds every sum, one in int8 every operand
VARIANTS = {"predict": ["pipeline", "batched", "onnxruntime", "openvino"], "evaluate": ["trainer"]}
EXPORTED = ("onnxruntime", "openvino")
CALIBRATION = 300  # texts
SEQ = 128
STARTS = ("with_start", "without_start")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    rivals.add_sides(parser, rivals.MODELS)
    parser.add_argument("--what", choices=VARIANTS, default="predict")
    parser.add_argument("--sentences", default="../shared/data/tasks/sst2/train.csv", metavar="FILE")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--types", default="f32", help="f32,bf16,int8")
    rivals.add_rounds(parser)
    rivals.add_columns(parser, [name for names in VARIANTS.values() for name in names])
    options = parser.parse_args()
    options.variants = ",".join(name for name in options.variants.split(",") if name in VARIANTS[options.what])
    if options.what == "evaluate" and "int8" in options.types.split(","):
        parser.error("evaluate: the types are f32 and bf16; the Trainer has no int8")
    if not options.variants:
        parser.error(f"{options.what}: variants are {', '.join(VARIANTS[options.what])}")
    return options


# --- what both sides read ---


def rows_of(options):
    with open(options.sentences, newline="", encoding="utf-8") as file:
        rows = [row for _, row in zip(range(options.count), csv.DictReader(file))]
    if len(rows) < options.count:
        sys.exit(f"{options.sentences} has {len(rows)} texts, not {options.count}")
    return rows


def write_texts(options):
    rows = rows_of(options)
    (options.scratch / "texts.txt").write_text("".join(row["sentence"] + "\n" for row in rows), encoding="utf-8")
    with open(options.scratch / "texts.csv", "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, ["sentence", "label"])
        table.writeheader()
        table.writerows({"sentence": row["sentence"], "label": row["label"]} for row in rows)


def make_model(options):
    """A head with weights large enough that the scores of texts differ."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    torch.manual_seed(42)
    model = BertForSequenceClassification(BertConfig(**rivals.MODELS[options.model], num_labels=2))
    torch.nn.init.normal_(model.classifier.weight, std=0.2)
    model.save_pretrained(options.scratch / "model")
    AutoTokenizer.from_pretrained(options.tokenizer).save_pretrained(options.scratch / "model")


def quantize_model(options):
    """tandem's int8 model, whatever the quantization does to the accuracy of random weights."""
    files = ["--train_file", options.scratch / "texts.csv", "--validation_file", options.scratch / "texts.csv"]
    quantization = ["--apply_quantization", "--quantization_approach", "dynamic", "--max_trials", 1, "--tolerance_criterion", 1]
    folders = ["--model_name_or_path", options.scratch / "model", "--output_dir", options.scratch / "int8"]
    rivals.run([options.tandem, "run_glue", *folders, *files, *quantization, "--do_eval", "--max_seq_length", SEQ, "--report_to", "none"], {})


# --- the rivals ---


def pipeline_predict(options, texts):
    import torch
    import transformers

    torch.set_num_threads(options.threads)
    pipe = transformers.pipeline(
        "text-classification",
        model=str(options.scratch / "model"),
        device="cpu",
        top_k=None,
        dtype=torch.bfloat16 if options.types == "bf16" else torch.float32,
    )

    def work():
        parts = [[i] for i in range(len(texts))] if options.side == "pipeline" else onnx_rival.similar_lengths(texts, options.batch)
        scores = [0.0] * len(texts)
        for part in parts:
            for i, labels in zip(part, pipe([texts[i] for i in part], batch_size=len(part), truncation=True, max_length=SEQ)):
                scores[i] = next(label["score"] for label in labels if label["label"] == "LABEL_1")
        return scores

    return work, [torch, transformers]


def quantize_for_onnxruntime(options, file):
    """The fused model with int8 weights for each output channel."""
    from onnx import TensorProto
    from onnxruntime.quantization import QuantType, quantize_dynamic

    types = {"DefaultTensorType": TensorProto.FLOAT}  # of the results of fused operators
    fused = str(options.scratch / "model" / onnx_rival.FILE)
    quantize_dynamic(fused, str(file), weight_type=QuantType.QInt8, per_channel=True, extra_options=types)


def quantize_for_openvino(options, file):
    """The model with int8 weights for each output channel, and ranges of activations from the first texts."""
    import nncf
    import openvino

    texts = (options.scratch / "texts.txt").read_text(encoding="utf-8").split("\n")[:CALIBRATION]
    tokenizer = onnx_rival.tokenizer_of(options.scratch / "model", SEQ)
    model = openvino.Core().read_model(str(options.scratch / "model" / onnx_rival.PLAIN_FILE))
    data = nncf.Dataset([onnx_rival.inputs_of(tokenizer, [text]) for text in texts])
    # Without VNNI its sums of two products saturate, unless weights have half their range.
    vnni = "vnni" in pathlib.Path("/proc/cpuinfo").read_text()
    advanced = nncf.AdvancedQuantizationParameters(overflow_fix=None if vnni else nncf.OverflowFix.ENABLE)
    quantized = nncf.quantize(model, data, model_type=nncf.ModelType.TRANSFORMER, subset_size=CALIBRATION, advanced_parameters=advanced)
    openvino.save_model(quantized, str(file))


def file_of(options, variant):
    """In the directory of the model."""
    if options.types == "int8":
        return f"{variant}.int8.{'onnx' if variant == 'onnxruntime' else 'xml'}"
    return onnx_rival.FILE if variant == "onnxruntime" else onnx_rival.PLAIN_FILE


EXPORTING = [0.0]  # seconds that belong to no start


def export_once(options):
    if (options.scratch / "model" / file_of(options, options.side)).is_file():
        return
    begin = time.time()
    words = ["--scratch", options.scratch, "--model", options.model, "--types", options.types, "--variants", options.side]
    subprocess.run([sys.executable, __file__, "--side", "export", *words], check=True, stdout=subprocess.DEVNULL)
    EXPORTING[0] = time.time() - begin


def export(options):
    """Writes the files that options.variants, one rival, reads."""
    folder = options.scratch / "model"
    if not (folder / onnx_rival.FILE).is_file():
        shape = rivals.MODELS[options.model]
        onnx_rival.export(folder, shape["num_attention_heads"], shape["hidden_size"], is_reranker=True)
    if options.types == "int8":
        quantize = quantize_for_onnxruntime if options.variants == "onnxruntime" else quantize_for_openvino
        quantize(options, folder / file_of(options, options.variants))


def exported_predict(options, texts):
    import numpy as np
    import tokenizers

    folder, file = options.scratch / "model", file_of(options, options.side)
    if options.side == "onnxruntime":
        import onnxruntime as library

        model = onnx_rival.Model(folder, options.threads, SEQ, file)
    else:
        import openvino as library

        model = onnx_rival.OpenVinoModel(folder, options.threads, SEQ, "f32" if options.types == "f32" else "bf16", file)

    def work():
        scores = [0.0] * len(texts)
        for part in onnx_rival.similar_lengths(texts, options.batch):
            logits = model.batch([texts[i] for i in part])
            odds = np.exp(logits - logits.max(axis=1, keepdims=True))
            for i, score in zip(part, odds[:, 1] / odds.sum(axis=1)):
                scores[i] = float(score)
        return scores

    return work, [library, tokenizers]


def predict_side(options):
    texts = (options.scratch / "texts.txt").read_text(encoding="utf-8").split("\n")[:-1]
    if options.side in EXPORTED:
        export_once(options)
    work, modules = (exported_predict if options.side in EXPORTED else pipeline_predict)(options, texts)
    start = time.time() - float(os.environ["TANDEM_BENCH_BEGIN"]) - EXPORTING[0]
    work()
    begin = time.perf_counter()
    scores = work()
    seconds = time.perf_counter() - begin
    (options.scratch / f"{options.side}.json").write_text(json.dumps(scores))
    print(
        json.dumps(
            {
                "rate": len(texts) / seconds,
                "without_start": len(texts) / seconds,
                "with_start": len(texts) / (start + seconds),
                "versions": {module.__name__: module.__version__.split("-")[0] for module in modules},
            }
        )
    )


def trainer_side(options):
    import torch
    import transformers

    torch.set_num_threads(options.threads)
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.scratch / "model")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(options.scratch / "model")
    with open(options.scratch / "texts.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    samples = [{**tokenizer(row["sentence"], truncation=True, max_length=SEQ), "label": int(row["label"])} for row in rows]
    bf16 = options.types == "bf16"
    arguments = transformers.TrainingArguments(
        output_dir=str(options.scratch / "trainer"),
        per_device_eval_batch_size=options.batch,
        use_cpu=True,
        bf16=bf16,
        bf16_full_eval=bf16,
        report_to="none",
        disable_tqdm=True,
    )
    trainer = transformers.Trainer(
        model=model,
        args=arguments,
        eval_dataset=samples,
        data_collator=transformers.DataCollatorWithPadding(tokenizer),
        compute_metrics=lambda p: {"accuracy": float((p.predictions.argmax(-1) == p.label_ids).mean())},
    )
    trainer.evaluate(samples[: 4 * options.batch])
    found = trainer.evaluate()
    print(
        json.dumps(
            {
                "rate": found["eval_samples_per_second"],
                "accuracy": found["eval_accuracy"],
                "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
            }
        )
    )


# --- tandem ---


def bf16_flag(kind):
    return ["--bf16"] if kind != "f32" else []


def folder_of(options, kind):
    return options.scratch / ("int8" if kind == "int8" else "model")


def timed_predict(options, kind, texts):
    begin = time.perf_counter()
    output = rivals.run(
        [options.tandem, "predict", "--model", folder_of(options, kind), *texts, "--json", "--top_k", 2, "--max_seq_length", SEQ, *bf16_flag(kind)],
        {"OMP_NUM_THREADS": str(options.threads)},
    )
    return output, time.perf_counter() - begin


def tandem_predict(options, kind):
    output, seconds = timed_predict(options, kind, ["--file", options.scratch / "texts.txt"])
    _, start = timed_predict(options, kind, [rows_of(options)[0]["sentence"]])
    lines = [json.loads(line) for line in output.splitlines()]
    second = json.loads((folder_of(options, kind) / "config.json").read_text()).get("id2label", {"1": "LABEL_1"})["1"]
    scores = [next(label["score"] for label in line["labels"] if label["label"] == second) for line in lines]
    (options.scratch / "tandem.json").write_text(json.dumps(scores))
    return {"rate": len(lines) / seconds, "with_start": len(lines) / seconds, "without_start": (len(lines) - 1) / (seconds - start), "versions": {}}


def tandem_evaluate(options, kind):
    with tempfile.TemporaryDirectory() as folder:
        rivals.run(
            [
                options.tandem,
                "run_glue",
                "--model_name_or_path",
                folder_of(options, kind),
                "--train_file",
                options.scratch / "texts.csv",
                "--validation_file",
                options.scratch / "texts.csv",
                "--do_eval",
                "--per_device_eval_batch_size",
                options.batch,
                "--max_seq_length",
                SEQ,
                "--output_dir",
                folder,
                "--report_to",
                "none",
                *bf16_flag(kind),
            ],
            {"OMP_NUM_THREADS": str(options.threads)},
        )
        found = json.loads((pathlib.Path(folder) / "eval_results.json").read_text())
    return {"rate": found["eval_samples_per_second"], "accuracy": found["eval_accuracy"], "versions": {}}


# --- the comparison ---


def rival(options, kind, variant, variables):
    words = [
        sys.executable,
        __file__,
        "--side",
        variant,
        "--scratch",
        options.scratch,
        "--what",
        options.what,
        "--model",
        options.model,
        "--batch",
        options.batch,
        "--threads",
        options.threads,
        "--types",
        kind,
    ]
    return json.loads(rivals.run(words, {"OMP_NUM_THREADS": str(options.threads), "TANDEM_BENCH_BEGIN": str(time.time()), **variables}).strip().split("\n")[-1])


def variants_of(options, kind):
    names = options.variants.split(",")
    if kind == "int8":
        return [name for name in names if name in EXPORTED]
    return [name for name in names if name != "onnxruntime" or kind == "f32"]


def check(options, kind, accuracies):
    """Exits when a side has computed something else."""
    if options.what == "evaluate":
        few = 2 / options.count if kind == "f32" else 0.02  # texts at the border between two labels
        if max(accuracies) - min(accuracies) > few:
            sys.exit(f"the accuracies differ: {accuracies}")
        return
    ours = json.loads((options.scratch / "tandem.json").read_text())
    for variant in variants_of(options, kind):
        theirs = json.loads((options.scratch / f"{variant}.json").read_text())
        worst = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
        print(f"{variant}: scores differ by at most {worst:.1e}, of {len(ours)} between {min(ours):.3f} and {max(ours):.3f}")
        if not worst <= LARGEST_DIFFERENCE[kind]:
            sys.exit(f"{variant}: not the same scores")


def compare(options):
    write_texts(options)
    rivals.run([sys.executable, __file__, "--side", "model", "--scratch", options.scratch, "--model", options.model, "--tokenizer", options.tokenizer], {})
    results, versions = [], {}
    if "int8" in options.types.split(","):
        quantize_model(options)
    for kind in options.types.split(","):
        accuracies = []

        ours = {("tandem", ""): lambda kind=kind: tandem_predict(options, kind) if options.what == "predict" else tandem_evaluate(options, kind)}
        theirs = rivals.columns_of(options, lambda variant, variables, kind=kind: rival(options, kind, variant, variables))
        theirs = {side: run for side, run in theirs.items() if side[0] in variants_of(options, kind)}
        starts = {}  # of each side: its rates with and without the start

        def kept(side, run):
            result = run()
            accuracies.append(result.get("accuracy"))
            for name in STARTS:
                if name in result:
                    starts.setdefault(side, {}).setdefault(name, []).append(result[name])
            return result

        sides = {side: lambda side=side, run=run: kept(side, run) for side, run in {**ours, **theirs}.items()}
        rates, found = rivals.in_turns(sides, options.rounds, kind, "rate")
        versions.update(found)
        check(options, kind, accuracies)
        for side, values in rates.items():
            rate = rivals.spread(values)
            ratio = "" if side[0] == "tandem" else f"   tandem is {statistics.median(rates['tandem', '']) / rate['median']:.2f} times as fast"
            print(f"  {kind:4} {' '.join(side):24} {rate['median']:10.1f}  ({rate['min']:.1f} - {rate['max']:.1f}) per second{ratio}", flush=True)
            both = {name: rivals.spread(found) for name, found in starts.get(side, {}).items()}
            print("".join(f"       {name.replace('_', ' ')}: {found['median']:.1f} per second\n" for name, found in both.items()), end="", flush=True)
            results.append({"side": side[0], "allocator": side[1], "dtype": kind, "rate": rate, **both})
    if options.json:
        setting = {name: getattr(options, name) for name in ("what", "model", "count", "batch", "threads", "rounds")}
        pathlib.Path(options.json).write_text(json.dumps({**setting, "versions": versions, "results": results}))


def main():
    options = parse()
    if options.side == "model":
        return make_model(options)
    if options.side == "export":
        return export(options)
    if options.side:
        return trainer_side(options) if options.side == "trainer" else predict_side(options)
    with tempfile.TemporaryDirectory() as folder:
        options.scratch = pathlib.Path(folder)
        compare(options)


if __name__ == "__main__":
    main()
