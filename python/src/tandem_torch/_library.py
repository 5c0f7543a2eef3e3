"""libtandem_comm.so through ctypes: the functions of src/tandem/comm/tandem_comm.h that a process group needs.

Every call releases Python's lock; the library has one of its own for each communicator."""

import ctypes
import os
from pathlib import Path

from . import _settings

UNIQUE_ID_BYTES = 512
ANY = -1
UNDEFINED = -1
SHRINK_ABORT = 1

SUCCESS, INVALID_ARGUMENT = 0, 4
INT8, UINT8, INT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64, BFLOAT16 = 0, 1, 2, 4, 5, 6, 7, 8, 9
SUM, PROD, MAX, MIN, AVG = range(5)


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_ubyte * UNIQUE_ID_BYTES)]


class Config(ctypes.Structure):
    """tdmConfig_t."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("magic", ctypes.c_uint),
        ("version", ctypes.c_uint),
        ("timeout_ms", ctypes.c_int),
        ("host_timeout_ms", ctypes.c_int),
        ("stall_timeout_ms", ctypes.c_int),
        ("backend", ctypes.c_char_p),
        ("flight_record_folder", ctypes.c_char_p),
    ]

    def __init__(self, timeout_ms):
        super().__init__(ctypes.sizeof(Config), 0x7D3C0F16, 100, timeout_ms, UNDEFINED, UNDEFINED, None, None)


_P, _N, _I = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
_COUNTS = ctypes.POINTER(ctypes.c_size_t)
_REQUEST = ctypes.POINTER(ctypes.c_void_p)
_SIGNATURES = {
    "tdmGetUniqueId": [ctypes.POINTER(UniqueId)],
    "tdmCommInitRank": [_REQUEST, _I, UniqueId, _I, ctypes.POINTER(Config)],
    "tdmCommInitFromEnvironment": [_REQUEST, ctypes.POINTER(Config)],
    "tdmCommCount": [_P, ctypes.POINTER(_I)],
    "tdmCommUserRank": [_P, ctypes.POINTER(_I)],
    "tdmCommShrink": [_P, ctypes.POINTER(_I), _I, _REQUEST, ctypes.POINTER(Config), _I],
    "tdmCommDestroy": [_P],
    "tdmCommAbort": [_P],
    "tdmCommGetAsyncError": [_P, ctypes.POINTER(_I)],
    "tdmMemReplace": [_P, _P, _N, ctypes.POINTER(_I)],
    "tdmMemFree": [_P, _P],
    "tdmAllGather": [_P, _P, _N, _I, _P],
    "tdmIBarrier": [_P, _REQUEST],
    "tdmIAllReduce": [_P, _P, _N, _I, _I, _P, _REQUEST],
    "tdmIReduce": [_P, _P, _N, _I, _I, _I, _P, _REQUEST],
    "tdmIReduceScatter": [_P, _P, _N, _I, _I, _P, _REQUEST],
    "tdmIAllGather": [_P, _P, _N, _I, _P, _REQUEST],
    "tdmIBroadcast": [_P, _P, _N, _I, _I, _P, _REQUEST],
    "tdmIAllToAll": [_P, _P, _N, _I, _P, _REQUEST],
    "tdmIGather": [_P, _P, _N, _I, _I, _P, _REQUEST],
    "tdmIScatter": [_P, _P, _N, _I, _I, _P, _REQUEST],
    "tdmIAllGatherV": [_P, _P, _COUNTS, _COUNTS, _I, _P, _REQUEST],
    "tdmIReduceScatterV": [_P, _COUNTS, _COUNTS, _P, _I, _I, _P, _REQUEST],
    "tdmIAllToAllV": [_P, _COUNTS, _COUNTS, _P, _COUNTS, _COUNTS, _I, _P, _REQUEST],
    "tdmISend": [_P, _N, _I, _I, _I, _P, _REQUEST],
    "tdmIRecv": [_P, _N, _I, _I, _I, ctypes.POINTER(_I), _P, _REQUEST],
    "tdmTest": [_REQUEST, ctypes.POINTER(_I)],
    "tdmWaitFor": [_REQUEST, _I, _I, ctypes.POINTER(_I)],
}


def load():
    """The library with argument types set. The two libraries that it needs lie next to it in a wheel."""
    path = _settings.library() or str(Path(__file__).parent / "lib" / "libtandem_comm.so")
    if not os.path.exists(path):
        raise ImportError(f"{path} is missing: install the wheel (pip wheel python/), or set TANDEM_TORCH_LIBRARY")
    library = ctypes.CDLL(path)
    for name, arguments in _SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes = arguments
        function.restype = _I
    library.tdmGetLastError.argtypes = [_P]
    library.tdmGetLastError.restype = ctypes.c_char_p
    return library


def counts(numbers):
    """An array of size_t."""
    return (ctypes.c_size_t * len(numbers))(*numbers)
