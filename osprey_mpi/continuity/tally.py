"""Count what a run has done and keep its best point: exact, whatever comes twice or in another order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.continuity.ids import IdRanges
from osprey_mpi.continuity.ledger import rank_key
from osprey_mpi.continuity.records import NO_ID, Status

Floats = NDArray[np.float64]
FINAL = (Status.OK, Status.FAILED, Status.TIMEOUT, Status.STOPPED)


@dataclass(slots=True)
class BestRow:
    """Hold the best evaluation: its value row is (n_columns,) float64."""

    cost: float = float("inf")
    violation: float = 0.0
    id: int = NO_ID
    values: Floats = field(default_factory=lambda: np.empty(0))

    @property
    def key(self) -> tuple[bool, float, float, int]:
        """Return the key of the total order on points."""
        return rank_key(self.cost, self.violation, self.id)


@dataclass(slots=True)
class Tally:
    """Hold the ids that are done, how they ended, and the best of them."""

    done: IdRanges = field(default_factory=IdRanges)
    counts: dict[Status, int] = field(default_factory=lambda: dict.fromkeys(Status, 0))
    best: BestRow = field(default_factory=BestRow)
    n_at_best: int = 0  # evaluations done when the best point was found, for budget.stagnation

    @property
    def n_evaluations(self) -> int:
        """Return how many ids are done; each counts once."""
        return self.done.n

    def enter(self, pieces: NDArray[Any], records: NDArray[Any], values: Floats) -> bool:
        """Enter finished rows; return whether the best point changed. What is done already is an attempt, not counted."""
        known = {int(record["id"]) for record in records if int(record["id"]) in self.done}
        n_failed = 0
        n_new = 0
        for piece in pieces:
            start = int(piece["first"] + piece["row_start"])
            new = self.done.add(start, int(piece["first"] + piece["row_stop"]))
            n_new += new
            n_failed += int(piece["n_failed"]) if new else 0
        fresh = np.array([int(id) not in known for id in records["id"]], bool)
        counted = 0
        for status in Status:
            n = int(np.count_nonzero(fresh & (records["status"] == status)))
            if status in FINAL:
                counted += n
            self.counts[status] += n
        unrecorded = n_new - counted
        recorded_failures = int(np.count_nonzero(fresh & np.isin(records["status"], (Status.FAILED, Status.TIMEOUT))))
        failed = max(0, min(unrecorded, n_failed - recorded_failures))
        self.counts[Status.FAILED] += failed
        self.counts[Status.OK] += max(0, unrecorded - failed)
        return self._improve(records, values)

    def _improve(self, records: NDArray[Any], values: Floats) -> bool:
        usable = (records["status"] == Status.OK) & np.isfinite(records["cost"])
        improved = False
        for index in np.flatnonzero(usable):
            record = records[index]
            cost, violation, id = float(record["cost"]), float(record["violation"]), int(record["id"])
            if rank_key(cost, violation, id) < self.best.key:
                self.best = BestRow(cost, violation, id, np.array(values[index]))
                improved = True
        if improved:
            self.n_at_best = self.done.n
        return improved
