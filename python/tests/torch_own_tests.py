"""PyTorch's own tests of torch.distributed (torch/testing/_internal/distributed/distributed_test.py, in its wheel)
with tandem as the backend: each in a process of its own, with a time limit.

    python python/tests/torch_own_tests.py --record results.json [--only REGEX] [--limit SECONDS] [--backend gloo]

Tests with nccl, gpu or cuda in their names are left out. Prints the counts, and the reason for each failure."""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

CHILD = """
import sys
import torch, torch.distributed as dist
import tandem_torch
from torch.testing._internal.distributed import distributed_test as body
class TestDist(body.TestDistBackend, body.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._spawn_processes()
        torch.backends.cudnn.flags(enabled=True, allow_tf32=False).__enter__()
if __name__ == "__main__":
    from torch.testing._internal.common_utils import run_tests
    if sys.argv[1:] == ["--names"]:
        print("\\n".join(name for name in dir(TestDist) if name.startswith("test_")))
    else:
        run_tests()
"""


def run(arguments, limit, backend):
    """(exit code or None after `limit` seconds, output); ends all processes of the test."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "test_own.py"
        script.write_text(CHILD)
        for name in ("barrier", "test_dir", "init_dir"):
            (Path(folder) / name).mkdir()
        process = subprocess.Popen([sys.executable, str(script), *arguments], stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, start_new_session=True,
                                   env={**os.environ, "BACKEND": backend, "WORLD_SIZE": "2", "TEMP_DIR": folder,
                                        "OMP_NUM_THREADS": "1"})
        try:
            out, _ = process.communicate(timeout=limit)
            return process.returncode, out
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the session that was started above
            out, _ = process.communicate()
            return None, out


def verdict(code, out):
    if code is None:
        return "hung", "no end within the limit"
    if code == 0:
        skipped = re.search(r"skipped ['\"](.+)['\"]$", out, re.M)
        return ("skipped", skipped.group(1)) if skipped else ("passed", "")
    errors = [line.strip() for line in out.splitlines() if re.match(r"\s*(\w+\.)*\w*(Error|Exception)\b", line)]
    return "failed", errors[0][:300] if errors else out.strip()[-300:]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--record")
    parser.add_argument("--only", default="")
    parser.add_argument("--limit", type=int, default=60)
    parser.add_argument("--backend", default="tandem")
    arguments = parser.parse_args()
    code, out = run(["--names"], 120, arguments.backend)
    names = [n for n in re.findall(r"^test_\w+$", out, re.M)
             if not re.search("nccl|gpu|cuda", n, re.I) and re.search(arguments.only, n)]
    if code != 0 or not names:
        sys.exit(f"no tests found: {out[-2000:]}")
    results = {}
    for name in names:
        result, reason = verdict(*run([f"TestDist.{name}", "-v"], arguments.limit, arguments.backend))
        results[name] = {"result": result, "reason": reason}
        print(f"{result:8} {name} {reason}", flush=True)
        if arguments.record:
            Path(arguments.record).write_text(json.dumps(results, indent=1) + "\n")
    counts = {kind: sum(one["result"] == kind for one in results.values())
              for kind in ("passed", "failed", "skipped", "hung")}
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    return 1 if counts["hung"] else 0


if __name__ == "__main__":
    sys.exit(main())
