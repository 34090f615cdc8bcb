"""A whole run in one process: the real state machines, with simulated evaluations, disk and network.

Invariants, checked after every event
-------------------------------------
* every machine's own `check()`
* what is on the disk counts every id once, and never more than the budget
* the best point on the disk never gets worse
* what status shows is on the disk
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.continuity.codec import decode, encode
from osprey_mpi.continuity.events import (
    Action,
    Append,
    Appended,
    CancelEvaluations,
    Conclude,
    Evaluate,
    Evaluated,
    Event,
    Finish,
    Received,
    Send,
    StopAsked,
    Tick,
    WriteCheckpoint,
)
from osprey_mpi.continuity.messages import Order, Role
from osprey_mpi.continuity.records import EXPLICIT, RECORD
from osprey_mpi.continuity.root import Root
from osprey_mpi.continuity.tally import Tally
from osprey_mpi.search import streams
from osprey_mpi.search.distribution import Distribution
from osprey_mpi.search.osprey import hover
from osprey_mpi.search.space import Space
from osprey_mpi.simulate.network import Network, Queue, Weather

TICK_S = 0.02
DISK_S = 0.003  # an append of a few rows, measured


@dataclass(slots=True)
class VirtualDisk:
    """Hold what survives a crash: rows, and the newest checkpoint."""

    tally: Tally = field(default_factory=Tally)
    groups: dict[str, dict[str, NDArray[Any]]] = field(default_factory=dict)
    n_rows: int = 0

    def append(self, action: Append) -> None:
        """Write rows."""
        pieces = np.array([], dtype=[("first", "<i8"), ("row_start", "<i8"), ("row_stop", "<i8"), ("n_failed", "<i4")])
        final = action.records[action.records["status"] <= 2]
        ranges = [(int(id), 0, 1, 0) for id in final["id"]] + [(int(b["first"]), 0, int(b["n"]), 0) for b in action.blocks]
        before = self.tally.best.key
        self.tally.enter(np.array(ranges, pieces.dtype), action.records, action.values)
        self.n_rows += len(action.records)
        assert self.tally.best.key <= before, "the best point on the disk got worse"


class Cluster:
    """Simulate one life of a run.

    machines: rank -> role -> machine. objective: value rows (n, n_columns) -> costs (n,). duration_s: seconds of one
    evaluation of a rank.
    """

    def __init__(
        self,
        machines: dict[int, dict[Role, Any]],
        space: Space,
        seed: int,
        disk: VirtualDisk,
        *,
        objective: Callable[[NDArray[np.float64]], NDArray[np.float64]],
        duration_s: Callable[[int, np.random.Generator], float],
        weather: Weather | None = None,
    ) -> None:
        self.machines, self.space, self.seed, self.disk = machines, space, seed, disk
        self.objective, self.duration_s = objective, duration_s
        self.rng = np.random.default_rng([seed, 1])
        self.queue = Queue()
        self.network = Network(self.queue, weather or Weather(), np.random.default_rng([seed, 2]), self._deliver)
        self.exit_codes: dict[int, int] = {}
        self.dead: set[int] = set()
        self.n_sent = 0
        self._evaluating: dict[int, int] = {}  # rank -> serial of what runs, so that a cancelled one is ignored
        for rank in machines:
            self.queue.at(0.0, self._ticker(rank))

    @property
    def root(self) -> Root:
        """Return the root."""
        root: Root = self.machines[0][Role.ROOT]
        return root

    def run(self, until_s: float = 1e6, n_events: int = 2_000_000) -> None:
        """Run until every living rank has finished, or until a time or a number of events."""
        for _ in range(n_events):
            if len(self.exit_codes) + len(self.dead) >= len(self.machines) or self.queue.now >= until_s:
                return
            assert self.queue.step(), "nothing left to happen, but ranks wait"
        raise AssertionError(f"no end after {n_events} events")

    def kill(self, rank: int) -> None:
        """Let a rank die: it handles and sends nothing more."""
        self.dead.add(rank)

    def stop(self, rank: int, reason: str = "signal TERM") -> None:
        """Give a rank a signal."""
        self._give(rank, max(self.machines[rank]), StopAsked(reason))

    def _alive(self, rank: int) -> bool:
        return rank not in self.dead and rank not in self.exit_codes

    def _ticker(self, rank: int) -> Callable[[], None]:
        def tick() -> None:
            if self._alive(rank):
                for role in list(self.machines[rank]):
                    self._give(rank, role, Tick())
                self.queue.at(self.queue.now + TICK_S, tick)

        return tick

    def _deliver(self, source: int, destination: int, tag: int, data: bytes) -> None:
        # A rank that has finished still passes on what its own machines told each other, as the real loop does.
        if self._alive(destination) or (source == destination and destination not in self.dead):
            self._give(destination, Role(tag), Received(source, decode(data)))

    def _give(self, rank: int, role: Role, event: Event) -> None:
        machine = self.machines[rank].get(role)
        assert machine is not None, f"rank {rank} is no {role.name.lower()}"
        for action in machine.handle(event, self.queue.now):
            self._do(rank, action)
        for machine in self.machines[rank].values():
            machine.check()

    def _do(self, rank: int, action: Action) -> None:
        match action:
            case Send(destination, role, message):
                self.n_sent += 1
                if destination == rank:
                    self.queue.at(self.queue.now, lambda: self._deliver(rank, rank, int(role), encode(message)))
                else:
                    self.network.send(rank, destination, int(role), encode(message))
            case Evaluate():
                self._evaluate(rank, action)
            case CancelEvaluations():
                self._evaluating[rank] = self._evaluating.get(rank, 0) + 1
            case Append(serial):
                self._append(rank, action, serial)
            case WriteCheckpoint(groups):
                self.disk.groups = {name: dict(arrays) for name, arrays in groups.items()}
            case Finish(exit_code):
                self.exit_codes[rank] = exit_code
            case Conclude():
                assert self.root.tally.n_evaluations == self.disk.tally.n_evaluations

    def _append(self, rank: int, action: Append, serial: int) -> None:
        def written() -> None:
            if self._alive(rank):
                self.disk.append(action)
                self._give(rank, Role.ROOT, Appended(serial))

        self.queue.at(self.queue.now + DISK_S, written)

    def _evaluate(self, rank: int, action: Evaluate) -> None:
        order = action.order
        serial = self._evaluating[rank] = self._evaluating.get(rank, 0) + 1
        explicit = order.positions.size > 0
        if explicit:
            positions, generation = order.positions, EXPLICIT
        else:
            assert action.steer is not None
            steer = action.steer
            factor = steer.factor[:, 0] if steer.factor.shape[1] == 1 else steer.factor
            drawn = Distribution(steer.generation, steer.mean, steer.sigma, factor, steer.probabilities)
            positions = hover(drawn, streams.latent(self.seed, order.first, order.n, self.space), self.space)
            generation = steer.generation
        self._row(rank, serial, order, generation, positions, order.row_start)

    def _row(
        self, rank: int, serial: int, order: Order, generation: int, positions: NDArray[np.float64], row: int
    ) -> None:
        began = self.queue.now

        def finished() -> None:
            if not self._alive(rank) or self._evaluating[rank] != serial:
                return
            point = positions[row : row + 1]
            values = self.space.decode(point)
            costs = self.objective(values)
            records = np.zeros(1, RECORD)
            records["id"], records["cost"], records["generation"] = order.first + row, costs, generation
            records["t_start_s"], records["t_end_s"], records["attempt"] = began, self.queue.now, order.attempt
            last = row + 1 == order.row_stop
            event = Evaluated(
                order, generation, row, row + 1, records, values, point, costs, np.zeros(1), self.queue.now - began
            )
            self._give(rank, Role.WORKER, event)
            if not last:
                self._row(rank, serial, order, generation, positions, row + 1)

        self.queue.at(began + self.duration_s(rank, self.rng), finished)

