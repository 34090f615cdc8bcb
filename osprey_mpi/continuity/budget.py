"""Say when a run is over, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from osprey_mpi.continuity.tally import Tally


class Reason(Enum):
    """Give the reason why a run ended; the first five are ends that its config foresees."""

    EVALUATIONS = "evaluations"
    TARGET = "target"
    STAGNATION = "stagnation"
    WALLTIME = "walltime"
    FAILURE = "failure"  # on_failure: stop
    SIGNAL = "signal"
    TROUBLE = "trouble"


@dataclass(frozen=True, slots=True)
class BudgetRule:
    """Hold the budget: None means no such bound. walltime_s is that of one life."""

    evaluations: int | None = None
    walltime_s: float | None = None
    target: float | None = None
    stagnation: int | None = None

    def verdict(self, tally: Tally, elapsed_s: float) -> Reason | None:
        """Return why the run is over, or None."""
        best = tally.best
        if self.target is not None and best.violation <= 0.0 and best.cost <= self.target:
            return Reason.TARGET
        if self.evaluations is not None and tally.n_evaluations >= self.evaluations:
            return Reason.EVALUATIONS
        if self.stagnation is not None and tally.n_evaluations - tally.n_at_best >= self.stagnation:
            return Reason.STAGNATION
        return Reason.WALLTIME if self.is_late(elapsed_s) else None

    def is_late(self, elapsed_s: float) -> bool:
        """Tell whether the time of this life is over."""
        return self.walltime_s is not None and elapsed_s >= self.walltime_s

    def resumable(self, reason: Reason) -> bool:
        """Tell whether the run stopped short of its budget, so that a batch system should start it again."""
        if reason in (Reason.SIGNAL, Reason.TROUBLE):
            return True
        return reason is Reason.WALLTIME and self.evaluations is not None
