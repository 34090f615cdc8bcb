"""Evaluate the user's objective: tasks go in, outcomes come out, and the caller never waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from osprey_mpi.errors import OspreyError

__all__ = ["Evaluator", "Outcome", "Progress", "StopEvaluation", "Task", "make_evaluator"]

if TYPE_CHECKING:
    from osprey_mpi.evaluate.make import make_evaluator
    from osprey_mpi.evaluate.task import Evaluator, Outcome, Progress, Task


class StopEvaluation(OspreyError):
    """Tell an objective that it was stopped early; `context.report` raises it, the objective may let it pass."""


def __getattr__(name: str) -> object:
    """Load names on first use: the child process imports this package and must stay small (PEP 562)."""
    if name == "make_evaluator":
        from osprey_mpi.evaluate.make import make_evaluator

        return make_evaluator
    if name in {"Evaluator", "Outcome", "Progress", "Task"}:
        from osprey_mpi.evaluate import task

        return getattr(task, name)
    raise AttributeError(f"module 'osprey_mpi.evaluate' has no attribute {name!r}")
