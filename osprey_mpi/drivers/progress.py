"""Show how a run goes on stderr: a live line on a terminal, plain lines otherwise."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from osprey_mpi.storage.status import RunStatus

PLAIN_EVERY_S = 10.0  # a batch job's log should stay short
MOST_WARNINGS = 10  # of one run on the console; all are in the logs


class Progress:
    """Print one line per status."""

    def __init__(self, name: str, *, quiet: bool, stream: TextIO | None = None) -> None:
        self._name, self._quiet = name, quiet
        self._stream = sys.stderr if stream is None else stream
        self._live = self._stream.isatty()
        self._shown_at = float("-inf")
        self._n_warnings = 0
        self._shown = 0  # characters of the live line
        self._last: tuple[float, int] | None = None

    def update(self, status: RunStatus) -> None:
        """Show a status if it is time to."""
        now = time.monotonic()
        if self._quiet or (not self._live and status.state.is_active and now - self._shown_at < PLAIN_EVERY_S):
            return
        self._shown_at = now
        line = self._line(status, now)
        if self._live:
            self._stream.write("\r" + line.ljust(self._shown))
            self._shown = len(line)
            if not status.state.is_active:
                self._stream.write("\n")
                self._shown = 0
        else:
            self._stream.write(line + "\n")
        self._stream.flush()

    def _line(self, status: RunStatus, now: float) -> str:
        budget = status.budget.get("evaluations")
        done = f"{status.n_evaluations}/{budget}" if budget else f"{status.n_evaluations}"
        rate = ""
        if self._last is not None and now > self._last[0]:
            rate = f", {(status.n_evaluations - self._last[1]) / (now - self._last[0]):.4g}/s"
        self._last = (now, status.n_evaluations)
        best = "none" if status.best is None or status.best.cost is None else f"{status.best.cost:.6g}"
        bad = sum(status.counts.get(name, 0) for name in ("failed", "timeout", "lost"))
        failed = f", {bad} without result" if bad else ""
        return f"{self._name}: {status.state} {done} evaluations{rate}, best {best}{failed}, {status.wall_s:.0f} s"

    def warn(self, text: str) -> None:
        """Show a warning, up to a bound; all of them are in the log."""
        self._n_warnings += 1
        if self._n_warnings > MOST_WARNINGS:
            return
        more = " (further warnings only in the logs)" if self._n_warnings == MOST_WARNINGS else ""
        newline = "\n" if self._live and self._shown else ""
        self._stream.write(f"{newline}osprey: {text}{more}\n")
        self._stream.flush()
        self._shown = 0
