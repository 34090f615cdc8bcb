"""A queue of events in simulated time, and links that delay, lose, repeat or overtake messages, all from one seed."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from osprey_mpi.continuity.messages import Delta, Message


@dataclass(frozen=True, slots=True)
class Weather:
    """Say how bad the network is.

    delay_s: median of the log-normal delay, sigma its spread. Shares of messages that are lost, repeated, or take a way
    of their own, up to `late_s` late, on which later ones may overtake them; of these classes only. MPI does none of
    it. A recovery may look like it for deltas, which is why they are the ones that the protocol promises to heal.
    busy: share of the time in which a rank has no free send slot.
    """

    delay_s: float = 0.001
    sigma: float = 0.5
    lost: float = 0.0
    repeated: float = 0.0
    overtaken: float = 0.0
    late_s: float = 0.2
    classes: tuple[type[Message], ...] = (Delta,)
    busy: float = 0.0


class Queue:
    """Order callbacks by simulated time; ties by the order in which they were made."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._n = 0

    def at(self, time: float, callback: Callable[[], None]) -> None:
        """Call back at a time that is not in the past."""
        assert time >= self.now, "an event in the past"
        self._n += 1
        heapq.heappush(self._heap, (time, self._n, callback))

    def step(self) -> bool:
        """Run the next event; return False when there is none."""
        if not self._heap:
            return False
        self.now, _, callback = heapq.heappop(self._heap)
        callback()
        return True


@dataclass(slots=True)
class Network:
    """Deliver messages between ranks, in order per pair unless the weather says otherwise."""

    queue: Queue
    weather: Weather
    rng: np.random.Generator
    deliver: Callable[[int, int, int, Any], None]  # source, destination, tag, data
    heals_at: Callable[[int, int], float] = lambda source, destination: 0.0  # when the way is open again
    _free_at: dict[tuple[int, int], float] = field(default_factory=dict)

    def send(self, source: int, destination: int, tag: int, data: Any, kind: type[Message]) -> None:
        """Send a message on its way."""
        weather, rng = self.weather, self.rng
        fragile = kind in weather.classes
        if fragile and rng.random() < weather.lost:
            return
        for _ in range(2 if fragile and rng.random() < weather.repeated else 1):
            arrival = self.queue.now + weather.delay_s * float(rng.lognormal(0.0, weather.sigma))
            if fragile and rng.random() < weather.overtaken:
                arrival += float(rng.uniform(0.0, weather.late_s))
            else:
                arrival = max(arrival, self._free_at.get((source, destination), 0.0))
                self._free_at[source, destination] = arrival
            arrival = max(arrival, self.heals_at(source, destination))
            self.queue.at(arrival, lambda: self.deliver(source, destination, tag, data))

    def is_sendable(self, rank: int) -> bool:
        """Tell whether a rank has a free send slot now."""
        return self.weather.busy == 0.0 or bool(self.rng.random() >= self.weather.busy)
