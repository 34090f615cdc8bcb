"""Look at the processes of this host, as Linux shows them."""

from __future__ import annotations

import contextlib
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
            entries = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
            pairs = (entry.partition("=") for entry in entries if entry)
            yield int(folder.name), {name: value for name, _, value in pairs}


def started_at(pid: int) -> int:
    """Return when a process began, in ticks since the host did; -1 if it does not run."""
    state, *rest = _stat(pid)
    return -1 if state in _ENDED else int(rest[18])


def is_running(pid: int, since: int) -> bool:
    """Tell whether the process runs, or is stopped, that began at `since`; where there is no /proc all do."""
    return since < 0 or started_at(pid) == since


def launcher_words(pid: int) -> list[str]:
    """Return the command line of the launcher above a process of this host, [] if there is none to be seen."""
    while pid > 1:
        with contextlib.suppress(OSError):
            words = (_PROCESSES / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if Path(words[0]).name in _LAUNCHERS:
                return words
        pid = int(_stat(pid)[1])
    return []


def _stat(pid: int) -> list[str]:
    """Return the fields of a process from its state on (see proc(5))."""
    try:
        text = (_PROCESSES / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return ["X", *["0"] * 19]
    return text.rpartition(")")[2].split()
