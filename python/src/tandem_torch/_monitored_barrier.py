"""A barrier that names the missing ranks, and after which the group still works: through the store, not by messages."""

import time

import torch.distributed as dist

_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05
_FAREWELL = 1.0  # seconds


class MonitoredBarrier:
    """The barrier of the ranks of one group; called by one thread at a time. `check()` raises if the group has failed."""

    def __init__(self, store, rank, size, check):
        self._store, self._rank, self._size, self._check = store, rank, size, check
        self._round = 0

    def _key(self, round, what):
        return f"tandem/monitored_barrier/{round}/{what}"

    def _wait(self, ready, seconds, check=None):
        """Asks ready() until it is true, at most so long; returns the last answer."""
        end, pause = time.monotonic() + seconds, _FIRST_PAUSE
        while not ready():
            (check or self._check)()
            left = end - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)
        return True

    def _missing(self):
        return [rank for rank in range(1, self._size) if not self._store.check([self._key(self._round, rank)])]

    def run(self, timeout, wait_all_ranks):
        """`timeout`: a timedelta. Errors: DistBackendError, on rank 0 with the first rank that did not come in time, or with `wait_all_ranks` all of them.
        On the other ranks with the values that rank 0 saw; a rank that comes too late gets an error."""
        self._round += 1
        self._store.set(self._key(self._round, self._rank), "here")
        if self._rank == 0:
            self._gather(timeout.total_seconds(), wait_all_ranks)
        else:
            self._hear(timeout.total_seconds())

    def _gather(self, seconds, wait_all_ranks):
        verdict = "passed"
        if not self._wait(lambda: not self._missing(), seconds):
            missing = self._missing()
            verdict = _failed_to_pass(missing if wait_all_ranks else missing[:1], seconds)
            if seconds <= 0:
                verdict = f"Rank 0 timed out in monitoredBarrier after 0 ms: {verdict}"
        self._store.set(self._key(self._round, "verdict"), verdict)
        # The store may be this process's, which may end now: not before the others have read the verdict.
        self._wait(lambda: len(self._missing()) == self._size - 1, _FAREWELL, check=lambda: None)
        self._forget(verdict == "passed")
        if verdict != "passed":
            raise dist.DistBackendError(f"tandem: {verdict}")

    def _forget(self, passed):
        """Keys that are never read again: a rank in this round has read the verdict of the one before."""
        for rank in range(self._size):
            self._store.delete_key(self._key(self._round, rank))
        if passed:
            self._store.delete_key(self._key(self._round - 1, "verdict"))

    def _hear(self, seconds):
        key = self._key(self._round, "verdict")
        has_verdict = self._wait(lambda: self._store.check([key]), seconds)
        if not has_verdict:
            # Rank 0 may have come later than this rank; it waits as long as it may from then on.
            came = self._store.check([self._key(self._round, 0)])
            has_verdict = self._wait(lambda: self._store.check([key]), seconds if came else 0)
        verdict = self._store.get(key).decode() if has_verdict else f"no message from it in {seconds * 1000:.0f} ms"
        self._store.delete_key(self._key(self._round, self._rank))
        if verdict != "passed":
            raise dist.DistBackendError(
                f"tandem: Rank {self._rank} successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0: {verdict}"
            )


def _failed_to_pass(ranks, seconds):
    names = ", ".join(map(str, ranks))
    return f"Rank{'s' if len(ranks) > 1 else ''} {names} failed to pass monitoredBarrier in {seconds * 1000:.0f} ms"
