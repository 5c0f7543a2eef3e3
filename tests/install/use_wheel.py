"""The Python module of the wheel, with the demo's model (check_portable.sh): use_wheel.py DEMO OUT."""

import io
import json
import shutil
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path

import tandem

demo, out = Path(sys.argv[1]), Path(sys.argv[2])
flags = dict(
    model_name_or_path=demo / "model",
    train_file=demo / "topics_train.csv",
    validation_file=demo / "topics_held_out.csv",
    do_train=True,
    do_eval=True,
    learning_rate=1e-3,
    num_train_epochs=1,
    max_seq_length=64,
    save_strategy="no",
)

# Results are those of all_results.json, and the log goes to sys.stdout.
log = io.StringIO()
with redirect_stdout(log):
    results = tandem.run_classification(**flags, output_dir=out / "model", workers=2)
assert results["eval_accuracy"] > 0.5 and results["epoch"] == 1.0, results
assert "***** Running training *****" in log.getvalue() and "2 workers" in log.getvalue()

# A failure has the program's message.
try:
    with redirect_stdout(io.StringIO()):
        tandem.run_classification(**{**flags, "model_name_or_path": "absent"}, output_dir=out / "no")
    raise AssertionError("an absent model is accepted")
except tandem.TandemError as error:
    assert "absent" in str(error) and error.exit_code == 1, (str(error), error.exit_code)

# All jobs and commands of the program are functions.
listed = subprocess.run([tandem.program(), "--help"], check=True, capture_output=True, text=True).stdout
jobs = {word for line in listed.splitlines() for word in line.split()[:1] if word.startswith("run_") or word in ("embed", "rerank", "mine", "search")}
assert len(jobs) >= 11 and not [job for job in jobs if not callable(getattr(tandem, job, None))], jobs

# More texts than a request may have; one text gives one answer.
with tandem.load(out / "model") as model:
    texts = ["Dorla commands the Melqueen.", "The Melqueen carries silk."] * 40
    answers = model.predict(texts)
    assert len(answers) == 80 and answers[0] == answers[2] == model.predict(texts[0])
    assert len(answers[0]) == 18 and answers[0][0]["score"] >= answers[0][1]["score"]
    try:
        model.predict(["a"], no_such_parameter=1)
        raise AssertionError("an unknown parameter is accepted")
    except tandem.TandemError as error:
        assert "no_such_parameter" in str(error), str(error)
    # The process that holds the model ends with the Python process, even if that is killed.
    held = f"import tandem, os; model = tandem.load({str(out / 'model')!r}); print(model._process.pid, flush=True); os.kill(os.getpid(), 9)"
    killed = subprocess.run([sys.executable, "-c", held], capture_output=True, text=True)
    deadline = time.time() + 30
    while Path("/proc", killed.stdout.strip()).exists() and time.time() < deadline:
        time.sleep(0.1)
    assert not Path("/proc", killed.stdout.strip()).exists(), "the model's process outlives a killed Python process"

# Tags, answers and relevance, by heads with fixed weights.
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
heads = {"tags": ("ForTokenClassification", "O", "B-SHIP"), "answers": ("ForQuestionAnswering",), "relevance": ("ForSequenceClassification", "relevance")}
for name, words in heads.items():
    subprocess.run([sys.executable, Path(__file__).parents[1] / "support/with_head.py", demo / "model", out / name, *words], check=True)
with tandem.load(out / "tags") as model:
    tags = model.tags(texts[:3], ignore_labels=[])
    assert len(tags) == 3 and tags[0] == tags[2] and {"entity_group", "score", "word", "start", "end"} <= set(tags[0][0]), tags
with tandem.load(out / "answers", max_answer_length=5) as model:
    questions = ["Who commands the Melqueen?", "What does it carry?"] * 20
    answers = model.answers(questions, " ".join(texts[:2]))
    assert len(answers) == 40 and answers[0] == model.answer(questions[0], " ".join(texts[:2])), answers[:2]
passages = [texts[0], "Line\nbreak.", texts[1]]
ranked = tandem.rerank("Who commands the Melqueen?", passages, model=out / "relevance")
assert sorted(entry["index"] for entry in ranked) == [0, 1, 2] and ranked[0]["score"] >= ranked[2]["score"], ranked
assert tandem.rerank(["a", "b"], [passages, passages[:1]], model=out / "relevance", top_k=1, raw_scores=True)[1][0]["index"] == 0
with tandem.load(out / "relevance") as model:
    assert [entry["index"] for entry in model.rerank("Who commands the Melqueen?", passages)] == [entry["index"] for entry in ranked]

# Hard negatives, and the message of a command that fails.
(out / "pairs.jsonl").write_text("".join(f'{{"query": "ship {i}", "answer": "The ship {i} sails."}}\n' for i in range(8)))
rows = tandem.mine(model=demo / "model", file=out / "pairs.jsonl", num_negatives=2, range_max=6)
assert len(rows) == 16 and "ship" in str(rows[0]), rows[:2]
(out / "corpus.jsonl").write_text("".join(f'{{"_id": "{i}", "text": "The ship {i} sails."}}\n' for i in range(8)))
(out / "queries.jsonl").write_text('{"_id": "q", "text": "The ship 3 sails."}\n')
(out / "relevant.tsv").write_text("query-id\tcorpus-id\tscore\nq\t3\t1\n")
metrics = tandem.search(model=demo / "model", eval_corpus=out / "corpus.jsonl", eval_queries=out / "queries.jsonl", eval_qrels=out / "relevant.tsv")
assert [value for name, value in metrics.items() if "accuracy" in name] and max(metrics.values()) == 1.0, metrics
try:
    tandem.mine(model=out / "absent", file=out / "pairs.jsonl")
    raise AssertionError("an absent model is accepted")
except tandem.TandemError as error:
    assert "absent" in str(error) and error.exit_code == 1, (str(error), error.exit_code)

# Arrays, if numpy is there.
try:
    import numpy
except ImportError:
    numpy = None
if numpy is not None:
    array = tandem.embed(numpy.array(texts[:3]), model=demo / "model", normalize=True)
    assert array.shape == (3, 128) and array.dtype == numpy.float32 and (array[0] == array[2]).all(), array
    # A bare encoder is a model of embeddings with the files of sentence-transformers.
    shutil.copytree(demo / "model", out / "sentence")
    (out / "sentence" / "1_Pooling").mkdir()
    (out / "sentence" / "1_Pooling" / "config.json").write_text('{"word_embedding_dimension": 128, "pooling_mode_mean_tokens": true}')
    modules = [("0", "", "Transformer"), ("1", "1_Pooling", "Pooling")]
    entries = [{"idx": int(i), "name": i, "path": path, "type": f"sentence_transformers.models.{name}"} for i, path, name in modules]
    (out / "sentence" / "modules.json").write_text(json.dumps(entries))
    with tandem.load(out / "sentence") as model:
        assert (model.embed(numpy.array(texts[:3])) == array).all() and model.embed(texts[0]).shape == (128,)
    with tandem.load(out / "model") as model:
        scores, labels = model.probabilities(numpy.array(texts[:3]))
        assert scores.shape == (3, 18) == (3, len(labels)) and abs(scores.sum(axis=1) - 1).max() < 1e-5
else:
    tandem.embed(texts[:2], model=demo / "model", output=out / "embeddings.npy")
    assert (out / "embeddings.npy").stat().st_size > 2 * 128 * 4

# `python -m tandem` is the command.
version = subprocess.run([sys.executable, "-m", "tandem", "--version"], check=True, capture_output=True, text=True)
assert version.stdout.split()[1] == tandem.__version__, version.stdout

# Ctrl-C in the terminal of a Python program ends the job too, with a checkpoint.
code = (
    # A shell's background job, as this test may be, starts with SIGINT ignored.
    "import signal, sys, tandem; from pathlib import Path; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "demo = Path(sys.argv[1]); tandem.run_classification("
    "model_name_or_path=demo / 'model', train_file=demo / 'topics_train.csv', do_train=True, "
    "num_train_epochs=100000, max_seq_length=64, output_dir=sys.argv[2])"
)
process = subprocess.Popen([sys.executable, "-c", code, str(demo), str(out / "stopped")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
seen = ""
for line in process.stdout:
    seen += line
    if "Running training" in line:
        break
time.sleep(1)
process.send_signal(signal.SIGINT)
seen += process.communicate(timeout=60)[0]
assert "KeyboardInterrupt" in seen, seen[-2000:]
assert list((out / "stopped").glob("checkpoint-*")), seen[-2000:]
print("module: ok")
