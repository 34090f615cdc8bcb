"""Turn signals into a reason to stop: the first one saves and stops, a second INT ends at once."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

from osprey_mpi.held import STOP, let_in


class Signals:
    """Catch INT, TERM, USR1 and USR2 while inside `with`; watch the launcher when there is one."""

    def __init__(self, *, launched: bool) -> None:
        self.reason = ""
        self._parent = os.getppid() if launched else 0
        self._old: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number in STOP:
                self._old[number] = signal.signal(number, self._caught)
            let_in()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def _caught(self, number: int, _frame: FrameType | None) -> None:
        if self.reason and number == signal.SIGINT:
            os._exit(128 + number)
        self.reason = self.reason or f"signal {signal.Signals(number).name.removeprefix('SIG')}"

    @property
    def is_orphan(self) -> bool:
        """Tell whether the launcher is gone."""
        return bool(self._parent) and os.getppid() != self._parent

    def check(self) -> str:
        """Return why to stop, or ''. A rank whose launcher is gone stops too: nobody would ever end it."""
        if not self.reason and self.is_orphan:
            self.reason = "signal: the launcher is gone"
        return self.reason
