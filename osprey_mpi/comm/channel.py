"""Carry bytes between ranks without ever waiting: non-blocking sends with a few slots each, receives as they come."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from mpi4py import MPI

SLOTS = 4  # sends on the way to one rank; more are held back here in order
MOST_AT_ONCE = 64  # messages taken in per poll, so that a flood cannot starve the rest of the loop


def drain(comm: MPI.Intracomm) -> None:
    """Take in what was sent to a state machine that is gone, such as a last acknowledgement.

    MPICH frees no communicator with unread messages.
    """
    from mpi4py import MPI

    status = MPI.Status()
    while (message := comm.Improbe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)) is not None:
        n_bytes = status.Get_count(MPI.BYTE)
        message.Recv((bytearray(n_bytes), n_bytes, MPI.BYTE))


class Channel(Protocol):
    """Send and receive (rank, tag, bytes)."""

    def send(self, rank: int, tag: int, data: bytes) -> None:
        """Hand over a message; it leaves when a slot is free, in order."""

    def poll(self) -> list[tuple[int, int, memoryview]]:
        """Return what has arrived: (source, tag, data); complete finished sends."""
        ...

    def sendable(self, rank: int) -> bool:
        """Tell whether a message to `rank` would leave at once."""
        ...

    def idle(self) -> bool:
        """Tell whether every message has left."""
        ...


class NoChannel:
    """Be the channel of a run of one process: there is nobody to write to."""

    def send(self, rank: int, tag: int, data: bytes) -> None:
        raise AssertionError(f"a message to rank {rank} in a run of one process")

    def poll(self) -> list[tuple[int, int, memoryview]]:
        return []

    def sendable(self, rank: int) -> bool:
        return True

    def idle(self) -> bool:
        return True


class MpiChannel:
    """Use point-to-point messages on one communicator."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        from mpi4py import MPI

        self._comm = comm
        self._any, self._any_tag, self._byte = MPI.ANY_SOURCE, MPI.ANY_TAG, MPI.BYTE
        self._status = MPI.Status()
        # A request is kept beside its buffer until it completes: MPI reads the bytes in between.
        self._sending: dict[int, deque[tuple[MPI.Request, bytes]]] = {}
        self._waiting: dict[int, deque[tuple[int, bytes]]] = {}

    def send(self, rank: int, tag: int, data: bytes) -> None:
        waiting = self._waiting.get(rank)
        if waiting or not self.sendable(rank):
            self._waiting.setdefault(rank, deque()).append((tag, data))
        else:
            self._start(rank, tag, data)

    def _start(self, rank: int, tag: int, data: bytes) -> None:
        request = self._comm.Isend((data, len(data), self._byte), dest=rank, tag=tag)
        self._sending.setdefault(rank, deque()).append((request, data))

    def sendable(self, rank: int) -> bool:
        sending = self._sending.get(rank)
        while sending and sending[0][0].Test():
            sending.popleft()
        return not sending or len(sending) < SLOTS

    def idle(self) -> bool:
        self._advance()
        return not any(self._waiting.values()) and not any(self._sending.values())

    def _advance(self) -> None:
        for rank, sending in self._sending.items():
            if sending:
                self.sendable(rank)
        for rank, waiting in self._waiting.items():
            while waiting and self.sendable(rank):
                self._start(rank, *waiting.popleft())

    def poll(self) -> list[tuple[int, int, memoryview]]:
        self._advance()
        arrived: list[tuple[int, int, memoryview]] = []
        status = self._status
        while len(arrived) < MOST_AT_ONCE:
            message = self._comm.Improbe(self._any, self._any_tag, status)
            if message is None:
                break
            n_bytes = status.Get_count(self._byte)
            buffer = np.empty(n_bytes, np.uint8)
            message.Recv((buffer, n_bytes, self._byte))
            arrived.append((status.Get_source(), status.Get_tag(), buffer.data))
        return arrived

