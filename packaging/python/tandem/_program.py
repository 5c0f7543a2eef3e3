"""Where the wheel's program is."""

import os
from functools import lru_cache
from importlib import metadata
from pathlib import Path

_DISTRIBUTION = "tandem-cpu"


@lru_cache(maxsize=1)
def program() -> str:
    """Absolute path of the program that this wheel installed."""
    for file in metadata.files(_DISTRIBUTION) or []:
        if file.name == "tandem" and file.parent.name == "bin":
            path = Path(os.path.abspath(file.locate()))
            if os.access(path, os.X_OK):
                return str(path)
            raise FileNotFoundError(f"cannot execute {path}; install {_DISTRIBUTION} into an environment, which pip's --target does not make")
    raise FileNotFoundError(f"{_DISTRIBUTION} has no program among its files; install it again")


def version() -> str:
    """Version of the wheel, which is that of the program."""
    return metadata.version(_DISTRIBUTION)
