"""Look at the processes of this host, as Linux shows them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_PROCESSES = Path("/proc")
_LAUNCHERS = ("mpirun", "mpiexec", "orterun", "prterun")
_ENDED = "ZXx"  # states of a process that only waits for its parent to take notice


def environments() -> Iterator[tuple[int, dict[str, str]]]:
    """Yield (process id, environment as it was at its start) of what may be looked into; nothing without /proc.

    Processes of other users may not, and one that has ended has none.
    """
    for folder in _PROCESSES.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            yield int(folder.name), _environment(folder)


def started_at(pid: int) -> int:
    """Return when a process began, in ticks since the host did; -1 if it does not run."""
    try:
        state, *rest = _stat(pid)[1]
    except OSError:
        return -1
    return -1 if state in _ENDED else int(rest[18])


def is_running(pid: int, since: int) -> bool:
    """Tell whether the process runs, or is stopped, that began at `since`; where there is no /proc all do."""
    return since < 0 or started_at(pid) == since


def launcher_words(pid: int) -> list[str]:
    """Return the command line of the launcher at or above a process of this host, [] if there is none to be seen."""
    for above, _ in _upwards(pid):
        with contextlib.suppress(OSError):
            words = (_PROCESSES / str(above) / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if Path(words[0]).name in _LAUNCHERS:
                return words
    return []


def ancestor(name: str) -> int | None:
    """Return the nearest process above this one whose program begins so; None where there is none to be seen."""
    return next((pid for pid, program in _upwards(os.getppid()) if program.startswith(name)), None)


def children(pid: int) -> Iterator[dict[str, str] | None]:
    """Yield the environment of each living child of a process; None where it may not be looked into."""
    for folder in _PROCESSES.glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            state, parent, *_ = _stat(int(folder.name))[1]
            if int(parent) == pid and state not in _ENDED:
                try:
                    yield _environment(folder)
                except PermissionError:
                    yield None


def _upwards(pid: int) -> Iterator[tuple[int, str]]:
    """Yield a process and those above it, each with the name of its program, as far as they are to be seen."""
    with contextlib.suppress(OSError):
        while pid > 0:
            program, fields = _stat(pid)
            yield pid, program
            pid = int(fields[1])


def _environment(folder: Path) -> dict[str, str]:
    entries = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
    pairs = (entry.partition("=") for entry in entries if entry)
    return {name: value for name, _, value in pairs}


def _stat(pid: int) -> tuple[str, list[str]]:
    """Return the name of a program, which may hold anything, and its process's fields from the state on (proc(5))."""
    head, _, tail = (_PROCESSES / str(pid) / "stat").read_text(errors="replace").rpartition(")")
    return head.partition("(")[2], tail.split()
