#!/usr/bin/env python3
"""Checks that each source compiles alone. Precompiled headers and groups of sources (TANDEM_UNITY) hide a missing include.

  tools/check_includes.py [SOURCE…]    those sources, or every source of the project: 20 minutes of two cores

Reads each with `-fsyntax-only` and the flags of a configuration without either, which it makes in build/alone. Exits 1 if one
does not compile.
"""

import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/alone"


def configure() -> list[dict]:
    """Returns the compile commands of a configuration without groups and precompiled headers."""
    subprocess.run(
        ["cmake", "--preset", "release", "-B", BUILD, "-DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON", "-DTANDEM_UNITY=OFF"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    subprocess.run(["cmake", "--build", BUILD, "--target", "tandem_commit"], check=True, stdout=subprocess.DEVNULL)
    return json.loads((BUILD / "compile_commands.json").read_text())


def syntax_command(command: str) -> list[str]:
    """Returns the command that reads the source and writes nothing."""
    words = shlex.split(command)
    del words[words.index("-o") : words.index("-o") + 2]
    return [word for word in words if not word.startswith(("-O", "-D_FORTIFY_SOURCE"))] + ["-fsyntax-only"]


def compile_alone(entry: dict) -> str:
    """Returns the compiler's errors, or nothing."""
    done = subprocess.run(syntax_command(entry["command"]), cwd=entry["directory"], capture_output=True, text=True)
    return done.stderr if done.returncode else ""


def main() -> int:
    wanted = {pathlib.Path(source).resolve() for source in sys.argv[1:]}
    sources = {pathlib.Path(entry["file"]): entry for entry in configure()}
    unknown = wanted - sources.keys()
    if unknown:
        sys.exit(f"check_includes: not a source of the preset release: {', '.join(map(str, sorted(unknown)))}")
    entries = [entry for source, entry in sources.items() if (source in wanted if wanted else source.is_relative_to(ROOT) and not source.is_relative_to(BUILD))]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        errors = [error for error in pool.map(compile_alone, entries) if error]
    print(*errors, sep="\n", end="" if not errors else "\n")
    print(f"check_includes: {len(errors)} of {len(entries)} sources do not compile alone")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
