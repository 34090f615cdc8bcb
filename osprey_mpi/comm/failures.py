"""Know which ranks MPI has seen fail, where it can outlive that (ULFM, `mpirun --with-ft ulfm`); elsewhere none ever.

After a failure, messages between the others go on as before; only a probe for any source raises until the failure is
acknowledged, and what concerns the lost rank itself raises always (MPI 5 draft, chapter "Fault tolerance").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpi4py import MPI

_posted: list[Any] = []  # sends that nobody has taken yet: MPI may read their buffers as long as the process lives


# MPI tells when a rank is gone; one that only says nothing may wait for a file server, or import the objective.
PATIENCE_S = 900.0


class MembersLost(Exception):
    """Tell that ranks are lost that the others cannot do without: these regroup and go on from what is on disk."""

    def __init__(self, ranks: Sequence[int]) -> None:
        super().__init__(tuple(ranks))
        self.ranks = tuple(ranks)


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


def post(comm: MPI.Intracomm, failures: Failures, rank: int, value: Any, tag: int) -> None:
    """Send anything that pickles without waiting for it to be taken; not to a rank that has failed."""
    from mpi4py import MPI

    _posted[:] = [request for request in _posted if not _is_over(request, failures)]
    if rank in failures.lost:
        return
    try:
        _posted.append(comm.isend(value, dest=rank, tag=tag))
    except MPI.Exception as error:  # it has failed just now
        if not failures.is_one(error):
            raise


def _is_over(request: Any, failures: Failures) -> bool:
    from mpi4py import MPI

    try:
        return bool(request.test()[0])
    except MPI.Exception as error:
        if not failures.is_one(error):
            raise
        return True


def heard(comm: MPI.Intracomm, failures: Failures, source: int, tag: int) -> tuple[Any] | None:
    """Return what a rank has sent with `post`; None if nothing has come, or that rank has failed."""
    from mpi4py import MPI

    try:
        return (comm.recv(source=source, tag=tag),) if comm.iprobe(source=source, tag=tag) else None
    except MPI.Exception as error:
        if not failures.is_one(error):
            raise
        return None
