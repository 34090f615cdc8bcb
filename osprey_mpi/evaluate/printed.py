"""Carry what an objective prints in its child process to the log of the rank, up to a bound."""

from __future__ import annotations

import logging

TAIL_BYTES = 4000  # of the output kept for reasons
TAIL_LINES = 30  # a dump of faulthandler takes about 15
LOG_BYTES = 1 << 24  # of one rank and life: 256 ranks of a chatty objective fill 4 GiB, not the disk


class Printed:
    """Take the output of a rank's child processes; log its whole lines, up to LOG_BYTES, and keep its end."""

    def __init__(self, rank: int) -> None:
        self._log = logging.getLogger(f"osprey_mpi.rank{rank}.objective")  # below the rank's own, see drivers/logs.py
        self._tail = self._pending = b""
        self._n_left = LOG_BYTES

    def add(self, data: bytes) -> None:
        """Take what came; what is printed while the objective is imported waits until there is a log."""
        self._tail = (self._tail + data)[-TAIL_BYTES:]
        lines, newline, rest = (self._pending + data).rpartition(b"\n")
        if not newline or not self._log.hasHandlers():
            self._pending = (self._pending + data)[-TAIL_BYTES:]
            return
        self._pending = rest[-TAIL_BYTES:]
        self._write(lines)

    def end(self) -> None:
        """Log the last line of a process, which may lack its end."""
        if self._pending and self._log.hasHandlers():
            self._write(self._pending)
        self._pending = b""

    def tail(self) -> str:
        """Return the last lines, as the end of a reason."""
        lines = self._tail.decode(errors="replace").splitlines()[-TAIL_LINES:]
        return "\nend of its output:\n" + "\n".join(lines) if lines else ""

    def forget(self) -> None:
        """Begin anew: another process prints now."""
        self._tail = b""

    def _write(self, lines: bytes) -> None:
        if self._n_left <= 0:
            return
        self._n_left -= len(lines)
        # A progress bar rewrites its line: its last state is what a terminal would show.
        shown = [line.rstrip("\r").rpartition("\r")[2] for line in lines.decode(errors="replace").split("\n")]
        self._log.info("%s", "\n".join(shown))
        if self._n_left <= 0:
            self._log.info("what the objective prints is not logged any further: it was more than %d bytes", LOG_BYTES)
