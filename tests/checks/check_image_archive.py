#!/usr/bin/env python3
"""packaging/image_archive.py: two builds of an image, which differ in what names their machine, become the same bytes."""

import hashlib
import io
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAYERS = {"first.tar": b"a layer" * 100, "second.tar": b"another"}


def save(path, host, number, command="tandem"):
    """An archive as podman writes it: layers, configuration, folders of the old form."""
    config = {
        "architecture": "amd64",
        "container": number,
        "parent": f"sha256:{number}",
        "config": {"Hostname": host, "Cmd": [command], "Healthcheck": {"Test": ["CMD", "tandem", "--version"]}},
        "container_config": {"Hostname": host},
        "history": [{"created_by": "RUN true", "comment": f"FROM {number}"}, {"created_by": "CMD"}],
        "rootfs": {"type": "layers", "diff_ids": [hashlib.sha256(layer).hexdigest() for layer in LAYERS.values()]},
    }
    manifest = [{"Config": f"{number}.json", "RepoTags": ["localhost/tandem:1"], "Layers": list(LAYERS)}]
    files = {**LAYERS, f"{number}.json": json.dumps(config).encode(), f"{number}/VERSION": b"1.0", "manifest.json": json.dumps(manifest).encode()}
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def rewritten(folder, *words):
    save(folder / "saved", *words)
    subprocess.run([sys.executable, ROOT / "packaging/image_archive.py", folder / "saved", folder / "out"], check=True)
    return (folder / "out").read_bytes()


def main():
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        first = rewritten(folder, "host-a", "a" * 64)
        assert rewritten(folder, "host-b", "b" * 64) == first, "the host's name is in the archive"
        assert rewritten(folder, "host-a", "a" * 64, "other") != first, "the command is not in the archive"
        (folder / "out").write_bytes(first)
        with tarfile.open(folder / "out") as archive:
            assert {name: archive.extractfile(name).read() for name in LAYERS} == LAYERS
            (image,) = json.load(archive.extractfile("manifest.json"))
            content = archive.extractfile(image["Config"]).read()
        config = json.loads(content)
        assert image["Config"] == hashlib.sha256(content).hexdigest() + ".json" and image["Layers"] == list(LAYERS), image
        assert image["RepoTags"] == ["localhost/tandem:1"] and config["config"]["Healthcheck"] and len(config["history"]) == 2, config
    print("image archive: ok")


if __name__ == "__main__":
    main()
