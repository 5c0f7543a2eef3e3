"""The handle that an operation returns, and the thread that completes futures."""

import queue
import threading
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work

NO_TIME = timedelta(0)
# A wait returns to Python this often, so that Ctrl-C is handled.
PATIENCE_US = 50_000


def milliseconds(timeout):
    """The milliseconds of a timedelta, for the library: 1 at least, at most what its int holds."""
    return min(max(1, int(timeout.total_seconds() * 1000)), 2**31 - 1)


class TandemWork(Work):
    """An operation under way on `communicator`: `requests` of the library, then `finish()` once.

    `buffers` are kept until it has ended. `limit_ms`: how long all waits for it together may take, if wait() has no limit of its own; -1: the communicator's
    timeout. Any thread may wait, several at once."""

    def __init__(self, communicator, requests, buffers, finish=(), result=(), limit_ms=-1):
        super().__init__()
        self._communicator = communicator
        self._requests = requests
        self._buffers = buffers
        self._finish = finish
        self._result = result
        self._limit_ms = limit_ms
        self._lock = threading.Lock()
        self._done = False
        self._error = None
        self._ended = self._future = self._when_ended = None
        self.source = None  # of a receive: a ctypes int

    def _advance(self, patience_us, limit_ms):
        """Under the lock: waits for what is left, at most so long; returns whether all has ended."""
        if self._done:
            return True
        try:
            while self._requests:
                if not self._communicator.wait_for(self._requests[0], patience_us, limit_ms):
                    return False
                self._requests.pop(0)
            for step in self._finish:
                step()
        except BaseException as error:
            if isinstance(error, Exception):
                self._end(error)
            raise
        self._end(None)
        return True

    def _end(self, error):
        self._error, self._done = error, True
        self._requests, self._finish = [], ()
        self._communicator.under_way.discard(self)
        self._buffers = None
        if self._when_ended is not None:
            self._when_ended()

    def when_ended(self, call):
        """`call` is called once, when the operation has ended or if it has."""
        with self._lock:
            if not self._done:
                self._when_ended = call
                return
        call()

    def wait(self, timeout=None):
        limit_ms = self._limit_ms if timeout is None or timeout <= NO_TIME else milliseconds(timeout)
        while True:
            with self._lock:
                if self._advance(PATIENCE_US, limit_ms):
                    break
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self):
        self.wait()

    def is_completed(self):
        if not self._done and self._lock.acquire(blocking=False):
            try:
                self._advance(0, -1)
            except Exception:  # kept in self._error
                pass
            finally:
                self._lock.release()
        return self._done

    def is_success(self):
        return self._done and self._error is None

    def exception(self):
        return self._error

    def result(self):
        self.wait()
        return list(self._result)

    def source_rank(self):
        if self.source is None:
            raise dist.DistBackendError("source_rank: not a receive")
        return self.source.value

    _source_rank = source_rank

    def get_future(self):
        # A failure has to be one for C++ as well, where DistributedDataParallel waits. Future.set_exception() makes
        # an ordinary value of it, which C++ reads as tensors; what a callback raises is a failure everywhere.
        if self._future is None:
            self._ended = torch.futures.Future()
            self._future = self._ended.then(self._value_of_future)
            if self.is_completed():
                self.complete_future()
            else:
                self._communicator.completer.add(self)
            if not self.is_success():
                self._fail_in_backward()
        return self._future

    def _fail_in_backward(self):
        """A failure that reaches a backward pass through the future has lost its type on the way through C++. So the
        pass, if this thread is in one, waits here at its end, before DistributedDataParallel waits for the future."""
        try:
            torch.autograd.Variable._execution_engine.queue_callback(self.wait)
        except RuntimeError:  # no backward pass
            pass

    getFuture = get_future

    def complete_future(self):
        """Waits, then hands the result to the future."""
        try:
            self.wait()
        except Exception:  # raised by _value_of_future()
            pass
        self._ended.set_result(None)

    def _value_of_future(self, _):
        if self._error is not None:
            raise self._error
        return list(self._result) or None


class Completer:
    """A thread that waits for operations whose future was requested: no other thread would move them. It is
    started by the first and sleeps in the library when nothing comes."""

    def __init__(self):
        self._queue = queue.SimpleQueue()
        self._thread = None

    def add(self, work):
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tandem-futures", daemon=True)
            self._thread.start()
        self._queue.put(work)

    def _run(self):
        while (work := self._queue.get()) is not None:
            work.complete_future()
            del work  # and its tensors, which this thread would keep until the next

    def stop(self):
        if self._thread is not None and self._thread is not threading.current_thread():
            self._queue.put(None)
            self._thread.join()
        self._thread = None
