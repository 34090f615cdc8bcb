"""Hold the run together: lease evaluation ids, count, merge, keep the books on disk, end the run.

Data flow
---------
    leader --Delta--> ledger --> tally, rows --Append--> disk --Appended--> Ack --> leader
    leader --Want--> Lease
    every checkpoint interval: SnapshotRequest --> leaders --Snapshot--> WriteCheckpoint

States
------
    RUNNING   leases, counts
    STOPPING  why is known; leaders are told, their farewells awaited, for a bounded time
    CLOSING   the last rows and the checkpoint are written, then Goodbye
    OVER      nothing more

Rules
-----
* Only what is on disk after fsync is acknowledged, shown in status.json, or promised.
* An id is leased once in a life; a run is over by evaluations when every id below the budget is done.
* A signal saves first and asks later: rows, checkpoint and status are written before the farewells are awaited, because
  some launchers leave a quarter of a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.continuity.budget import BudgetRule, Reason
from osprey_mpi.continuity.codec import unpack_arrays
from osprey_mpi.continuity.collector import Collector
from osprey_mpi.continuity.events import (
    Action, Append, Appended, Conclude, Event, Finish, Log, Received, Send, StopAsked, Tick, WriteCheckpoint, WriteStatus,
)  # fmt: skip
from osprey_mpi.continuity.health import Health as HealthState
from osprey_mpi.continuity.ids import IdRanges
from osprey_mpi.continuity.ledger import Verdict
from osprey_mpi.continuity.messages import (
    Best, Delta, Farewell, Goodbye, Health, Hello, Lease, Message, Role, Snapshot, SnapshotRequest, State, Stop,
    Trouble, Want,
)  # fmt: skip
from osprey_mpi.continuity.redo import Redo
from osprey_mpi.continuity.rows import RowBuffer
from osprey_mpi.continuity.tally import Tally
from osprey_mpi.errors import ExitCode


@dataclass(frozen=True, slots=True)
class RootSettings:
    """Hold what the root needs of the config; times in s."""

    budget: BudgetRule
    n_columns: int
    exact: bool = False
    results_interval_s: float = 1.0
    checkpoint_interval_s: float = 30.0
    suspect_after_s: float = 5.0
    lost_after_s: float = 30.0
    leave_s: float = 8.0


class Phase(Enum):
    """Give the state of the root."""

    RUNNING = "running"
    STOPPING = "stopping"
    CLOSING = "closing"
    OVER = "over"


class Root(Collector):
    """Turn events into actions for rank 0."""

    member_role = Role.LEADER

    def __init__(
        self, rank: int, leaders: Sequence[int], settings: RootSettings, now: float, *, tally: Tally | None = None,
        snapshots: dict[int, dict[str, NDArray[Any]]] | None = None, best: Best | None = None,
        redo: Redo | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            rank, leaders, now, suspect_after_s=settings.suspect_after_s, lost_after_s=settings.lost_after_s
        )
        self.settings = settings
        self.tally = tally or Tally()
        self.phase = Phase.RUNNING
        self.reason: Reason | None = None
        self.detail = ""
        self.exit_code = ExitCode.DONE
        self.rows = RowBuffer(settings.n_columns)
        self.snapshots = dict(snapshots or {})
        self._began = now
        self._taken = IdRanges(self.tally.done)  # done in earlier lives, or leased in this one
        self.redo = redo or Redo()
        self._wants: dict[int, int] = {}
        self._durable: dict[int, tuple[int, int]] = {}  # admitted since the last Append: leader -> stamp
        self._in_append: dict[int, tuple[int, int]] = {}
        self._best = best
        self._appended_at = self._checkpoint_at = now
        self._serial = 0
        self._snapshot_serial = 0
        self._awaiting: set[int] = set()
        self._leave_by = float("inf")

    def handle(self, event: Event, now: float) -> list[Action]:
        """Return what is to be done after an event."""
        match event:
            case Received(source, message) if source in self.members:
                return self._from(source, message, now)
            case Received(source, Trouble(reason)):
                return self._stop(Reason.TROUBLE, now, reason)
            case StopAsked(reason):
                return self._stop(Reason.SIGNAL, now, reason)
            case Appended():
                return self._appended(event, now)
            case Tick():
                return self._tick(now)
        return []

    def _from(self, source: int, message: Message, now: float) -> list[Action]:
        member = self.hear(source, now)
        assert member is not None
        match message:
            case Delta():
                return self._delta(source, message, now)
            case Hello(incarnation, responsive):
                self.welcome(source, incarnation, bool(responsive))
                return self._best_to([source])
            case State(_, counter) | Health(_, counter):
                return self.catch_up(source, counter, now)
            case Want(n):
                self._wants[source] = n
                return self._lease()
            case Snapshot(serial, flock, state):
                return self._snapshot(source, serial, flock, state, now)
            case Farewell(_, n_sent):
                member.n_sent = n_sent
                return self.catch_up(source, n_sent, now)
            case Trouble(reason):
                kind = Reason.SIGNAL if reason.startswith("signal") else Reason.TROUBLE
                return self._stop(kind, now, reason)
        return []

    # deltas

    def _delta(self, source: int, delta: Delta, now: float) -> list[Action]:
        verdict, actions = self.admit(source, delta, now)
        if verdict is Verdict.ADMITTED:
            self._durable[source] = (delta.incarnation, delta.counter)
        elif verdict is not Verdict.LATE:
            return actions
        self.rows.add(delta)
        self.redo.enter(delta.pieces)
        improved = self.tally.enter(delta.pieces, delta.records, delta.values)
        if improved and delta.best_id == self.tally.best.id and delta.position.size:
            actions += self._spread_best(source, delta.position)
        return actions + self._judge_budget(now)

    def _spread_best(self, source: int, position: NDArray[np.float64]) -> list[Action]:
        best = self.tally.best
        self._best = Best(best.cost, best.violation, best.id, position)
        return self._best_to([leader for leader in self.members if leader != source])

    def _best_to(self, leaders: Sequence[int]) -> list[Action]:
        if self._best is None:
            return []
        return [Send(leader, Role.LEADER, self._best) for leader in leaders]

    def _judge_budget(self, now: float) -> list[Action]:
        if self.phase is not Phase.RUNNING or self.redo.missing.n:
            return []
        reason = self.settings.budget.verdict(self.tally, now - self._began)
        return self._stop(reason, now, reason.value) if reason is not None else []

    # leases

    def _lease(self) -> list[Action]:
        """Hand out the lowest free ids to whoever wants some; towards the end in ever smaller shares."""
        actions: list[Action] = []
        for leader in list(self._wants):
            if self.phase is not Phase.RUNNING:
                break
            lease = self.redo.lease(self._wants[leader]) or self._fresh(self._wants[leader])
            if lease is None and not self.settings.exact:
                break  # it waits: another leader may be lost and its ids come free
            lease = lease or Lease()
            del self._wants[leader]
            actions.append(Send(leader, Role.LEADER, lease))
        return actions

    def _fresh(self, n: int) -> Lease | None:
        budget = self.settings.budget.evaluations
        if budget is not None and not self.settings.exact:
            n = min(n, max(1, (budget - self.tally.n_evaluations) // (2 * len(self.members))))
        ranges: list[tuple[int, int]] = []
        while n > 0:
            start, stop = self._next_free(n, budget)
            if stop == start:
                break
            self._taken.add(start, stop)
            ranges.append((start, stop))
            n -= stop - start
        return Lease(0, np.array(ranges, np.int64)) if ranges else None

    def _next_free(self, n: int, budget: int | None) -> tuple[int, int]:
        """Return the lowest run of at most n ids that are neither done nor leased, below the budget."""
        low, high = self._taken.first_run()
        start = high if low == 0 else 0
        limit = start + n if budget is None else min(start + n, budget)
        free = self._taken.gaps(start, limit)
        return free[0] if free else (0, 0)

    # disk

    def _append(self, now: float) -> list[Action]:
        self._appended_at = now
        if not self.rows:
            return []
        if not self.rows.in_flight:
            self._serial += 1
            self._in_append, self._durable = self._durable, {}
        records, values, blocks, reasons = self.rows.batch()
        return [Append(self._serial, records, values, blocks, reasons, self.rows.elapsed_s)]

    def _appended(self, event: Appended, now: float) -> list[Action]:
        if event.serial != self._serial:
            return []
        if event.error:
            self.rows.put_back()
            self._durable = {**self._in_append, **self._durable}
            actions: list[Action] = [Log(event.error, warning=True)]
            return actions + self._stop(Reason.TROUBLE, now, event.error)
        self.rows.written()
        acks: list[Action] = [self.acknowledge(leader, *stamp) for leader, stamp in self._in_append.items()]
        self._in_append = {}
        return [*acks, self._status()]

    def _request_snapshots(self, now: float) -> list[Action]:
        self._checkpoint_at = now
        self._snapshot_serial += 1
        self._awaiting = {leader for leader, m in self.members.items() if m.pulse.health is not HealthState.LOST}
        return [Send(leader, Role.LEADER, SnapshotRequest(self._snapshot_serial)) for leader in sorted(self._awaiting)]

    def _snapshot(
        self, source: int, serial: int, flock: int, state: NDArray[np.uint8], now: float
    ) -> list[Action]:
        self.snapshots[flock] = unpack_arrays(state)
        if serial != self._snapshot_serial or source not in self._awaiting:
            return []
        self._awaiting.discard(source)
        return [] if self._awaiting else self._checkpoint(now)

    def _checkpoint(self, now: float) -> list[Action]:
        """Write the rows first: a checkpoint never knows more than the segments do."""
        actions = self._append(now)
        groups = {f"flock-{flock:04d}": arrays for flock, arrays in sorted(self.snapshots.items())}
        meta: dict[str, int | float | str] = {"n_evaluations": self.tally.n_evaluations}
        return [*actions, WriteCheckpoint(groups, meta)]

    # time

    def _tick(self, now: float) -> list[Action]:
        if self.phase is Phase.OVER:
            return []
        actions, lost = self.judge(now)
        if lost and self.phase is Phase.RUNNING:
            names = ", ".join(str(rank) for rank in lost)
            actions += self._stop(Reason.TROUBLE, now, f"the leaders on ranks {names} are lost")
        if self.phase is Phase.RUNNING:
            actions += self._judge_budget(now)
        if self.phase is Phase.STOPPING and (not self.missing() or now >= self._leave_by):
            return actions + self._close(now)
        if self.phase is Phase.CLOSING and not self.rows:
            return actions + self._end()
        if self.phase is Phase.CLOSING and now >= self._leave_by:
            self.exit_code = ExitCode.STOPPED
            lost_rows = Log("the last rows could not be written; a resume evaluates them again", warning=True)
            return [*actions, lost_rows, *self._end()]
        if now - self._appended_at >= self.settings.results_interval_s:
            actions += self._append(now) or [self._status()]
        if self.phase is Phase.RUNNING and now - self._checkpoint_at >= self.settings.checkpoint_interval_s:
            actions += self._request_snapshots(now)
        return actions

    def _stop(self, reason: Reason, now: float, detail: str) -> list[Action]:
        if self.phase is not Phase.RUNNING:
            return []
        self.phase, self.reason, self.detail = Phase.STOPPING, reason, detail
        self._leave_by = now + self.settings.leave_s
        actions: list[Action] = [Log(f"stopping: {detail}")]
        self.exit_code = self._judge_end()
        if reason is Reason.SIGNAL:
            actions += self._append(now)
            actions.append(self._status())
            actions += self._request_snapshots(now)
        return actions + [Send(leader, Role.LEADER, Stop(detail)) for leader in self.members]

    def _close(self, now: float) -> list[Action]:
        actions: list[Action] = []
        if self.missing():
            actions.append(Log(f"no farewell from the leaders on ranks {self.missing()}", warning=True))
        self.phase = Phase.CLOSING
        self._leave_by = now + self.settings.leave_s
        self.exit_code = self._judge_end()
        return actions + self._checkpoint(now)

    def _judge_end(self) -> ExitCode:
        assert self.reason is not None
        if self.settings.budget.resumable(self.reason):
            return ExitCode.STOPPED
        return ExitCode.DONE if self.tally.best.id >= 0 else ExitCode.NO_RESULT

    def _status(self) -> WriteStatus:
        """Return the status as it is; once a signal came and the rows are on disk the run counts as stopped."""
        if self.phase is Phase.RUNNING:
            return WriteStatus("running")
        if self.phase is not Phase.OVER and self.reason is not Reason.SIGNAL:
            return WriteStatus("stopping", self.detail)
        states = {ExitCode.DONE: "done", ExitCode.NO_RESULT: "failed", ExitCode.STOPPED: "stopped"}
        return WriteStatus(states[self.exit_code], self.detail)

    def _end(self) -> list[Action]:
        self.phase = Phase.OVER
        goodbye = Goodbye(int(self.exit_code))
        leaders = [Send(leader, Role.LEADER, goodbye) for leader in self.members]
        return [self._status(), Conclude(int(self.exit_code)), *leaders, Finish(int(self.exit_code))]

    def check(self) -> None:
        """Assert the invariants."""
        super().check()
        budget = self.settings.budget.evaluations
        for start, stop in self.tally.done:
            assert not self._taken.gaps(start, stop), "an evaluation that nobody was given is done"
        if budget is not None and self._taken.n:
            assert self.tally.n_evaluations <= self._taken.n
