"""Know which ranks MPI has seen fail, where it can outlive that (ULFM, `mpirun --with-ft ulfm`); elsewhere none ever.

After a failure, messages between the others go on as before; only a probe for any source raises until the failure is
acknowledged, and what concerns the lost rank itself raises always (MPI 5 draft, chapter "Fault tolerance").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpi4py import MPI

# MPI tells when a rank is gone; one that only says nothing may wait for a file server, or import the objective.
PATIENCE_S = 900.0


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
    """Watch one communicator. lost: ranks that have failed so far."""

    def __init__(self, comm: MPI.Intracomm, *, tolerant: bool) -> None:
        from mpi4py import MPI

        self._comm, self.tolerant = comm, tolerant
        self._classes = (MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING) if tolerant else ()
        self.lost: frozenset[int] = frozenset()

    def is_one(self, error: MPI.Exception) -> bool:
        """Tell whether an error says that a rank has failed, and nothing else is wrong."""
        return error.Get_error_class() in self._classes

    def forgive(self, error: MPI.Exception) -> None:
        """Go on after an error that says that a rank has failed: `look` tells of it. Raises any other."""
        if not self.is_one(error):
            raise error

    def look(self) -> list[int]:
        """Return the ranks that have failed since the last look, and acknowledge them."""
        if not self.tolerant:
            return []
        group = self._comm.Get_failed()
        n = group.Get_size()
        if n == len(self.lost):
            group.Free()
            return []
        self._comm.Ack_failed()
        everybody = self._comm.Get_group()
        ranks = [int(rank) for rank in group.Translate_ranks(range(n), everybody)]
        group.Free()
        everybody.Free()
        new = sorted(set(ranks) - self.lost)
        self.lost |= frozenset(ranks)
        return new
