"""Decide after each launch of a run whether there is another one. Pure: what was seen goes in, a decision comes out.

    launch --ended--> done, failed           --> End(0, or 4 where a file is missing), End(3): the run is over
                      refused                --> End(2), End(4): another try would be refused as well
                      stopped, we were asked, or its budget of time is spent --> End(75)
                      lost                   --> Relaunch, at once while launches get on, later while they do not;
                                                 End(75) after `most` of them, or after FRUITLESS in a row

The files of the run decide. A launcher's exit code does not: it is 0 where a whole node was lost, and anything where
ranks were killed. Only our own 2 and 4 count, and only where nothing was evaluated.
"""

from __future__ import annotations

from dataclasses import dataclass

from osprey_mpi.continuity.budget import Reason
from osprey_mpi.errors import ExitCode
from osprey_mpi.storage.status import State

FRUITLESS = 3  # launches in a row that end without one evaluation: the fourth would not do better
NOT_BEGUN = "stopped before the run began: there is nothing to resume, start it again"


@dataclass(frozen=True, slots=True)
class Ended:
    """Describe how a launch ended.

    code: the launcher's. state: of the run as its files show it, None without a run. n_evaluations: on disk.
    exit_code: the run's own, once it is over.
    """

    code: int
    state: State | None
    n_evaluations: int
    reason: str = ""
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Relaunch:
    """Start the run again after `wait_s` seconds."""

    wait_s: float


@dataclass(frozen=True, slots=True)
class End:
    """Go with this exit code; `text` says why where the run itself has not said it."""

    code: int
    text: str = ""


class RestartPolicy:
    """Count the launches of a run. most: how many there may be. n_evaluations: done before the first."""

    def __init__(self, most: int, n_evaluations: int = 0) -> None:
        self.most, self.n = most, 0
        self._n_evaluations, self._n_fruitless = n_evaluations, 0

    def after(self, ended: Ended, *, is_asked: bool) -> Relaunch | End:
        """Decide what follows a launch. is_asked: the user has asked us to stop."""
        self.n += 1
        if ended.state in (State.DONE, State.FAILED) and ended.exit_code is not None:
            return End(ended.exit_code)
        is_fruitless = ended.n_evaluations <= self._n_evaluations
        self._n_evaluations = max(self._n_evaluations, ended.n_evaluations)
        if is_asked and ended.state is None:
            return End(ExitCode.STOPPED, NOT_BEGUN)
        if is_asked or (ended.state is State.STOPPED and ended.reason == Reason.WALLTIME.value):
            return End(ExitCode.STOPPED)
        if is_fruitless and ended.code in (ExitCode.CONFIG, ExitCode.ENVIRONMENT):
            return End(ended.code)  # a rank has said why
        self._n_fruitless = self._n_fruitless + 1 if is_fruitless else 0
        code = ExitCode.ENVIRONMENT if ended.state is None else ExitCode.STOPPED
        if self._n_fruitless >= FRUITLESS:
            return End(code, f"{FRUITLESS} launches in a row ended without one evaluation; giving up")
        if self.n >= self.most:
            return End(code, f"launch {self.n} of at most {self.most} was lost, too; giving up")
        return Relaunch(2.0**self._n_fruitless - 1.0)
