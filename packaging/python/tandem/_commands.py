"""Commands that compute once and end: embed, rerank, mine, search. Keyword arguments are their flags."""

import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Union

from ._jobs import Flag, TandemError
from ._program import program

_ERROR = "tandem: error: "


def option_words(options: Dict[str, Flag]) -> List[str]:
    """The words of a command line. True is the flag alone; None and False leave it out."""
    words: List[str] = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        words.append(f"--{name}")
        if isinstance(value, (list, tuple)):
            words.append(",".join(str(item) for item in value))
        elif value is not True:
            words.append(os.fspath(value) if isinstance(value, os.PathLike) else str(value))
    return words


def _run(command: str, options: Dict[str, Flag], output: Optional[Path] = None) -> None:
    """Runs the command, its standard output into a file. Its log goes to sys.stderr.

    Raises TandemError with the program's message.
    """
    words = [program(), command, *option_words(options)]
    lines: List[str] = []
    with ExitStack() as stack:
        results = stack.enter_context(output.open("wb")) if output is not None else None
        process = stack.enter_context(
            subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=results, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True)
        )
        assert process.stderr is not None
        try:
            for line in process.stderr:
                lines.append(line.rstrip("\n"))
                sys.stderr.write(line)
                sys.stderr.flush()
        except BaseException:
            process.terminate()
            raise
        code = process.wait()
    if code != 0:
        begin = next((i for i, line in enumerate(lines) if line.startswith(_ERROR)), max(0, len(lines) - 5))
        raise TandemError("\n".join(lines[begin:]).replace(_ERROR, "", 1) or f"tandem {command} ended with exit code {code}", code)


def _json_lines(path: Path) -> List[Any]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def embed(texts: Optional[Sequence[str]] = None, **flags: Flag) -> Any:
    """Embeddings of texts, or of the lines of `file`: a NumPy array [texts, values]. Needs numpy.

    With `output` the array is written there, and the result is None: NumPy is not needed.
    """
    with tempfile.TemporaryDirectory(prefix="tandem-") as folder:
        if texts is not None:
            lines = list(texts)
            for number, text in enumerate(lines):
                if "\n" in text or "\r" in text:
                    raise ValueError(f"text {number} contains a line break; remove it, or use tandem.load(model).embed, which takes any text")
            flags["file"] = Path(folder) / "texts"
            Path(folder, "texts").write_bytes("".join(f"{line}\n" for line in lines).encode())
        if flags.get("output") is not None:
            _run("embed", flags)
            return None
        import numpy

        _run("embed", {**flags, "output": Path(folder) / "embeddings.npy"})
        return numpy.load(Path(folder) / "embeddings.npy")


def rerank(query: Union[str, Sequence[str]], passages: Sequence[Any], **flags: Flag) -> Any:
    """Passages in the order of their relevance: [{"index", "score", "text"}, …], the best first.

    With a list of queries, `passages` has a list for each query, and so has the result.
    """
    one = isinstance(query, str)
    if not one and len(query) != len(passages):
        raise ValueError(f"found {len(passages)} lists of passages, expected one for each of {len(query)} queries")
    pairs = [(query, passages)] if one else list(zip(query, passages))
    with tempfile.TemporaryDirectory(prefix="tandem-") as folder:
        queries, results = Path(folder) / "queries.jsonl", Path(folder) / "results.jsonl"
        queries.write_text("".join(json.dumps({"query": text, "docs": list(docs)}) + "\n" for text, docs in pairs))
        _run("rerank", {**flags, "queries": queries}, results)
        answers = [answer["results"] for answer in _json_lines(results)]
    return answers[0] if one else answers


def mine(**flags: Flag) -> List[Dict[str, Any]]:
    """Hard negatives for pairs of queries and answers: the rows that `tandem mine` writes.

    With `output` the rows are written there, and the result is an empty list.
    """
    if flags.get("output") is not None:
        _run("mine", flags)
        return []
    with tempfile.TemporaryDirectory(prefix="tandem-") as folder:
        rows = Path(folder) / "rows.jsonl"
        _run("mine", {**flags, "output": rows})
        return _json_lines(rows)


def search(**flags: Flag) -> Dict[str, float]:
    """How well a bi-encoder finds the relevant documents of a corpus: the metrics that `tandem search` prints.

    Without `embeddings` the embeddings of the corpus are in a file that is removed afterwards.
    """
    with tempfile.TemporaryDirectory(prefix="tandem-") as folder:
        metrics = Path(folder) / "metrics.json"
        _run("search", {"embeddings": Path(folder) / "corpus.npy", **flags}, metrics)
        return dict(json.loads(metrics.read_text()))
