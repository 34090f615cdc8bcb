"""See whether a rank of this host ends while MPI starts: until it has, MPI tells nobody, and waits for that rank."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from pathlib import Path

from osprey_mpi.comm.launcher import SPEAK_S
from osprey_mpi.errors import ExitCode
from osprey_mpi.words import counted

LOOK_S = 1.0
MISSING_S = 4.0  # that none has come: the launcher starts one after the other
_PROCESSES = Path("/proc")
_GONE = (b"Z", b"X")


class SiblingWatch:
    """End this process with exit code 75 when ranks that Open MPI has started on this host end meanwhile.

    Where MPI outlives lost ranks the launcher ends nobody else then, and MPI waits for ever; the next launch may have
    more luck. The first of the ranks that are left says so. Sees nothing where there is no /proc.
    """

    def __init__(self) -> None:
        self._n = int(os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE", "0"))
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()

    def _watch(self) -> None:
        n_seen, since = 0, time.monotonic()
        while time.monotonic() - since < MISSING_S:
            living = _siblings()
            if len(living) >= self._n or len(living) > n_seen or not living:
                since = time.monotonic()
            n_seen = len(living)
            if self._is_over.wait(LOOK_S):
                return
        if os.getpid() == min(living):
            text = f"{self._n - n_seen} of the {counted(self._n, 'rank')} on this host ended before MPI had started"
            sys.stderr.write(f"osprey: {text} on all: nothing is lost, start it again\n")
            sys.stderr.flush()
        else:
            time.sleep(SPEAK_S)  # whoever ends first may end all
        os._exit(ExitCode.STOPPED)


def _siblings() -> set[int]:
    """Return the processes of this one's parent that have not ended, this one among them."""
    parent = str(os.getppid()).encode()
    living = set()
    for folder in _PROCESSES.glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            state, its_parent = (folder / "stat").read_bytes().rsplit(b") ", 1)[1].split()[:2]
            if its_parent == parent and state not in _GONE:
                living.add(int(folder.name))
    return living
