"""Show how a run goes on stderr: a live bar on a terminal, plain lines otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from osprey_mpi.console import Unfailing
from osprey_mpi.errors import ExitCode

if TYPE_CHECKING:
    from osprey_mpi.storage.status import RunStatus

PLAIN_EVERY_S = 10.0  # a batch job's log should stay short
MOST_WARNINGS = 10  # of one run on the console; all are in the logs


class Progress:
    """Show each status of a run, and the warnings that its user should see."""

    def __init__(
        self, name: str, folder: Path, *, quiet: bool, stream: TextIO | None = None,
        wording: Callable[[str], str] = str,
    ) -> None:  # fmt: skip
        self._name, self._folder, self._quiet, self._wording = name, folder, quiet, wording
        self._stream = cast(TextIO, Unfailing(sys.stderr if stream is None else stream))
        self._bar: Any = None
        self._shown_at = float("-inf")
        self._n_warnings = 0
        self._last: tuple[float, int] | None = None
        self._last_status: RunStatus | None = None  # of a run that has ended, or is stopped and still takes in results

    def update(self, status: RunStatus) -> None:
        """Show a status if it is time to; that of an ended run at the end, once."""
        if self._quiet:
            return
        if not status.state.is_active:
            self._last_status = status
        elif self._stream.isatty():
            self._show_bar(status)
        elif time.monotonic() - self._shown_at >= PLAIN_EVERY_S:
            self._show_line(status)

    def note(self, text: str) -> None:
        """Show what is good to know."""
        if not self._quiet:
            self._write(f"osprey: {self._wording(text)}")

    def warn(self, text: str) -> None:
        """Show a warning, up to a bound; all of them are in the log."""
        self._n_warnings += 1
        if self._n_warnings <= MOST_WARNINGS:
            more = " (further warnings only in the logs)" if self._n_warnings == MOST_WARNINGS else ""
            self._write(f"osprey: {self._wording(text)}{more}")

    def close(self) -> None:
        """Show how the run ended; leave the terminal as it was."""
        status, self._last_status = self._last_status, None
        if status is not None:
            (self._show_bar if self._stream.isatty() else self._show_line)(status)
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        if status is not None and status.exit_code == ExitCode.STOPPED:
            self.note(f"the run is saved: `osprey resume {self._folder}` goes on")

    def _show_line(self, status: RunStatus) -> None:
        now = self._shown_at = time.monotonic()
        self._write(f"{self._name}: {status.state} {summary(status)}{self._rate(status, now)}, {status.wall_s:.0f} s")

    def _write(self, line: str) -> None:
        if self._bar is not None:
            self._bar.console.print(line, markup=False, highlight=False)
            return
        self._stream.write(line + "\n")
        self._stream.flush()

    def _rate(self, status: RunStatus, now: float) -> str:
        n_calls = status.n_evaluations - (status.n_not_called or 0)
        last, self._last = self._last, (now, n_calls)
        if last is None or now <= last[0] or n_calls <= last[1]:
            return ""
        return f", {(n_calls - last[1]) / (now - last[0]):.4g}/s"

    def _show_bar(self, status: RunStatus) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        if self._bar is None:
            columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}")
            self._bar = Bar(*columns, TimeElapsedColumn(), console=Console(file=self._stream))
            self._bar.add_task(self._name, total=status.budget.get("evaluations"), text="")
            self._bar.start()
        self._bar.update(0, completed=status.n_evaluations, text=f"{status.state} {summary(status)}")


def summary(status: RunStatus) -> str:
    """Return the counts and the best cost in a few words."""
    budget = status.budget.get("evaluations")
    done = f"{status.n_evaluations}/{budget}" if budget else f"{status.n_evaluations}"
    best = "none" if status.best is None or status.best.cost is None else f"{status.best.cost:.6g}{status.best.remark}"
    bad = sum(status.counts.get(name, 0) for name in ("failed", "timeout"))  # what was lost is done again
    return f"{done} evaluations, best {best}" + (f", {bad} without result" if bad else "")
