"""A communicator of the library with its life: meeting through a store, errors, fork, the end of Python."""

import atexit
import base64
import ctypes
import hashlib
import os
import threading
import weakref

import torch.distributed as dist

from . import _library
from ._shared_storages import SharedStorages
from ._work import Completer, TandemWork, milliseconds

_ID_KEY = "tandem/id"
_DESTROYED = "the process group has been destroyed"
_open = weakref.WeakSet()
# Where the library writes whether an operation has ended; its request has the same, so it is never read.
_ENDED = ctypes.byref(ctypes.c_int())
_lib = _library.load()


def check(code, handle):
    """Raises what a function of the library returned, with its message; `handle`: whose failure it would be."""
    if code == _library.SUCCESS:
        return
    message = _lib.tdmGetLastError(handle).decode(errors="replace")
    if code == _library.INVALID_ARGUMENT:
        raise ValueError(f"tandem: {message}")
    raise dist.DistBackendError(f"tandem: {message}")


def in_thread(call):
    """call() in a thread, so that Ctrl-C is handled meanwhile."""
    failure = []

    def run():
        try:
            call()
        except Exception as error:
            failure.append(error)

    thread = threading.Thread(target=run, name="tandem-start", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.2)
    if failure:
        raise failure[0]


class Communicator:
    """A communicator of `size` ranks, made by meet() or shrink(). `incarnation` then is a text that all its ranks have and no
    other communicator has. `timeout`: a timedelta, how long any wait may take."""

    def __init__(self, rank, size, timeout):
        self.rank, self.size = rank, size
        self.incarnation = ""
        self.under_way = set()
        self.completer = Completer()
        self.shared = SharedStorages()
        self._timeout = timeout
        self._absent = "the process group was made with enable_reconfigure and has no members yet: torch.distributed._reconfigure() gives it some"
        self._pid = os.getpid()
        self._is_forked = False  # this is a child of the process whose communicator it is
        self._handle = ctypes.c_void_p()
        _open.add(self)

    def meet(self, store, name=""):
        """Collective over the group: rank 0 makes an id, and the store that PyTorch handed over carries it, so that
        each of its meetings has a `name` of its own. Returns self."""
        id, key = _library.UniqueId(), _ID_KEY + name
        if self.rank == 0:
            check(_lib.tdmGetUniqueId(ctypes.byref(id)), None)
            store.set(key, base64.b64encode(bytes(id.internal)).decode())
        else:
            store.wait([key], self._timeout)
            id.internal[:] = base64.b64decode(store.get(key))
        config = self._config()
        in_thread(lambda: check(_lib.tdmCommInitRank(ctypes.byref(self._handle), self.size, id, self.rank, ctypes.byref(config)), None))
        # All have read it. A group that is made later with the same store and name must not find it.
        if self.rank == 0:
            store.delete_key(key)
        self._absent = _DESTROYED
        self.incarnation = hashlib.sha256(bytes(id.internal)).hexdigest()[:16]
        return self

    def shrink(self, ranks, timeout, name):
        """A communicator of `ranks`, in order; collective over them, the others need not live. This one fails: what
        is under way ends. The same `name` everywhere, another one each time."""
        self._check_alive()
        smaller = Communicator(ranks.index(self.rank), len(ranks), timeout)
        rest = [rank for rank in range(self.size) if rank not in ranks]
        exclude, config = (ctypes.c_int * len(rest))(*rest), smaller._config()
        in_thread(
            lambda: check(
                _lib.tdmCommShrink(self._handle, exclude, len(rest), ctypes.byref(smaller._handle), ctypes.byref(config), _library.SHRINK_ABORT), self._handle
            )
        )
        smaller._absent = _DESTROYED
        smaller.incarnation = hashlib.sha256(f"{self.incarnation} {name}".encode()).hexdigest()[:16]
        return smaller

    def _config(self):
        return _library.Config(milliseconds(self._timeout))

    def _check_alive(self):
        if not self._handle:
            raise dist.DistBackendError(f"tandem: {self._absent}")
        if self._is_forked:
            raise dist.DistBackendError(
                f"tandem: the process group belongs to process {self._pid}, and this one was "
                "forked from it; start processes first, then init_process_group in each"
            )

    def start(self, function, *arguments):
        """Starts an operation; returns its request."""
        self._check_alive()
        if self.shared:
            self.shared.forget_dead(self._free_memory)
        request = ctypes.c_void_p()
        code = getattr(_lib, function)(*arguments, self._handle, ctypes.byref(request))
        if code:
            check(code, self._handle)
        return request

    def work(self, requests, buffers, finish=(), result=(), limit_ms=-1):
        made = TandemWork(self, requests, buffers, finish, result, limit_ms)
        self.under_way.add(made)
        return made

    def wait_for(self, request, patience_us, limit_ms):
        """Whether the operation has ended, after so long at most."""
        self._check_alive()
        code = _lib.tdmWaitFor(ctypes.byref(request), patience_us, limit_ms, _ENDED)
        if code:
            check(code, self._handle)
        return not request

    def replace_memory(self, address, bytes):
        """Collective, with all ranks on this node: replaces these whole pages by memory of the communicator, and
        returns a descriptor of its file, which the caller closes."""
        self._check_alive()
        file = ctypes.c_int(-1)
        check(_lib.tdmMemReplace(self._handle, address, bytes, ctypes.byref(file)), self._handle)
        return file.value

    def _free_memory(self, address):
        check(_lib.tdmMemFree(self._handle, address), self._handle)

    def check(self):
        """Raises what the communicator has failed of, without waiting for anything."""
        self._check_alive()
        error = ctypes.c_int()
        code = _lib.tdmCommGetAsyncError(self._handle, ctypes.byref(error))
        check(code or error.value, self._handle)

    def abort(self):
        if self._handle and not self._is_forked:
            _lib.tdmCommAbort(self._handle)

    def close(self):
        """Says goodbye and frees the communicator. Operations under way fail."""
        if not self._handle or self._is_forked:
            return
        if any(not work.is_completed() for work in list(self.under_way)):
            self.abort()
        self.completer.stop()
        handle, self._handle = self._handle, ctypes.c_void_p()
        self.under_way.clear()
        _lib.tdmCommDestroy(handle)


def _say_forked():
    for communicator in list(_open):
        communicator._is_forked = True


os.register_at_fork(after_in_child=_say_forked)


@atexit.register
def _close_all():
    for communicator in list(_open):
        communicator.close()
