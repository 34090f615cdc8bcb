"""Find and end the processes that a launch has left behind on this host, by a mark in their environment."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from osprey_mpi.storage.lock import LAUNCH

MARK = LAUNCH  # ranks and all that they start inherit it
LOOK_S = 0.05
_PROCESSES = Path("/proc")


def marked(mark: str) -> list[int]:
    """Return the pids of this user's processes that carry the mark; [] where there is no /proc."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in _PROCESSES.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if wanted in (folder / "environ").read_bytes().split(b"\0") and int(folder.name) != os.getpid():
                found.append(int(folder.name))
    return found


def end_marked(mark: str, grace_s: float = 0.0) -> int:
    """End all processes that carry the mark and do not end by themselves in time; return how many there were."""
    deadline = time.monotonic() + grace_s
    while (pids := marked(mark)) and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(pids)
