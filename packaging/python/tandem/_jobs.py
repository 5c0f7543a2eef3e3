"""Jobs as functions: keyword arguments are the flags of the command of the same name."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Dict, List, Optional, Union

from ._program import program

Flag = Union[None, bool, int, float, str, "os.PathLike[str]", List[Any], Dict[str, Any]]


class TandemError(RuntimeError):
    """A job that failed: the program's message and its exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def flag_words(flags: Dict[str, Flag]) -> List[str]:
    """The words of a command line. None leaves a flag out; a dict becomes JSON."""
    words: List[str] = []
    for name, value in flags.items():
        if value is None:
            continue
        words.append(f"--{name}")
        if isinstance(value, dict):
            words.append(json.dumps(value))
        elif isinstance(value, (list, tuple)):
            words.extend(str(item) for item in value)
        else:
            words.append(os.fspath(value) if isinstance(value, os.PathLike) else str(value))
    return words


def _is_the_real_output() -> bool:
    """Whether Python's standard output is file descriptor 1, not a notebook's or a test's."""
    try:
        return sys.stdout.fileno() == 1
    except (AttributeError, OSError, ValueError):
        return False


def _copy_lines(source: Any) -> None:
    for line in source:
        sys.stdout.write(line)
        sys.stdout.flush()


def _wait(process: "subprocess.Popen[str]") -> int:
    """Waits for the job. Ctrl-C asks it to save a checkpoint and end, then raises here too."""
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        try:
            process.wait()
        except KeyboardInterrupt:
            process.kill()
            process.wait()
        raise


def _message(error_file: Path, command: str, code: int) -> str:
    try:
        report = json.loads(error_file.read_text())
        return str(report["message"]["message"])
    except (OSError, ValueError, KeyError, TypeError):
        cause = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"tandem {command} ended with {cause}; its output names the cause"


def run_job(command: str, flags: Dict[str, Flag], workers: Optional[int] = None) -> Dict[str, Any]:
    """Runs `tandem COMMAND` with the flags; with `workers` as so many processes of this host.

    Returns what the job wrote to all_results.json in its output_dir, or {}. Raises TandemError with
    the program's message if the job fails. The log goes to sys.stdout.
    """
    words = [program()]
    if workers is not None:
        words += ["run", "--nproc-per-node", str(workers)]
    words += [command, *flag_words(flags)]
    piped = not _is_the_real_output()
    with tempfile.TemporaryDirectory(prefix="tandem-") as folder:
        error_file = Path(folder) / "error.json"
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            start_new_session=True,
            stdout=subprocess.PIPE if piped else None,
            stderr=subprocess.STDOUT if piped else None,
            env={**os.environ, "TORCHELASTIC_ERROR_FILE": str(error_file)},
        )
        reader = threading.Thread(target=_copy_lines, args=(process.stdout,), daemon=True)
        if piped:
            reader.start()
        code = _wait(process)
        if piped:
            reader.join()
        if code != 0:
            raise TandemError(_message(error_file, command, code), code)
    results = Path(str(flags.get("output_dir", ""))) / "all_results.json"
    if flags.get("output_dir") is None or not results.exists():
        return {}
    return dict(json.loads(results.read_text()))


def run_qa(*, workers: Optional[int] = None, **flags: Flag) -> Dict[str, Any]:
    """Question answering: `tandem run_qa`."""
    return run_job("run_qa", flags, workers)


def run_glue(*, workers: Optional[int] = None, **flags: Flag) -> Dict[str, Any]:
    """Text classification with GLUE's tasks: `tandem run_glue`."""
    return run_job("run_glue", flags, workers)


def run_classification(*, workers: Optional[int] = None, **flags: Flag) -> Dict[str, Any]:
    """Text classification of any data, regression, several labels: `tandem run_classification`."""
    return run_job("run_classification", flags, workers)


def run_ner(*, workers: Optional[int] = None, **flags: Flag) -> Dict[str, Any]:
    """Token classification: `tandem run_ner`."""
    return run_job("run_ner", flags, workers)


def run_mlm(*, workers: Optional[int] = None, **flags: Flag) -> Dict[str, Any]:
    """Masked language modelling: `tandem run_mlm`."""
    return run_job("run_mlm", flags, workers)


def run_clm(*, workers: Optional[int] = None, **flags: Flag) -> Dict[str, Any]:
    """Causal language modelling: `tandem run_clm`."""
    return run_job("run_clm", flags, workers)


def run_sft(*, workers: Optional[int] = None, **flags: Flag) -> Dict[str, Any]:
    """Supervised fine-tuning of decoders: `tandem run_sft`."""
    return run_job("run_sft", flags, workers)


def run_reranker(*, workers: Optional[int] = None, **flags: Flag) -> Dict[str, Any]:
    """Cross-encoders that rank passages for a query: `tandem run_reranker`."""
    return run_job("run_reranker", flags, workers)


def run_embedding(*, workers: Optional[int] = None, **flags: Flag) -> Dict[str, Any]:
    """Sentence embeddings: `tandem run_embedding`."""
    return run_job("run_embedding", flags, workers)
