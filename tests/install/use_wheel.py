"""The Python module of the wheel, with the demo's model (check_portable.sh): use_wheel.py DEMO OUT."""

import io
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

# `python -m tandem` is the command.
version = subprocess.run([sys.executable, "-m", "tandem", "--version"], check=True, capture_output=True, text=True)
assert version.stdout.split()[1] == tandem.__version__, version.stdout

# Ctrl-C in the terminal of a Python program ends the job too, with a checkpoint.
code = (
    "import sys, tandem; from pathlib import Path; demo = Path(sys.argv[1]); tandem.run_classification("
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
