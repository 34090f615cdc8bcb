"""Run the state machines of one rank: gather events, hand them over, carry out the actions.

The loop is the same for every role. Nothing here blocks. A rank that has nothing to do sleeps, for longer the longer
nothing happens, until its evaluator has something or its time is up: ranks that spin would take the cores from those
that evaluate.
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from logging import INFO, WARNING, Logger
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.comm.channel import Channel
from osprey_mpi.comm.doorbell import Doorbell
from osprey_mpi.comm.failures import MembersLost
from osprey_mpi.continuity.codec import decode, encode
from osprey_mpi.continuity.events import (
    Action,
    Append,
    CancelEvaluations,
    CheckpointTried,
    Conclude,
    Evaluate,
    Evaluated,
    Event,
    Finish,
    HaltEvaluation,
    Log,
    PeerLost,
    Received,
    Send,
    StopAsked,
    Tick,
    WriteCheckpoint,
    WriteStatus,
)  # fmt: skip
from osprey_mpi.continuity.messages import Message, Order, Role
from osprey_mpi.continuity.records import Status
from osprey_mpi.drivers.convert import evaluated, reported, task_of
from osprey_mpi.drivers.signals import Signals
from osprey_mpi.evaluate.objective import name_parameters
from osprey_mpi.evaluate.task import Evaluator, Progress

Floats = NDArray[np.float64]

TICK_S = 0.050  # what a leader has gathered goes up this often; well under a health cycle
# Sleep between looks at the messages, growing while nothing comes. Each look costs some 50 us: 1 % of a core for an
# idle rank.
SHORTEST_S, LONGEST_S = 0.002, 0.004
LONGEST_WOKEN_S = 0.050  # where all that can come wakes the loop: the evaluator's results, and messages by the bell
# A leader whose workers have work looks at most this often: after a sleep caches are cold, and the first message of a
# look costs four times what the next ones do. Slack is shared with the way of the order that answers.
GATHER_S, SLACK_SHARE = 0.016, 0.6
WATCH_S = 0.1  # an evaluator that says nothing is looked at this often: it keeps the objective's time limit
DRAIN_S = 5.0  # for the last messages to leave, and for those that are half in


class Machine(Protocol):
    """Be a state machine: worker, leader or root."""

    def handle(self, event: Event, now: float) -> list[Action]:
        """Return what is to be done after an event."""
        ...

    def slack_s(self) -> float:
        """Return for how long nobody would notice if this rank did not listen."""
        ...


class Disk(Protocol):
    """Carry out what the root wants written."""

    def append(self, action: Append) -> Event:
        """Write rows; return Appended."""
        ...

    def write_checkpoint(self, action: WriteCheckpoint) -> None:
        """Write a checkpoint."""

    def write_status(self, action: WriteStatus) -> None:
        """Write status.json."""

    def conclude(self, action: Conclude) -> Event:
        """Merge the segments; return Concluded."""
        ...


class Loop:
    """Drive the machines of one rank until one of them says Finish.

    machines: by role. collectors: role -> the rank that it sends to, whose send slots its Tick tells of (backpressure).
    bell: wakes the loop; all_ring: whoever writes to this rank rings it. vital: ranks whose loss ends the loop, as the
    others regroup. orders: what the evaluator is at already. on_warning: gets every warning that the user should see.
    describe: gives the parameters of a value row (n_columns,), for the log.
    """

    def __init__(
        self, rank: int, machines: dict[Role, Machine], channel: Channel, signals: Signals, log: Logger, *,
        evaluator: Evaluator | None = None, disk: Disk | None = None, collectors: dict[Role, int] | None = None,
        bell: Doorbell | None = None, all_ring: bool = True, vital: frozenset[int] = frozenset(),
        orders: Iterable[Order] = (), is_constrained: bool = False,
        on_warning: Callable[[str], None] = lambda text: None,
        describe: Callable[[Floats], Mapping[str, Any]] = lambda row: {},
    ) -> None:  # fmt: skip
        self.rank, self.machines, self.channel = rank, machines, channel
        self.signals, self.log = signals, log
        self.evaluator, self.disk = evaluator, disk
        self.exit_code: int | None = None
        self._collectors = collectors or {}
        self._vital, self._is_constrained = vital, is_constrained
        self._bell, self._all_ring = bell or Doorbell(), all_ring
        # A worker on its leader's own rank hears no other rank.
        self._listeners = [
            machine
            for role, machine in machines.items()
            if role is not Role.WORKER or self._collectors.get(role) != rank
        ]
        self._on_warning, self._describe = on_warning, describe
        self._local: deque[tuple[Role, Message]] = deque()
        self._orders = deque(orders)  # what the evaluator holds, in its order; one may be there twice
        self._poller = select.poll()
        for fileno in self._bell.filenos():
            self._poller.register(fileno, select.POLLIN)
        self._polled: set[int] = set()
        self._ticked_at = self._watched_at = self._busy_at = float("-inf")
        self._asked_to_stop = False

    def run(self) -> int:
        """Return the exit code of the run. Raises MembersLost when a vital rank is lost."""
        idle_s = SHORTEST_S
        while self.exit_code is None:
            busy = self._turn()
            idle_s = SHORTEST_S if busy else min(2.0 * idle_s, LONGEST_S)
            if self.exit_code is None and not self._has_work_here():
                self._sleep(idle_s)
        self._drain()
        return self.exit_code

    def _turn(self) -> bool:
        """Handle everything that is there; return whether there was something."""
        now = time.monotonic()
        busy = False
        for source, tag, data in self.channel.poll():
            self._give(Role(tag), Received(source, decode(data)), now)
            busy = True
        lost = self.channel.lost()
        if self._vital.intersection(lost):
            raise MembersLost(lost)
        for rank in lost:
            for role in self.machines:
                self._give(role, PeerLost(rank), now)
        if self.evaluator is not None and not self.evaluator.idle:
            busy = self._take_in(self.evaluator, now) or busy
        reason = self.signals.check()
        if reason and not self._asked_to_stop:
            self._asked_to_stop = True
            self.log.info("asked to stop: %s", reason)
            self._give(max(self.machines), StopAsked(reason), now)
        self._tick(busy, now)
        self._run_local(now)
        self.channel.ring()
        if busy:
            self._busy_at = now
        return busy

    def _take_in(self, evaluator: Evaluator, now: float) -> bool:
        """Take what the evaluator has; return whether that was something."""
        self._watch()
        due = now - self._watched_at >= WATCH_S
        if self._polled and not due and not self._poller.poll(0):
            return False
        self._watched_at = now
        items = evaluator.poll()
        for item in items:
            if isinstance(item, Progress):
                self._give(Role.WORKER, reported(item), now)
                continue
            event = evaluated(item, self._orders[0])
            self._note_reasons(event)
            if event.row_stop >= event.order.row_stop:
                self._orders.popleft()
            self._give(Role.WORKER, event, now)
        return bool(items)

    def _has_work_here(self) -> bool:
        """Tell whether the evaluator works within poll(), or was given something since: no time to sleep."""
        if self.evaluator is None or self.evaluator.idle:
            return False
        return self._watched_at == float("-inf") or not self.evaluator.filenos()

    def _tick(self, busy: bool, now: float) -> None:
        due = now - self._ticked_at >= TICK_S
        if due:
            self._ticked_at = now
        for role in self.machines:
            # A worker's results leave at once; a leader gathers what comes within a tick.
            if due or (busy and role is Role.WORKER):
                collector = self._collectors.get(role, self.rank)
                sendable = collector == self.rank or self.channel.sendable(collector)
                self._give(role, Tick(sendable), now)

    def _run_local(self, now: float) -> None:
        while self._local:
            role, message = self._local.popleft()
            self._give(role, Received(self.rank, message), now)

    def _give(self, role: Role, event: Event, now: float) -> None:
        machine = self.machines.get(role)
        if machine is None:
            self.log.warning("a message for the %s came to rank %d, which has none", role.name.lower(), self.rank)
            return
        for action in machine.handle(event, now):
            self._do(action, now)

    def _do(self, action: Action, now: float) -> None:
        match action:
            case Send(rank, role, message) if rank == self.rank:
                self._local.append((role, message))
            case Send(rank, role, message):
                self.channel.send(rank, int(role), encode(message))
            case Evaluate(order):
                assert self.evaluator is not None
                self._orders.append(order)
                self.evaluator.submit(task_of(action))
                self._watch()
                if self._is_constrained:  # it may be done already: nothing is called for a point that breaks one
                    self._watched_at = float("-inf")
            case HaltEvaluation(id) if self.evaluator is not None:
                self.evaluator.stop(id)
            case CancelEvaluations() if self.evaluator is not None:
                self.evaluator.cancel()
                self._orders.clear()
            case Log(text, warning):
                (self.log.warning if warning else self.log.info)(text)
                if warning:
                    self._on_warning(text)
            case Finish(exit_code):
                self.exit_code = exit_code
            case _:
                self._write(action, now)

    def _write(self, action: Action, now: float) -> None:
        assert self.disk is not None, f"{type(action).__name__} on a rank without a disk"
        match action:
            case Append():
                self._give(Role.ROOT, self.disk.append(action), now)
            case WriteCheckpoint():
                began_s = time.monotonic()
                self.disk.write_checkpoint(action)
                self._give(Role.ROOT, CheckpointTried(time.monotonic() - began_s), now)
            case WriteStatus():
                self.disk.write_status(action)
            case Conclude():
                self._give(Role.ROOT, self.disk.conclude(action), now)

    def _note_reasons(self, event: Evaluated) -> None:
        if not event.reasons:
            return
        rows = {int(id): row for row, id in enumerate(event.records["id"])}
        for id, reason in event.reasons.items():
            row = rows.get(id)  # a batch that records captures has none: its first reasons name the parameters
            named = "" if row is None else f", parameters {name_parameters(self._describe(event.values[row]))}"
            is_failure = row is None or event.records["status"][row] != Status.STOPPED
            level = WARNING if is_failure else INFO
            self.log.log(level, "evaluation %d on rank %d%s: %s", id, self.rank, named, reason)

    def _watch(self) -> None:
        """Wake up for the evaluator's descriptors; they change when a child process is started again."""
        wanted = set(self.evaluator.filenos()) if self.evaluator is not None else set()
        for gone in self._polled - wanted:
            self._poller.unregister(gone)
        for new in wanted - self._polled:
            self._poller.register(new, select.POLLIN)
        self._polled = wanted

    def _sleep(self, idle_s: float) -> None:
        self._watch()
        now = time.monotonic()
        slack_s = min((machine.slack_s() for machine in self._listeners), default=float("inf"))
        gather_s = min(GATHER_S, SLACK_SHARE * slack_s) - (now - self._busy_at)
        if gather_s > 0.0:
            time.sleep(gather_s)
            now += gather_s
        is_woken = self._all_ring and self.channel.idle()
        until_tick_s = max(self._ticked_at + TICK_S - now, SHORTEST_S)
        ready = self._poller.poll(1000.0 * min(LONGEST_WOKEN_S if is_woken else idle_s, until_tick_s))
        if any(fileno in self._bell.filenos() for fileno, _ in ready):
            self._bell.silence()

    def _drain(self) -> None:
        """Let the last messages leave, and come in whole what has begun to, for a bounded time."""
        deadline = time.monotonic() + DRAIN_S
        self._run_local(time.monotonic())
        while not self.channel.idle():
            if time.monotonic() > deadline:
                self.log.warning("some last messages were still on their way after %.0f s", DRAIN_S)
                return
            time.sleep(0.001)
            self.channel.poll()  # for nobody here, but a large message comes in, and its sender is rid of it, only so
