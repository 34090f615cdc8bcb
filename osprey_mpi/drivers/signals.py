"""Turn signals into a reason to stop: the first one saves and stops, a second INT ends at once.

User code does not ask for the reason. Where there is nothing to save yet, a signal leaves it by an exception.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from osprey_mpi.errors import StoppedEarly
from osprey_mpi.held import STOP, let_in


class _Interrupted(BaseException):
    """Leave what runs, past all that catches an Exception."""


class Signals:
    """Catch INT, TERM, USR1, USR2 and HUP while inside `with`; watch the launcher when there is one."""

    def __init__(self, *, launched: bool) -> None:
        self.reason = ""
        self._parent = os.getppid() if launched else 0
        self._old: dict[int, Any] = {}
        self._interrupts = False

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
        is_first, self.reason = not self.reason, self.reason or f"signal {signal.Signals(number).name[3:]}"
        if is_first and self._interrupts:
            raise _Interrupted

    @contextmanager
    def interrupting(self, when: str) -> Iterator[None]:
        """Let a signal end the block; raise StoppedEarly for it, and for one that came before.

        when: goes on with the sentence "stopped by signal TERM ...".
        """
        try:
            self._interrupts = True
            if not self.reason:
                yield
        except BaseException:  # whatever user code has made of it
            if not self.reason:
                raise
        finally:
            self._interrupts = False
        if self.reason:
            raise StoppedEarly(f"stopped by {self.reason} {when}")

    @property
    def is_orphan(self) -> bool:
        """Tell whether the launcher is gone."""
        return bool(self._parent) and os.getppid() != self._parent

    def check(self) -> str:
        """Return why to stop, or ''. A rank whose launcher is gone stops too: nobody would ever end it."""
        if not self.reason and self.is_orphan:
            self.reason = "signal: the launcher is gone"
        return self.reason
