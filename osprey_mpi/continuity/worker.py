"""Be an osprey: evaluate what is ordered, keep the best point, send deltas to the leader.

States
------
    HUNTING   orders are evaluated one after the other
    LEAVING   a Stop came: what runs was cut off, the last delta and the farewell are sent; it waits for a goodbye
    GONE      nothing more

Rules
-----
* What is finished goes up at once, or as soon as there is a free send slot, together with what was finished meanwhile.
* Once a cycle it says that it is there, and how much it has sent; the leader answers.
* Without a word of the leader for `patience_s` it leaves and says whom it waited for; while it hunts only if it is
  `responsive`, because then the leader is, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum

import numpy as np

from osprey_mpi.continuity.events import (
    Action,
    CancelEvaluations,
    Evaluate,
    Evaluated,
    Event,
    Finish,
    HaltEvaluation,
    Log,
    PeerLost,
    Received,
    Reported,
    Send,
    StopAsked,
    Tick,
)  # fmt: skip
from osprey_mpi.continuity.health import PATIENCE_S, Patience
from osprey_mpi.continuity.messages import (
    Ack,
    Goodbye,
    Halt,
    Hello,
    Message,
    Order,
    Progress,
    Resync,
    Role,
    Steer,
    Stop,
    Trouble,
)  # fmt: skip
from osprey_mpi.continuity.records import PIECE, RowReason, Status, reasons_of, unfinished
from osprey_mpi.continuity.sender import Sender
from osprey_mpi.errors import ExitCode

# Rows of an order that goes on wait this long for company: a message of several rows costs the leader what one does.
HOLD_S = 0.020


class Phase(Enum):
    """Give the state of a worker."""

    HUNTING = "hunting"
    LEAVING = "leaving"
    GONE = "gone"


class Worker:
    """Turn events into actions for one worker rank.

    cycle_s: how often it says that it is there. depth: how many orders its evaluator holds at once; the first of them
    runs, a second one spares a child process the way to us and back. given, rows_back: what it holds since before this
    worker's leader led, and the row up to which the first of them has come back.
    """

    def __init__(
        self, rank: int, flock: int, leader: int, n_columns: int, n_dims: int, *, cycle_s: float,
        responsive: bool = True, stop_on_failure: bool = False, depth: int = 1, patience_s: float = PATIENCE_S,
        given: Sequence[Order] = (), rows_back: int = 0,
    ) -> None:  # fmt: skip
        self.rank, self.flock, self.leader = rank, flock, leader
        self.sender = Sender(1, n_columns, n_dims)
        self.cycle_s = cycle_s
        self.responsive = responsive
        self.stop_on_failure = stop_on_failure
        self.phase = Phase.HUNTING
        self.queue: deque[Order] = deque()
        self.given: deque[Order] = deque(given)  # to the evaluator; the first one runs
        self._depth = depth
        self.steer: Steer | None = None
        self.rows_back = rows_back  # row of the running order up to which all have come back
        self._said_at: float | None = None
        self._held_since: float | None = None  # when the oldest row that has not gone up came back
        self._is_order_over = False
        self._patience = Patience(patience_s, float("-inf"))

    def slack_s(self) -> float:
        """Return for how long nobody would notice if this rank did not listen: an order counts at once."""
        return 0.0

    def handle(self, event: Event, now: float) -> list[Action]:
        """Return what is to be done after an event."""
        if self.phase is Phase.GONE:
            return []
        match event:
            case Received(_, message):
                self._patience.hear(now)
                return self._receive(message)
            case Evaluated():
                self._held_since = now if self._held_since is None else self._held_since
                return self._evaluated(event)
            case Reported(id, step, value) if self.phase is Phase.HUNTING:
                return [self._up(Progress(id, step, value))]
            case StopAsked(reason):
                return [self._up(Trouble(reason, is_signal=1))]
            case PeerLost(rank) if rank == self.leader:
                return self._part(f"its leader on rank {rank} is lost", ExitCode.STOPPED)
            case Tick(sendable):
                return self._tick(sendable, now)
        return []

    def _up(self, message: Message) -> Send:
        return Send(self.leader, Role.LEADER, message)

    def _receive(self, message: Message) -> list[Action]:
        match message:
            case Order() if self.phase is Phase.HUNTING:
                self.queue.append(message)
                return self._start_next()
            case Steer():
                if self.steer is None or message.generation >= self.steer.generation:
                    self.steer = message
            case Ack(incarnation, counter):
                self.sender.acknowledge(incarnation, counter)
            case Resync(counter):
                return [self._up(answer) for answer in self.sender.answer(counter)]
            case Halt(id) if any(order.first <= id < order.first + order.n for order in self.given):
                return [HaltEvaluation(id)]
            case Stop() if self.phase is Phase.HUNTING:
                return self._leave()
            case Goodbye(exit_code):
                self.phase = Phase.GONE
                return [Finish(exit_code)]
        return []

    def _start_next(self) -> list[Action]:
        actions: list[Action] = []
        while self.queue and len(self.given) < self._depth:
            order = self.queue.popleft()
            if not self.given:
                self.rows_back = order.row_start
            self.given.append(order)
            actions.append(Evaluate(order, None if order.positions.size else self.steer))
        return actions

    def _evaluated(self, event: Evaluated) -> list[Action]:
        if self.phase is not Phase.HUNTING or not self.given or self.given[0] is not event.order:
            return []
        load = self.sender.load
        event.records["rank"], event.records["flock"] = self.rank, self.flock
        piece = np.zeros(1, PIECE)
        # Costs without rows: what the search must know of given points that were no captures.
        explicit_in_batch = event.order.positions.size > 0 and len(event.records) < len(event.costs)
        survivors = event.survivors if event.order.positions.size == 0 else None
        piece[0] = (
            event.order.first, event.order.n, event.row_start, event.row_stop, event.generation, event.order.cycle,
            len(event.records), len(event.costs) if explicit_in_batch else 0,
            0 if survivors is None else len(survivors[0]),
            int(np.count_nonzero(np.isnan(event.costs) & ~(event.violations > 0.0))), event.elapsed_s,
        )  # fmt: skip
        load.pieces.append(piece)
        load.records.append(event.records)
        load.values.append(event.values)
        if explicit_in_batch:
            load.costs.append(event.costs)
            load.violations.append(event.violations)
        if survivors is not None:
            load.survivor_costs.append(event.costs[survivors[0]])
            load.survivor_violations.append(event.violations[survivors[0]])
            load.survivor_latent.append(survivors[1])
        reasons = reasons_of(event.reasons, event.records)
        load.reasons += reasons
        self._capture(event)
        actions: list[Action] = []
        if self.stop_on_failure:
            failure = next((reason for reason in reasons if reason.status != Status.STOPPED), None)
            if failure is not None:
                actions.append(self._up(Trouble(f"evaluation {failure.id} failed: {failure.text}", is_failure=1)))
        self.rows_back = event.row_stop
        if event.row_stop >= event.order.row_stop:
            self.given.popleft()
            self._is_order_over = True
            if self.given:
                self.rows_back = self.given[0].row_start
            actions += self._start_next()
        return actions

    def _capture(self, event: Evaluated) -> None:
        usable = np.flatnonzero((event.records["status"] == Status.OK) & np.isfinite(event.records["cost"]))
        for index in usable:
            record = event.records[index]
            cost, violation, id = float(record["cost"]), float(record["violation"]), int(record["id"])
            self.sender.capture(cost, violation, id, event.positions[index])

    def _tick(self, sendable: bool, now: float) -> list[Action]:
        if self._said_at is None:
            self._said_at = now
            self._patience = Patience(self._patience.limit_s, now)
            return [self._up(Hello(self.sender.incarnation, int(self.responsive)))]
        if self._patience.is_over(now) and (self.responsive or self.phase is Phase.LEAVING):
            return self._give_up()
        actions: list[Action] = []
        held_s = 0.0 if self._held_since is None else now - self._held_since
        if self.sender.load and sendable and (self._is_order_over or held_s >= HOLD_S):
            self._held_since, self._is_order_over = None, False
            actions.append(self._up(self.sender.stamp()))
        if now - self._said_at >= self.cycle_s:
            self._said_at = now
            actions.append(self._up(self.sender.heartbeat()))
        return actions

    def _give_up(self) -> list[Action]:
        waited = "for a goodbye" if not self.given and not self.queue else "for a word"
        why = f"it has waited {self._patience.limit_s:g} s {waited} of its leader on rank {self.leader}"
        return self._part(why, ExitCode.ENVIRONMENT)

    def _part(self, why: str, exit_code: ExitCode) -> list[Action]:
        """Leave without a goodbye."""
        self.phase = Phase.GONE
        self.queue.clear()
        actions: list[Action] = [Log(f"rank {self.rank} leaves: {why}", warning=exit_code is ExitCode.ENVIRONMENT)]
        if self.given:
            self.given.clear()
            actions.append(CancelEvaluations())
        return [*actions, Finish(int(exit_code))]

    def _leave(self) -> list[Action]:
        self.phase = Phase.LEAVING
        self.queue.clear()
        actions: list[Action] = []
        if self.given:
            actions.append(CancelEvaluations())
            self._note_cancelled(self.given[0])
            self.given.clear()
        if self.sender.load:
            actions.append(self._up(self.sender.stamp()))
        actions.append(self._up(self.sender.farewell()))
        return actions

    def _note_cancelled(self, order: Order) -> None:
        """Record the row that was running as an attempt; it does not count and is done again by a resume."""
        id, load = order.first + self.rows_back, self.sender.load
        load.records.append(unfinished(id, self.rank, self.flock, order.attempt, Status.CANCELLED))
        load.values.append(np.full((1, load.n_columns), np.nan))
        load.reasons.append(RowReason(id, order.attempt, Status.CANCELLED, "cut off because the run stopped"))

    def check(self) -> None:
        """Assert the invariants."""
        self.sender.check()
        assert not self.given or self.given[0].row_start <= self.rows_back < self.given[0].row_stop
        assert len(self.given) <= self._depth and (self.given or not self.queue)
        assert self.phase is Phase.HUNTING or not self.queue
