"""Keep one sender's account: which deltas were admitted, and the state that they add up to.

Rules
-----
* Only delta n+1 of the sender's incarnation is admitted; what was admitted before is a duplicate, what comes later a
  gap.
* The collector replays a delta on its own copy of the sender's state. Its checksum must equal the delta's, or the delta
  is corrupt and nothing of it counts: that is the proof in "proof of continuity".
* A higher incarnation starts a new account; a lower one is late: its rows are facts, they carry no vote.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import Enum
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.continuity.messages import Delta
from osprey_mpi.continuity.records import NO_ID, count_rows

_STATE = struct.Struct("<qqqddq")


class Verdict(Enum):
    """Say what became of a delta."""

    ADMITTED = "admitted"
    DUPLICATE = "duplicate"
    GAP = "gap"
    CORRUPT = "corrupt"
    LATE = "late"  # of an older incarnation


@dataclass(slots=True)
class Account:
    """Hold a sender's state: its best point and how much it has done.

    position: (n_dims,) float64 in the unit box, empty before the first capture.
    """

    incarnation: int = 1
    counter: int = 0
    n_evaluations: int = 0
    cost: float = float("inf")
    violation: float = 0.0
    best_id: int = NO_ID
    position: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))

    def checksum(self) -> int:
        """Return the CRC-32 of the whole state, position bit for bit."""
        head = _STATE.pack(self.incarnation, self.counter, self.n_evaluations, self.cost, self.violation, self.best_id)
        return crc32(np.ascontiguousarray(self.position, "<f8").data, crc32(head))

    def improved_by(self, cost: float, violation: float, id: int) -> bool:
        """Tell whether a point is better: feasible before infeasible, then cost (or violation), then the lower id.

        A total order, so that merging is a join: commutative, associative and idempotent.
        """
        return rank_key(cost, violation, id) < rank_key(self.cost, self.violation, self.best_id)

    def apply(self, delta: Delta) -> None:
        """Advance by one delta."""
        self.counter = delta.counter
        self.n_evaluations = delta.n_evaluations
        self.cost, self.violation, self.best_id = delta.cost, delta.violation, delta.best_id
        if delta.position.size:
            self.position = delta.position


def rank_key(cost: float, violation: float, id: int) -> tuple[bool, float, float, int]:
    """Return the sort key of a point: no point at all comes last, NaN costs before that."""
    if id == NO_ID:
        return True, float("inf"), float("inf"), 2**63
    if violation != violation:  # NaN
        violation = float("inf")
    if cost != cost:
        cost = float("inf")
    infeasible = violation > 0.0
    return infeasible, (violation if infeasible else 0.0), cost, id


@dataclass(slots=True)
class Ledger:
    """Admit one sender's deltas in order."""

    account: Account = field(default_factory=Account)

    @property
    def admitted(self) -> int:
        """Return the counter up to which every delta was admitted."""
        return self.account.counter

    def admit(self, delta: Delta) -> Verdict:
        """Admit the next delta, or say why not; nothing changes then."""
        account = self.account
        if delta.incarnation < account.incarnation:
            return Verdict.LATE
        assert delta.incarnation == account.incarnation, "the collector renews the account first"
        if delta.counter <= account.counter:
            return Verdict.DUPLICATE
        if delta.counter != account.counter + 1:
            return Verdict.GAP
        rows = count_rows(delta.pieces)
        replayed = Account(
            account.incarnation, account.counter, account.n_evaluations, account.cost, account.violation,
            account.best_id, account.position,
        )  # fmt: skip
        replayed.apply(delta)
        if replayed.n_evaluations != account.n_evaluations + rows or replayed.checksum() != delta.checksum:
            return Verdict.CORRUPT
        self.account = replayed
        return Verdict.ADMITTED

    def check(self) -> None:
        """Assert the invariants."""
        account = self.account
        assert account.counter >= 0 and account.n_evaluations >= 0
        assert (account.best_id == NO_ID) == (account.position.size == 0)
