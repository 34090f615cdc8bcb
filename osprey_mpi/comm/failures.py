"""Know which ranks are lost, where the others can outlive that; elsewhere none ever is.

Under ULFM (`mpirun --with-ft ulfm`) MPI tells of processes that have ended; of those that are stopped, and without ULFM
(`mpirun --enable-recovery`) of all, the ranks themselves do (`heartbeat.py`).

After a failure that MPI has seen, messages between the others go on as before; only a probe for any source raises until
the failure is acknowledged, and what concerns the lost rank itself raises always (MPI 5 draft, chapter "Fault
tolerance"). After one that it has not, what is on the way to the lost rank stays there for ever: `abandon` keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpi4py import MPI

    from osprey_mpi.comm.heartbeat import Heart

# MPI tells when a rank is gone; one that only says nothing may wait for a file server, or import the objective.
PATIENCE_S = 900.0


_abandoned: list[Any] = []  # MPI may still use the buffers


def abandon(requests: Any) -> None:
    """Let go of requests with a rank that is lost, without a wait and beside their buffers."""
    _abandoned.append(requests)


class MembersLost(Exception):
    """Tell that ranks are lost that the others cannot do without: these regroup and go on from what is on disk."""

    def __init__(self, ranks: Sequence[int]) -> None:
        super().__init__(tuple(ranks))
        self.ranks = tuple(ranks)


class RunIsOver(Exception):
    """Tell that the root has ended the run meanwhile; `result` is its last word."""

    def __init__(self, result: Any) -> None:
        super().__init__("the run is over")
        self.result = result


class Failures:
    """Watch one communicator. lost: ranks that have failed so far, as MPI or the other ranks have seen.

    tolerant: MPI outlives lost ranks, and tells of them. heart: hears whether ranks are there.
    """

    def __init__(self, comm: MPI.Intracomm, *, tolerant: bool, heart: Heart | None = None) -> None:
        from mpi4py import MPI

        self._comm, self.tolerant, self._heart = comm, tolerant, heart
        self._classes = (MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING) if tolerant else ()
        self._seen: frozenset[int] = frozenset()
        self.lost: frozenset[int] = frozenset()

    def is_one(self, error: MPI.Exception) -> bool:
        """Tell whether an error says that a rank has failed, and nothing else is wrong."""
        return error.Get_error_class() in self._classes

    def forgive(self, error: MPI.Exception) -> None:
        """Go on after an error that says that a rank has failed: `look` tells of it. Raises any other."""
        if not self.is_one(error):
            raise error

    def look(self) -> list[int]:
        """Return the ranks that have failed since the last look."""
        if self.tolerant:
            self._acknowledge()
        lost = self._seen if self._heart is None else self._seen | self._heart.lost
        new = sorted(lost - self.lost)
        self.lost |= lost
        return new

    def _acknowledge(self) -> None:
        """Take note of what MPI has seen fail; let all others know."""
        group = self._comm.Get_failed()
        n = group.Get_size()
        if n > len(self._seen):
            self._comm.Ack_failed()
            everybody = self._comm.Get_group()
            self._seen = frozenset(int(rank) for rank in group.Translate_ranks(range(n), everybody))
            everybody.Free()
            if self._heart is not None:
                self._heart.condemn(self._seen)
        group.Free()
