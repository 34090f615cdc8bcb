"""Send anything that pickles from rank to rank, beside the protocol: what ranks say to begin, to regroup and to end.

Nothing here waits for another rank but `flush`, and that for a bounded time.
"""

from __future__ import annotations

import time
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from osprey_mpi.comm.failures import Failures, abandon

if TYPE_CHECKING:
    from mpi4py import MPI

IDLE_S = 0.004  # between looks of a rank that only waits: well under 1 % of a core


class Tag(IntEnum):
    """Tell what a message is about."""

    CODE = 1  # how the run has ended, for ranks without a state machine
    END = 2  # I am at the end, and hold this
    RESULT = 3  # the root's last word
    JOIN = 4  # I go on with you as the root, and hold this
    ROSTER = 5  # these go on
    TALK = 6  # what is done together; of one epoch after the other with a tag of its own, from here on


class Mail:
    """Use point-to-point messages on one communicator."""

    def __init__(self, comm: MPI.Intracomm, failures: Failures) -> None:
        from mpi4py import MPI

        self._comm, self.failures, self._error = comm, failures, MPI.Exception
        self._posted: list[tuple[int, MPI.Request]] = []  # by rank, kept until taken: MPI reads their buffers
        self._arriving: dict[tuple[int, int], MPI.Request] = {}  # large ones come in parts, with the sender's help

    def post(self, rank: int, value: Any, tag: int) -> None:
        """Send a value, unless the rank has failed."""
        self._look()
        if rank in self.failures.lost:
            return
        try:
            self._posted.append((rank, self._comm.isend(value, dest=rank, tag=tag)))
        except self._error as error:  # it has failed just now
            self.failures.forgive(error)

    def receive(self, source: int, tag: int) -> tuple[Any] | None:
        """Return what a rank has sent, in a tuple; None if it has not come whole, or that rank has failed."""
        key = source, tag
        request = self._arriving.pop(key, None)
        try:
            if request is None:
                message = self._comm.improbe(source=source, tag=tag)
                if message is None:
                    return None
                request = message.irecv()
            is_whole, value = request.test()
        except self._error as error:
            self.failures.forgive(error)
            return None
        if is_whole:
            return (value,)
        self._arriving[key] = request
        return None

    def flush(self, limit_s: float) -> None:
        """Wait until all that was posted is taken; who has not taken it within the limit does without."""
        deadline = time.monotonic() + limit_s
        while self._posted and time.monotonic() < deadline:
            self.failures.look()
            self._look()
            time.sleep(IDLE_S if self._posted else 0.0)

    def _look(self) -> None:
        """Forget what is taken; what a lost rank has not taken it never will."""
        self._posted = [(rank, request) for rank, request in self._posted if not self._is_taken(request)]
        abandon([request for rank, request in self._posted if rank in self.failures.lost])
        self._posted = [(rank, request) for rank, request in self._posted if rank not in self.failures.lost]

    def _is_taken(self, request: MPI.Request) -> bool:
        try:
            return bool(request.test()[0])
        except self._error as error:
            self.failures.forgive(error)
            return True
