"""Hold the signals that ask to stop until the program can act on them: meanwhile the kernel keeps them."""

from __future__ import annotations

import signal

# A hangup, of a terminal that is closed, asks for nothing where `nohup` has it ignored.
_IS_TIED = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, *([signal.SIGHUP] if _IS_TIED else []))


def hold() -> None:
    """Keep them waiting, for this thread and those that it starts; unheld, they would end a program that imports."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP)


def let_in() -> None:
    """Take them from now on, those that wait first."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP)
