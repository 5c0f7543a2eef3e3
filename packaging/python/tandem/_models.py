"""A trained model that answers: a child process holds it (`tandem serve` on this machine only)."""

import json
import os
import subprocess
import urllib.error
import urllib.request
import weakref
from typing import Any, Dict, List, Sequence, Tuple, Union

from ._jobs import Flag, TandemError, flag_words
from ._program import program

Text = Union[str, Tuple[str, str]]
_BATCH = 32  # inputs of one request, the server's limit


def _end(process: "subprocess.Popen[str]") -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def _address(process: "subprocess.Popen[str]") -> str:
    """The address that the server prints. Raises TandemError with its message if it ends first."""
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line.strip())
        for word in line.split():
            if word.startswith("http://"):
                return word.rstrip("/.,")
    code = process.wait()
    raise TandemError("\n".join(seen[-5:]) or f"tandem serve ended with {code}", code)


class Model:
    """A model in a child process. Close it, use it in a `with`, or let it go out of scope."""

    def __init__(self, path: Union[str, "os.PathLike[str]"], **flags: Flag) -> None:
        words = [program(), "serve", "--model", os.fspath(path), "--port", "0", *flag_words(flags)]
        self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        self._finalizer = weakref.finalize(self, _end, self._process)
        self._url = _address(self._process)

    def close(self) -> None:
        """Ends the child process."""
        self._finalizer()

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _post(self, inputs: Any, parameters: Dict[str, Any]) -> Any:
        body = json.dumps({"inputs": inputs, "parameters": parameters}).encode()
        request = urllib.request.Request(self._url, body, {"Content-Type": "application/json"})
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
            raise TandemError(f"the model's process does not answer: {error.reason}", self._process.poll() or 1) from None

    def _batches(self, inputs: Sequence[Any], parameters: Dict[str, Any]) -> List[Any]:
        answers: List[Any] = []
        for begin in range(0, len(inputs), _BATCH):
            answers += self._post(list(inputs[begin : begin + _BATCH]), parameters)
        return answers

    def predict(self, texts: Union[str, Sequence[Text]], **parameters: Any) -> Any:
        """Labels of texts, or entities in them.

        `texts` is one text, or a list of texts or of pairs (text, text_pair). One text gives one
        answer, a list a list of the same length. An answer is a list of {"label", "score"}, the best
        label first, or of {"entity_group", "score", "word", "start", "end"}. `parameters` are those
        of the inference API, for example top_k or aggregation_strategy.
        """
        one = isinstance(texts, str)
        inputs = [text if isinstance(text, str) else {"text": text[0], "text_pair": text[1]} for text in ([texts] if one else texts)]
        answers = self._batches(inputs, parameters)
        return answers[0] if one else answers

    def probabilities(self, texts: Sequence[Text]) -> Tuple[Any, List[str]]:
        """Scores of all labels as a NumPy array [texts, labels] in float64, and the labels' names
        in the order of the columns (sorted). Needs numpy."""
        import numpy

        answers = [{entry["label"]: entry["score"] for entry in answer} for answer in self.predict(list(texts), top_k=None)]
        labels = sorted({label for answer in answers for label in answer})
        return numpy.array([[answer[label] for label in labels] for answer in answers]), labels

    def answer(self, question: str, context: str, **parameters: Any) -> Any:
        """The answer to a question from a text: {"answer", "score", "start", "end"}."""
        return self._post({"question": question, "context": context}, parameters)


def load(path: Union[str, "os.PathLike[str]"], **flags: Flag) -> Model:
    """Loads a model directory or a name of the Hub. `flags` are those of `tandem serve`."""
    return Model(path, **flags)
