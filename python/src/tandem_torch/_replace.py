"""tandem as a replacement of another backend, if TANDEM_TORCH_REPLACE is set."""

import sys
import types

import torch.distributed as dist
from torch.distributed import distributed_c10d

from ._process_group import TandemProcessGroup, creator

_announced = set()


def _announce(name, rank):
    """One line, when rank 0 makes the first group of `name`."""
    if rank == 0 and name not in _announced:
        _announced.add(name)
        print(f"tandem: torch.distributed's backend '{name}' is tandem for CPU tensors (TANDEM_TORCH_REPLACE)", file=sys.stderr, flush=True)


class InPlaceOfGloo(TandemProcessGroup):
    """The class that older versions of torch construct by the name ProcessGroupGloo."""

    options = None  # a property without a setter in the base

    def __init__(self, store, rank, size, timeout=dist.default_pg_timeout):
        _announce("gloo", rank)
        super().__init__(store, rank, size, timeout, "gloo")
        self.options = types.SimpleNamespace(_timeout=timeout)  # torch notes the group's name and ranks in it


def replace(name):
    """From here on process groups of `name` are tandem's."""
    make = creator(name)

    def create_instead(options, backend_options):
        _announce(name, options.group_rank)
        return make(options, backend_options)

    if hasattr(dist.Backend, "_ensure_backend_registered"):
        if name == "gloo":
            dist.Backend._ensure_backend_registered(name)
        dist.Backend._plugins[name.upper()] = dist.Backend._BackendPlugin(create_instead, True)
    elif name == "gloo":
        distributed_c10d.ProcessGroupGloo = InPlaceOfGloo
    else:
        raise RuntimeError(
            'TANDEM_TORCH_REPLACE=mpi: this version of torch hands no store to its mpi backend; use init_process_group("tandem") or TANDEM_TORCH_REPLACE=gloo'
        )
