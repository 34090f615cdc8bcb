"""Build the state machines and edges that a rank's place in the tree asks for, and let them work."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from logging import getLogger
from typing import TYPE_CHECKING, Any

from osprey_mpi.comm import collectives, ending
from osprey_mpi.comm.channel import Channel, MpiChannel, NoChannel
from osprey_mpi.comm.doorbell import Doorbell
from osprey_mpi.comm.failures import MembersLost
from osprey_mpi.comm.heartbeat import judging
from osprey_mpi.comm.tree import Communicators, Flock, Tree
from osprey_mpi.continuity.carry import Carry
from osprey_mpi.continuity.codec import pack_arrays, unpack_arrays
from osprey_mpi.continuity.leader import Leader, LeaderSettings
from osprey_mpi.continuity.messages import Role
from osprey_mpi.continuity.rescue import deltas_in, held_by
from osprey_mpi.continuity.root import Root, RootSettings
from osprey_mpi.continuity.worker import Worker
from osprey_mpi.device.backend import Backend, select
from osprey_mpi.drivers.hosts import spare_notes
from osprey_mpi.drivers.logs import usage_logged
from osprey_mpi.drivers.loop import Loop, Machine
from osprey_mpi.drivers.opening import budget_of
from osprey_mpi.drivers.past import Kept
from osprey_mpi.drivers.progress import Progress
from osprey_mpi.drivers.signals import Signals
from osprey_mpi.evaluate import make_evaluator
from osprey_mpi.evaluate.group import Member, follow
from osprey_mpi.evaluate.make import records_all
from osprey_mpi.evaluate.schema import Schema
from osprey_mpi.search.early_stop import MedianRule
from osprey_mpi.search.flock import Flock as Search

if TYPE_CHECKING:
    from osprey_mpi.drivers.desk import Desk
    from osprey_mpi.drivers.session import Session
    from osprey_mpi.evaluate.task import Evaluator

FEW_FAILURES = 10  # and two calls of each worker: if so many fail first, all will


class Crew:
    """Hold what one rank works with. exact: the run must repeat, or has one worker alone; see leader.py."""

    def __init__(self, session: Session, placed: Tree, communicators: Communicators) -> None:
        self.session, self.placed = session, placed
        self.log = getLogger("osprey_mpi")  # until the run has a folder
        self.rank = session.world.rank
        self.communicators = communicators
        self.flock: Flock | None = placed.flock_of(self.rank)
        request = session.request
        self.progress = Progress(session.config.name, session.out, quiet=request.quiet, wording=request.wording)
        self.backend: Backend | None = None
        self.evaluator: Evaluator | None = None
        self.member: Member | None = None
        self.exact = session.config.swarm.deterministic or self.n_workers == 1
        self._disk: Desk | None = None

    @property
    def n_workers(self) -> int:
        """Return how many ranks evaluate."""
        return sum(len(flock.workers) for flock in self.placed.flocks)

    @property
    def evaluates(self) -> bool:
        """Tell whether this rank is a worker."""
        return self.placed.worker_flock(self.rank) is not None

    @property
    def follows(self) -> bool:
        """Tell whether this rank helps a worker of its group."""
        return self.communicators.group is not None and not self.evaluates

    @property
    def device_name(self) -> str:
        """Name the device of this rank."""
        return "none" if self.backend is None else self.backend.name

    def inventory(self) -> list[dict[str, Any]]:
        """Return the GPUs of this host as NVML sees them; [] where there are none."""
        from osprey_mpi.device.inventory import inventory

        return inventory() if self.evaluates else []

    def choose_device(self) -> None:
        """Choose where this rank computes. Collective over the world. Raises ConfigError or EnvironmentFault.

        A step of its own: `check` is collective over a group, whose other ranks would wait for one that ends here.
        """
        session, kept = self.session, self.session.past.kept
        place = collectives.local_place(session.world)
        if kept is not None:
            self.backend = kept.backend
        elif self.evaluates:
            device = session.config.device
            with session.config.locating():
                self.backend = select(device.kind, *place, device.memory_fraction)

    def check(self) -> None:
        """Import the objective. Raises ConfigError or EnvironmentFault."""
        with self.session.config.locating():
            self._check()

    def _check(self) -> None:
        session = self.session
        config = session.config
        if self.follows:
            self.member = Member(
                config, Schema(session.space.layouts), self.rank, session.out / "scratch", self.communicators.group,
                session.request.function,
            )  # fmt: skip
            self.member.load()
        if not self.evaluates:
            return
        kept = session.past.kept
        if kept is not None:
            self.evaluator = kept.evaluator
            return
        assert self.backend is not None, "choose_device comes first"
        self.evaluator = make_evaluator(
            config, session.space, rank=self.rank, clock=session.clock, record_all=records_all(config),
            device=self.backend, scratch_root=session.out / "scratch", comm=self.communicators.group,
            function=session.request.function,
        )  # fmt: skip
        self.evaluator.check()

    def announce(self, notes: Sequence[str], warnings: Sequence[str]) -> None:
        """Tell the user what is good to know before the run, and what is not as it should be."""
        spare = spare_notes(self.placed.spare, self.session.config.objective.ranks, self.placed.n_ranks)
        for text in (*notes, *spare):
            self.log.info("%s", text)
            self.progress.note(text)
        for text in warnings:
            self.log.warning("%s", text)
            self.progress.warn(text)

    def work(self, signals: Signals) -> int:
        """Start the evaluator, run the loop, return the exit code."""
        world = self.session.world
        if not self.evaluates and self.flock is None and not world.is_root:
            return self._help(signals)
        kept = self.session.past.kept
        if self.evaluator is not None and kept is None:
            self.evaluator.start()
        now = time.monotonic()
        machines: dict[Role, Machine] = {}
        snapshots = self._spread_snapshots()
        bell = self._hang_bell()
        if world.is_root:
            root = self._root(now)
            machines[Role.ROOT] = root
            self._disk = self._desk(root)
        if self.flock is not None and self.flock.leader == self.rank:
            machines[Role.LEADER] = self._leader(self.flock, now, snapshots)
        if self.evaluates:
            assert self.flock is not None and self.evaluator is not None
            machines[Role.WORKER] = self._worker(self.flock, kept)
        protocol = world.protocol
        channel: Channel = NoChannel()
        if protocol is not None:
            channel = MpiChannel(
                protocol, bell, tolerant=world.sees_failures, heart=world.heart, epoch=world.epoch
            )
        collectors = {Role.LEADER: world.root, Role.WORKER: self.flock.leader if self.flock else world.root}
        loop = Loop(
            self.rank, machines, channel, signals, self.log, evaluator=self.evaluator, disk=self._disk,
            collectors=collectors, bell=bell, all_ring=bell.reaches(self._correspondents()), vital=self._vital(),
            orders=[] if kept is None else kept.given, is_constrained=bool(self.session.config.constraints),
            on_warning=self.progress.warn, describe=self.session.space.parameters,
        )  # fmt: skip
        with usage_logged(self.log), closing(bell), judging(world.heart, self._vital()):
            self.session.past.kept = None
            try:
                code = loop.run()
            except MembersLost:
                channel.abandon()
                self._keep_undelivered(machines)
                raise
            self.session.past.held = held_by(machines)
        if world.is_root:
            ending.tell_code(world, self._helpers(), code, self.session.config.continuity.lost_after_s)
        return code

    def part(self, code: int) -> int:
        """End together: what any rank holds yet goes on disk, then the result is given. Collective over the world.

        Returns the exit code, on the root that of the run.
        """
        session = self.session
        self._close_evaluator()
        assembly = ending.assemble(session.world, session.config.continuity.lost_after_s, session.past.held)
        session.missing = assembly.missing
        return code if self._disk is None else self._disk.part(deltas_in(assembly.held))

    def _worker(self, flock: Flock, kept: Kept | None) -> Worker:
        config, space = self.session.config, self.session.space
        assert self.evaluator is not None
        return Worker(
            self.rank, flock.number, flock.leader, space.n_columns, space.n_dims, cycle_s=config.continuity.cycle_s,
            responsive=self.evaluator.responsive, depth=self.evaluator.depth,
            stop_on_failure=config.objective.on_failure == "stop",
            given=[] if kept is None else kept.given, rows_back=0 if kept is None else kept.rows_back,
        )  # fmt: skip

    def _leader(self, flock: Flock, now: float, snapshot: dict[str, Any]) -> Leader:
        config, space = self.session.config, self.session.space
        search_snapshot, carry = Carry.split(snapshot)
        batch = config.objective.batch
        args = (space, config.swarm.search, config.seed, flock.number, batch)
        start = config.start if flock.number == 0 else ()
        search = Search.restore(search_snapshot, *args) if search_snapshot else Search(*args, start)
        early = config.objective.early_stop
        rule = None if early is None else MedianRule(early.min_steps, early.min_reports)
        leader = Leader(
            self.rank, flock.number, self.placed.root, flock.workers, search,
            leader_settings(self.session, self.exact, len(self.placed.flocks)), now,
            early_stop=rule, carry=carry, leaders=self.placed.leaders,
        )  # fmt: skip
        for worker in flock.workers:
            for order in self.session.running.get(worker, ()):
                leader.dispatch.adopt(worker, order)
        return leader

    def _root(self, now: float) -> Root:
        config, opened = self.session.config, self.session.opened
        assert opened is not None
        # A leader that is stopped is lost by then, and the others regroup; one that only says nothing ends the run.
        patience = 2.0 if self._vital() else 1.0
        settings = RootSettings(
            budget_of(config), self.session.space.n_columns, exact=self.exact,
            results_interval_s=config.output.results_interval_s, checkpoint_interval_s=config.checkpoint.interval_s,
            failures_per_day=config.checkpoint.failures_per_day, suspect_after_s=config.continuity.suspect_after_s,
            lost_after_s=patience * config.continuity.lost_after_s,
            n_alarming=max(FEW_FAILURES, 2 * self.n_workers * config.objective.batch),
        )  # fmt: skip
        root = Root(
            self.rank, self.placed.leaders, settings, now, tally=opened.tally, best=opened.best,
            snapshots=opened.snapshots, redo=opened.redo, began=self.session.past.began,
        )  # fmt: skip
        for orders in self.session.running.values():
            for order in orders:
                root.leases.give(order.first + order.row_start, order.first + order.row_stop)
        return root

    def _desk(self, root: Root) -> Desk:
        from osprey_mpi.drivers.desk import Desk

        session = self.session
        assert session.opened is not None and session.opened.folder is not None
        return Desk(
            session.opened.folder, session.config, session.space, root, self.log, n_ranks=session.world.n_ranks,
            n_workers=self.n_workers, n_flocks=len(self.placed.flocks),
            fault_tolerance=session.world.fault_tolerance, wall_before_s=session.opened.wall_before_s + session.begun_s,
            on_status=self.progress.update, on_result=session.take_result, on_warning=self.progress.warn,
        )  # fmt: skip

    def _spread_snapshots(self) -> dict[str, Any]:
        """Give every leader the snapshot of its flock; one that has none starts afresh. Collective over the world."""
        parts: list[Any] | None = None
        opened = self.session.opened
        if opened is not None:
            flocks = {flock.leader: opened.snapshots.get(flock.number) for flock in self.placed.flocks}
            parts = [pack_arrays(flocks.get(rank) or {}) for rank in self.placed.members]
        mine = collectives.scatter(self.session.world, parts)
        return unpack_arrays(mine) if len(mine) else {}

    def _hang_bell(self) -> Doorbell:
        """Exchange the addresses of the ranks' bells. Collective over the world."""
        bell = Doorbell()
        addresses = collectives.allgather(self.session.world, bell.address)
        bell.meet(dict(zip(self.session.world.members, addresses, strict=True)))
        return bell

    def _correspondents(self) -> set[int]:
        """Return the ranks that may write to this one."""
        ranks = {self.placed.root}
        if self.flock is not None:
            ranks |= {self.flock.leader, *self.flock.workers}
            if self.rank == self.flock.leader:
                ranks |= set(self.placed.leaders)
        if self.rank == self.placed.root:
            ranks |= set(self.placed.leaders)
        return ranks - {self.rank}

    def _vital(self) -> frozenset[int]:
        """Return the ranks after whose loss the others regroup: those that others report to; none beside groups."""
        if not self.session.world.is_tolerant or self.placed.groups:
            return frozenset()
        return frozenset({self.placed.root, *self.placed.leaders})

    def _keep_undelivered(self, machines: Mapping[Role, Machine]) -> None:
        """Keep what this rank knows of the run and others may not: on disk if it can write, else for the next root."""
        self.session.past.held += held_by(machines)
        worker = machines.get(Role.WORKER)
        if isinstance(worker, Worker) and not self.exact and self.evaluator is not None and self.backend is not None:
            self.session.past.kept = Kept(self.evaluator, self.backend, list(worker.given), worker.rows_back)
        if self._disk is not None:
            for append in self._disk.root.books.append():
                self._disk.append(append)

    def _helpers(self) -> list[int]:
        """Return the ranks without a state machine: followers in groups, and those that fill none."""
        placed = self.placed
        return [rank for rank in placed.members[1:] if placed.flock_of(rank) is None]

    def _help(self, signals: Signals) -> int:
        """Help the group's worker until it lets go, then wait for the run's exit code; asleep in between."""
        self._spread_snapshots()
        self._hang_bell().close()
        if self.member is not None:
            follow(self.member)
        else:
            self.log.info("this rank fills no group of %d: it waits", self.session.config.objective.ranks)
        return ending.await_code(self.session.world, lambda: signals.is_orphan)

    def close(self) -> None:
        """End child processes, but for an evaluator that is kept; leave the terminal as it was."""
        self.progress.close()
        kept = self.session.past.kept
        if kept is None or kept.evaluator is not self.evaluator:
            self._close_evaluator()

    def _close_evaluator(self) -> None:
        evaluator, self.evaluator = self.evaluator, None
        if evaluator is not None:
            evaluator.close()


def leader_settings(session: Session, exact: bool, n_flocks: int) -> LeaderSettings:
    """Return what a leader needs of the config."""
    config, space = session.config, session.space
    continuity, objective = config.continuity, config.objective
    total = config.budget.evaluations
    share = None if total is None else -(-total // n_flocks)
    penalty = objective.penalty if objective.on_failure == "penalty" else None
    return LeaderSettings(
        space.n_columns, space.n_dims, batch=objective.batch, exact=exact, cycle_s=continuity.cycle_s,
        stale_window=continuity.stale_window, suspect_after_s=continuity.suspect_after_s,
        lost_after_s=continuity.lost_after_s, penalty=penalty, speed_exponent=config.swarm.search.speed_exponent,
        n_evaluations=share, has_others=n_flocks > 1,
    )  # fmt: skip
