"""A trained model that answers: a child process holds it (`tandem serve` on this machine only)."""

import json
import os
import subprocess
import threading
import urllib.error
import urllib.request
import weakref
from collections import deque
from typing import Any, Deque, Dict, Iterator, List, Sequence, Tuple, Union

from ._commands import option_words
from ._jobs import Flag, TandemError
from ._program import program

Text = Union[str, Tuple[str, str]]
_BATCH = 32  # inputs of one request, the server's limit
_EMBED_BATCH = 256
_REQUEST_BYTES = 1 << 26


def _end(process: "subprocess.Popen[str]") -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdin is not None:
        process.stdin.close()


def _address(process: "subprocess.Popen[str]", seen: Deque[str]) -> str:
    """The address that the server prints. Raises TandemError with its message if it ends first."""
    assert process.stdout is not None
    for line in process.stdout:
        seen.append(line.strip())
        for word in line.split():
            if word.startswith("http://"):
                return word.rstrip("/.,")
    code = process.wait()
    message = "\n".join(seen)
    raise TandemError(message.partition("tandem: error: ")[2] or message or f"tandem serve ended with exit code {code}", code)


def _keep_last(process: "subprocess.Popen[str]", seen: Deque[str]) -> None:
    """Reads what the server prints, because a full pipe would stop it."""
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            seen.append(line.strip())


class Model:
    """A model in a child process. Close it, use it in a `with`, or let it go out of scope.

    The child process also ends with this one, and Ctrl-C does not reach it. Several threads may
    share a model.
    """

    def __init__(self, path: Union[str, "os.PathLike[str]"], **flags: Flag) -> None:
        options: Dict[str, Flag] = {"max_request_bytes": _REQUEST_BYTES, "max_windows": 1 << 20, "request_timeout": 3600, **flags}
        words = [program(), "serve", "--model", os.fspath(path), "--port", "0", "--stop_with_input", *option_words(options)]
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._finalizer = weakref.finalize(self, _end, self._process)
        self._seen: Deque[str] = deque(maxlen=20)
        self._url = _address(self._process, self._seen)
        threading.Thread(target=_keep_last, args=(self._process, self._seen), daemon=True).start()

    def close(self) -> None:
        """Ends the child process."""
        self._finalizer()

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _post(self, path: str, body: Dict[str, Any]) -> Any:
        request = urllib.request.Request(self._url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")
            try:
                text = json.loads(text)["error"]
            except (ValueError, KeyError, TypeError):
                pass
            raise TandemError(text, error.code) from None
        except urllib.error.URLError as error:
            code = self._process.poll()
            if code is None:
                raise TandemError(f"the model's process does not answer: {error.reason}", 1) from None
            last = "\n".join(self._seen)
            raise TandemError(f"the model's process has ended with exit code {code}: {last}", code) from None

    def _batches(self, inputs: Sequence[Any], parameters: Dict[str, Any]) -> Iterator[Any]:
        for begin in range(0, len(inputs), _BATCH):
            yield from self._post("/", {"inputs": inputs[begin : begin + _BATCH], "parameters": parameters})

    def predict(self, texts: Union[str, Sequence[Text]], **parameters: Any) -> Any:
        """Labels of texts, or entities in them.

        `texts` is one text, or a list or array of texts, or of pairs (text, text_pair). One text
        gives one answer, a list a list of the same length. An answer is a list of
        {"label", "score"}, the best label first, or of
        {"entity_group", "score", "word", "start", "end"}. `parameters` are those of the inference
        API, for example top_k or aggregation_strategy.
        """
        one = isinstance(texts, str)
        inputs = [text if isinstance(text, str) else {"text": text[0], "text_pair": text[1]} for text in ([texts] if one else texts)]
        answers = list(self._batches(inputs, parameters))
        return answers[0] if one else answers

    def tags(self, texts: Union[str, Sequence[str]], **parameters: Any) -> Any:
        """Entities in texts, by a model of token classification: as `predict`."""
        return self.predict(texts, **{"aggregation_strategy": "first", **parameters})

    def probabilities(self, texts: Sequence[Text]) -> Tuple[Any, List[str]]:
        """Scores of all labels as a NumPy array [texts, labels] in float64, and the labels' names
        in the order of the columns (sorted). Needs numpy."""
        import numpy

        answers = [{entry["label"]: entry["score"] for entry in answer} for answer in self.predict(list(texts))]
        labels = sorted({label for answer in answers for label in answer})
        return numpy.array([[answer[label] for label in labels] for answer in answers]).reshape(len(answers), len(labels)), labels

    def answer(self, question: str, context: str, **parameters: Any) -> Any:
        """The answer to a question from a text: {"answer", "score", "start", "end"}."""
        return self._post("/", {"inputs": {"question": question, "context": context}, "parameters": parameters})

    def answers(self, questions: Sequence[str], contexts: Union[str, Sequence[str]], **parameters: Any) -> List[Any]:
        """The answers to questions, each from the text at its position, or all from one text."""
        texts = [contexts] * len(questions) if isinstance(contexts, str) else list(contexts)
        if len(texts) != len(questions):
            raise ValueError(f"found {len(texts)} contexts, expected one for each of {len(questions)} questions, or one text")
        inputs = [{"question": question, "context": context} for question, context in zip(questions, texts)]
        return list(self._batches(inputs, parameters))

    def embed(self, texts: Union[str, Sequence[str]], **parameters: Any) -> Any:
        """Embeddings as a NumPy array in float32: [texts, values], or [values] for one text.

        `parameters` are those of `POST /embed`: normalize (default: true), prompt_name, dimensions,
        truncate. Needs numpy.
        """
        import numpy

        one = isinstance(texts, str)
        inputs: List[str] = [texts] if isinstance(texts, str) else list(texts)
        rows: List[Any] = []
        for begin in range(0, len(inputs), _EMBED_BATCH):
            rows += self._post("/embed", {"inputs": inputs[begin : begin + _EMBED_BATCH], **parameters})
        return numpy.array(rows[0] if one else rows, dtype=numpy.float32)

    def rerank(self, query: str, passages: Sequence[str], **parameters: Any) -> List[Dict[str, Any]]:
        """Passages by their relevance for a query: [{"index", "score"}, …], the best first.

        `parameters` are those of `POST /rerank`: raw_scores, return_text, truncate (here true by
        default).
        """
        texts = list(passages)
        ranked: List[Dict[str, Any]] = []
        for begin in range(0, len(texts), _EMBED_BATCH):
            body = {"query": query, "texts": texts[begin : begin + _EMBED_BATCH], "truncate": True, **parameters}
            ranked += [{**entry, "index": entry["index"] + begin} for entry in self._post("/rerank", body)]
        return sorted(ranked, key=lambda entry: -entry["score"])


def load(path: Union[str, "os.PathLike[str]"], **flags: Flag) -> Model:
    """Loads a model directory or a name of the Hub. `flags` are those of `tandem serve`."""
    return Model(path, **flags)
