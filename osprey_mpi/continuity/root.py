"""Hold the run together: lease evaluation ids, count, merge, keep the books on disk, end the run.

Data flow
---------
    leader --Delta--> ledger --> tally, rows --Append--> disk --Appended--> Ack --> leader
    leader --Want--> Lease
    every checkpoint interval: SnapshotRequest --> leaders --Snapshot--> Append --Appended--> WriteCheckpoint

States
------
    RUNNING   leases, counts
    STOPPING  why is known; leaders are told, their farewells awaited, for a bounded time
    CLOSING   the last rows and the checkpoint are written
    ENDING    results.h5 is made; then the last status, and Goodbye
    OVER      nothing more: what comes later is handed over when all ranks part, before the result is given

Rules
-----
* Only what is on disk after fsync is acknowledged, shown in status.json, or promised.
* An id is leased once in a life; a run is over by evaluations when every id below the budget is done.
* A signal saves first and asks later: rows, checkpoint and status are written before the farewells are awaited, because
  some launchers leave a quarter of a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.continuity.alarm import Alarm
from osprey_mpi.continuity.books import Books
from osprey_mpi.continuity.budget import BudgetRule, Reason
from osprey_mpi.continuity.codec import unpack_arrays
from osprey_mpi.continuity.collector import Collector
from osprey_mpi.continuity.events import (
    Action,
    Appended,
    CheckpointTried,
    Conclude,
    Concluded,
    Event,
    Finish,
    Log,
    PeerLost,
    Received,
    Send,
    StopAsked,
    Tick,
    WriteStatus,
)  # fmt: skip
from osprey_mpi.continuity.interval import Interval
from osprey_mpi.continuity.leases import Leases
from osprey_mpi.continuity.ledger import Verdict
from osprey_mpi.continuity.messages import (
    Best,
    Delta,
    Goodbye,
    Hello,
    Message,
    Role,
    Snapshot,
    SnapshotRequest,
    Stop,
    Trouble,
    Want,
)  # fmt: skip
from osprey_mpi.continuity.redo import Redo
from osprey_mpi.continuity.tally import Tally
from osprey_mpi.errors import ExitCode
from osprey_mpi.words import counted, ranks_named


@dataclass(frozen=True, slots=True)
class RootSettings:
    """Hold what the root needs of the config; times in s. n_alarming: failures before a first result that are told."""

    budget: BudgetRule
    n_columns: int
    exact: bool = False
    results_interval_s: float = 1.0
    checkpoint_interval_s: float | None = 30.0  # None: chosen by their cost
    failures_per_day: float = 1.0
    suspect_after_s: float = 5.0
    lost_after_s: float = 30.0
    n_alarming: int | None = None
    leave_s: float = 8.0  # more than a leader waits for its workers


class Phase(Enum):
    """Give the state of the root."""

    RUNNING = "running"
    STOPPING = "stopping"
    CLOSING = "closing"
    ENDING = "ending"
    OVER = "over"


class Root(Collector):
    """Turn events into actions for rank 0."""

    member_role = Role.LEADER

    def __init__(
        self, rank: int, leaders: Sequence[int], settings: RootSettings, now: float, *, tally: Tally | None = None,
        snapshots: dict[int, dict[str, NDArray[Any]]] | None = None, best: Best | None = None,
        redo: Redo | None = None, began: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            rank, leaders, now, suspect_after_s=settings.suspect_after_s, lost_after_s=settings.lost_after_s
        )
        self.settings = settings
        self.tally = tally or Tally()
        self.phase = Phase.RUNNING
        self.reason: Reason | None = None
        self.detail = ""
        self.redo = redo or Redo()
        self.books = Books(settings.n_columns, self.tally, dict(snapshots or {}))
        self.leases = Leases(self.tally.done, self.redo, settings.budget.evaluations, exact=settings.exact)
        self.alarm = Alarm(self.tally, settings.n_alarming)
        self._best = best
        self._began = now if began is None else began
        self._appended_at = self._checkpoint_at = now
        self._disk_error = ""
        self._interval = Interval(settings.checkpoint_interval_s, settings.failures_per_day)

    def slack_s(self) -> float:
        """Return for how long nobody would notice if this rank did not listen: leaders ask for ids in time."""
        return float("inf") if self.phase is Phase.RUNNING else 0.0

    def handle(self, event: Event, now: float) -> list[Action]:
        """Return what is to be done after an event."""
        if self.phase is Phase.OVER:
            return []
        match event:
            case Received(source, message) if source in self.members:
                self.hear(source, now)
                return self._from(source, message, now)
            case Received(_, Trouble() as trouble):
                return self._trouble(trouble, now)
            case StopAsked(reason):
                return self._stop(Reason.SIGNAL, now, reason)
            case Appended():
                return self._appended(event, now)
            case CheckpointTried(cost_s):
                self._interval.learn(cost_s)
                return []
            case Concluded(exit_code):
                return self._end(exit_code)
            case Tick():
                return self._tick(now)
            case PeerLost(rank):
                actions, lost = self.bury(rank)
                return actions + self._stop_without(lost, now)
        return []

    def _from(self, source: int, message: Message, now: float) -> list[Action]:
        match message:
            case Delta():
                return self._delta(source, message, now)
            case Hello():
                return [*self.follow(source, message, now), *self._best_to([source])]
            case Want(n):
                self.leases.want(source, n)
                return self._lease()
            case Snapshot(serial, flock, state):
                complete = self.books.take_snapshot(source, serial, flock, unpack_arrays(state))
                return self._checkpoint(now) if complete else []
            case Trouble():
                return self._trouble(message, now)
        return self.follow(source, message, now)

    # deltas

    def _delta(self, source: int, delta: Delta, now: float) -> list[Action]:
        verdict, actions = self.admit(source, delta, now)
        if verdict not in (Verdict.ADMITTED, Verdict.LATE):
            return actions
        improved = self.books.enter(source, delta, admitted=verdict is Verdict.ADMITTED)
        self.tally.revise(self.redo.enter(delta.pieces, delta.records))
        actions += self.alarm.hear(delta)
        if improved and delta.best_id == self.tally.best.id and delta.position.size:
            actions += self._spread_best(source, delta.position)
        return actions + self._judge_budget(now)

    def _spread_best(self, source: int, position: NDArray[np.float64]) -> list[Action]:
        best = self.tally.best
        self._best = Best(best.cost, best.violation, best.id, position)
        return self._best_to(leader for leader in self.members if leader != source)

    def _best_to(self, leaders: Iterable[int]) -> list[Action]:
        """Spread the best point; not in an exact run, whose one flock goes on from its snapshot and nothing else."""
        if self._best is None or self.settings.exact:
            return []
        return [Send(leader, Role.LEADER, self._best) for leader in leaders]

    def _judge_budget(self, now: float) -> list[Action]:
        """Stop once the budget is used; what is to be done again is, whatever the budget says but of time."""
        if self.phase is not Phase.RUNNING:
            return []
        elapsed_s, budget = now - self._began, self.settings.budget
        if self.redo.missing.n:
            reason = Reason.WALLTIME if budget.is_late(elapsed_s) else None
        else:
            reason = budget.verdict(self.tally, elapsed_s)
        return self._stop(reason, now, reason.value) if reason is not None else []

    def _lease(self) -> list[Action]:
        if self.phase is not Phase.RUNNING:
            return []
        done_by = {leader: member.ledger.account.n_evaluations for leader, member in self.members.items()}
        granted = self.leases.grant(self.tally.n_evaluations, done_by)
        return [Send(leader, Role.LEADER, lease) for leader, lease in granted]

    # disk

    def _append(self, now: float) -> list[Action]:
        self._appended_at = now
        return [*self.books.append()]

    def _appended(self, event: Appended, now: float) -> list[Action]:
        durable = self.books.appended(event)
        if event.error:
            told = [] if self._disk_error else [Log(event.error, warning=True)]
            self._disk_error = event.error
            return [*told, *self._stop(Reason.TROUBLE, now, event.error)]
        if durable is None:
            return []
        healed = [Log("writing again: all rows so far are on disk", warning=True)] if self._disk_error else []
        self._disk_error = ""
        acks = [self.acknowledge(leader, *stamp) for leader, stamp in durable.items()]
        more = self._append(now) if self.phase is Phase.CLOSING else []
        return [*healed, *acks, self._status(), *self.books.due(), *more]

    def _request_snapshots(self, now: float) -> list[Action]:
        self._checkpoint_at = now
        leaders = sorted(leader for leader, member in self.members.items() if not member.lost)
        request = SnapshotRequest(self.books.request_snapshots(leaders))
        return [Send(leader, Role.LEADER, request) for leader in leaders]

    def _checkpoint(self, now: float) -> list[Action]:
        """Write the rows first, and the checkpoint when they are on disk: it never knows more than the segments do."""
        return [*self._append(now), *self.books.checkpoint()]

    # time

    def _tick(self, now: float) -> list[Action]:
        actions, lost = self.judge(now)
        actions += self._stop_without(lost, now)
        if self.phase is Phase.RUNNING:
            actions += self._judge_budget(now)
        if self.phase is Phase.STOPPING and (not self.missing() or now >= self._leave_by):
            return actions + self._close(now)
        if self.phase is Phase.CLOSING and not self.books.rows:
            return actions + self._conclude()
        if self.phase is Phase.CLOSING and now >= self._leave_by:
            self.reason, self.detail = Reason.TROUBLE, self._disk_error or self.detail  # not that the budget was met
            lost_rows = Log("the last rows could not be written; a resume evaluates them again", warning=True)
            return [*actions, lost_rows, *self._conclude()]
        if now - self._appended_at >= self.settings.results_interval_s:
            actions += self._append(now) or [self._status()]
        if self.phase is Phase.RUNNING and now - self._checkpoint_at >= self._interval.seconds:
            actions += self._request_snapshots(now)
        return actions

    def _stop_without(self, lost: list[int], now: float) -> list[Action]:
        if not lost or self.phase is not Phase.RUNNING:
            return []
        who = "the leader on {} is lost" if len(lost) == 1 else "the leaders on {} are lost"
        return self._stop(Reason.TROUBLE, now, who.format(ranks_named(lost)))

    def _trouble(self, trouble: Trouble, now: float) -> list[Action]:
        reason = Reason.SIGNAL if trouble.is_signal else Reason.FAILURE if trouble.is_failure else Reason.TROUBLE
        return self._stop(reason, now, trouble.reason)

    def _stop(self, reason: Reason, now: float, detail: str) -> list[Action]:
        if self.phase is not Phase.RUNNING:
            return []
        self.phase, self.reason, self.detail = Phase.STOPPING, reason, detail
        self._leave_by = now + self.settings.leave_s
        actions: list[Action] = [Log(f"stopping: {detail}")]
        if n_left := self.redo.missing.n:
            left = f"{counted(n_left, 'evaluation')} of --retry will not have been done again"
            actions.append(Log(f"{left}: resume with it once more", warning=True))
        if reason is Reason.SIGNAL:
            actions += self._append(now)
            actions.append(self._status())
            actions += self._request_snapshots(now)
        return actions + [Send(leader, Role.LEADER, Stop(detail)) for leader in self.members]

    def _close(self, now: float) -> list[Action]:
        actions: list[Action] = []
        if self.missing():
            actions.append(Log(f"no farewell from the leaders on {ranks_named(self.missing())}", warning=True))
        self.phase = Phase.CLOSING
        self._leave_by = now + self.settings.leave_s
        return actions + self._checkpoint(now)

    @property
    def exit_code(self) -> ExitCode:
        """Return how the run ends, for its reason and what it has found; DONE as long as it has none to end."""
        if self.reason is None:
            return ExitCode.DONE
        if self.settings.budget.resumable(self.reason):
            return ExitCode.STOPPED
        is_result = self.tally.best.id >= 0 and self.reason is not Reason.FAILURE
        return ExitCode.DONE if is_result else ExitCode.NO_RESULT

    def _status(self) -> WriteStatus:
        """Return the status as it is; once a signal came and the rows are on disk the run counts as stopped."""
        if self.phase is Phase.RUNNING:
            return WriteStatus("running")
        if self.reason is not Reason.SIGNAL:
            return WriteStatus("stopping", self.detail)
        return self.last_status(int(self.exit_code))

    def last_status(self, exit_code: int) -> WriteStatus:
        """Return how the run ended, whatever became of its files: those may give it another exit code."""
        states = {ExitCode.DONE: "done", ExitCode.NO_RESULT: "failed", ExitCode.STOPPED: "stopped"}
        return WriteStatus(states[self.exit_code], self.detail, exit_code)

    def _conclude(self) -> list[Action]:
        self.phase = Phase.ENDING
        return [Conclude(int(self.exit_code))]

    def _end(self, exit_code: int) -> list[Action]:
        self.phase = Phase.OVER
        leaders = [Send(leader, Role.LEADER, Goodbye(exit_code)) for leader in self.members]
        return [self.last_status(exit_code), *leaders, Finish(exit_code)]

    def check(self) -> None:
        """Assert the invariants."""
        super().check()
        self.books.check()
        for start, stop in self.tally.done:
            assert not self.leases.taken.gaps(start, stop), "an evaluation that nobody was given is done"
