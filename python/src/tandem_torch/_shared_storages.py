"""Tensors in memory of a communicator, which the ranks of a node map together, so that collectives work where they lie.

A storage of torch moves there as a whole and in place: every tensor over it moves along, the buckets and gradients of
DistributedDataParallel too. docs/design/0020-shared-buckets.md."""

import os

import torch
from torch.multiprocessing.reductions import StorageWeakRef

_SEEN, _PRIVATE = "seen", "private"


def _own_pages(storage):
    """Moves the storage, in place, to pages that it alone uses, as torch's share_memory_() does; returns the descriptor
    that torch keeps of them. None if it stays where it is: empty, shared already, or no space for it in /dev/shm."""
    if storage.nbytes() == 0 or storage.is_shared() or storage.device.type != "cpu":
        return None
    try:
        return storage._share_fd_cpu_()[0]
    except RuntimeError:
        return None


class SharedStorages:
    """What the ranks of one communicator have made of storages, as long as these live."""

    def __init__(self):
        self._known = {}  # StorageImpl: (weak reference, which keeps that number from others; an address or a word)
        self._weak = []

    def __bool__(self):
        return bool(self._known)

    def of(self, tensor):
        """The address of the tensor's storage in memory of the communicator, or a word, or None: not seen yet."""
        found = self._known.get(tensor.untyped_storage()._cdata)
        return found and found[1]

    def is_second_sight(self, tensor):
        """Whether the tensor's storage was seen before and nobody has tried to share it. Remembers it."""
        found = self.of(tensor)
        if found is None:
            self._note(tensor.untyped_storage(), _SEEN)
        return found == _SEEN

    def share(self, tensor, agree, replace):
        """Collective. Moves the tensor's storage if all ranks can; returns whether they could. `agree(bool)`: whether
        all ranks say so, and all are here. `replace(address, bytes)`: puts memory of the communicator there and returns
        its descriptor."""
        storage = tensor.untyped_storage()
        descriptor = _own_pages(storage)
        if not agree(descriptor is not None):
            self._note(storage, _PRIVATE)
            return False
        file = replace(storage.data_ptr(), storage.nbytes())
        # Torch's descriptor becomes this file's: torch closes it with the storage, or passes it to other processes.
        os.dup2(file, descriptor, inheritable=False)
        os.close(file)
        self._note(storage, storage.data_ptr())
        return True

    def _note(self, storage, what):
        self._known[storage._cdata] = (StorageWeakRef(storage), what)
        self._weak = [weak.cdata for weak, _ in self._known.values()]

    def forget_dead(self, free):
        """free(address) for storages that have died since: other memory may lie there."""
        expired = torch.UntypedStorage._expired
        if not any(expired(weak) for weak in self._weak):
            return
        for storage, (weak, what) in list(self._known.items()):
            if weak.expired():
                del self._known[storage]
                if isinstance(what, int):
                    free(what)
        self._weak = [weak.cdata for weak, _ in self._known.values()]
