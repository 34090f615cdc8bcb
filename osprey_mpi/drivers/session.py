"""Be one rank in one life of a run: place the ranks, check, loop, close."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from logging import Logger
from pathlib import Path
from typing import Any

from osprey_mpi.comm import ending, tree
from osprey_mpi.comm.collectives import allgather, broadcast, gather
from osprey_mpi.comm.launcher import detect
from osprey_mpi.comm.startup import World
from osprey_mpi.config import Config
from osprey_mpi.continuity.codec import decode, encode
from osprey_mpi.continuity.messages import Order
from osprey_mpi.drivers.agree import everywhere, on_root
from osprey_mpi.drivers.crew import Crew
from osprey_mpi.drivers.hosts import Place, here, notes, silence_notes
from osprey_mpi.drivers.importing import long_import_noted, stopped_when
from osprey_mpi.drivers.logs import close_log, open_log
from osprey_mpi.drivers.opening import Opened
from osprey_mpi.drivers.outcome import RunResult
from osprey_mpi.drivers.past import Past
from osprey_mpi.drivers.request import Request
from osprey_mpi.drivers.signals import Signals
from osprey_mpi.search.space import Space


def run_clock(started_unix_s: float) -> Callable[[], float]:
    """Return a clock of seconds since the run first started; steady within a life whatever the wall clock does."""
    offset_s = time.time() - started_unix_s - time.monotonic()
    return lambda: time.monotonic() + offset_s


class Session:
    """Be one rank's part in one life of a run."""

    def __init__(
        self, world: World, request: Request, config: Config, out: Path, opened: Opened | None, signals: Signals,
        past: Past,
    ) -> None:  # fmt: skip
        self.world, self.request, self.config, self.out, self.opened = world, request, config, out, opened
        self._signals, self.past = signals, past
        # Its time, and the run's, begins where its budget of time does, but that of a life after a loss with the life.
        self._began = past.began if world.epoch == 0 else time.monotonic()
        self.space = Space(config.parameters, config.constraints)
        self.result: RunResult | None = None
        self.superiors: dict[int, int] = {}
        self.missing: frozenset[int] = frozenset()  # on the root: who did not come to the end
        self.running: dict[int, list[Order]] = {}  # by rank: what it is at since an earlier life of this launch
        self._clock: Callable[[], float] = time.monotonic  # until the run has a beginning

    def run(self) -> int:
        """Return the exit code. Collective over the world."""
        placed = self._place()
        self.superiors = placed.superiors
        past = self.past
        if self.world.has_collectives or placed.groups:
            past.communicators = tree.split(self.world.comm, placed, self.world.rank)
        self.running = self._spread_running(placed)
        crew: Crew | None = None
        try:
            crew = Crew(self, placed, past.communicators)
            everywhere(self.world, crew.choose_device)
            self._check(crew)
            with self._watched(crew):
                return self._work(crew, placed)
        finally:
            if crew is not None:
                crew.close()

    def _check(self, crew: Crew) -> None:
        """Import the objective. Collective over the world. Raises ConfigError, EnvironmentFault or StoppedEarly."""
        when = f"{stopped_when(self.config)}: nothing has begun, start it again"

        def task() -> None:
            with self._signals.interrupting(when):
                crew.check()

        note: Callable[[str], None] = crew.progress.note if self.world.is_root else lambda text: None
        with long_import_noted(self.config, self.request.function, note):
            everywhere(self.world, task)

    def _watched(self, crew: Crew) -> AbstractContextManager[None]:
        """See to it that a rank of a group ends when the launcher has."""
        if crew.communicators.group is None:
            return nullcontext()
        return ending.OrphanWatch(lambda: self._signals.is_orphan, lambda text: crew.log.warning("%s", text))

    def _work(self, crew: Crew, placed: tree.Tree) -> int:
        """Begin the life and see it through. Collective over the world."""
        world = self.world
        life, started_unix_s = broadcast(world, on_root(world, self._claim))
        self._clock = run_clock(started_unix_s)
        crew.log = open_log(self.out / "logs" / f"rank-{world.rank:04d}.log", world.rank, life)
        try:
            self._survey(crew, placed, crew.log)
            self.past.has_begun, self.past.limit_s = True, self.config.continuity.lost_after_s
            code = crew.part(crew.work(self._signals))
            crew.log.info("life %d ends with exit code %d", life, code)
            return code
        finally:
            close_log(crew.log)

    def _claim(self) -> tuple[int, float]:
        assert self.opened is not None
        return self.opened.claim()

    @property
    def begun_s(self) -> float:
        """Return how long this life has lasted."""
        return time.monotonic() - self._began

    def clock(self) -> float:
        """Return the seconds since the run first started."""
        return self._clock()

    def _place(self) -> tree.Tree:
        """Place all ranks. Collective over the world."""
        config, n_ranks = self.config, self.world.n_ranks
        everywhere(self.world, lambda: check_ranks(config.objective.ranks, n_ranks))
        return tree.plan(n_ranks, flock_size(config, n_ranks), config.objective.ranks).on(self.world.members)

    def _spread_running(self, placed: tree.Tree) -> dict[int, list[Order]]:
        """Tell all what this rank's evaluator is at, where that goes on evaluating. Collective over the world."""
        world, kept = self.world, self.past.kept
        if world.epoch == 0:
            return {}
        if kept is not None and placed.worker_flock(world.rank) is None:
            self.past.close()
            kept = None
        everybody = allgather(world, [] if kept is None else [encode(order) for order in kept.open_orders()])
        orders = ([decode(data) for data in mine] for mine in everybody)
        return {
            rank: [order for order in mine if isinstance(order, Order)]
            for rank, mine in zip(world.members, orders, strict=True)
        }

    def _survey(self, crew: Crew, placed: tree.Tree, log: Logger) -> None:
        """Gather where the ranks are; record it, and warn of what slows them down. Collective over the world."""
        everybody = gather(self.world, (here(self.world.rank, crew.device_name), crew.inventory()))
        on_root(self.world, lambda: self._record(crew, placed, log, everybody or []))

    def _record(
        self, crew: Crew, placed: tree.Tree, log: Logger, everybody: list[tuple[Place, list[dict[str, Any]]]]
    ) -> None:
        assert self.opened is not None and self.opened.folder is not None
        places = [place for place, _ in everybody]
        for place in places:
            log.info(
                "rank %d on %s, pid %d, %d cores, device %s",
                place.rank, place.host, place.pid, len(place.cores), place.device,
            )  # fmt: skip
        devices = {device["uuid"]: {"host": place.host, **device} for place, found in everybody for device in found}
        log.info(
            "%d ranks, %d flocks, MPI: %s, fault tolerance: %s",
            self.world.n_ranks, len(placed.flocks), self.world.library, self.world.fault_tolerance,
        )  # fmt: skip
        silence = silence_notes(detect(), os.environ, self.out)
        changes = [f"from now on {text}" for text in self.opened.changes]
        crew.announce([*changes, *self.opened.notes, *notes(places), *silence], self.opened.warnings)
        self.opened.folder.begin_life(
            self.world.n_ranks, [place.host for place in places], self.world.library, self.world.fault_tolerance,
            list(devices.values()), self.begun_s,
        )  # fmt: skip

    def take_result(self, result: RunResult) -> None:
        """Pass the result on; called on the root before anybody is let go."""
        self.result = result
        self.request.on_result(result)


def flock_size(config: Config, n_ranks: int) -> int:
    """Return how many workers a flock may have; a deterministic run is one flock."""
    return n_ranks if config.swarm.deterministic else config.swarm.flock_size


def check_ranks(ranks_each: int, n_ranks: int) -> None:
    """Refuse an objective that needs more ranks than there are. Raises ConfigError."""
    tree.plan(n_ranks, n_ranks, ranks_each)
