"""Lead a flock: give orders, merge deltas as they come, let the search learn, pass everything on to the root.

Data flow
---------
    root --Lease--> pool of ids --search.ask--> Order --> worker
    worker --Delta--> ledger --> order book --block complete--> search.tell
                         \\--> own load --Delta--> root --Ack (durable)--> leader --Ack--> worker

Rules
-----
* Nobody waits: a worker gets its next order as soon as it has room for one, whatever the others do.
* A block teaches the search once, when all of it is back. If its order is more than `stale_window` health cycles old it
  teaches nothing, it only may become the best point.
* Exact mode (deterministic, or one worker alone) works in rounds: one order per worker, all told in id order at the end of
  the round, sizes fixed. So ids, points and costs depend on the seed alone.
* With one worker in exact mode a block that the budget cuts in two is carried over to the resumed run (see carry.py).
* What a lost worker had open goes back to the pool; a dive asks for its points again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from osprey_mpi.continuity.carry import Carry
from osprey_mpi.continuity.codec import pack_arrays
from osprey_mpi.continuity.collector import Collector
from osprey_mpi.continuity.events import Action, Event, Finish, Log, Received, Send, StopAsked, Tick
from osprey_mpi.continuity.health import Health as HealthState
from osprey_mpi.continuity.ids import IdRanges
from osprey_mpi.continuity.ledger import Verdict
from osprey_mpi.continuity.messages import (
    Ack, Best, Delta, Farewell, Goodbye, Halt, Health, Hello, Lease, Message, Order, Progress, Resync, Role, Snapshot,
    SnapshotRequest, State, Steer, Stop, Trouble, Want,
)  # fmt: skip
from osprey_mpi.continuity.orders import OpenOrder, OrderBook, Pace, parts
from osprey_mpi.continuity.records import RECORD, Status
from osprey_mpi.continuity.sender import Sender, parse_reasons
from osprey_mpi.search.early_stop import MedianRule
from osprey_mpi.search.flock import Best as BestPoint
from osprey_mpi.search.flock import Flock


@dataclass(frozen=True, slots=True)
class LeaderSettings:
    """Hold what a leader needs of the config. Times in s; penalty NaN: a failed evaluation ranks last."""

    n_columns: int
    n_dims: int
    batch: int = 1
    exact: bool = False
    cycle_s: float = 1.0
    stale_window: int = 3
    suspect_after_s: float = 5.0
    lost_after_s: float = 30.0
    leave_s: float = 5.0
    penalty: float = float("nan")
    speed_exponent: float = 0.0


class Phase(Enum):
    """Give the state of a leader."""

    HUNTING = "hunting"
    LEAVING = "leaving"  # workers are saying farewell
    LEFT = "left"  # own farewell is sent
    GONE = "gone"


@dataclass(slots=True)
class Relayed:
    """Remember which worker deltas went up in one delta of the leader: {worker: (incarnation, counter)}."""

    counter: int
    of: dict[int, tuple[int, int]] = field(default_factory=dict)


class Leader(Collector):
    """Turn events into actions for one flock leader."""

    member_role = Role.WORKER

    def __init__(
        self, rank: int, flock: int, root: int, workers: Sequence[int], search: Flock, settings: LeaderSettings,
        now: float, *, incarnation: int = 1, early_stop: MedianRule | None = None, carry: Carry | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            rank, workers, now, suspect_after_s=settings.suspect_after_s, lost_after_s=settings.lost_after_s
        )
        self.flock, self.root, self.search, self.settings = flock, root, search, settings
        self.sender = Sender(incarnation, settings.n_columns, settings.n_dims)
        self.phase = Phase.HUNTING
        self.pool = IdRanges()
        self._redo: deque[Order] = deque()  # orders to do finished evaluations again; the search did not ask for them
        self.book = OrderBook()
        self.paces = {worker: Pace() for worker in workers}
        self.carry = carry or Carry()
        self._early_stop = early_stop
        self._held: dict[int, int] = {}  # newest generation sent to each worker
        self._relayed: list[Relayed] = []
        self._pending: dict[int, tuple[int, int]] = {}  # worker counters in the load of the next delta
        self._wanted = 0
        self._dry = False  # the root has no more ids
        self._cycle, self._cycle_began = 0, now
        self._leave_by = float("inf")
        self._said_hello = False
        self._last_sent = now

    def handle(self, event: Event, now: float) -> list[Action]:
        """Return what is to be done after an event."""
        match event:
            case Received(source, message) if source in self.members and self._from_worker(message):
                return self._from(source, message, now)
            case Received(_, message):
                return self._receive(message, now)
            case Tick(sendable):
                return self._tick(sendable, now)
            case StopAsked(reason):
                return [self._up(Trouble(reason))]
        return []

    def _up(self, message: Message) -> Send:
        return Send(self.root, Role.ROOT, message)

    @staticmethod
    def _from_worker(message: Message) -> bool:
        return isinstance(message, Hello | Delta | State | Health | Farewell | Progress | Trouble)

    def _from(self, source: int, message: Message, now: float) -> list[Action]:
        """Handle a message of a worker."""
        member = self.hear(source, now)
        assert member is not None
        match message:
            case Delta():
                return self._delta(source, message, now)
            case Hello(incarnation, responsive):
                self.welcome(source, incarnation, bool(responsive))
                return self._feed([source])
            case State(_, counter) | Health(_, counter):
                return self.catch_up(source, counter, now)
            case Farewell(_, n_sent):
                member.n_sent = n_sent
                return self.catch_up(source, n_sent, now)
            case Progress(id, step, value):
                if self._early_stop is not None and self._early_stop.report(id, step, value):
                    return [Send(source, Role.WORKER, Halt(id))]
            case Trouble():
                return [self._up(message)]
        return []

    def _receive(self, message: Message, now: float) -> list[Action]:
        """Handle a message of the root."""
        match message:
            case Lease():
                self._lease(message)
                return self._feed(self.members)
            case Ack(incarnation, counter):
                return self._durable(incarnation, counter)
            case Best(cost, violation, id, position):
                self.search.adopt(BestPoint(cost, violation, position, id))
            case SnapshotRequest(serial):
                return [self._up(Snapshot(serial, self.flock, pack_arrays(self.snapshot())))]
            case Resync(counter):
                account = self.sender.account
                state = self._up(State(account.incarnation, account.counter))
                return [state, *(self._up(delta) for delta in self.sender.after(counter))]
            case Stop(reason) if self.phase is Phase.HUNTING:
                self.phase = Phase.LEAVING
                self._leave_by = now + self.settings.leave_s
                return [Send(worker, Role.WORKER, Stop(reason)) for worker in self.members]
            case Goodbye(exit_code) if self.phase is not Phase.GONE:
                self.phase = Phase.GONE
                return [*(Send(worker, Role.WORKER, message) for worker in self.members), Finish(exit_code)]
        return []

    def _lease(self, lease: Lease) -> None:
        self._dry = len(lease.ranges) == 0
        self._wanted = 0
        if not len(lease.positions):
            for start, stop in lease.ranges:
                self.pool.add(int(start), int(stop))
            return
        for (id, _), position in zip(lease.ranges, lease.positions, strict=True):
            self._redo.append(Order(int(id), 1, 0, 1, self._cycle, lease.attempt, position[None, :]))

    def snapshot(self) -> dict[str, np.ndarray]:
        """Return the state of the search, to go on from in a later life."""
        return self.carry.snapshot(self.search)

    # deltas

    def _delta(self, source: int, delta: Delta, now: float) -> list[Action]:
        verdict, actions = self.admit(source, delta, now)
        if verdict is Verdict.LATE:
            self._pass_on(delta)
        if verdict is not Verdict.ADMITTED:
            return actions
        self._pending[source] = (delta.incarnation, delta.counter)
        self._pass_on(delta)
        if delta.position.size:
            self.sender.capture(delta.cost, delta.violation, delta.best_id, delta.position)
        for piece, part in parts(delta):
            entry = self.book.open.get(int(piece["first"]))
            if entry is None or entry.worker != source:
                continue  # taken back meanwhile: a fact, not a vote
            self.paces[source].learn(int(piece["row_stop"] - piece["row_start"]), float(piece["elapsed_s"]))
            entry.take(piece, part)
            if entry.finished and not self.settings.exact:
                self._tell(self.book.close(entry.order.first))
        if self._early_stop is not None:
            for id in delta.records["id"]:
                self._early_stop.finished(int(id))
        if self.settings.exact and all(entry.finished for entry in self.book.open.values()):
            self._end_round()
            actions.append(self._send_delta(now))  # the root judges the budget before it leases the next round
        return actions + self._feed([source])

    def _pass_on(self, delta: Delta) -> None:
        """Put a worker's rows into the next delta to the root; what only the search needs stays here."""
        load = self.sender.load
        if len(delta.pieces):
            pieces = delta.pieces.copy()
            pieces["n_costs"] = pieces["n_survivors"] = 0
            load.pieces.append(pieces)
        if len(delta.records):
            load.records.append(delta.records)
            load.values.append(delta.values)
        load.reasons.update(parse_reasons(delta.reasons))

    def _end_round(self) -> None:
        for first in sorted(self.book.open):
            entry = self.book.close(first)
            if entry.complete or not self.carry.keep(entry):
                self._tell(entry)

    def _tell(self, entry: OpenOrder) -> None:
        """Let the search learn from a block that is back."""
        order, search = entry.order, self.search
        if order.attempt > 0:
            return  # done again: a fact; its point is known already
        if not np.isnan(self.settings.penalty):
            entry.costs[np.isnan(entry.costs)] = self.settings.penalty
        steer = self.settings.exact or self._cycle - order.cycle <= self.settings.stale_window
        if entry.survivor_costs and not entry.explicit:
            costs = np.concatenate(entry.survivor_costs)
            violations = np.concatenate(entry.survivor_violations)
            best = np.lexsort((costs, violations))[: max(len(part) for part in entry.survivor_costs)]
            search.tell_survivors(
                order.first, order.n, costs[best], np.concatenate(entry.survivor_latent)[best], entry.generation,
                steer=steer, violations=violations[best],
            )  # fmt: skip
            return
        latent = None if entry.scale == 1.0 or entry.explicit else search.redraw(order.first, order.n, entry.scale)
        search.tell(
            order.first, entry.costs, entry.generation, violations=entry.violations, latent=latent, steer=steer,
            positions=order.positions if entry.explicit else None,
        )  # fmt: skip

    # orders

    def _feed(self, workers: Iterable[int]) -> list[Action]:
        """Give those of `workers` that have room their next orders; in exact mode a round begins for all of them."""
        if self.phase is not Phase.HUNTING:
            return []
        exact = self.settings.exact
        if exact:
            workers = self.members
            if self.book.open or not all(member.joined for member in self.members.values()):
                return []
            if not self._dry and self.pool.n + len(self._redo) < len(self.members) * self._most_rows():
                return self._want(self._most_rows())  # a round begins with all ids that it needs, or the last ones
        actions: list[Action] = []
        most = self._most_rows()
        for worker in workers:
            member = self.members[worker]
            if not member.joined or member.pulse.health is HealthState.LOST:
                continue
            pace = self.paces[worker]
            n_rows = most if exact or self.settings.batch > 1 else pace.n_rows(most)
            room = (1 if exact else pace.n_orders(n_rows)) - self.book.n_at(worker)
            for _ in range(room):
                sends = self._order(worker, n_rows)
                if not sends:
                    break
                actions += sends
        return actions if exact and self.book.open else actions + self._want(most)

    def _most_rows(self) -> int:
        """Return the largest order: what is out at once should stay within a few populations, or it comes back stale."""
        if self.settings.batch > 1 or self.settings.exact:
            return self.settings.batch
        return min(max(6 * self.settings.n_dims // len(self.members), 8), 256)

    def _order(self, worker: int, n_rows: int) -> list[Action]:
        order = self._redo.popleft() if self._redo else None
        if order is None and self.settings.exact:
            order = self.carry.resume(self.pool, self.search, self._cycle)
        if order is None:
            start, stop = self.pool.first_run()
            n = min(n_rows, stop - start)
            if n <= 0:
                return []
            asked = n_rows if self.settings.exact and len(self.members) == 1 else n
            self.carry.before_ask(self.search, cut=n < asked)
            proposal = self.search.ask(start, asked)
            n = min(n, proposal.n)
            self.pool.remove(start, start + n)
            positions = np.empty((0, 0)) if proposal.positions is None else proposal.positions
            order = Order(start, proposal.n, 0, n, self._cycle, 0, positions)
        scale = self._scale(worker)
        entry = OpenOrder.of(order, worker, scale)
        if order.row_start > 0:
            self.carry.fill(entry)
        self.book.add(entry)
        actions: list[Action] = []
        distribution = self.search.distribution
        if not order.positions.size and self._held.get(worker) != distribution.generation:
            self._held[worker] = distribution.generation
            factor = distribution.factor if distribution.factor.ndim == 2 else distribution.factor[:, None]
            actions.append(
                Send(
                    worker, Role.WORKER,
                    Steer(
                        distribution.generation, distribution.sigma * scale, distribution.mean, factor,
                        distribution.probabilities,
                    ),
                )
            )  # fmt: skip
        return [*actions, Send(worker, Role.WORKER, order)]

    def _scale(self, worker: int) -> float:
        """Return the factor of a worker's step: slow workers explore finer (speed^exponent, at most 1)."""
        if self.settings.speed_exponent == 0.0 or self.settings.exact:
            return 1.0
        means = [pace.mean_s for pace in self.paces.values() if pace.n_seen and pace.mean_s > 0.0]
        mine = self.paces[worker]
        if not means or not mine.n_seen or mine.mean_s <= 0.0:
            return 1.0
        return float((min(means) / mine.mean_s) ** self.settings.speed_exponent)

    def _want(self, most: int) -> list[Action]:
        """Ask the root for ids before the pool runs dry; seldom, so that most orders cost no message to the root."""
        out = self.book.n_rows_out()
        enough = len(self.members) * most if self.settings.exact else 2 * (len(self.members) + out)
        if self._wanted or self._dry or self.pool.n + len(self._redo) >= enough:
            return []
        self._wanted = enough - self.pool.n - len(self._redo) if self.settings.exact else 4 * enough
        return [self._up(Want(self._wanted))]

    # time

    def _tick(self, sendable: bool, now: float) -> list[Action]:
        if self.phase is Phase.GONE:
            return []
        actions: list[Action] = []
        if not self._said_hello:
            self._said_hello = True
            actions.append(self._up(Hello(self.sender.incarnation)))
            actions += self._want(self._most_rows())
        if now - self._cycle_began >= max(self.settings.cycle_s, 2.0 * self._slowest_s()):
            self._cycle, self._cycle_began = self._cycle + 1, now
        judged, lost = self.judge(now)
        actions += judged
        for worker in lost:
            self._give_up(worker, now)
        if lost:
            actions += self._feed(self.members)
        if self.sender.load and sendable and self.phase is not Phase.LEFT:
            actions.append(self._send_delta(now))
        elif now - self._last_sent >= self.settings.cycle_s:
            self._last_sent = now
            actions.append(self._up(Health(self.sender.incarnation, self.sender.account.counter)))
        if not self.settings.exact:
            self.search.set_parallelism(max(1, self.book.n_rows_out()))
        if self.phase is Phase.LEAVING and (not self.missing() or now >= self._leave_by):
            actions += self._leave(now)
        return actions

    def _slowest_s(self) -> float:
        return max((pace.mean_s for pace in self.paces.values()), default=0.0)

    def _send_delta(self, now: float) -> Send:
        self._last_sent = now
        delta = self.sender.stamp()
        self._relayed.append(Relayed(delta.counter, self._pending))
        self._pending = {}
        return self._up(delta)

    def _durable(self, incarnation: int, counter: int) -> list[Action]:
        """Pass on an acknowledgement to the workers whose deltas went up before it."""
        if incarnation != self.sender.incarnation:
            return []
        self.sender.acknowledge(incarnation, counter)
        newest: dict[int, tuple[int, int]] = {}
        while self._relayed and self._relayed[0].counter <= counter:
            newest.update(self._relayed.pop(0).of)
        return [self.acknowledge(worker, *stamp) for worker, stamp in newest.items()]

    def _give_up(self, worker: int, now: float) -> None:
        """Take back what a lost worker had open; the row it was at is recorded as lost."""
        for entry in self.book.of(worker):
            self.book.close(entry.order.first)
            order = entry.order
            self.search.forget(order.first, order.n)
            self.pool.add(order.first + entry.rows_back, order.first + order.row_stop)
            record = np.zeros(1, RECORD)
            record["id"], record["rank"], record["flock"] = order.first + entry.rows_back, worker, self.flock
            record["cost"] = record["t_start_s"] = record["t_end_s"] = np.nan
            record["attempt"], record["status"] = order.attempt, Status.LOST
            if not entry.finished:
                self.sender.load.records.append(record)
                self.sender.load.values.append(np.full((1, self.settings.n_columns), np.nan))
                self.sender.load.reasons[int(record["id"][0])] = f"rank {worker} was lost"
        self._held.pop(worker, None)

    def _leave(self, now: float) -> list[Action]:
        actions: list[Action] = []
        if self.missing():
            actions.append(Log(f"flock {self.flock}: no farewell from ranks {self.missing()}", warning=True))
        if self.sender.load:
            actions.append(self._send_delta(now))
        self.phase = Phase.LEFT
        actions.append(self._up(Snapshot(-1, self.flock, pack_arrays(self.snapshot()))))
        actions.append(self._up(Farewell(self.sender.incarnation, self.sender.account.counter)))
        return actions

    def check(self) -> None:
        """Assert the invariants."""
        super().check()
        self.sender.check()
        self.book.check()
        for entry in self.book.open.values():
            assert not list(self.pool.overlap(entry.order.first + entry.rows_back, entry.order.first + entry.order.row_stop))
