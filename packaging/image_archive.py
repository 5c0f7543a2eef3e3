#!/usr/bin/env python3
"""Rewrites an image that `podman save --format docker-archive` wrote, so that two builds give the same bytes.

    packaging/image_archive.py SAVED OUT

OUT is for `podman load` and `docker load` too. It has the layers as they are, in their order, and the
configuration without what names the machine and the containers of the build: host names, numbers of
containers and of intermediate images.
"""

import hashlib
import io
import json
import sys
import tarfile

OF_THE_BUILD = ("container", "container_config", "parent")


def plain_config(content):
    config = json.loads(content)
    for key in OF_THE_BUILD:
        config.pop(key, None)
    config["config"].pop("Hostname", None)
    for step in config["history"]:
        step.pop("comment", None)
    return json.dumps(config, sort_keys=True, separators=(",", ":")).encode()


def add(out, name, size, content):
    entry = tarfile.TarInfo(name)
    entry.size = size
    out.addfile(entry, content)


def rewrite(saved, out):
    manifest = json.load(saved.extractfile("manifest.json"))
    if len(manifest) != 1:
        raise SystemExit(f"image_archive: the archive has {len(manifest)} images, expected one")
    image = manifest[0]
    config = plain_config(saved.extractfile(image["Config"]).read())
    image["Config"] = hashlib.sha256(config).hexdigest() + ".json"
    add(out, image["Config"], len(config), io.BytesIO(config))
    for name in dict.fromkeys(image["Layers"]):
        layer = saved.getmember(name)
        add(out, name, layer.size, saved.extractfile(layer))
    listed = json.dumps(manifest, sort_keys=True).encode()
    add(out, "manifest.json", len(listed), io.BytesIO(listed))


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    with tarfile.open(sys.argv[1]) as saved, tarfile.open(sys.argv[2], "w", format=tarfile.USTAR_FORMAT) as out:
        rewrite(saved, out)


if __name__ == "__main__":
    main()
