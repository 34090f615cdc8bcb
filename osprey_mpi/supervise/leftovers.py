"""Find and end the processes that a launch has left behind on this host, by a mark in their environment."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from osprey_mpi.processes import environments
from osprey_mpi.storage.lock import LAUNCH

MARK = LAUNCH  # ranks and all that they start inherit it
LOOK_S = 0.05


def marked(mark: str) -> list[int]:
    """Return the pids of this user's processes that carry the mark; [] where there is no /proc."""
    return [pid for pid, environment in environments() if environment.get(MARK) == mark and pid != os.getpid()]


def end_marked(mark: str, grace_s: float = 0.0) -> int:
    """End all processes that carry the mark and do not end by themselves in time; return how many there were."""
    deadline = time.monotonic() + grace_s
    while (pids := marked(mark)) and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(pids)
