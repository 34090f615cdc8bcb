"""Be an osprey: evaluate what is ordered, keep the best point, send deltas to the leader.

States: HUNTING -> LEAVING (a Stop came: the running evaluation is cut off, the last delta and the farewell go out) -> GONE.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

import numpy as np

from osprey_mpi.continuity.events import (
    Action, CancelEvaluations, Evaluate, Evaluated, Event, Finish, HaltEvaluation, Received, Reported, Send, StopAsked,
    Tick,
)  # fmt: skip
from osprey_mpi.continuity.messages import (
    Ack, Farewell, Goodbye, Halt, Health, Hello, Message, Order, Progress, Resync, Role, State, Steer, Stop, Trouble,
)  # fmt: skip
from osprey_mpi.continuity.records import PIECE, RECORD, Status
from osprey_mpi.continuity.sender import Sender


class Phase(Enum):
    """Give the state of a worker."""

    HUNTING = "hunting"
    LEAVING = "leaving"
    GONE = "gone"


class Worker:
    """Turn events into actions for one worker rank.

    cycle_s: a quiet worker says that it is there once a cycle.
    """

    def __init__(
        self, rank: int, flock: int, leader: int, n_columns: int, n_dims: int, *, cycle_s: float,
        incarnation: int = 1, responsive: bool = True, stop_on_failure: bool = False,
    ) -> None:  # fmt: skip
        self.rank, self.flock, self.leader = rank, flock, leader
        self.sender = Sender(incarnation, n_columns, n_dims)
        self.cycle_s = cycle_s
        self.responsive = responsive
        self.stop_on_failure = stop_on_failure
        self.phase = Phase.HUNTING
        self.queue: deque[Order] = deque()
        self.running: Order | None = None
        self.steer: Steer | None = None
        self._rows_back = 0  # rows of the running order that have come back
        self._last_sent: float | None = None

    def handle(self, event: Event, now: float) -> list[Action]:
        """Return what is to be done after an event."""
        match event:
            case Received(_, message):
                return self._receive(message, now)
            case Evaluated():
                return self._evaluated(event)
            case Reported(id, step, value) if self.phase is Phase.HUNTING:
                return [self._up(Progress(id, step, value))]
            case StopAsked(reason):
                return [Send(self.leader, Role.LEADER, Trouble(reason))]
            case Tick(sendable):
                return self._tick(sendable, now)
        return []

    def _up(self, message: Message) -> Send:
        return Send(self.leader, Role.LEADER, message)

    def _receive(self, message: Message, now: float) -> list[Action]:
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
                account = self.sender.account
                state = self._up(State(account.incarnation, account.counter))
                return [state, *(self._up(delta) for delta in self.sender.after(counter))]
            case Halt(id) if self.running is not None and self.running.first <= id < self.running.first + self.running.n:
                return [HaltEvaluation(id)]
            case Stop() if self.phase is Phase.HUNTING:
                return self._leave(now)
            case Goodbye(exit_code):
                self.phase = Phase.GONE
                return [Finish(exit_code)]
        return []

    def _start_next(self) -> list[Action]:
        if self.running is not None or not self.queue or self.phase is not Phase.HUNTING:
            return []
        self.running = self.queue.popleft()
        self._rows_back = self.running.row_start
        return [Evaluate(self.running, None if self.running.positions.size else self.steer)]

    def _evaluated(self, event: Evaluated) -> list[Action]:
        if self.running is not event.order or self.phase is not Phase.HUNTING:
            return []
        load = self.sender.load
        event.records["rank"], event.records["flock"] = self.rank, self.flock
        piece = np.zeros(1, PIECE)
        explicit_in_batch = event.order.positions.size > 0 and len(event.records) < len(event.costs)
        survivors = event.survivors if event.order.positions.size == 0 else None
        piece[0] = (
            event.order.first, event.order.n, event.row_start, event.row_stop, event.generation, event.order.cycle,
            len(event.records), len(event.costs) if explicit_in_batch else 0,
            0 if survivors is None else len(survivors[0]), int(np.isnan(event.costs).sum()),
            event.elapsed_s,
        )  # fmt: skip
        load.pieces.append(piece)
        load.records.append(event.records)
        load.values.append(event.values)
        if explicit_in_batch:
            load.costs.append(event.costs)
        if survivors is not None:
            load.survivor_costs.append(event.costs[survivors[0]])
            load.survivor_violations.append(event.violations[survivors[0]])
            load.survivor_latent.append(survivors[1])
        load.reasons.update(event.reasons)
        self._capture(event)
        actions: list[Action] = []
        if self.stop_on_failure and event.reasons:
            id, reason = next(iter(event.reasons.items()))
            actions.append(self._up(Trouble(f"evaluation {id} failed: {reason}")))
        self._rows_back = event.row_stop
        if event.row_stop >= event.order.row_stop:
            self.running = None
            actions += self._start_next()
        return actions

    def _capture(self, event: Evaluated) -> None:
        usable = np.flatnonzero((event.records["status"] == Status.OK) & np.isfinite(event.records["cost"]))
        for index in usable:
            record = event.records[index]
            cost, violation, id = float(record["cost"]), float(record["violation"]), int(record["id"])
            self.sender.capture(cost, violation, id, event.positions[index])

    def _tick(self, sendable: bool, now: float) -> list[Action]:
        if self.phase is Phase.GONE:
            return []
        if self._last_sent is None:
            self._last_sent = now
            return [self._up(Hello(self.sender.incarnation, int(self.responsive)))]
        if self.sender.load and sendable:
            self._last_sent = now
            return [self._up(self.sender.stamp())]
        if now - self._last_sent >= self.cycle_s:
            self._last_sent = now
            return [self._up(Health(self.sender.incarnation, self.sender.account.counter))]
        return []

    def _leave(self, now: float) -> list[Action]:
        self.phase = Phase.LEAVING
        self.queue.clear()
        actions: list[Action] = []
        if self.running is not None:
            actions.append(CancelEvaluations())
            self._note_cancelled(self.running)
            self.running = None
        if self.sender.load:
            actions.append(self._up(self.sender.stamp()))
        actions.append(self._up(Farewell(self.sender.incarnation, self.sender.account.counter)))
        self._last_sent = now
        return actions

    def _note_cancelled(self, order: Order) -> None:
        """Record the row that was running as an attempt; it does not count and is done again by a resume."""
        record = np.zeros(1, RECORD)
        record["id"], record["rank"], record["flock"] = order.first + self._rows_back, self.rank, self.flock
        record["cost"], record["t_start_s"], record["t_end_s"] = np.nan, np.nan, np.nan
        record["attempt"], record["status"] = order.attempt, Status.CANCELLED
        load = self.sender.load
        load.records.append(record)
        load.values.append(np.full((1, load.n_columns), np.nan))
        load.reasons[int(record["id"][0])] = "cut off because the run stopped"

    def check(self) -> None:
        """Assert the invariants."""
        self.sender.check()
        assert self.running is None or self.running.row_start <= self._rows_back < self.running.row_stop
        assert self.phase is Phase.HUNTING or not self.queue
