"""See whether a rank of this host ends while MPI starts: until it has, MPI tells nobody, and waits for that rank."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping

from osprey_mpi.comm.launcher import SPEAK_S
from osprey_mpi.comm.watch import Watch
from osprey_mpi.errors import ExitCode
from osprey_mpi.processes import environments
from osprey_mpi.words import ranks_named

LOOK_S = 1.0
GONE_LOOKS = 3  # in a row without it: a process that becomes another one has no environment for a moment
_JOB, _RANK = "PMIX_NAMESPACE", "OMPI_COMM_WORLD_RANK"


class SiblingWatch(Watch):
    """End this process with exit code 75 when a rank that Open MPI has started on this host ends meanwhile.

    Where MPI outlives lost ranks the launcher ends nobody else then, and MPI waits for ever; the next launch may have
    more luck. The lowest rank that is left says so. A rank that nobody has seen, because it ended earlier or has a
    /proc of its own, is not missed.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        super().__init__()
        self._job, self._rank = environ.get(_JOB), int(environ.get(_RANK, "0"))
        self._seen: set[int] = set()

    def lost(self) -> set[int]:
        """Return the ranks that were there at an earlier look, and are not now."""
        ours = (environment for _, environment in environments() if environment.get(_JOB) == self._job)
        living = {int(environment[_RANK]) for environment in ours if environment.get(_RANK, "").isdigit()}
        self._seen |= living
        return self._seen - living

    def watch(self) -> None:
        """Look until a rank that was there is gone for good."""
        n_looks, lost = 0, set[int]()
        while n_looks < GONE_LOOKS:
            lost = self.lost()
            n_looks = n_looks + 1 if lost else 0
            if self.is_over(LOOK_S):
                return
        if self._rank == min(self._seen - lost):
            text = "ended before MPI had started on all ranks: nothing is lost, start it again"
            sys.stderr.write(f"osprey: {ranks_named(lost)} {text}\n")
            sys.stderr.flush()
        else:
            time.sleep(SPEAK_S)  # whoever ends first may end all
        os._exit(ExitCode.STOPPED)
