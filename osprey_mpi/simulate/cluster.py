"""A whole run in one process: the real state machines, with simulated evaluations, disk and network.

Faults that can be made
-----------------------
* messages of chosen classes are lost, repeated or overtaken (Weather); the protocol heals this for Delta alone
* a rank dies (`kill`), or stands still for a while and comes back (`pause`)
* any rank gets a signal (`stop`); everything ends at any moment, and only the disk remains

Invariants, checked after every event
-------------------------------------
* every machine's own `check()`
* what is on the disk counts every id once
* the best point on the disk never gets worse
* at the end of a run everything that was counted is on the disk, unless it says that it stopped short
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
    StopAsked,
    Tick,
    WriteCheckpoint,
)
from osprey_mpi.continuity.messages import Order, Role
from osprey_mpi.continuity.records import EXPLICIT, FINAL, PIECE, RECORD, Status
from osprey_mpi.continuity.root import Root
from osprey_mpi.continuity.steering import distribution_of
from osprey_mpi.continuity.tally import Tally
from osprey_mpi.errors import ExitCode
from osprey_mpi.search import osprey, streams
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
    records: list[NDArray[Any]] = field(default_factory=list)
    values: list[NDArray[np.float64]] = field(default_factory=list)

    def costs(self) -> dict[int, float]:
        """Return the cost of every id that has a final row, the first one."""
        costs: dict[int, float] = {}
        for rows in self.records:
            for row in rows[np.isin(rows["status"], FINAL)]:
                costs.setdefault(int(row["id"]), float(row["cost"]))
        return costs

    def append(self, action: Append) -> None:
        """Write rows."""
        final = action.records["id"][np.isin(action.records["status"], FINAL)]
        pieces = np.zeros(len(final) + len(action.blocks), PIECE)
        pieces["first"] = np.concatenate([final, action.blocks["first"]])
        pieces["row_stop"] = np.concatenate([np.ones(len(final), np.int64), action.blocks["n"]])
        before = self.tally.best.key
        self.tally.enter(pieces, action.records, action.values)
        self.records.append(action.records)
        self.values.append(action.values)
        self.n_rows += len(action.records)
        assert self.tally.best.key <= before, "the best point on the disk got worse"


@dataclass(frozen=True, slots=True)
class Block:
    """Hold an order with its points (n, n_dims); latent None: they were given."""

    order: Order
    generation: int
    positions: NDArray[np.float64]
    latent: NDArray[np.float64] | None


class Cluster:
    """Simulate one life of a run.

    machines: rank -> role -> machine. objective: value rows (n, n_columns) -> costs (n,). duration_s: seconds of one
    evaluation of a rank. disk_error: why the disk cannot be written now, "" when it can.
    batch: above 1 the rows of an order are evaluated in one call, of which captures and survivors are kept.
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
        disk_error: Callable[[], str] = lambda: "",
        batch: int = 1,
    ) -> None:
        self.machines, self.space, self.seed, self.disk = machines, space, seed, disk
        self.objective, self.duration_s, self.disk_error = objective, duration_s, disk_error
        self._batch = batch
        self.rng = np.random.default_rng([seed, 1])
        self.queue = Queue()
        self.network = Network(self.queue, weather or Weather(), np.random.default_rng([seed, 2]), self._deliver)
        self.exit_codes: dict[int, int] = {}
        self.dead: set[int] = set()
        self.logs: list[str] = []
        self._paused: dict[int, list[Callable[[], None]]] = {}  # rank -> what it finds when it comes back
        self._disk_free_at = 0.0
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

    def pause(self, rank: int, for_s: float) -> None:
        """Let a rank stand still, as SIGSTOP does; what is sent to it meanwhile waits."""
        self._paused[rank] = []

        def wake() -> None:
            for callback in self._paused.pop(rank):
                callback()

        self.queue.at(self.queue.now + for_s, wake)

    def stop(self, rank: int, reason: str = "signal TERM") -> None:
        """Give a rank a signal."""
        self._give(rank, max(self.machines[rank]), StopAsked(reason))

    def _alive(self, rank: int) -> bool:
        return rank not in self.dead and rank not in self.exit_codes

    def _later(self, rank: int, callback: Callable[[], None]) -> bool:
        """Keep for later what happens to a rank that stands still."""
        if rank in self._paused:
            self._paused[rank].append(callback)
            return True
        return False

    def _ticker(self, rank: int) -> Callable[[], None]:
        def tick() -> None:
            if self._later(rank, tick):
                return
            if self._alive(rank):
                for role in list(self.machines[rank]):
                    self._give(rank, role, Tick(self.network.is_sendable(rank)))
                self.queue.at(self.queue.now + TICK_S, tick)

        return tick

    def _deliver(self, source: int, destination: int, tag: int, data: bytes) -> None:
        if self._later(destination, lambda: self._deliver(source, destination, tag, data)):
            return
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
                    self.network.send(rank, destination, int(role), encode(message), type(message))
            case Evaluate():
                self._evaluate(rank, action)
            case CancelEvaluations():
                self._evaluating[rank] = self._evaluating.get(rank, 0) + 1
            case Append(serial):
                self._append(rank, action, serial)
            case WriteCheckpoint():
                self._write(rank, lambda: self._write_checkpoint(rank, action))
            case Log(text, warning):
                self.logs.append(text if not warning else f"warning: {text}")
            case Finish(exit_code):
                self.exit_codes[rank] = exit_code
            case Conclude(exit_code):
                assert exit_code == ExitCode.STOPPED or self.root.tally.n_evaluations == self.disk.tally.n_evaluations
                self._give(rank, Role.ROOT, Concluded(exit_code))

    def _append(self, rank: int, action: Append, serial: int) -> None:
        def written() -> None:
            error = self.disk_error()
            if not error:
                self.disk.append(action)
            self._give(rank, Role.ROOT, Appended(serial, error))

        self._write(rank, written)

    def _write(self, rank: int, write: Callable[[], None]) -> None:
        """Write after what is being written; a rank that dies before it is done has written nothing."""
        self._disk_free_at = max(self._disk_free_at, self.queue.now) + DISK_S

        def done() -> None:
            if self._alive(rank):
                write()

        self.queue.at(self._disk_free_at, done)

    def _write_checkpoint(self, rank: int, action: WriteCheckpoint) -> None:
        self.disk.groups = {name: dict(arrays) for name, arrays in action.groups.items()}
        self._give(rank, Role.ROOT, CheckpointTried(DISK_S))

    def _evaluate(self, rank: int, action: Evaluate) -> None:
        order = action.order
        self._evaluating[rank] = self._evaluating.get(rank, 0) + 1
        if order.positions.size:
            block = Block(order, EXPLICIT, order.positions, None)
        else:
            assert action.steer is not None, "a worker is steered before its first order"
            latent = streams.latent(self.seed, order.first, order.n, self.space)
            positions = osprey.hover(distribution_of(action.steer), latent, self.space)
            block = Block(order, action.steer.generation, positions, latent)
        self._call(rank, self._evaluating[rank], block, order.row_start)

    def _call(self, rank: int, serial: int, block: Block, row: int) -> None:
        began = self.queue.now
        order = block.order
        stop = order.row_stop if self._batch > 1 else row + 1

        def finished() -> None:
            if self._later(rank, finished):
                return
            if not self._alive(rank) or self._evaluating[rank] != serial:
                return
            self._give(rank, Role.WORKER, self._outcome(block, row, stop, began))
            self._give(rank, Role.WORKER, Tick(self.network.is_sendable(rank)))
            if stop < order.row_stop:
                self._call(rank, serial, block, stop)

        self.queue.at(began + self.duration_s(rank, self.rng), finished)

    def _outcome(self, block: Block, row: int, stop: int, began: float) -> Evaluated:
        """Evaluate rows [row, stop) of a block; of a batch keep what a batched evaluator keeps."""
        order = block.order
        points = block.positions[row:stop]
        values = self.space.decode(points)
        costs = self.objective(values)
        records = np.zeros(stop - row, RECORD)
        records["id"], records["cost"] = np.arange(order.first + row, order.first + stop), costs
        records["t_start_s"], records["t_end_s"] = began, self.queue.now
        records["generation"], records["attempt"] = block.generation, order.attempt
        records["status"] = np.where(np.isnan(costs), Status.FAILED, Status.OK)
        reasons = {int(id): "the returned cost is nan" for id in records["id"][np.isnan(costs)]}
        kept = np.arange(stop - row)
        survivors = None
        if self._batch > 1:
            kept = osprey.captures(costs, np.inf)
            if block.latent is not None:
                best = osprey.survivors(costs, np.zeros(costs.size), osprey.n_survivors(order.n, self.space.n_dims))
                survivors = best, block.latent[row:stop][best]
        return Evaluated(
            order, generation=block.generation, row_start=row, row_stop=stop, records=records[kept],
            values=values[kept], positions=points[kept], costs=costs, violations=np.zeros(stop - row),
            elapsed_s=self.queue.now - began, survivors=survivors, reasons=reasons,
        )  # fmt: skip
