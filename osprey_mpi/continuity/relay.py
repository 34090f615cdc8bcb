"""Pass the workers' deltas on to the root, and its acknowledgements back to them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.continuity.messages import Delta
from osprey_mpi.continuity.sender import Sender, parse_reasons

# Messages of workers that go up together cost the root hardly more than one does.
COMPANY = 64


@dataclass(slots=True)
class Relayed:
    """Remember which worker deltas went up in one delta of the leader: {worker: (incarnation, counter)}."""

    counter: int
    of: dict[int, tuple[int, int]] = field(default_factory=dict)


class Relay:
    """Gather the deltas of the workers in the leader's own.

    Nothing here grows beyond what comes between two appends of the root: it acknowledges after each, and a sender that
    is not acknowledged is soon not `sendable` either.
    """

    def __init__(self, sender: Sender) -> None:
        self.sender = sender
        self._relayed: deque[Relayed] = deque()
        self._pending: dict[int, tuple[int, int]] = {}  # worker counters in the load of the next delta
        self._held_since: float | None = None  # when the load was first seen

    def pass_on(self, source: int, delta: Delta, *, admitted: bool) -> None:
        """Put a worker's rows into the next delta to the root; what only the search needs stays here."""
        load = self.sender.load
        if admitted:
            self._pending[source] = (delta.incarnation, delta.counter)
        if len(delta.pieces):
            pieces = delta.pieces
            if len(delta.costs) or len(delta.survivor_costs):
                pieces = pieces.copy()
                pieces["n_costs"] = pieces["n_survivors"] = 0
            load.pieces.append(pieces)
        self.add_rows(delta.records, delta.values)
        load.reasons += parse_reasons(delta.reasons)
        if delta.position.size:
            self.sender.capture(delta.cost, delta.violation, delta.best_id, delta.position)

    def add_rows(self, records: NDArray[Any], values: NDArray[np.float64]) -> None:
        """Put rows into the next delta to the root."""
        if len(records):
            self.sender.load.records.append(records)
            self.sender.load.values.append(values)

    def is_due(self, now: float, hold_s: float) -> bool:
        """Tell whether the next delta should go up: with a new best at once, else in company, or after `hold_s`."""
        load = self.sender.load
        if not load:
            return False
        self._held_since = now if self._held_since is None else self._held_since
        return load.captured or len(load.pieces) >= COMPANY or now - self._held_since >= hold_s

    def stamp(self) -> Delta:
        """Return the next delta to the root."""
        self._held_since = None
        delta = self.sender.stamp()
        self._relayed.append(Relayed(delta.counter, self._pending))
        self._pending = {}
        return delta

    def durable(self, incarnation: int, counter: int) -> dict[int, tuple[int, int]]:
        """Take in an acknowledgement of the root; return which deltas of which workers are durable by it."""
        newest: dict[int, tuple[int, int]] = {}
        if incarnation == self.sender.incarnation:
            self.sender.acknowledge(incarnation, counter)
            while self._relayed and self._relayed[0].counter <= counter:
                newest.update(self._relayed.popleft().of)
        return newest
