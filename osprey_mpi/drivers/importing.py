"""Import an objective, which may take minutes or never end: a signal stops it, and what takes long is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from osprey_mpi.comm.watch import overdue
from osprey_mpi.config import Config
from osprey_mpi.console import say
from osprey_mpi.drivers.signals import Signals
from osprey_mpi.evaluate.task import Evaluator

NOTE_S = 30.0  # an import that takes longer looks like a hang; those of large frameworks may


def stopped_when(config: Config) -> str:
    """Say what a signal has stopped."""
    module = _module(config)
    return f"while {f'module {module}' if module else 'the objective'} was being {'imported' if module else 'checked'}"


@contextmanager
def long_import_noted(config: Config, function: object, note: Callable[[str], Any]) -> Iterator[None]:
    """Give `note` a sentence, once and in a thread, when an import in the block takes long."""
    if function is not None or not (module := _module(config)):
        yield
        return
    text = f"importing {module} has taken {NOTE_S:g} s; a signal (Ctrl-C) stops it"
    with overdue(NOTE_S, lambda: note(text)):
        yield


def check_interruptibly(evaluator: Evaluator, config: Config) -> None:
    """Check an evaluator outside a run. Raises ConfigError, and StoppedEarly after a signal."""
    with (
        Signals(launched=False) as signals,
        long_import_noted(config, None, lambda text: say(f"osprey: {text}")),
        signals.interrupting(stopped_when(config)),
        config.locating(),
    ):
        evaluator.check()


def _module(config: Config) -> str:
    """Return the module that is imported; '' for an objective that is none."""
    return (config.objective.python or "").partition(":")[0]
