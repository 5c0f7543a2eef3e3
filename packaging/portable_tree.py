#!/usr/bin/env python3
"""Makes the tree of the portable archive from an installed prefix of the program.

    packaging/portable_tree.py INSTALLED TREE

TREE gets bin/tandem (a static launcher), lib/tandem with the program, its dynamic loader, every
library that it links to and its transport plugins, share with manual pages and completion, the
licence texts of each bundled package, and sbom.cdx.json. The libraries are those of this Debian system.
Needs cc, ldd, patchelf, strip and dpkg-query. docs/packaging.md states what the tree promises.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

HERE = Path(__file__).resolve().parent
LOADER = "ld-linux-x86-64.so.2"
# Packages whose headers are compiled into the program.
HEADER_PACKAGES = ("nlohmann-json3-dev", "libcli11-dev", "libprotozero-dev")
# Parts of the C library that the program does not link to, but a transport's library of an older system does: that system's own would not
# match the archive's libc.
PARTS_OF_LIBC = ("libanl.so.1", "libdl.so.2", "libpthread.so.0", "libresolv.so.2", "librt.so.1", "libutil.so.1")
COMMON_LICENCE = re.compile(r"/usr/share/common-licenses/([A-Za-z]+[0-9]*(?:-[0-9]+(?:\.[0-9]+)*)?)")
# Licences of the libraries whose copyright files of Debian are prose.
GCC_RUNTIME, KERBEROS = "GPL-3.0-or-later WITH GCC-exception-3.1", "MIT"
LICENCES_IN_PROSE = {
    "libc6": "LGPL-2.1-or-later",
    "libgcc-s1": GCC_RUNTIME,
    "libgomp1": GCC_RUNTIME,
    "libgssapi-krb5-2": KERBEROS,
    "libhwloc15": "BSD-3-Clause",
    "libk5crypto3": KERBEROS,
    "libkrb5-3": KERBEROS,
    "libkrb5support0": KERBEROS,
    "librtmp1": "LGPL-2.1-or-later",
    "libstdc++6": GCC_RUNTIME,
    "libtasn1-6": "LGPL-2.1-or-later",
}


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def linked_libraries(binary):
    """{soname: file} of every library that `binary` loads at its start, the loader included."""
    found = {}
    for line in run("ldd", str(binary)).splitlines():
        match = re.match(r"\s*(?:(\S+) => )?(/\S+) \(0x", line)
        if match:
            path = Path(match[2])
            found[match[1] or path.name] = path
        elif "not found" in line:
            raise SystemExit(f"portable_tree: {binary} lacks a library: {line.strip()}")
    return found


def package_of(path):
    """(name, version) of the Debian package that owns `path`."""
    for name in (path.resolve(), path, Path(re.sub(r"^/usr(?=/lib)", "", str(path.resolve())))):
        done = subprocess.run(["dpkg-query", "-S", str(name)], capture_output=True, text=True)
        if done.returncode == 0:
            package = done.stdout.split(": ")[0].split(",")[0]
            return package.split(":")[0], run("dpkg-query", "-W", "-f=${Version}", package)
    raise SystemExit(f"portable_tree: {path} belongs to no Debian package; its licence is unknown")


def licences_of(package, copyright_file):
    """Names of the licences that a Debian copyright file lists."""
    text = copyright_file.read_text(errors="replace")
    names = sorted({name.strip() for name in re.findall(r"^License:[ \t]*(\S[^\n]*)$", text, re.M)})
    if not names and package not in LICENCES_IN_PROSE:
        raise SystemExit(f"portable_tree: {copyright_file} has no line License:; add {package} to LICENCES_IN_PROSE")
    return names or [LICENCES_IN_PROSE[package]]


def copy_program(installed, tree):
    private = tree / "lib" / "tandem"
    (private / "plugins").mkdir(parents=True)
    (tree / "bin").mkdir()
    program = private / "tandem"
    shutil.copy(installed / "bin" / "tandem", program)
    libraries = linked_libraries(program)
    libraries.update({name: libraries["libc.so.6"].parent / name for name in PARTS_OF_LIBC})
    for soname, path in libraries.items():
        shutil.copy(path.resolve(), private / soname)
    # DT_RPATH, not DT_RUNPATH: the libraries next to the program come before LD_LIBRARY_PATH, which
    # may lead to another libstdc++, and hold for libraries of libraries.
    run("patchelf", "--force-rpath", "--set-rpath", "$ORIGIN", str(program))
    for plugin in sorted(installed.rglob("tandem_*.so")):
        shutil.copy(plugin, private / "plugins" / plugin.name)
    for file in [program, *(private / "plugins").iterdir()]:
        run("strip", "--strip-unneeded", str(file))
    run("cc", "-O2", "-static", "-s", "-o", str(tree / "bin" / "tandem"), str(HERE / "launcher.c"))
    for name in ("man", "bash-completion", "fish", "zsh"):
        if (installed / "share" / name).exists():
            shutil.copytree(installed / "share" / name, tree / "share" / name)
    return libraries


def copy_licences(packages, tree):
    folder = tree / "share" / "doc" / "tandem"
    folder.mkdir(parents=True)
    shutil.copy(HERE.parent / "LICENSE", folder / "LICENSE")
    for package in packages:
        source = Path("/usr/share/doc") / package / "copyright"
        if not source.exists():
            raise SystemExit(f"portable_tree: {source} is missing; reinstall {package}")
        shutil.copy(source.resolve(), folder / f"{package}.copyright")
    copy_common_licences(folder)


def copy_common_licences(folder):
    """Texts that Debian's copyright files do not repeat but refer to."""
    texts = folder / "common-licenses"
    texts.mkdir()
    for path in sorted(folder.glob("*.copyright")):
        for name in COMMON_LICENCE.findall(path.read_text(errors="replace")):
            source = Path("/usr/share/common-licenses") / name
            if not source.exists():
                raise SystemExit(f"portable_tree: {path.name} refers to {source}, which is missing; reinstall base-files")
            shutil.copy(source.resolve(), texts / name)


def sbom(version, packages, folder):
    """CycloneDX 1.5: the program and each bundled package with version and licences."""
    components = []
    for package, package_version in sorted(packages.items()):
        names = licences_of(package, folder / f"{package}.copyright")
        components.append(
            {
                "type": "library",
                "name": package,
                "version": package_version,
                "purl": f"pkg:deb/debian/{package}@{package_version}?arch=amd64",
                "licenses": [{"license": {"name": name}} for name in names],
            }
        )
    text = json.dumps([version, components], sort_keys=True)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, text)}",
        "metadata": {"component": {"type": "application", "name": "tandem", "version": version, "licenses": [{"license": {"id": "Apache-2.0"}}]}},
        "components": components,
    }


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    installed, tree = Path(sys.argv[1]), Path(sys.argv[2])
    os.umask(0o022)
    libraries = copy_program(installed, tree)
    packages = dict(package_of(path) for path in libraries.values())
    for name in HEADER_PACKAGES:
        packages[name] = run("dpkg-query", "-W", "-f=${Version}", name)
    copy_licences(packages, tree)
    version = run(str(tree / "bin" / "tandem"), "--version").split()[1]
    folder = tree / "share" / "doc" / "tandem"
    (folder / "sbom.cdx.json").write_text(json.dumps(sbom(version, packages, folder), indent=1) + "\n")


if __name__ == "__main__":
    main()
