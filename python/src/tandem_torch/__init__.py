"""tandem's collectives as a backend of torch.distributed, for CPU tensors.

    torch.distributed.init_process_group("tandem")

`import torch` registers it (torch 2.5 or newer; else `import tandem_torch`). With TANDEM_TORCH_REPLACE=gloo
(or mpi) it also replaces that backend.
"""

from importlib import metadata

__all__ = ["autoload", "average_hook", "register", "share_memory"]
try:
    __version__ = metadata.version("tandem-torch")
except metadata.PackageNotFoundError:  # used from the source tree
    __version__ = "0"


def register(name):
    """Makes `name` a backend of torch.distributed that is tandem's. Doing it twice does no harm."""
    import torch.distributed as dist

    from ._process_group import creator

    if name.upper() not in dist.Backend._plugins:
        dist.Backend.register_backend(name, creator(name), extended_api=True, devices=["cpu"])


def share_memory(tensor, group=None):
    """Collective over the group, which is tandem's: moves the storage of a CPU tensor, in place, into memory that the
    ranks of a node map together. Collectives on it then work where it lies, without copies, until it is freed.

    Returns whether it lies there. If that was not possible on some rank (the storage is shared already, or /dev/shm has not
    the space that the move takes for a moment), collectives on it work as before, on all ranks. Other users of the
    storage's old memory, such as numpy arrays, keep the old memory. Started operations on the tensor have to have ended."""
    import torch.distributed as dist

    return (dist.group.WORLD if group is None else group).share_memory(tensor)


def average_hook(group, bucket):
    """A hook of DistributedDataParallel: the bucket's gradients are averaged where they lie, by one reduction
    (DDP's own divides first, in a pass over memory of its own, then sums). A bucket that comes a second time moves
    into memory that the ranks of a node share, as by share_memory(), and is summed there.

        model.register_comm_hook(None, tandem_torch.average_hook)
    """
    import torch.distributed as dist

    from ._process_group import TandemProcessGroup

    group, gradients = dist.group.WORLD if group is None else group, bucket.buffer()
    if isinstance(group, TandemProcessGroup):
        group.share_memory_if_it_stays(gradients)
    work = dist.all_reduce(gradients, dist.ReduceOp.AVG, group=group, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


def autoload():
    """Called by `import torch`: registers "tandem" and, if TANDEM_TORCH_REPLACE asks for it, another name."""
    import torch.distributed as dist

    if not dist.is_available():
        return
    from . import _launcher, _settings
    from ._replace import replace

    register("tandem")
    _launcher.register()
    for name in _settings.replaced():
        replace(name)


autoload()
