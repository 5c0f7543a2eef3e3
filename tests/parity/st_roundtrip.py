#!/usr/bin/env python3
"""Bi-encoders and cross-encoders go from sentence-transformers to tandem and back with the same numbers.

    st_roundtrip.py TANDEM

For each model of the shared golden data, in the file layouts of version 2 to 5.2 and of 5.7: tandem embeds or scores the directory, trains it for a step, and
sentence-transformers loads what tandem saved; then sentence-transformers saves that model and tandem reads it. Embeddings are compared by their largest difference, within
1e-6, scores within 1e-5; prompts, pooling and length must survive. Runs itself again with the Python of build/test-data/torch-venv; exits 77, which means skipped,
without sentence-transformers or the shared data.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared/data/golden/next"
VENV_PYTHON = ROOT / "build/test-data/torch-venv/bin/python"
os.environ.setdefault("HF_HUB_OFFLINE", "1")

try:
    import numpy
    from sentence_transformers import CrossEncoder, SentenceTransformer
except ImportError:
    if not VENV_PYTHON.exists() or os.environ.get("TANDEM_CHECK_IN_VENV"):
        print("SKIPPED: needs the package sentence-transformers: build/test-data/torch-venv/bin/pip install sentence-transformers==5.7.0")
        sys.exit(77)
    os.execve(VENV_PYTHON, [str(VENV_PYTHON), *sys.argv], {**os.environ, "TANDEM_CHECK_IN_VENV": "1"})
if not SHARED.exists():
    print(f"SKIPPED: needs the shared test data, which is absent: {SHARED}")
    sys.exit(77)

TANDEM = str(pathlib.Path(sys.argv[1]).resolve())
TEXTS = ["The Valgull carries glass.", "Since 1655 the Salwave has been at sea.", "", "rain"]
findings = []


def run(*words):
    done = subprocess.run([TANDEM, *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"tandem {' '.join(map(str, words))}\nended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def expect_equal(found, expected, tolerance, what):
    difference = float(numpy.abs(numpy.asarray(found) - numpy.asarray(expected)).max())
    print(f"{what}: {difference:.1e}")
    if not difference <= tolerance:
        findings.append(f"{what}: found a difference of {difference}, expected at most {tolerance}")


def embeddings(model):
    return [json.loads(line)["embedding"] for line in run("embed", "--model", model, "--json", *TEXTS).splitlines()]


def compare_embeddings(directory, what):
    """The model as sentence-transformers loads it."""
    model = SentenceTransformer(str(directory), device="cpu")
    expected = model.encode(TEXTS)
    largest = max(1.0, float(numpy.abs(expected).max()))  # those of a decoder without Normalize have values of 4
    expect_equal(numpy.asarray(embeddings(directory)) / largest, expected / largest, 1e-6, what)
    return model


def bi_encoder(name, folder, source=None):
    source = source or SHARED / "models" / name
    before = compare_embeddings(source, f"{name} as it is")
    trained, saved = folder / f"{name}-trained", folder / f"{name}-saved"
    pairs = SHARED / "data/pairs.jsonl"
    run("run_embedding", "--model_name_or_path", source, "--train_file", pairs, "--do_train", "--max_steps", 2, "--output_dir", trained)
    after = compare_embeddings(trained, f"{name} trained by tandem")
    for key in ("prompts", "default_prompt_name", "similarity_fn_name", "max_seq_length"):
        if getattr(before, key) != getattr(after, key):
            findings.append(f"{name}: {key}: found {getattr(after, key)}, expected {getattr(before, key)}")
    after.save_pretrained(str(saved))
    compare_embeddings(saved, f"{name} saved by sentence-transformers")


def adapter(folder):
    """The adapters of a frozen bi-encoder, which sentence-transformers reads with their base model."""
    try:
        import peft  # noqa: F401 - sentence-transformers needs it
    except ImportError:
        print("peft is absent: no adapter is read")
        return
    trained = folder / "adapter"
    words = ("--do_train", "--use_peft", "--max_steps", 2, "--learning_rate", 2e-2, "--output_dir", trained)
    run("run_embedding", "--model_name_or_path", SHARED / "models/tiny-st-cls-norm", "--train_file", SHARED / "data/pairs.jsonl", *words)
    compare_embeddings(trained, "adapter of tiny-st-cls-norm")


def decoder(folder):
    """tiny-qwen3 without modules, whose tokenizer puts a token behind every text, as Qwen3-Embedding's does."""
    source, end = folder / "tiny-qwen3", "<|endoftext|>"
    shutil.copytree(SHARED / "models/tiny-qwen3", source)
    path = source / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    number = next(token["id"] for token in tokenizer["added_tokens"] if token["content"] == end)
    first, second = ({"Sequence": {"id": text, "type_id": 0}} for text in "AB")
    behind = {"SpecialToken": {"id": end, "type_id": 0}}
    ids = {end: {"id": end, "ids": [number], "tokens": [end]}}
    tokenizer["post_processor"] = {"type": "TemplateProcessing", "single": [first, behind], "pair": [first, behind, second, behind], "special_tokens": ids}
    path.chmod(0o644)
    path.write_text(json.dumps(tokenizer))
    bi_encoder("tiny-qwen3", folder, source)


def prompts_outside_the_pooling(folder):
    """Every pooling without the tokens of a prompt, also of a prompt that is cut, and the loss of an evaluation."""
    model = folder / "prompted"
    shutil.copytree(SHARED / "models/tiny-st-mean", model)
    pooling = model / "1_Pooling/config.json"
    size = json.loads((model / "config.json").read_text())["hidden_size"]
    prompt = "find what answers: "
    for mode in ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"):
        pooling.write_text(json.dumps({"embedding_dimension": size, "pooling_mode": mode, "include_prompt": False}))
        for length in (64, 5):
            loaded = SentenceTransformer(str(model), device="cpu")  # anew: it keeps the length of a prompt
            loaded.max_seq_length = length
            words = ("embed", "--model", model, "--json", "--prompt", prompt, "--max_seq_length", length, *TEXTS)
            found = [json.loads(line)["embedding"] for line in run(*words).splitlines()]
            expected = loaded.encode(TEXTS, prompt=prompt)
            largest = float(numpy.abs(expected).max())
            expect_equal(numpy.asarray(found) / largest, expected / largest, 1e-6, f"{mode} without the prompt, {length} tokens")
    pooling.write_text(json.dumps({"embedding_dimension": size, "pooling_mode": "mean", "include_prompt": False}))
    loaded = SentenceTransformer(str(model), device="cpu")
    rows = [{"query": TEXTS[0], "answer": TEXTS[3]}, {"query": TEXTS[1], "answer": TEXTS[0]}]
    pairs, out = folder / "prompted.jsonl", folder / "prompted-out"
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("--do_eval", "--prompts", json.dumps({"query": prompt}), "--output_dir", out)
    run("run_embedding", "--model_name_or_path", model, "--validation_file", pairs, *words)
    queries = loaded.encode([row["query"] for row in rows], prompt=prompt, normalize_embeddings=True)
    scores = 20.0 * queries @ loaded.encode([row["answer"] for row in rows], normalize_embeddings=True).T
    loss = float(numpy.mean(numpy.log(numpy.exp(scores).sum(1)) - scores.diagonal()))
    expect_equal(json.loads((out / "eval_results.json").read_text())["eval_loss"], loss, 1e-5, "loss without the prompt")


def compare_scores(directory, folder, what):
    model = CrossEncoder(str(directory), device="cpu")
    queries = folder / "queries.jsonl"
    queries.write_text(json.dumps({"query": "What does the Valgull carry?", "docs": TEXTS}) + "\n")
    results = json.loads(run("rerank", "--model", directory, "--queries", queries))["results"]
    found = [row["score"] for row in sorted(results, key=lambda row: row["index"])]
    expect_equal(found, model.predict([("What does the Valgull carry?", text) for text in TEXTS]), 1e-5, what)
    return model


def cross_encoder(name, folder, source=None):
    source = source or SHARED / "models" / name
    compare_scores(source, folder, f"{name} as it is")
    trained, saved = folder / f"{name}-trained", folder / f"{name}-saved"
    pairs = SHARED / "data/rerank_pairs.jsonl"
    run("run_reranker", "--model_name_or_path", source, "--train_file", pairs, "--do_train", "--max_steps", 2, "--output_dir", trained)
    compare_scores(trained, folder, f"{name} trained by tandem").save_pretrained(str(saved))
    compare_scores(saved, folder, f"{name} saved by sentence-transformers")


def decoder_of_pairs(folder):
    """A Qwen3 that scores by logits (sentence-transformers 5.4 and later), and one with a layer of its own."""
    golden = json.loads((pathlib.Path(__file__).resolve().parent / "golden/decoders/labels.json").read_text())
    scored = folder / "scored-decoder"
    shutil.copytree(SHARED / "models/tiny-qwen3", scored)
    trained = folder / "headed-decoder"
    words = ("--train_file", SHARED / "data/rerank_pairs.jsonl", "--do_train", "--max_steps", 2, "--output_dir", trained)
    run("run_reranker", "--model_name_or_path", scored, *words)
    cross_encoder("a decoder with a head", folder, trained)
    try:
        from sentence_transformers.cross_encoder.modules import LogitScore  # noqa: F401
    except ImportError:
        print("sentence-transformers is older than 5.4: no LogitScore is read")
        return
    (scored / "chat_template.jinja").write_text(golden["logits"]["template"])
    (scored / "1_LogitScore").mkdir()
    (scored / "1_LogitScore/config.json").write_text(json.dumps(golden["logits"]["tokens"]))
    kinds = {"": "base.modules.transformer.Transformer", "1_LogitScore": "cross_encoder.modules.logit_score.LogitScore"}
    modules = [{"idx": idx, "name": str(idx), "path": path, "type": f"sentence_transformers.{kind}"} for idx, (path, kind) in enumerate(kinds.items())]
    (scored / "modules.json").write_text(json.dumps(modules))
    (scored / "config_sentence_transformers.json").write_text(json.dumps({"model_type": "CrossEncoder", "prompts": {}, "default_prompt_name": None}))
    forward = {"method": "forward", "method_output_name": "logits"}
    modalities = {"text": forward, "message": forward | {"format": "flat"}}
    transformer = {"transformer_task": "text-generation", "modality_config": modalities, "module_output_name": "causal_logits"}
    (scored / "sentence_bert_config.json").write_text(json.dumps(transformer))
    cross_encoder("a decoder with LogitScore", folder, scored)


def softmax_model(folder):
    """The classifier of SoftmaxLoss beside a model changes nothing for sentence-transformers."""
    rows, trained = folder / "classes.jsonl", folder / "softmax"
    rows.write_text("".join(json.dumps({"a": TEXTS[0], "b": TEXTS[number % 4], "label": number % 3}) + "\n" for number in range(12)))
    source = SHARED / "models/tiny-st-mean"
    words = ("--loss", "SoftmaxLoss", "--do_train", "--max_steps", 2, "--output_dir", trained)
    run("run_embedding", "--model_name_or_path", source, "--train_file", rows, *words)
    assert (trained / "loss.safetensors").exists()
    compare_embeddings(trained, "tiny-st-mean trained with SoftmaxLoss")


def parquet_file(folder):
    """pyarrow reads a Parquet file of `tandem embed`."""
    try:
        import pyarrow.parquet
    except ImportError:
        print("pyarrow is absent: no Parquet file is read")
        return
    model, texts, output = SHARED / "models/tiny-st-mean", folder / "texts.txt", folder / "vectors.parquet"
    texts.write_text("".join(text + "\n" for text in TEXTS))
    run("embed", "--model", model, "--file", texts, "--output", output)
    table = pyarrow.parquet.read_table(output)
    expect_equal(table["embedding"].to_pylist(), embeddings(model), 0, "Parquet file")
    if table["text"].to_pylist() != TEXTS or str(table.schema.field("embedding").type) != "list<element: float not null>":
        findings.append(f"Parquet file: found {table.schema} and the texts {table['text'].to_pylist()}")


with tempfile.TemporaryDirectory() as temporary:
    for model_name in ("tiny-st-mean", "tiny-st-cls-norm", "tiny-st-dense", "tiny-st-dense-old", "tiny-bert"):
        bi_encoder(model_name, pathlib.Path(temporary))
    decoder(pathlib.Path(temporary))
    adapter(pathlib.Path(temporary))
    prompts_outside_the_pooling(pathlib.Path(temporary))
    softmax_model(pathlib.Path(temporary))
    parquet_file(pathlib.Path(temporary))
    for model_name in ("tiny-ce", "tiny-ce-old"):
        cross_encoder(model_name, pathlib.Path(temporary))
    decoder_of_pairs(pathlib.Path(temporary))
print("\n".join(findings) or "st_roundtrip: no findings")
sys.exit(bool(findings))
