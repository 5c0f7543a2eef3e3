"""Everything that the wheel reads from the environment. docs/environment_variables.md lists the variables that libtandem_comm.so reads itself."""

import os

REPLACEABLE = ("gloo", "mpi")


def replaced():
    """TANDEM_TORCH_REPLACE: the backends whose place tandem takes, separated by commas."""
    names = [name.strip() for name in os.environ.get("TANDEM_TORCH_REPLACE", "").split(",") if name.strip()]
    for name in names:
        if name not in REPLACEABLE:
            raise ValueError(f"TANDEM_TORCH_REPLACE names '{name}', expected {' or '.join(REPLACEABLE)}")
    return names


def shares():
    """TANDEM_TORCH_SHARE=1: what all_reduce meets a second time moves into memory that the ranks of a node share."""
    text = os.environ.get("TANDEM_TORCH_SHARE", "0")
    if text not in ("0", "1"):
        raise ValueError(f"TANDEM_TORCH_SHARE is '{text}', expected 0 or 1")
    return text == "1"


def library():
    """TANDEM_TORCH_LIBRARY: a libtandem_comm.so instead of the wheel's; None: the wheel's."""
    return os.environ.get("TANDEM_TORCH_LIBRARY")


def master_address():
    """MASTER_ADDR: where the store of init_method "tandem://" is, of rank 0's host; None: found out."""
    return os.environ.get("MASTER_ADDR") or None
