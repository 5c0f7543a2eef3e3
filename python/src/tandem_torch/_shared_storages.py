"""Tensors in memory of a communicator, which the ranks of a node map together, so that collectives work where they lie.

A storage of torch moves there as a whole and in place: every tensor over it moves along, the buckets and gradients of
DistributedDataParallel too. docs/design/0020-shared-buckets.md."""

import os

from torch.multiprocessing.reductions import StorageWeakRef


class _Known:
    """A storage that the ranks have met."""

    def __init__(self, storage):
        self.weak = StorageWeakRef(storage)  # keeps the number of its StorageImpl from others
        self.was_tried = False  # to share it
        self.address = None  # where it lies in memory of the communicator


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
    """Mappings of storages that the ranks of one communicator share, as long as these live."""

    def __init__(self):
        self._known = {}  # by the number of the StorageImpl
        self._expired = []  # their functions expired(), called before every operation

    def __bool__(self):
        return bool(self._known)

    def _of(self, storage):
        if storage._cdata not in self._known:
            self._known[storage._cdata] = _Known(storage)
            self._note_all()
        return self._known[storage._cdata]

    def is_second_sight(self, tensor):
        """Whether the tensor's storage was seen before, and no attempt was made to share it. Remembers it."""
        storage = tensor.untyped_storage()
        was_seen = storage._cdata in self._known
        return not self._of(storage).was_tried and was_seen

    def share(self, tensor, agree, replace):
        """Collective. Moves the tensor's storage if all ranks can; returns whether it lies in memory of the communicator.
        `agree(bool)`: whether it is true on all ranks, and all are here. `replace(address, bytes)`: puts memory of the
        communicator there and returns its descriptor."""
        storage = tensor.untyped_storage()
        known = self._of(storage)
        known.was_tried = True
        descriptor = _own_pages(storage)
        if agree(descriptor is not None):
            file = replace(storage.data_ptr(), storage.nbytes())
            known.address = storage.data_ptr()
            # Torch's descriptor becomes this file's: torch closes it with the storage, or passes it to other processes.
            os.dup2(file, descriptor, inheritable=False)
            os.close(file)
        return known.address is not None

    def forget_dead(self, free):
        """free(address) for storages that have died since: other memory may lie there."""
        if not any(expired() for expired in self._expired):
            return
        for number, known in list(self._known.items()):
            # Another thread may be here, too: the one that takes it out of the table frees it.
            if known.weak.expired() and self._known.pop(number, None) and known.address is not None:
                free(known.address)
        self._note_all()

    def _note_all(self):
        self._expired = [known.weak.expired for known in list(self._known.values())]
