"""tandem's collectives as a backend of torch.distributed, for CPU tensors.

    torch.distributed.init_process_group("tandem")

`import torch` registers it (torch 2.5 or newer; else `import tandem_torch`). With TANDEM_TORCH_REPLACE=gloo
(or mpi) it also takes the place of that backend.
"""

__all__ = ["autoload", "average_hook", "register"]
__version__ = "0.1.0"


def register(name):
    """Makes `name` a backend of torch.distributed that is tandem's. Doing it twice does no harm."""
    import torch.distributed as dist

    from ._process_group import creator

    if name.upper() not in dist.Backend._plugins:
        dist.Backend.register_backend(name, creator(name), extended_api=True, devices=["cpu"])


def average_hook(group, bucket):
    """A hook of DistributedDataParallel: the bucket's gradients are averaged where they lie, by one reduction
    (DDP's own divides first, in a pass over memory of its own, then sums).

        model.register_comm_hook(None, tandem_torch.average_hook)
    """
    import torch.distributed as dist

    work = dist.all_reduce(bucket.buffer(), dist.ReduceOp.AVG, group=group, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


def autoload():
    """What `import torch` calls: registers "tandem" and, if TANDEM_TORCH_REPLACE asks for it, another name."""
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
