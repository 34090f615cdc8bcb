"""Hold the signals that ask to stop until the program can act on them: meanwhile the kernel keeps them."""

from __future__ import annotations

import signal

STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


def hold() -> None:
    """Keep them waiting, for this thread and those that it starts; unheld, they would end a program that imports."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP)


def let_in() -> None:
    """Take them from now on, those that wait first."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP)
