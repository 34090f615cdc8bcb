"""See whether a rank of this host ends while MPI starts: until it has, MPI tells nobody, and waits for that rank."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Mapping

from osprey_mpi.comm.launcher import SPEAK_S
from osprey_mpi.comm.watch import Watch
from osprey_mpi.console import say
from osprey_mpi.errors import ExitCode
from osprey_mpi.processes import ancestor, children
from osprey_mpi.words import counted, ranks_named

LOOK_S = 1.0
# In a row without a rank, and without another one that came: the daemon may be starting them, and a process that
# becomes another one has no environment for a moment.
GONE_LOOKS = 3
TOLD_S = (GONE_LOOKS + 2) * LOOK_S + SPEAK_S  # until a rank that has met the loss in MPI is ended by SiblingWatch
_DAEMON = "prte"  # prterun, and prted on further hosts: each rank, or the wrapper around it, is a child of one
_JOB, _RANK, _N_RANKS, _N_HERE = (
    "PMIX_NAMESPACE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
)  # fmt: skip


class LauncherWatch(Watch):
    """End this process with exit code 75 when its launcher ends while MPI starts: nobody else would."""

    def watch(self) -> None:
        """Look until this process has another parent."""
        parent = os.getppid()
        while os.getppid() == parent:
            if self.is_over(LOOK_S):
                return
        os._exit(ExitCode.STOPPED)


class SiblingWatch(Watch):
    """End this process with exit code 75 when a rank that Open MPI has started on this host ends meanwhile.

    Where MPI outlives lost ranks the launcher ends nobody else then, and MPI waits for ever; the next launch may have
    more luck. The lowest rank of this host that is left says so. In a container that hides the daemon nobody is missed,
    nor is the only rank of a host.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        super().__init__()
        self._job, self._rank = environ.get(_JOB), int(environ.get(_RANK, "0"))
        self._n_ranks, self._n_here = int(environ.get(_N_RANKS, "1")), int(environ.get(_N_HERE, "1"))
        self._daemon = ancestor(_DAEMON)

    def living(self) -> list[int | None]:
        """Return the ranks of this host that are there; None for one of which another container hides the number."""
        assert self._daemon is not None
        found = children(self._daemon)
        ours = (environment for environment in found if environment is None or environment.get(_JOB) == self._job)
        return [None if environment is None else int(environment[_RANK]) for environment in ours]

    def watch(self) -> None:
        """Look until a rank is gone for good."""
        if self._daemon is None:
            return
        n_looks, living = 0, list[int | None]()
        while n_looks < GONE_LOOKS:
            n_before, living = len(living), self.living()
            is_gone = n_before >= len(living) and len(living) < self._n_here
            n_looks = n_looks + 1 if is_gone else 0
            if self.is_over(LOOK_S):
                return
        self._end({rank for rank in living if rank is not None} | {self._rank}, self._n_here - len(living))

    def _end(self, living: set[int], n_lost: int) -> None:
        if self._rank == min(living):
            lost = set(range(self._n_ranks)) - living
            some = f"{n_lost} of the {counted(self._n_here, 'rank')} on {socket.gethostname()}"
            named = ranks_named(lost) if len(lost) == n_lost else some
            text = "ended before MPI had started on all ranks: nothing is lost, start it again"
            say(f"osprey: {named} {text}")
        else:
            time.sleep(SPEAK_S)  # whoever ends first may end all
        if self._n_here < self._n_ranks and os.getppid() == self._daemon:
            os.kill(self._daemon, signal.SIGTERM)
        os._exit(ExitCode.STOPPED)
