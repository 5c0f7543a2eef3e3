#!/usr/bin/env python3
"""Packs the portable tree (portable_tree.py) and the Python module into a wheel.

    packaging/wheel.py TREE DIRECTORY [LEVEL]

Writes DIRECTORY/tandem_cpu-VERSION-py3-none-TAG.whl. The launcher goes to the environment's
scripts, the rest of the tree to its data, so that an environment has PREFIX/bin/tandem and
PREFIX/lib/tandem as the archive has. Every entry has the time of SOURCE_DATE_EPOCH (default:
1980-01-01) and a fixed order: the same tree gives the same bytes. LEVEL is zlib's (default: 9).

Tags: the launcher is static and the program brings its own loader and C library, so no symbol of
the system's glibc is used; pip's oldest names are manylinux_2_17 (PEP 600) and musllinux_1_1.
"""

import base64
import hashlib
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
NAME = "tandem_cpu"
PLATFORMS = ("manylinux_2_17_x86_64", "manylinux2014_x86_64", "musllinux_1_1_x86_64")


def entry_time():
    moment = max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 315532800)  # zip begins in 1980
    return time.gmtime(moment)[:6]


def metadata(version):
    readme = (HERE / "python" / "README.md").read_text()
    return f"""Metadata-Version: 2.1
Name: tandem-cpu
Version: {version}
Summary: Fine-tunes transformers on many CPUs, without Python in the training loop
License: Apache-2.0
Requires-Python: >=3.9
Provides-Extra: numpy
Requires-Dist: numpy ; extra == 'numpy'
Description-Content-Type: text/markdown

{readme}"""


def files_of(tree, version):
    """(name in the wheel, file or text) in a fixed order, without RECORD."""
    data = f"{NAME}-{version}.data"
    info = f"{NAME}-{version}.dist-info"
    yield f"{data}/scripts/tandem", tree / "bin" / "tandem"
    for folder in ("lib", "share"):
        for path in sorted((tree / folder).rglob("*")):
            if path.is_file():
                yield f"{data}/data/{path.relative_to(tree)}", path
    for path in sorted((HERE / "python" / "tandem").iterdir()):
        if path.is_file():
            yield f"tandem/{path.name}", path
    yield f"{info}/METADATA", metadata(version)
    tags = "".join(f"Tag: py3-none-{platform}\n" for platform in PLATFORMS)
    yield f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: tandem\nRoot-Is-Purelib: false\n{tags}"
    yield f"{info}/licenses/LICENSE", HERE.parent / "LICENSE"


def add(wheel, name, content, executable, level):
    entry = zipfile.ZipInfo(name, entry_time())
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = (0o100755 if executable else 0o100644) << 16
    wheel.writestr(entry, content, compresslevel=level)


def write_wheel(tree, directory, level):
    version = subprocess.run([tree / "bin" / "tandem", "--version"], check=True, capture_output=True, text=True).stdout.split()[1]
    path = directory / f"{NAME}-{version}-py3-none-{'.'.join(PLATFORMS)}.whl"
    record = []
    with zipfile.ZipFile(path, "w") as wheel:
        for name, source in files_of(tree, version):
            content = source.encode() if isinstance(source, str) else source.read_bytes()
            executable = not isinstance(source, str) and os.access(source, os.X_OK)
            add(wheel, name, content, executable, level)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(content)}\n")
        own = f"{NAME}-{version}.dist-info/RECORD"
        add(wheel, own, "".join(record) + f"{own},,\n", False, level)
    return path


def main():
    if len(sys.argv) not in (3, 4):
        raise SystemExit(__doc__)
    level = int(sys.argv[3]) if len(sys.argv) == 4 else 9
    print(write_wheel(Path(sys.argv[1]), Path(sys.argv[2]), level))


if __name__ == "__main__":
    main()
