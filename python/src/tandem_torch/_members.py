"""Which processes a group has, as torch's reconfigure() names them: by handles, one per process.

A handle is INCARNATION:RANK:PROCESS: of the communicator that the process is in, "-" if it is in none yet."""

import os
import uuid

_NONE = "-"


class Members:
    def __init__(self):
        self._process = f"{os.getpid()}-{uuid.uuid4().hex[:12]}"

    def handle(self, communicator):
        return f"{communicator.incarnation or _NONE}:{communicator.rank:06d}:{self._process}"

    def plan(self, handles, own):
        """(rank here, handles in the order of ranks, ranks of the present communicator that remain).

        The last is None if it cannot shrink to the new members: some are new, or in another order. All members come to
        the same plan, because the handles alone decide. A list is in the order of ranks; a set gets one."""
        ordered = list(handles) if isinstance(handles, (list, tuple)) else sorted(handles)
        if len(set(ordered)) != len(ordered) or own not in ordered:
            raise ValueError(f"reconfigure: expected each member's handle once, this one's among them ({own}), found {ordered}")
        parts = [handle.split(":") for handle in ordered]
        if any(len(part) != 3 or not part[1].isdigit() for part in parts):
            raise ValueError(f"reconfigure: handles come from get_reconfigure_handle(), found {ordered}")
        ranks = [int(part[1]) for part in parts]
        shrinks = len({part[0] for part in parts}) == 1 and parts[0][0] != _NONE and ranks == sorted(ranks)
        return ordered.index(own), ordered, ranks if shrinks else None
