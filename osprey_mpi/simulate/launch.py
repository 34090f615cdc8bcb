"""A launch that outlives the loss of ranks, in simulated time: whole lives, one after the other, and their faults.

Each rank is a `Process`; here is what is between and below them: the network, the clock, the folder, what MPI tells of
losses, and a witness who knows what may not happen. What a rank is told of a loss comes after a delay of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.comm.tree import Tree, plan
from osprey_mpi.continuity.codec import decode, encode
from osprey_mpi.continuity.collector import Collector
from osprey_mpi.continuity.events import (
    Action,
    Append,
    Appended,
    CancelEvaluations,
    CheckpointTried,
    Conclude,
    Concluded,
    Evaluate,
    Evaluated,
    Event,
    Finish,
    Log,
    Received,
    Send,
    Tick,
    WriteCheckpoint,
)
from osprey_mpi.continuity.ids import IdRanges
from osprey_mpi.continuity.messages import Ack, Delta, Hello, Role
from osprey_mpi.continuity.succession import Word
from osprey_mpi.continuity.tally import Tally
from osprey_mpi.errors import ExitCode
from osprey_mpi.simulate.cluster import DISK_S, Cluster
from osprey_mpi.simulate.crew import Plan
from osprey_mpi.simulate.faults import Fault, Kind
from osprey_mpi.simulate.folder import VirtualFolder
from osprey_mpi.simulate.network import Network, Weather
from osprey_mpi.simulate.process import Process, Stage
from osprey_mpi.simulate.witness import Sender, Witness

TICK_S = 0.05
LOOK_S = 0.004  # between looks at what goes beside the protocol
TOLD_S = 0.05  # mean time until a rank is told of a loss
LEASE_S = 0.4  # at most, until the lock of one that is gone, or stands still, is free
N_ROLES = 16  # tags of one epoch
COLLECTOR = {Role.WORKER: Role.LEADER, Role.LEADER: Role.ROOT}


@lru_cache(maxsize=64)
def place(members: tuple[int, ...], flock_size: int) -> Tree:
    """Place ranks in a tree."""
    return plan(len(members), flock_size).on(members)


class Launch(Cluster):
    """Simulate one launch. flock_size: workers per flock; mean_s: median of the time of an evaluation."""

    def __init__(
        self, plan: Plan, n_ranks: int, folder: VirtualFolder, faults: Sequence[Fault],
        objective: Callable[[NDArray[np.float64]], NDArray[np.float64]], *, flock_size: int, mean_s: float,
        weather: Weather,
    ) -> None:  # fmt: skip
        self.plan, self.folder, self.flock_size = plan, folder, flock_size
        super().__init__(
            {rank: {} for rank in range(n_ranks)}, plan.space, plan.seed, folder.disk, objective=objective,
            duration_s=lambda rank, rng: mean_s * float(rng.lognormal(0.0, 0.5)), weather=weather,
        )  # fmt: skip
        self._cuts: list[tuple[float, frozenset[int]]] = []
        self.network.heals_at = self._heals_at
        still = Weather(weather.delay_s, weather.sigma, classes=())
        self.mail = Network(self.queue, still, np.random.default_rng([plan.seed, 3]), self._mail, self._heals_at)
        self.witness = Witness(folder.disk)
        self.crashed: Fault | None = None
        self.processes = [Process(self, rank) for rank in range(n_ranks)]
        for fault in faults:
            self.queue.at(fault.at_s, lambda fault=fault: self._befall(fault))  # type: ignore[misc]
        members = tuple(range(n_ranks))
        for process in self.processes:
            process.take_up(0, members)

    # what processes use

    def placed(self, members: tuple[int, ...]) -> Tree:
        """Return the tree of a world."""
        return place(members, self.flock_size)

    def post(self, source: int, destination: int, word: Any, value: Any) -> None:
        """Send what goes beside the protocol; a roster may come twice, as after a recovery of the network."""
        for _ in range(2 if word is Word.ROSTER and self.rng.random() < 0.2 else 1):
            self.mail.send(source, destination, 0, (word, value), Hello)

    def cancel(self, rank: int) -> None:
        """Forget what a rank evaluates."""
        self._evaluating[rank] = self._evaluating.get(rank, 0) + 1

    @staticmethod
    def copy_of(tally: Tally) -> Tally:
        """Return a tally that may change alone."""
        return Tally(IdRanges(tally.done), dict(tally.counts), tally.best)

    def abort(self, exit_code: int, missing: Iterable[int]) -> None:
        """End all ranks: some do not come to the end."""
        for rank in missing:
            self.kill(rank)
        for process in self.processes:
            if self._alive(process.rank):
                process.over(exit_code)

    def vanish(self, rank: int, why: str) -> None:
        """Let a rank end itself because the others have left it out."""
        self.logs.append(f"rank {rank} leaves: {why}")
        self.kill(rank)

    # faults

    def _befall(self, fault: Fault) -> None:
        ranks = [rank for rank in fault.ranks if rank < len(self.processes) and self._alive(rank)]
        match fault.kind:
            case Kind.KILL:
                for rank in ranks:
                    self.kill(rank)
            case Kind.PAUSE | Kind.FENCE:
                for rank in ranks:
                    if rank not in self._paused:
                        self.pause(rank, fault.for_s)
                        if fault.kind is Kind.FENCE:
                            self._announce(rank)
            case Kind.CUT:
                self._cuts.append((self.queue.now + fault.for_s, frozenset(ranks)))
            case Kind.CRASH:
                self.crashed = fault
                for rank in range(len(self.processes)):
                    self.kill(rank)

    def kill(self, rank: int) -> None:
        """Let a rank die: its lock becomes free, the others are told."""
        if self._alive(rank):
            super().kill(rank)
            self._announce(rank)
            self.processes[rank].stage = Stage.OVER
            self.processes[rank].machines = {}

    def _announce(self, rank: int) -> None:
        """Let the others know, each in its time, that a rank is lost."""
        lock, now = self.processes[rank].lock, self.queue.now
        if lock is not None:
            self.queue.at(now + float(self.rng.uniform(0.0, LEASE_S)), lambda: self.folder.close(lock))
        for process in self.processes:
            if process.rank != rank and self._alive(process.rank):
                self.queue.at(now + float(self.rng.exponential(TOLD_S)), self._teller(process, rank))

    def _teller(self, process: Process, lost: int) -> Callable[[], None]:
        def tell() -> None:
            if not self._later(process.rank, tell) and self._alive(process.rank):
                process.tell_lost(lost)

        return tell

    def _heals_at(self, source: int, destination: int) -> float:
        until = (until for until, ranks in self._cuts if (source in ranks) != (destination in ranks))
        return max(until, default=0.0)

    # the loop of a rank

    def run(self, until_s: float = 60.0, n_events: int = 5_000_000) -> None:
        """Run until every rank is over; no wait lasts longer than `until_s`."""
        for _ in range(n_events):
            if all(process.stage is Stage.OVER for process in self.processes):
                return
            assert self.queue.step(), "nothing left to happen, but ranks wait"
            if self.queue.now > until_s:
                waiting = [(p.rank, p.stage.value, p.epoch) for p in self.processes if p.stage is not Stage.OVER]
                raise AssertionError(f"ranks wait without end: {waiting[:5]}")
        raise AssertionError(f"no end after {n_events} events")

    def _alive(self, rank: int) -> bool:
        return rank not in self.dead and self.processes[rank].stage is not Stage.OVER

    def _ticker(self, rank: int) -> Callable[[], None]:
        def tick() -> None:
            if self._later(rank, tick):
                return
            if self._alive(rank):
                process = self.processes[rank]
                process.look()
                for role in list(process.machines):
                    self.give(process, role, Tick(self.network.is_sendable(rank)))
                self.queue.at(self.queue.now + TICK_S, tick)

        return tick

    def _mail(self, source: int, destination: int, tag: int, data: tuple[Any, Any]) -> None:
        if self._later(destination, lambda: self._mail(source, destination, tag, data)) or not self._alive(destination):
            return
        process, (word, value) = self.processes[destination], data
        process.mailbox[source, word].append(value)
        if not process.will_look:
            process.will_look = True
            self.queue.at(self.queue.now + LOOK_S, self._looker(process))

    def _looker(self, process: Process) -> Callable[[], None]:
        def look() -> None:
            if not self._later(process.rank, look):
                process.will_look = False
                if self._alive(process.rank):
                    process.look()

        return look

    def _deliver(self, source: int, destination: int, tag: int, data: bytes) -> None:
        if self._later(destination, lambda: self._deliver(source, destination, tag, data)):
            return
        if self._alive(destination):
            self.arrive(self.processes[destination], tag // N_ROLES, source, Role(tag % N_ROLES), data)

    def arrive(self, process: Process, epoch: int, source: int, role: Role, data: bytes) -> None:
        """Let a rank take in a message of its epoch; one of an older epoch is dropped, one of a newer epoch waits."""
        if epoch > process.epoch or (epoch == process.epoch and process.stage is Stage.SETUP):
            process.early.append((epoch, source, role, data))
        elif self.is_current(process, epoch) and (process.stage is Stage.LIFE or source == process.rank):
            self.give(process, role, Received(source, decode(data)))

    @staticmethod
    def is_current(process: Process, epoch: int) -> bool:
        """Tell whether a message is of the world that a rank is in."""
        return epoch == process.epoch

    def _give(self, rank: int, role: Role, event: Event) -> None:
        self.give(self.processes[rank], role, event)

    def give(self, process: Process, role: Role, event: Event) -> None:
        """Give a machine an event, carry out what it wants, let the witness see it."""
        machine = process.machines.get(role)
        if machine is None:
            if isinstance(event, Evaluated) and process.stage in (Stage.SETUP, Stage.REGROUP):
                process.results.append(event)
            return
        check = self._watch(process, role, machine, event)
        actions = machine.handle(event, self.queue.now)
        check()
        machine.check()
        for action in actions:
            if self._alive(process.rank):
                self._carry_out(process, role, action)

    def _watch(self, process: Process, role: Role, machine: Any, event: Event) -> Callable[[], None]:
        """Note how things stand before an event; return what is to be seen after it."""
        witness, epoch = self.witness, process.epoch
        own: Sender | None = (epoch, process.rank, COLLECTOR[role]) if role in COLLECTOR else None
        match event:
            case Received(source, Delta()) if isinstance(machine, Collector) and source in machine.members:
                member = machine.members[source]
                before = member.ledger.admitted
                return lambda: witness.entered((epoch, source, role), member.ledger.account, before, own)
            case Received(_, Ack()) if role is Role.WORKER:
                sender, kept = machine.sender, list(machine.sender.unacknowledged)
                return lambda: witness.acknowledged(kept[: len(kept) - len(sender.unacknowledged)])
            case Evaluated() if own is not None and machine.given and machine.given[0] is event.order:
                witness.evaluated(own, event.records)
        return lambda: None

    def _carry_out(self, process: Process, role: Role, action: Action) -> None:
        rank = process.rank
        match action:
            case Send(destination, to, message):
                if isinstance(message, Delta):
                    account = process.machines[role].sender.account
                    self.witness.sent((process.epoch, rank, to), message, account)
                tag = N_ROLES * process.epoch + int(to)
                if destination == rank:
                    self.queue.at(self.queue.now, lambda: self._deliver(rank, rank, tag, encode(message)))
                elif destination not in process.lost:
                    self.network.send(rank, destination, tag, encode(message), type(message))
            case Evaluate():
                self._evaluate(rank, action)
            case CancelEvaluations():
                self.cancel(rank)
            case Append(serial):
                self.give(process, Role.ROOT, Appended(serial, self.folder.append(process.lock, action)))
            case WriteCheckpoint():
                self.folder.write_checkpoint(process.lock, action, self.queue.now)
                self.give(process, Role.ROOT, CheckpointTried(DISK_S))
            case Log(text, warning):
                self.logs.append(text if not warning else f"warning: {text}")
            case Finish(exit_code):
                process.finish(exit_code)
            case Conclude(exit_code):
                if exit_code != ExitCode.STOPPED:
                    assert process.machines[Role.ROOT].tally.n_evaluations == self.disk.tally.n_evaluations
                self.give(process, Role.ROOT, Concluded(exit_code))

    @property
    def is_done(self) -> bool:
        """Tell whether a root has ended the run as done."""
        return any(process.exit_code == ExitCode.DONE for process in self.processes)
