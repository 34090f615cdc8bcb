"""Lead a flock: give orders, merge deltas as they come, let the search learn, pass everything on to the root.

Data flow
---------
    root --Lease--> dispatch --Order--> worker
    worker --Delta--> ledger --> dispatch --> search
                         \\--> relay --Delta--> root --Ack (durable)--> relay --Ack--> worker
    rumours --Gossip--> another leader --> rumours --> search

States
------
    HUNTING   orders go out
    LEAVING   the workers are told to stop, their farewells awaited for a bounded time
    LEFT      its own farewell is sent; it waits for the root's goodbye as long as the root says a word now and then
    GONE      nothing more

Rules
-----
* Nobody waits: a worker gets its next order as soon as it has room for one, whatever the others do.
* Exact mode (deterministic, or one worker alone) works in rounds, so that ids, points and costs depend on the seed
  alone. When a worker is lost the round goes on without it, and the log says that the run does not repeat.
* With one worker in exact mode a block that the budget cuts in two is carried over to the resumed run (see carry.py).
* What a lost worker had open is done by others; without any worker left the root is asked to stop the run.
* While the root says nothing the flock goes on with the ids that it holds; flocks hear of each other by gossip.
* The run is over for this flock when the root says nothing for `patience_s`: it leaves, and says whom it waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum

import numpy as np

from osprey_mpi.continuity.carry import Carry
from osprey_mpi.continuity.codec import pack_arrays
from osprey_mpi.continuity.collector import Collector
from osprey_mpi.continuity.dispatch import Dispatch
from osprey_mpi.continuity.events import Action, Event, Finish, Log, PeerLost, Received, Send, StopAsked, Tick
from osprey_mpi.continuity.gossip import Rumours
from osprey_mpi.continuity.health import Patience
from osprey_mpi.continuity.ledger import Verdict
from osprey_mpi.continuity.messages import (
    Ack,
    Best,
    Delta,
    Farewell,
    Goodbye,
    Gossip,
    Halt,
    Heartbeat,
    Hello,
    Lease,
    Message,
    Progress,
    Resync,
    Role,
    Snapshot,
    SnapshotRequest,
    Stop,
    Trouble,
    Want,
)  # fmt: skip
from osprey_mpi.continuity.orders import OpenOrder
from osprey_mpi.continuity.records import RowReason, Status, unfinished
from osprey_mpi.continuity.relay import Relay
from osprey_mpi.continuity.sender import Sender
from osprey_mpi.continuity.settings import LeaderSettings
from osprey_mpi.errors import ExitCode
from osprey_mpi.search.early_stop import MedianRule
from osprey_mpi.search.flock import Flock
from osprey_mpi.search.ranking import Best as BestPoint
from osprey_mpi.words import counted, ranks_named

__all__ = ["Leader", "LeaderSettings", "Phase"]

_LEAVE = Finish(int(ExitCode.STOPPED))


class Phase(Enum):
    """Give the state of a leader."""

    HUNTING = "hunting"
    LEAVING = "leaving"
    LEFT = "left"
    GONE = "gone"


class Leader(Collector):
    """Turn events into actions for one flock leader."""

    member_role = Role.WORKER

    def __init__(
        self, rank: int, flock: int, root: int, workers: Sequence[int], search: Flock, settings: LeaderSettings,
        now: float, *, early_stop: MedianRule | None = None, carry: Carry | None = None,
        leaders: Sequence[int] = (),
    ) -> None:  # fmt: skip
        super().__init__(
            rank, workers, now, suspect_after_s=settings.suspect_after_s, lost_after_s=settings.lost_after_s
        )
        self.flock, self.root, self.search, self.settings = flock, root, search, settings
        self.sender = Sender(1, settings.n_columns, settings.n_dims)
        self.relay = Relay(self.sender)
        self.dispatch = Dispatch(workers, search, settings, carry or Carry())
        self.rumours = Rumours(rank, leaders)
        self.phase = Phase.HUNTING
        self._early_stop = early_stop
        self._patience = Patience(settings.patience_s, now)
        self._cycle_began = now
        self._said_at: float | None = None
        self._is_root_away = False

    def slack_s(self) -> float:
        """Return for how long nobody would notice if this rank did not listen."""
        return self.dispatch.slack_s() if self.phase is Phase.HUNTING else 0.0

    def handle(self, event: Event, now: float) -> list[Action]:
        """Return what is to be done after an event."""
        if self.phase is Phase.GONE:
            return []
        match event:
            case Received(source, message) if source in self.members and self._from_worker(message):
                self.hear(source, now)
                return self._from(source, message, now)
            case Received(source, message):
                if source == self.root:
                    self._patience.hear(now)
                return self._gossip(source, message) if isinstance(message, Gossip) else self._receive(message, now)
            case Tick(sendable):
                return self._tick(sendable, now)
            case StopAsked(reason):
                return [self._up(Trouble(reason, is_signal=1))]
            case PeerLost(rank) if rank == self.root:
                self.phase = Phase.GONE
                return [Log(f"rank {self.rank} leaves: the root on rank {rank} is lost"), _LEAVE]
            case PeerLost(rank):
                actions, lost = self.bury(rank)
                return actions + self._give_up(lost) if lost else actions
        return []

    def back(self, source: int) -> None:
        """Reckon with a worker again that was lost."""
        self.dispatch.take_in(source)

    def snapshot(self) -> dict[str, np.ndarray]:
        """Return the state of the search, to go on from in a later life."""
        return self.dispatch.carry.snapshot(self.search)

    def _up(self, message: Message) -> Send:
        return Send(self.root, Role.ROOT, message)

    @staticmethod
    def _from_worker(message: Message) -> bool:
        return isinstance(message, Delta | Heartbeat | Progress | Hello | Farewell | Trouble)

    def _from(self, source: int, message: Message, now: float) -> list[Action]:
        """Handle a message of a worker."""
        match message:
            case Delta():
                return self._delta(source, message, now)
            case Hello() | Heartbeat():  # one that was lost while it had nothing to do is back: it gets orders, too
                return [*self.follow(source, message, now), *self._feed([source])]
            case Progress(id, step, value):
                return self._progress(source, id, step, value)
            case Trouble():
                return [self._up(message)]
        return self.follow(source, message, now)

    def _receive(self, message: Message, now: float) -> list[Action]:
        """Handle a message of the root."""
        match message:
            case Lease():
                self.dispatch.add(message)
                return self._feed(self.members)
            case Ack(incarnation, counter):
                newest = self.relay.durable(incarnation, counter)
                return [self.acknowledge(worker, *stamp) for worker, stamp in newest.items()]
            case Best():
                self._adopt(self.rumours.hear_of(message))
            case SnapshotRequest(serial):
                return self._send_snapshot(serial)
            case Resync(counter):
                return [self._up(answer) for answer in self.sender.answer(counter)]
            case Stop(reason) if self.phase is Phase.HUNTING:
                self.phase = Phase.LEAVING
                self._leave_by = now + self.settings.leave_s
                return [Send(worker, Role.WORKER, Stop(reason)) for worker in self.members]
            case Goodbye(exit_code):
                self.phase = Phase.GONE
                return [*(Send(worker, Role.WORKER, message) for worker in self.members), Finish(exit_code)]
        return []

    # other flocks

    def _adopt(self, is_news: bool) -> None:
        if is_news:
            best = self.rumours.best
            self.search.adopt(BestPoint(best.cost, best.violation, best.position))

    def _gossip(self, source: int, message: Gossip) -> list[Action]:
        """Merge what another leader knows; answer with what is known here."""
        self._adopt(self.rumours.merge(message))
        is_to_answer = not message.is_answer and self.phase is Phase.HUNTING
        return [self._say(source, is_answer=True)] if is_to_answer else []

    def _say(self, peer: int, *, is_answer: bool) -> Send:
        account, n_lost = self.sender.account, sum(member.lost for member in self.members.values())
        self.rumours.speak(account.incarnation, account.n_evaluations, len(self.members), n_lost)
        self.rumours.hear_of(Best(account.cost, account.violation, account.best_id, account.position))
        return Send(peer, Role.LEADER, self.rumours.message(is_answer=is_answer))

    def _mark_root(self, waited_s: float) -> list[Action]:
        """Say once that the root is silent, and once that it is back."""
        is_away = waited_s >= self.settings.suspect_after_s
        if is_away is self._is_root_away:
            return []
        self._is_root_away = is_away
        if is_away:
            ids = counted(self.dispatch.n_ids, "evaluation")
            return [Log(f"the root on rank {self.root} is silent: flock {self.flock} goes on with {ids} to begin")]
        known = f"{counted(self.rumours.n_evaluations, 'evaluation')} in this life, best {self.rumours.best.cost:g}"
        return [Log(f"the root on rank {self.root} is back: what is known here of all flocks is {known}")]

    # results

    def _delta(self, source: int, delta: Delta, now: float) -> list[Action]:
        verdict, actions = self.admit(source, delta, now)
        if verdict is Verdict.LATE:
            self.relay.pass_on(source, delta, admitted=False)
        if verdict is not Verdict.ADMITTED:
            return actions
        self.relay.pass_on(source, delta, admitted=True)
        round_ended = self.dispatch.enter(source, delta)
        if self._early_stop is not None:
            for id in delta.records["id"].tolist():
                self._early_stop.finished(id)
        # The root judges the budget before the next round; and a worker that was given up may be back at the very end.
        if round_ended or self.phase is Phase.LEFT:
            actions.append(self._send_delta())
        return actions + self._feed([source])

    def _progress(self, source: int, id: int, step: int, value: float) -> list[Action]:
        """Judge an intermediate value; one of an evaluation that was taken back says nothing of the one that runs."""
        if self._early_stop is None or not self.dispatch.book.holds(source, id):
            return []
        return [Send(source, Role.WORKER, Halt(id))] if self._early_stop.report(id, step, value) else []

    def _send_delta(self) -> Send:
        return self._up(self.relay.stamp())

    def _send_snapshot(self, serial: int) -> list[Action]:
        """Send the search, after all rows that it has learned from."""
        rows = [self._send_delta()] if self.sender.load else []
        return [*rows, self._up(Snapshot(serial, self.flock, pack_arrays(self.snapshot())))]

    # orders

    def _feed(self, workers: Iterable[int]) -> list[Action]:
        """Give those of `workers` that have room their next orders; in exact mode a round begins for all of them."""
        if self.phase is not Phase.HUNTING:
            return []
        actions: list[Action] = []
        if self.settings.exact:
            workers = self.members
            complete = all(member.joined or member.lost for member in self.members.values())
            if not complete or not self.dispatch.can_begin_round():
                return [] if self.dispatch.book.open else self._want()
        for worker in workers:
            member = self.members[worker]
            if member.joined and not member.lost:
                actions += [Send(worker, Role.WORKER, message) for message in self.dispatch.orders_for(worker)]
        return actions if self.settings.exact and self.dispatch.book.open else actions + self._want()

    def _want(self) -> list[Action]:
        n = self.dispatch.want()
        return [self._up(Want(n))] if n else []

    def _give_up(self, lost: list[int]) -> list[Action]:
        """Give what lost workers had open to others; what each was at is recorded as lost."""
        for worker in lost:
            unfinished = self.dispatch.take_back(worker)
            if unfinished:
                self._note_lost(worker, unfinished[0])
            if self._early_stop is not None:
                for entry in unfinished:
                    for id in range(entry.order.first + entry.rows_back, entry.order.first + entry.order.row_stop):
                        self._early_stop.finished(id)
        actions: list[Action] = []
        if self.settings.exact:
            actions.append(Log("with a worker lost this run does not repeat exactly", warning=True))
        if self.dispatch.end_round():
            actions.append(self._send_delta())
        if self.phase is Phase.HUNTING and all(member.lost for member in self.members.values()):
            actions.append(self._up(Trouble(f"flock {self.flock} has no workers left")))
        return actions + self._feed(self.members)

    def _note_lost(self, worker: int, entry: OpenOrder) -> None:
        id = entry.order.first + entry.rows_back
        record = unfinished(id, worker, self.flock, entry.order.attempt, Status.LOST)
        self.relay.add_rows(record, np.full((1, self.settings.n_columns), np.nan))
        self.sender.load.reasons.append(RowReason(id, entry.order.attempt, Status.LOST, f"rank {worker} was lost"))

    # time

    def _tick(self, sendable: bool, now: float) -> list[Action]:
        waited_s = self._patience.waited_s(now)
        if waited_s >= self.settings.patience_s:
            self.phase = Phase.GONE
            waited = f"it has waited {self.settings.patience_s:g} s for a word of the root on rank {self.root}"
            return [Log(f"rank {self.rank} leaves: {waited}", warning=True), Finish(int(ExitCode.ENVIRONMENT))]
        actions = [*self._mark_root(waited_s), *self._say_alive(now)]
        dispatch = self.dispatch
        if now - self._cycle_began >= max(self.settings.cycle_s, 2.0 * dispatch.slowest_s()):
            dispatch.cycle, self._cycle_began = dispatch.cycle + 1, now
        judged, lost = self.judge(now)
        actions += judged
        if lost:
            actions += self._give_up(lost)
        if sendable and self.phase is not Phase.LEFT and self.relay.is_due(now, dispatch.hold_s):
            actions.append(self._send_delta())
        if not self.settings.exact:
            self.search.set_parallelism(max(1, dispatch.book.n_rows_out))
        if self.phase is Phase.LEAVING and (not self.missing() or now >= self._leave_by):
            actions += self._leave()
        return actions

    def _say_alive(self, now: float) -> list[Action]:
        """Say hello first, and once a cycle "still here": the root answers, and learns of a delta that it missed."""
        if self._said_at is None:
            self._said_at = now
            return [self._up(Hello(self.sender.incarnation)), *self._want()]
        if now - self._said_at < self.settings.cycle_s:
            return []
        self._said_at = now
        peer = self.rumours.next_peer() if self.phase is Phase.HUNTING else None
        told = [] if peer is None else [self._say(peer, is_answer=False)]
        return [self._up(self.sender.heartbeat()), *told]

    def _leave(self) -> list[Action]:
        missing = self.missing()
        told = [Log(f"flock {self.flock}: no farewell from {ranks_named(missing)}", warning=True)] if missing else []
        self.phase = Phase.LEFT
        return [*told, *self._send_snapshot(-1), self._up(self.sender.farewell())]

    def check(self) -> None:
        """Assert the invariants."""
        super().check()
        self.sender.check()
        self.dispatch.check()
