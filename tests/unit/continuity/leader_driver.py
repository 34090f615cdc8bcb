"""Drive one leader with real workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from protocol_helpers import evaluated, sends, started

from osprey_mpi.continuity.events import Event, Received, Tick
from osprey_mpi.continuity.leader import Leader, LeaderSettings
from osprey_mpi.continuity.messages import (
    Ack,
    Delta,
    Heartbeat,
    Lease,
    Message,
    Order,
)
from osprey_mpi.continuity.worker import Worker

ROOT = 99
Make = Callable[..., Any]


class Driver:
    """A leader (rank 0), real workers, and a clock. `told` holds what the search was told."""

    def __init__(
        self, search: Any, workers: tuple[int, ...] = (1, 2), *, early_stop: Any = None, **options: Any
    ) -> None:
        settings = LeaderSettings(2, 2, suspect_after_s=2.0, lost_after_s=10.0, leave_s=3.0, patience_s=20.0, **options)
        self.told: list[tuple[int, list[float], bool]] = []
        tell = search.tell

        def spy(first: int, costs: Any, *args: Any, **kwargs: Any) -> None:
            self.told.append((first, costs.tolist(), kwargs["steer"]))
            tell(first, costs, *args, **kwargs)

        search.tell = spy
        self.search = search
        self.leader = Leader(0, 4, ROOT, workers, search, settings, 0.0, early_stop=early_stop)
        self.workers = {rank: Worker(rank, 4, 0, 2, 2, cycle_s=1.0) for rank in workers}
        self.running: dict[int, Order] = {}
        self.now = 0.0

    def __call__(self, event: Event | Message, source: int = ROOT) -> list[Any]:
        """Give the leader an event; what it sends to workers reaches them."""
        actions = self.leader.handle(Received(source, event) if isinstance(event, Message) else event, self.now)
        self.leader.check()
        for action in actions:
            if getattr(action, "rank", None) in self.workers:
                self.run(action.rank, self.workers[action.rank].handle(Received(0, action.message), self.now))
        return actions

    def run(self, rank: int, actions: list[Any]) -> None:
        for order in started(actions):
            self.running[rank] = order

    def hello(self) -> None:
        """Let everybody say hello."""
        self(Tick())
        for rank, worker in self.workers.items():
            for message in sends(worker.handle(Tick(), self.now)):
                self(message, rank)

    def finish(self, rank: int, cost: float = 1.0, elapsed_s: float = 1.0) -> Delta:
        """Let a worker finish what it runs; return its delta."""
        worker, order = self.workers[rank], self.running.pop(rank)
        costs = [cost] * (order.row_stop - order.row_start)
        generation = 0 if worker.steer is None else worker.steer.generation
        event = evaluated(order, order.row_start, order.row_stop, costs, generation=generation, elapsed_s=elapsed_s)
        self.run(rank, worker.handle(event, self.now))
        (delta,) = sends(worker.handle(Tick(), self.now), Delta)
        return delta

    def wait(self, seconds: float, alive: tuple[int, ...] = (1, 2)) -> list[Any]:
        """Tick ten times a second, with signs of life of some workers and of the root."""
        actions: list[Any] = []
        end = self.now + seconds
        while self.now < end:
            self.now = round(self.now + 0.1, 6)
            for rank in alive:
                actions += self(Heartbeat(1, self.workers[rank].sender.account.counter), rank)
            self(Ack(0, 0))
            actions += self(Tick())
        return actions


def ids(start: int, stop: int) -> Lease:
    return Lease(0, -1, np.array([[start, stop]]))
