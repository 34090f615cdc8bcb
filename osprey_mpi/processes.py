"""Look at the processes of this host, as Linux shows them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_PROCESSES = Path("/proc")
_ZOMBIE = "Z"


def environments() -> Iterator[tuple[int, dict[str, str]]]:
    """Yield (process id, environment as it was at its start) of what may be looked into; nothing without /proc.

    Processes of other users may not, and one that has ended has none.
    """
    for folder in _PROCESSES.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            yield int(folder.name), _environment(folder)


def ancestor(name: str) -> int | None:
    """Return the nearest process above this one whose program begins so; None where there is none to be seen."""
    pid = os.getppid()
    while pid > 0:
        try:
            program, _, parent = _stat(_PROCESSES / str(pid))
        except OSError:
            return None
        if program.startswith(name):
            return pid
        pid = parent
    return None


def children(pid: int) -> Iterator[dict[str, str] | None]:
    """Yield the environment of each living child of a process; None where it may not be looked into."""
    for folder in _PROCESSES.glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            _, state, parent = _stat(folder)
            if parent == pid and state != _ZOMBIE:
                try:
                    yield _environment(folder)
                except PermissionError:
                    yield None


def _environment(folder: Path) -> dict[str, str]:
    entries = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
    pairs = (entry.partition("=") for entry in entries if entry)
    return {name: value for name, _, value in pairs}


def _stat(folder: Path) -> tuple[str, str, int]:
    """Return the name of the program, which may hold anything, the state and the parent of a process."""
    head, _, tail = (folder / "stat").read_text(errors="replace").rpartition(")")
    state, parent = tail.split()[:2]
    return head.partition("(")[2], state, int(parent)
