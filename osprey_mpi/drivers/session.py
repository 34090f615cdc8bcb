"""Carry a run from request to result: start MPI, open the run on rank 0, place the ranks, loop, close."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from logging import Logger
from pathlib import Path

from osprey_mpi.comm import ending, startup, tree
from osprey_mpi.comm.launcher import detect
from osprey_mpi.comm.startup import World
from osprey_mpi.config import Config
from osprey_mpi.drivers.agree import everywhere, launched, on_root
from osprey_mpi.drivers.crew import Crew
from osprey_mpi.drivers.hosts import here, limit_threads, notes
from osprey_mpi.drivers.logs import close_log, open_log
from osprey_mpi.drivers.opening import Opened, open_run
from osprey_mpi.drivers.outcome import RunResult
from osprey_mpi.drivers.request import Request
from osprey_mpi.drivers.signals import Signals
from osprey_mpi.search.space import Space


@dataclass(frozen=True, slots=True)
class Charter:
    """Hold what rank 0 tells all ranks at the start."""

    config_json: str
    out: str


def run_session(request: Request) -> RunResult:
    """Run a request to its end and return its result, the same on every rank. Collective over the launch.

    Raises OspreyError, the same on every rank, when it cannot start.
    """
    limit_threads()
    # From the first moment on: a signal that came while MPI started or the objective was imported stops the run, too.
    with Signals(launched=detect().n_ranks > 1) as signals, launched(keep=request.keep_mpi) as world:
        return _run(world, request, signals)


def _run(world: World, request: Request, signals: Signals) -> RunResult:
    opened = on_root(world, lambda: open_run(request))
    try:
        charter = startup.broadcast(world, _charter(opened))
        config = Config.from_json(charter.config_json)
        session = Session(world, request, config, Path(charter.out), opened, signals)
        code = session.run()
        ending.assemble(world, config.continuity.lost_after_s, code, session.superiors)
        mine = None if session.result is None else replace(session.result, exit_code=code)
        result: RunResult = ending.share(world, mine, config.continuity.lost_after_s)
        if world.is_whole:
            tree.free(session.communicators)
        return result
    finally:
        if opened is not None:
            opened.close()


def _charter(opened: Opened | None) -> Charter | None:
    return None if opened is None else Charter(opened.config.to_json(), str(opened.path))


def run_clock(started_unix_s: float) -> Callable[[], float]:
    """Return a clock of seconds since the run first started; steady within a life whatever the wall clock does."""
    offset_s = time.time() - started_unix_s - time.monotonic()
    return lambda: time.monotonic() + offset_s


class Session:
    """Be one rank's part in one life of a run."""

    def __init__(
        self, world: World, request: Request, config: Config, out: Path, opened: Opened | None, signals: Signals
    ) -> None:
        self.world, self.request, self.config, self.out, self.opened = world, request, config, out, opened
        self._signals = signals
        self.space = Space(config.parameters, config.constraints)
        self.result: RunResult | None = None
        self.communicators = tree.Communicators(None, None, None, None)
        self.superiors: dict[int, int] = {}
        self._clock: Callable[[], float] = time.monotonic  # until the run has a beginning

    def run(self) -> int:
        """Return the exit code. Collective over the world."""
        placed = self._place()
        self.superiors = placed.superiors
        self.communicators = communicators = tree.split(self.world.comm, placed, self.world.rank)
        crew: Crew | None = None
        try:
            crew = Crew(self, placed, communicators)
            everywhere(self.world, crew.check)
            return self._work(crew, placed)
        finally:
            if crew is not None:
                crew.close()

    def _work(self, crew: Crew, placed: tree.Tree) -> int:
        """Begin the life and see it through. Collective over the world."""
        world = self.world
        life, started_unix_s = startup.broadcast(world, on_root(world, self._claim))
        self._clock = run_clock(started_unix_s)
        crew.log = open_log(self.out / "logs" / f"rank-{world.rank:04d}.log", world.rank, life)
        try:
            self._survey(crew, placed, crew.log)
            code = crew.work(self._signals)
            crew.log.info("life %d ends with exit code %d", life, code)
            return code
        finally:
            close_log(crew.log)

    def _claim(self) -> tuple[int, float]:
        assert self.opened is not None
        return self.opened.claim()

    def clock(self) -> float:
        """Return the seconds since the run first started."""
        return self._clock()

    def _place(self) -> tree.Tree:
        """Place all ranks. Collective over the world."""
        config, n_ranks = self.config, self.world.n_ranks
        everywhere(self.world, lambda: check_ranks(config.objective.ranks, n_ranks))
        return tree.plan(n_ranks, flock_size(config, n_ranks), config.objective.ranks)

    def _survey(self, crew: Crew, placed: tree.Tree, log: Logger) -> None:
        """Gather where the ranks are; record it, and warn of what slows them down. Collective over the world."""
        everybody = startup.gather(self.world, (here(self.world.rank, crew.device_name), crew.inventory()))
        if everybody is None or self.opened is None:
            return
        assert self.opened.folder is not None
        places = [place for place, _ in everybody]
        for place in places:
            log.info(
                "rank %d on %s, pid %d, %d cores, device %s",
                place.rank, place.host, place.pid, place.n_cores, place.device,
            )  # fmt: skip
        devices = {device["uuid"]: {"host": place.host, **device} for place, found in everybody for device in found}
        log.info(
            "%d ranks, %d flocks, MPI: %s, fault tolerance: %s",
            self.world.n_ranks, len(placed.flocks), self.world.library, self.world.fault_tolerance,
        )  # fmt: skip
        crew.announce([*self.opened.notes, *notes(places)], self.opened.warnings)
        self.opened.folder.begin_life(
            self.world.n_ranks, [place.host for place in places], self.world.library, self.world.fault_tolerance,
            list(devices.values()),
        )  # fmt: skip

    def take_result(self, result: RunResult) -> None:
        """Pass the result on; called on rank 0 before anybody is let go."""
        self.result = result
        self.request.on_result(result)


def flock_size(config: Config, n_ranks: int) -> int:
    """Return how many workers a flock may have; a deterministic run is one flock."""
    return n_ranks if config.swarm.deterministic else config.swarm.flock_size


def check_ranks(ranks_each: int, n_ranks: int) -> None:
    """Refuse an objective that needs more ranks than there are. Raises ConfigError."""
    tree.plan(n_ranks, n_ranks, ranks_each)
