#!/usr/bin/env python3
"""Hugging Face's InferenceClient, an old version and the newest, gets from `tandem serve` what it gets from the Hub's API.

    check_hub_clients.py TANDEM

For a model of each task (tests/support/with_head.py; embeddings: the demo's encoder): the client's method with and without parameters, lists of one and of several inputs, requests of other tasks, and errors. Needs
build/test-data/hub-clients (scripts/fetch_hub_clients.sh); exits 77, which means skipped, when it is absent.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENTS = ROOT / "build/test-data/hub-clients"
MODELS = {
    "question-answering": ("ForQuestionAnswering",),
    "text-classification": ("ForSequenceClassification", "bad", "so so", "good"),
    "token-classification": ("ForTokenClassification", "O", "B-PER", "I-PER"),
    "feature-extraction": (),
}
TEXT = "Kim sails to Oslo with the Melqueen."


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def refused(call, *words):
    """The client raises its error, whose text has the server's reason."""
    from huggingface_hub.utils import HfHubHTTPError

    try:
        call()
    except HfHubHTTPError as error:
        text = str(error) + str(getattr(error, "server_message", ""))
        assert error.response.status_code == 400, text
        for word in words:
            assert word in text, (word, text)
        return
    raise AssertionError(f"accepted, expected an error with {words}")


def check_texts(client, url, new):
    labels = client.text_classification(TEXT)
    assert [type(one).__name__ for one in labels] == ["TextClassificationOutputElement"] * 3, labels
    assert {one.label for one in labels} == {"bad", "so so", "good"} and abs(sum(one.score for one in labels) - 1) < 1e-6
    assert labels == sorted(labels, key=lambda one: -one.score)
    if new:
        assert client.text_classification(TEXT, top_k=1) == labels[:1]
        free = client.text_classification(TEXT, top_k=2, function_to_apply="sigmoid")
        assert len(free) == 2 and free[0].label == labels[0].label and free[0].score != labels[0].score
        refused(lambda: client.text_classification(TEXT, function_to_apply="tanh"), "expected softmax, sigmoid or none")
    (one,) = post(url, {"inputs": TEXT})
    assert post(url, {"inputs": [TEXT]}) == [one] and post(url, {"inputs": [TEXT, "Oslo"]})[0] == one
    assert len(post(url, {"inputs": [TEXT, "Oslo"]})) == 2 and len(post(url, {"inputs": {"text": TEXT, "text_pair": "Oslo"}})) == 1
    refused(lambda: client.zero_shot_classification(TEXT, ["a", "b"]), "candidate_labels is not known")


def check_tokens(client, url, new):
    entities = client.token_classification(TEXT)
    assert entities, "the model finds nothing"
    for one in entities:
        assert one.word == TEXT[one.start : one.end] and one.entity_group in ("PER",), one
        # Whole words: the characters before and behind are not letters.
        assert not re.match(r"\w\w", TEXT[max(one.start - 1, 0) : one.start + 1]) or one.start == 0, one
        assert not re.match(r"\w\w", TEXT[one.end - 1 : one.end + 1]), one
    if new:
        pieces = client.token_classification(TEXT, aggregation_strategy="none", ignore_labels=[], stride=2)
        assert len(pieces) > len(TEXT.split()) and all(one.entity and one.entity_group is None for one in pieces)
        assert client.token_classification(TEXT, aggregation_strategy="first") == entities
    raw = post(url, {"inputs": TEXT})
    assert post(url, {"inputs": [TEXT]}) == [raw] and post(url, {"inputs": [TEXT, "Oslo"]})[0] == raw
    refused(lambda: client.zero_shot_classification(TEXT, ["a", "b"]), "candidate_labels is not known")


def check_questions(client, url, new):
    answer = client.question_answering(question="Who?", context=TEXT)
    assert answer.answer == TEXT[answer.start : answer.end] and 0 < answer.score <= 1, answer
    if new:
        several = client.question_answering(question="Who?", context=TEXT, top_k=3, max_answer_len=5, doc_stride=8, max_seq_len=64)
        assert len(several) == 3 and several[0].score >= several[1].score
        refused(lambda: client.question_answering(question="Who?", context=TEXT, align_to_words=True), "align_to_words is not known")
    inputs = {"question": "Who?", "context": TEXT}
    raw = post(url, {"inputs": inputs})
    assert post(url, inputs) == raw and post(url, {"inputs": [inputs]}) == [raw] and post(url, {"inputs": [inputs, inputs]}) == [raw, raw]
    refused(lambda: client.question_answering(question=" ", context=TEXT), "is empty")
    refused(lambda: client.sentence_similarity("a", ["b", "c"]), "inputs has no 'question'")


def check_embeddings(client, url, new):
    def rows(answer):
        return [list(map(float, row)) for row in answer]

    one = rows(client.feature_extraction(TEXT))
    assert len(one) == 1 and len(one[0]) > 1, one
    assert abs(sum(x * x for x in one[0]) - 1) < 1e-5, "embeddings are normalized unless normalize is false"
    raw = post(url, {"inputs": TEXT})
    assert len(raw) == 1 and all(abs(a - b) < 1e-6 for a, b in zip(one[0], raw[0]))
    assert post(url, {"inputs": [TEXT]}) == raw and post(url, {"inputs": [TEXT, "Oslo"]})[0] == raw[0]
    scores = client.sentence_similarity(TEXT, [TEXT, "Oslo"])
    assert abs(scores[0] - 1) < 1e-5 and scores[1] < scores[0], scores
    if new:
        (free,) = rows(client.feature_extraction(TEXT, normalize=False))
        assert abs(sum(x * x for x in free) - 1) > 1e-3
        two = rows(client.feature_extraction([TEXT, "Oslo"], truncate=True))
        assert two[0] == one[0] and len(two) == 2
        refused(lambda: client.feature_extraction(TEXT, truncation_direction="Left"), "expected right")


CHECKS = {
    "question-answering": check_questions,
    "text-classification": check_texts,
    "token-classification": check_tokens,
    "feature-extraction": check_embeddings,
}


def ask(task, url):
    """In a process of its own, whose PYTHONPATH has one version."""
    import huggingface_hub

    client = huggingface_hub.InferenceClient(model=url)
    new = int(huggingface_hub.__version__.split(".")[0]) >= 1
    CHECKS[task](client, url, new)
    print(f"huggingface_hub {huggingface_hub.__version__}, {task}: ok", flush=True)


def serve_and_ask(tandem, model, task):
    server = subprocess.Popen([tandem, "serve", "--model", model, "--port", "0"], stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        url = re.search(r"http://\S+", server.stdout.readline())[0]
        for version in ("old", "new"):
            subprocess.run(
                [sys.executable, __file__, "--ask", task, url],
                check=True,
                env={**os.environ, "PYTHONPATH": f"{CLIENTS / version}:{CLIENTS / 'numpy'}", "HF_HUB_DISABLE_TELEMETRY": "1"},
                timeout=120,
            )
    finally:
        server.terminate()
        server.wait(30)


def main():
    if sys.argv[1] == "--ask":
        return ask(*sys.argv[2:])
    if not all((CLIENTS / folder).is_dir() for folder in ("old/huggingface_hub", "new/huggingface_hub", "numpy/numpy")):
        print("SKIPPED: needs two versions of huggingface_hub and numpy in build/test-data/hub-clients: run scripts/fetch_hub_clients.sh")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as scratch:
        for task, head in MODELS.items():
            model = pathlib.Path(scratch) / task
            if head:
                subprocess.run([sys.executable, ROOT / "tests/support/with_head.py", ROOT / "examples/demo/model", model, *head], check=True)
            else:
                shutil.copytree(ROOT / "examples/demo/model", model)
                (model / "modules.json").write_text(
                    json.dumps([{"idx": 0, "path": "", "type": "x.models.Transformer"}, {"idx": 1, "path": "1_Pooling", "type": "x.models.Pooling"}])
                )
                (model / "1_Pooling").mkdir()
                (model / "1_Pooling/config.json").write_text('{"pooling_mode_mean_tokens": true}')
            serve_and_ask(sys.argv[1], model, task)


if __name__ == "__main__":
    main()
