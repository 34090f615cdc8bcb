"""Carry bytes between ranks without ever waiting: non-blocking sends with a few slots each, receives as they come."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.comm.doorbell import Doorbell
from osprey_mpi.comm.failures import Failures, abandon

if TYPE_CHECKING:
    from mpi4py import MPI

    from osprey_mpi.comm.heartbeat import Heart

SLOTS = 4  # sends on the way to one rank; more are held back here in order
TAGS = 16  # of one epoch
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

    def ring(self) -> None:
        """Wake whom messages have left for since the last call."""

    def lost(self) -> list[int]:
        """Return the ranks that have failed since the last call."""
        ...

    def poll(self) -> list[tuple[int, int, memoryview]]:
        """Return what has arrived: (source, tag, data); complete finished sends."""
        ...

    def sendable(self, rank: int) -> bool:
        """Tell whether a message to `rank` would leave at once."""
        ...

    def idle(self) -> bool:
        """Tell whether every message has left and none is on its way in."""
        ...

    def abandon(self) -> None:
        """Leave it with what is on its way: its world is gone."""


class NoChannel:
    """Be the channel of a run of one process: there is nobody to write to."""

    def send(self, rank: int, tag: int, data: bytes) -> None:
        raise AssertionError(f"a message to rank {rank} in a run of one process")

    def ring(self) -> None:
        pass

    def lost(self) -> list[int]:
        return []

    def poll(self) -> list[tuple[int, int, memoryview]]:
        return []

    def sendable(self, rank: int) -> bool:
        return True

    def idle(self) -> bool:
        return True

    def abandon(self) -> None:
        pass


class MpiChannel:
    """Use point-to-point messages on one communicator. Receivers on this host are woken by the bell.

    tolerant, heart: as of `Failures`. What is for a lost rank, or half here from one, is dropped. epoch: of the world;
    what was sent in another is dropped.
    """

    def __init__(
        self, comm: MPI.Intracomm, bell: Doorbell | None = None, *, tolerant: bool = False, heart: Heart | None = None,
        epoch: int = 0,
    ) -> None:  # fmt: skip
        from mpi4py import MPI

        self._first_tag = TAGS * epoch

        self._failures, self._error = Failures(comm, tolerant=tolerant, heart=heart), MPI.Exception
        self._comm, self._bell = comm, bell
        self._to_ring: set[int] = set()
        self._any, self._any_tag, self._byte = MPI.ANY_SOURCE, MPI.ANY_TAG, MPI.BYTE
        self._status = MPI.Status()
        # A request is kept beside its buffer until it completes: MPI reads the bytes in between.
        self._sending: dict[int, deque[tuple[MPI.Request, bytes]]] = {}
        self._waiting: dict[int, deque[tuple[int, bytes]]] = {}
        # Large messages come in parts, with the sender's help; what it sent after one waits, so that the order is kept.
        self._receiving: list[tuple[MPI.Request, int, int, NDArray[np.uint8]]] = []

    def lost(self) -> list[int]:
        new = self._failures.look()
        for rank in new:
            self._waiting.pop(rank, None)
            abandon(self._sending.pop(rank, None))
        if new and not self._failures.tolerant:  # else MPI ends what is half here, as whole or as failed
            abandon([item for item in self._receiving if item[1] in new])
            self._receiving = [item for item in self._receiving if item[1] not in new]
        return new

    def send(self, rank: int, tag: int, data: bytes) -> None:
        if rank in self._failures.lost:
            return
        waiting = self._waiting.get(rank)
        if waiting or not self.sendable(rank):
            self._waiting.setdefault(rank, deque()).append((tag, data))
        else:
            self._start(rank, tag, data)

    def _start(self, rank: int, tag: int, data: bytes) -> None:
        try:
            request = self._comm.Isend((data, len(data), self._byte), dest=rank, tag=self._first_tag + tag)
        except self._error as error:
            self._failures.forgive(error)
            return
        self._sending.setdefault(rank, deque()).append((request, data))
        self._to_ring.add(rank)

    def abandon(self) -> None:
        abandon(self)

    def ring(self) -> None:
        if self._bell is not None:
            for rank in self._to_ring:
                self._bell.ring(rank)
        self._to_ring.clear()

    def sendable(self, rank: int) -> bool:
        sending = self._sending.get(rank)
        while sending and self._is_done(sending[0][0]):
            sending.popleft()
        return not sending or len(sending) < SLOTS

    def idle(self) -> bool:
        self._advance()
        return not any(self._waiting.values()) and not any(self._sending.values()) and not self._receiving

    def _advance(self) -> None:
        for rank, sending in self._sending.items():
            if sending:
                self.sendable(rank)
        for rank, waiting in self._waiting.items():
            while waiting and self.sendable(rank):
                self._start(rank, *waiting.popleft())

    def _is_done(self, request: MPI.Request) -> bool:
        """Tell whether a request is over, one with a lost rank by its failure."""
        try:
            return bool(request.Test())
        except self._error as error:
            self._failures.forgive(error)
            return True

    def _probe(self) -> MPI.Message | None:
        try:
            return self._comm.Improbe(self._any, self._any_tag, self._status)
        except self._error as error:  # until the failure is acknowledged by `lost`
            self._failures.forgive(error)
            return None

    def poll(self) -> list[tuple[int, int, memoryview]]:
        self._advance()
        receiving, status = self._receiving, self._status
        while len(receiving) < MOST_AT_ONCE:
            message = self._probe() or self._probe()  # Open MPI looks first and takes in what came afterwards
            if message is None:
                break
            n_bytes = status.Get_count(self._byte)
            buffer = np.empty(n_bytes, np.uint8)
            request = message.Irecv((buffer, n_bytes, self._byte))
            receiving.append((request, status.Get_source(), status.Get_tag(), buffer))
        arrived: list[tuple[int, int, memoryview]] = []
        self._receiving, behind = [], set()
        for item in receiving:
            request, source, tag, buffer = item
            if source in behind:
                self._receiving.append(item)
                continue
            try:
                is_whole = request.Test()
            except self._error as error:  # the rest of it will never come
                self._failures.forgive(error)
                continue
            if is_whole:
                if 0 <= tag - self._first_tag < TAGS:
                    arrived.append((source, tag - self._first_tag, buffer.data))
            else:
                behind.add(source)
                self._receiving.append(item)
        return arrived
