"""A communicator of the library with its life: meeting through a store, errors, fork, the end of Python."""

import atexit
import base64
import ctypes
import os
import threading
import weakref

import torch.distributed as dist

from . import _library
from ._work import Completer, TandemWork

_ID_KEY = "tandem/id"
_open = weakref.WeakSet()
_lib = _library.load()


class Communicator:
    """Collective over the group: rank 0 makes an id, and the store that PyTorch handed over carries it."""

    def __init__(self, store, rank, size, timeout):
        self.rank, self.size = rank, size
        self.under_way = set()
        self.completer = Completer()
        self._pid = os.getpid()
        self._handle = ctypes.c_void_p()
        timeout_ms = min(max(1, int(timeout.total_seconds() * 1000)), 2**31 - 1)
        id = _library.UniqueId()
        if rank == 0:
            self._check(_lib.tdmGetUniqueId(ctypes.byref(id)), None)
            store.set(_ID_KEY, base64.b64encode(bytes(id.internal)).decode())
        else:
            store.wait([_ID_KEY], timeout)
            id.internal[:] = base64.b64decode(store.get(_ID_KEY))
        self._meet(id, timeout_ms)
        # All have read it. A group that is made later with the same store and name must not find it.
        if rank == 0:
            store.delete_key(_ID_KEY)
        _open.add(self)

    def _meet(self, id, timeout_ms):
        """In a thread, so that Ctrl-C is heard meanwhile."""
        failure = []

        def init():
            config = _library.Config(timeout_ms)
            try:
                self._check(_lib.tdmCommInitRank(ctypes.byref(self._handle), self.size, id, self.rank,
                                                 ctypes.byref(config)), None)
            except Exception as error:
                failure.append(error)

        thread = threading.Thread(target=init, name="tandem-start", daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(0.2)
        if failure:
            raise failure[0]

    def _check(self, code, handle):
        if code == _library.SUCCESS:
            return
        message = _lib.tdmGetLastError(handle).decode(errors="replace")
        if code == _library.INVALID_ARGUMENT:
            raise ValueError(f"tandem: {message}")
        raise dist.DistBackendError(f"tandem: {message}")

    def _check_alive(self):
        if not self._handle:
            raise dist.DistBackendError("tandem: the process group has been destroyed")
        if os.getpid() != self._pid:
            raise dist.DistBackendError(f"tandem: the process group belongs to process {self._pid}, and this one was "
                                        "forked from it; start processes first, then init_process_group in each")

    def start(self, function, *arguments):
        """Starts an operation; returns its request."""
        self._check_alive()
        request = ctypes.c_void_p()
        code = getattr(_lib, function)(*arguments, self._handle, ctypes.byref(request))
        if code:
            self._check(code, self._handle)
        return request

    def work(self, requests, buffers, finish=(), result=()):
        made = TandemWork(self, requests, buffers, finish, result)
        self.under_way.add(made)
        return made

    def wait_for(self, request, patience_us, limit_ms):
        self._check_alive()
        ended = ctypes.c_int()
        code = _lib.tdmWaitFor(ctypes.byref(request), patience_us, limit_ms, ctypes.byref(ended))
        if code:
            self._check(code, self._handle)
        return bool(ended.value)

    def abort(self):
        if self._handle and os.getpid() == self._pid:
            _lib.tdmCommAbort(self._handle)

    def close(self):
        """Says goodbye and frees the communicator. Operations under way fail."""
        if not self._handle or os.getpid() != self._pid:
            return
        if any(not work.is_completed() for work in list(self.under_way)):
            self.abort()
        self.completer.stop()
        handle, self._handle = self._handle, ctypes.c_void_p()
        self.under_way.clear()
        _lib.tdmCommDestroy(handle)


@atexit.register
def _close_all():
    for communicator in list(_open):
        communicator.close()
