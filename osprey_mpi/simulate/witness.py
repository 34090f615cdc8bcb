"""See all that happens in a launch, and say what may not: by accounts of its own, not by the code that it watches.

* a delta is admitted once, and the account that its collector replays is that of its sender, bit for bit
* the best point that a sender tells is the lowest of all that it was told, by cost and then by id
* what a worker hears to be durable is on disk
* what a rank that lives to the end has captured is on disk
* survivors who go on with the same root in the same epoch go on with the same members, and never in an older epoch
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from osprey_mpi.continuity.ledger import Account
from osprey_mpi.continuity.messages import Delta, Role
from osprey_mpi.continuity.records import Status
from osprey_mpi.simulate.cluster import VirtualDisk

Point = tuple[float, int]  # cost, id
Sender = tuple[int, int, Role]  # epoch, rank, role that its deltas are for
NONE: Point = (float("inf"), -1)


def key(point: Point) -> tuple[float, float]:
    """Order points: the lower cost, then the lower id; none at all comes last."""
    return (point[0], point[1]) if point[1] >= 0 else (float("inf"), float("inf"))


@dataclass(slots=True)
class Witness:
    """Hold what the deltas, points and worlds of a launch should be."""

    disk: VirtualDisk
    stamped: dict[tuple[Sender, int, int], tuple[int, bytes]] = field(default_factory=dict)
    admitted: set[tuple[Sender, int, int]] = field(default_factory=set)
    told: dict[Sender, Point] = field(default_factory=dict)
    captured: dict[int, Point] = field(default_factory=dict)  # by rank, over all its lives
    epochs: dict[int, int] = field(default_factory=dict)  # by rank
    worlds: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)

    def sent(self, sender: Sender, delta: Delta, account: Account) -> None:
        """See a delta leave its sender."""
        mark = sender, delta.incarnation, delta.counter
        if mark in self.stamped:
            return  # again, on a Resync
        best = self.told.get(sender, NONE)
        assert (delta.cost, delta.best_id) == best, f"{sender} tells {delta.best_id} as its best, it is {best[1]}"
        self.stamped[mark] = delta.checksum, account.position.tobytes()

    def entered(self, sender: Sender, account: Account, before: int, collector: Sender | None) -> None:
        """See what a collector has admitted since its account of the sender stood at `before`."""
        if account.counter == before:
            return
        assert account.counter == before + 1, "more than one delta at once"
        mark = sender, account.incarnation, account.counter
        assert mark not in self.admitted, f"delta {account.counter} of {sender} is admitted twice"
        self.admitted.add(mark)
        assert (account.checksum(), account.position.tobytes()) == self.stamped.get(mark), "a replayed account differs"
        if collector is not None:
            self._tell(collector, (account.cost, account.best_id))

    def evaluated(self, sender: Sender, records: np.ndarray[Any, Any]) -> None:
        """See a worker take in results."""
        rank = sender[1]
        usable = records[(records["status"] == Status.OK) & np.isfinite(records["cost"])]
        for cost, id in zip(usable["cost"].tolist(), usable["id"].tolist(), strict=True):
            self._tell(sender, (cost, id))
            self.captured[rank] = min(self.captured.get(rank, NONE), (cost, id), key=key)

    def acknowledged(self, deltas: Sequence[Delta]) -> None:
        """See a worker forget deltas."""
        for delta in deltas:
            first = delta.pieces["first"]
            starts, stops = ((first + delta.pieces[row]).tolist() for row in ("row_start", "row_stop"))
            for start, stop in zip(starts, stops, strict=True):
                assert not self.disk.tally.done.gaps(start, stop), "acknowledged, but not on disk"
            self._on_disk((delta.cost, delta.best_id))

    def survived(self, rank: int) -> None:
        """See a rank at the end of a run that is done."""
        self._on_disk(self.captured.get(rank, NONE))

    def took_up(self, rank: int, epoch: int, members: tuple[int, ...]) -> None:
        """See a rank take up a world."""
        assert rank in members and epoch > self.epochs.get(rank, 0), f"rank {rank} goes back to epoch {epoch}"
        self.epochs[rank] = epoch
        assert self.worlds.setdefault((epoch, members[0]), members) == members, f"two worlds of epoch {epoch}"

    def _tell(self, sender: Sender, point: Point) -> None:
        self.told[sender] = min(self.told.get(sender, NONE), point, key=key)

    def _on_disk(self, point: Point) -> None:
        best = self.disk.tally.best
        assert key((best.cost, best.id)) <= key(point), f"a captured point is lost: {point}"
