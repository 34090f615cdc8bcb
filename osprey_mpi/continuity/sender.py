"""Be the sending half of the protocol, the same for a worker and for a leader: stamp, keep, send again, say farewell.

Rules
-----
* A delta is stamped when it is packed for a free send slot, not before: when the way is blocked, what happens meanwhile
  goes into the same delta. So a sender never waits, and never holds more than its open orders can produce.
* A delta is kept until its collector acknowledges it as durable, and is sent again on a Resync.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.continuity.ledger import Account
from osprey_mpi.continuity.messages import Delta, Farewell, Heartbeat, Message
from osprey_mpi.continuity.records import PIECE, RECORD, RowReason, count_rows, join


@dataclass(slots=True)
class Load:
    """Collect what the next delta will carry."""

    n_columns: int
    n_dims: int
    pieces: list[NDArray[Any]] = field(default_factory=list)
    records: list[NDArray[Any]] = field(default_factory=list)
    values: list[NDArray[np.float64]] = field(default_factory=list)
    costs: list[NDArray[np.float64]] = field(default_factory=list)
    violations: list[NDArray[np.float64]] = field(default_factory=list)
    survivor_costs: list[NDArray[np.float64]] = field(default_factory=list)
    survivor_violations: list[NDArray[np.float64]] = field(default_factory=list)
    survivor_latent: list[NDArray[np.float64]] = field(default_factory=list)
    reasons: list[RowReason] = field(default_factory=list)
    captured: bool = False

    def __bool__(self) -> bool:
        return bool(self.pieces or self.records)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of a delta by its field names."""
        return {
            "pieces": join(self.pieces, np.empty(0, PIECE)),
            "records": join(self.records, np.empty(0, RECORD)),
            "values": join(self.values, np.empty((0, self.n_columns))),
            "costs": join(self.costs, np.empty(0)),
            "violations": join(self.violations, np.empty(0)),
            "survivor_costs": join(self.survivor_costs, np.empty(0)),
            "survivor_violations": join(self.survivor_violations, np.empty(0)),
            "survivor_latent": join(self.survivor_latent, np.empty((0, self.n_dims))),
        }


class Sender:
    """Stamp deltas with the counter and keep them until they are durable."""

    def __init__(self, incarnation: int, n_columns: int, n_dims: int) -> None:
        self.account = Account(incarnation=incarnation)
        self._n_columns, self._n_dims = n_columns, n_dims
        self.load = Load(n_columns, n_dims)
        self.unacknowledged: deque[Delta] = deque()

    @property
    def incarnation(self) -> int:
        """Return the incarnation of this sender."""
        return self.account.incarnation

    def capture(self, cost: float, violation: float, id: int, position: NDArray[np.float64]) -> bool:
        """Take a point as the sender's best if it is better; return whether it was (a capture)."""
        if not self.account.improved_by(cost, violation, id):
            return False
        self.account.cost, self.account.violation, self.account.best_id = cost, violation, id
        self.account.position = np.array(position, np.float64)
        self.load.captured = True
        return True

    def stamp(self) -> Delta:
        """Pack the load into the next delta and keep it."""
        load, account = self.load, self.account
        arrays = load.arrays()
        account.counter += 1
        account.n_evaluations += count_rows(arrays["pieces"])
        delta = Delta(
            account.incarnation, account.counter, account.n_evaluations, account.checksum(),
            account.cost, account.violation, account.best_id,
            account.position if load.captured else np.empty(0),
            reasons=json.dumps(load.reasons) if load.reasons else "",
            **arrays,
        )  # fmt: skip
        self.load = Load(self._n_columns, self._n_dims)
        self.unacknowledged.append(delta)
        return delta

    def kept(self) -> list[Delta]:
        """Return what nobody has acknowledged as durable, with what was not sent yet."""
        if self.load:
            self.stamp()
        return list(self.unacknowledged)

    def acknowledge(self, incarnation: int, counter: int) -> None:
        """Forget the deltas that are durable."""
        if incarnation != self.incarnation:
            return
        while self.unacknowledged and self.unacknowledged[0].counter <= counter:
            self.unacknowledged.popleft()

    def heartbeat(self) -> Heartbeat:
        """Say that it is there and how much it has sent."""
        return Heartbeat(self.account.incarnation, self.account.counter)

    def farewell(self) -> Farewell:
        """Say that it will send nothing more."""
        return Farewell(self.account.incarnation, self.account.counter)

    def answer(self, counter: int) -> list[Message]:
        """Answer a Resync: a sign of life, and the kept deltas that follow `counter`."""
        return [self.heartbeat(), *(delta for delta in self.unacknowledged if delta.counter > counter)]

    def check(self) -> None:
        """Assert the invariants: the kept deltas are the last ones, without a gap."""
        counters = [delta.counter for delta in self.unacknowledged]
        assert counters == list(range(self.account.counter - len(counters) + 1, self.account.counter + 1))


def parse_reasons(text: str) -> list[RowReason]:
    """Return the reasons of a delta."""
    return [RowReason(*fields) for fields in json.loads(text)] if text else []
