"""Carry what an objective prints in its child process to the log of the rank, up to a bound."""

from __future__ import annotations

import codecs
import logging
import re

from osprey_mpi.words import visible

TAIL_BYTES = 4000  # of the output kept for reasons
TAIL_LINES = 30
LOG_BYTES = 1 << 24  # of one rank and life: 256 ranks of a chatty objective fill 4 GiB, not the disk
# A line that is longer is logged in parts, all but the last with GOES_ON at their end: else a line that never
# ends would wait for ever, and be lost with the rank.
PART_BYTES = 1 << 16
GOES_ON = " [the line goes on]"
_MARK = re.compile(r"evaluation (\d+): ")  # see marked.py


class Printed:
    """Take the output of a rank's child processes; log all of it up to LOG_BYTES, and keep its end."""

    def __init__(self, rank: int) -> None:
        self._log = logging.getLogger(f"osprey_mpi.rank{rank}.objective")  # below the rank's own, see drivers/logs.py
        self._tail = b""
        self._pending = bytearray()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a part may end within a character
        self._n_left = LOG_BYTES

    def add(self, data: bytes) -> None:
        """Take what came; what is printed while the objective is imported waits until there is a log."""
        self._tail = (self._tail + data)[-TAIL_BYTES:]
        if self._n_left > 0:
            self._n_left -= len(data)
            self._pending += data
        if self._pending and self._log.hasHandlers():
            n_whole = self._pending.rfind(b"\n") + 1
            is_long = len(self._pending) - n_whole >= PART_BYTES
            self._write(len(self._pending) if is_long or self._n_left <= 0 else n_whole)

    def end(self) -> None:
        """Log the last line of a process, which may lack its end."""
        if self._log.hasHandlers():
            self._write(len(self._pending), is_end=True)

    def tail(self, id: int) -> str:
        """Return the last lines, as the end of the reason of an evaluation: from where none of another one follows."""
        lines = self._tail.decode(errors="replace").splitlines()[-TAIL_LINES:]
        others = [i for i, line in enumerate(lines) if (mark := _MARK.match(line)) and int(mark[1]) != id]
        lines = lines[others[-1] + 1 :] if others else lines
        return "\nend of its output:\n" + visible("\n".join(lines)) if lines else ""

    def forget(self) -> None:
        """Begin anew: another process prints now, or another evaluation."""
        self._tail = b""

    def _write(self, n_bytes: int, is_end: bool = False) -> None:
        """Log the first bytes of what waits."""
        text = self._decoder.decode(bytes(self._pending[:n_bytes]), is_end)
        del self._pending[:n_bytes]
        if text:
            # A progress bar rewrites its line: its last state is what a terminal would show.
            lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.removesuffix("\n").split("\n")]
            goes_on = GOES_ON if not (is_end or text.endswith("\n") or self._n_left <= 0) else ""
            self._log.info("%s", visible("\n".join(lines)) + goes_on)
        if n_bytes and self._n_left <= 0:
            self._log.info("what the objective prints is not logged any further: it was more than %d bytes", LOG_BYTES)
