"""init_process_group(…, init_method="tandem://"): the ranks of whatever launcher started them, mpirun of MPICH, Intel MPI
or Open MPI, srun, torchrun or `tandem run`, without RANK and MASTER_ADDR by hand. A process that none started is alone."""

import ctypes
import socket
from datetime import timedelta

import torch.distributed as dist
from torch.distributed.rendezvous import register_rendezvous_handler

from . import _library
from ._communicator import check, in_thread
from ._settings import master_address

_NAME_BYTES = 256


class _Meeting:
    """The ranks of the launcher, which meet as tandem's programs do."""

    def __init__(self, timeout):
        self._lib = _library.load()
        self._handle = ctypes.c_void_p()
        config = _library.Config(timeout)
        in_thread(lambda: check(self._lib.tdmCommInitFromEnvironment(ctypes.byref(self._handle), ctypes.byref(config)), None))
        self.rank = self._ask("tdmCommUserRank")
        self.size = self._ask("tdmCommCount")

    def _ask(self, function):
        number = ctypes.c_int()
        check(getattr(self._lib, function)(self._handle, ctypes.byref(number)), self._handle)
        return number.value

    def gather(self, text):
        """Every rank's text, of at most _NAME_BYTES."""
        own = ctypes.create_string_buffer(text.encode(), _NAME_BYTES)
        all_ranks = ctypes.create_string_buffer(self.size * _NAME_BYTES)
        in_thread(lambda: check(self._lib.tdmAllGather(own, all_ranks, _NAME_BYTES, _library.UINT8, self._handle), self._handle))
        return [all_ranks.raw[i * _NAME_BYTES : (i + 1) * _NAME_BYTES].rstrip(b"\0").decode() for i in range(self.size)]

    def close(self):
        self._lib.tdmCommDestroy(self._handle)


def _store(meeting, timeout):
    """torch's own store, at rank 0, on a port that is free."""
    hosts = meeting.gather(socket.gethostname()[: _NAME_BYTES - 1])
    address = master_address() or ("127.0.0.1" if len(set(hosts)) == 1 else hosts[0])
    store = None
    if meeting.rank == 0:
        store = dist.TCPStore(address, 0, meeting.size, True, timeout, wait_for_workers=False)
    port = meeting.gather(str(store.port) if store is not None else "")[0]
    if store is None:
        store = dist.TCPStore(address, int(port), meeting.size, False, timeout, wait_for_workers=False)
    meeting.gather("here")  # no rank leaves before all have connected
    return store


def _meet(url, timeout=timedelta(minutes=5), **_):
    meeting = _Meeting(int(timeout.total_seconds() * 1000))
    try:
        met = _store(meeting, timeout), meeting.rank, meeting.size
    finally:
        meeting.close()
    yield met
    raise RuntimeError('init_method "tandem://" meets once')


def register():
    try:
        register_rendezvous_handler("tandem", _meet)
    except RuntimeError:  # it is registered already
        pass
