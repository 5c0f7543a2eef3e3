#!/usr/bin/env python3
"""The cache that tandem fills is the one that huggingface_hub fills; needs huggingface_hub and datasets, so it is run by hand.

    python hf_hub_cache.py TANDEM_PROGRAM

Both download the demo model from tests/support/fake_hub.py into caches of their own; the folders must be equal to the last
link. Then each uses the other's cache offline, and each continues a file that the other has left half done.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = ["model.safetensors", "config.json", "tokenizer.json", "vocab.txt", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"]
BY_PYTHON = """
import sys
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError
for name in sys.argv[1:]:
    try:
        hf_hub_download("org/demo", name)
    except EntryNotFoundError:
        pass
"""


def tree(folder):
    """Path -> what is there: the target of a link, the content of a small file, the size of a large one."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = "-> " + os.readlink(path)
        elif path.is_file():
            found[name] = path.read_bytes() if path.stat().st_size < 100 else path.stat().st_size
    return found


def main():
    tandem = sys.argv[1]
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        (scratch / "server/models/org").mkdir(parents=True)
        subprocess.run(
            [sys.executable, ROOT / "tests/support/with_head.py", ROOT / "examples/demo/model", scratch / "server/models/org/demo", "ForQuestionAnswering"],
            check=True,
        )
        server = subprocess.Popen([sys.executable, ROOT / "tests/support/fake_hub.py", scratch / "server"])
        try:
            while not (scratch / "server/port").exists():
                time.sleep(0.05)
            endpoint = "http://127.0.0.1:" + (scratch / "server/port").read_text()

            def run(words, home, **more):
                environment = {**os.environ, "HF_HOME": str(scratch / home), "HF_ENDPOINT": endpoint, "HF_HUB_DISABLE_TELEMETRY": "1", **more}
                return subprocess.run(words, env=environment, check=True, capture_output=True, text=True)

            by_python = lambda home, **more: run([sys.executable, "-c", BY_PYTHON, *FILES], home, **more)
            by_tandem = lambda home, **more: run([tandem, "ask", "--model", "org/demo", "--context", ROOT / "LICENSE", "What?"], home, **more)
            log = scratch / "server/requests.log"

            by_python("python")
            by_tandem("tandem")
            repository = "hub/models--org--demo"
            python_tree, tandem_tree = tree(scratch / "python" / repository), tree(scratch / "tandem" / repository)
            assert python_tree == tandem_tree, json.dumps([sorted(set(map(str, python_tree.items())) ^ set(map(str, tandem_tree.items())))], indent=1)
            print(f"the same {len(python_tree)} files and links")

            asked = len(log.read_text().splitlines())
            by_tandem("python", HF_HUB_OFFLINE="1")
            run([sys.executable, "-c", BY_PYTHON, *FILES[:5]], "tandem", HF_HUB_OFFLINE="1")
            assert len(log.read_text().splitlines()) == asked
            print("each uses the other's cache offline")

            for download, other in ((by_tandem, "python"), (by_python, "tandem")):
                folder = scratch / other / repository
                link = folder / "snapshots" / ("c" * 40) / "model.safetensors"
                blob = link.resolve()
                content = blob.read_bytes()
                link.unlink()
                blob.unlink()
                blob.with_name(blob.name + ".incomplete").write_bytes(content[:100_000])
                download(other)
                last = [json.loads(line) for line in log.read_text().splitlines() if "/lfs/" in line and '"GET"' in line][-1]
                assert last["range"] == "bytes=100000-", last
                assert link.read_bytes() == content
            print("each continues what the other began")
        finally:
            server.kill()
            server.wait()


main()
