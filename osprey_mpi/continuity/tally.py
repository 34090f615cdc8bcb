"""Count what a run has done and keep its best point: exact, whatever comes twice or in another order."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.continuity.ids import IdRanges
from osprey_mpi.continuity.ledger import rank_key
from osprey_mpi.continuity.records import FINAL, NO_ID, Status
from osprey_mpi.continuity.violations import Violations

Floats = NDArray[np.float64]
_STATUS = tuple(Status)  # by number: calling Status takes three times as long


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
    """Hold the ids that are done, how they ended, how many violate constraints, and the best of them."""

    done: IdRanges = field(default_factory=IdRanges)
    counts: dict[Status, int] = field(default_factory=lambda: dict.fromkeys(Status, 0))
    best: BestRow = field(default_factory=BestRow)
    violations: Violations = field(default_factory=Violations)
    n_at_best: int = 0  # evaluations done when the best point was found, for budget.stagnation

    @property
    def n_evaluations(self) -> int:
        """Return how many ids are done; each counts once."""
        return self.done.n

    def enter(self, pieces: NDArray[Any], records: NDArray[Any], values: Floats) -> bool:
        """Enter finished rows; return whether the best point changed.

        Of several final rows of an id the first counts; what is done already is an attempt. Every lost or cancelled
        attempt counts as one. Rows of a block without records of their own are OK, but for those that failed by its
        piece; where part of such a block was done already, not more than its new rows.
        """
        statuses = records["status"].tolist()
        fresh: dict[int, int] = {}  # id -> its row
        for row, (id, status) in enumerate(zip(records["id"].tolist(), statuses, strict=True)):
            if status not in FINAL:
                self.counts[_STATUS[status]] += 1
            elif id not in self.done:
                fresh.setdefault(id, row)
        n_new = n_failed = 0
        first, n_bad = pieces["first"], pieces["n_failed"].tolist()
        starts, stops = (first + pieces["row_start"]).tolist(), (first + pieces["row_stop"]).tolist()
        for start, stop, bad in zip(starts, stops, n_bad, strict=True):
            new = self.done.add(start, stop)
            n_new += new
            n_failed += min(bad, new)
        for row in fresh.values():
            status = statuses[row]
            self.counts[_STATUS[status]] += 1
            n_failed -= status in (Status.FAILED, Status.TIMEOUT)
        n_unrecorded = n_new - len(fresh)
        assert n_unrecorded >= 0, "a final row belongs to a piece"
        if n_unrecorded or (records["violation"] > 0.0).any():
            self.violations += Violations.of(records[list(fresh.values())], n_unrecorded)
        if n_unrecorded:
            failed = max(0, min(n_unrecorded, n_failed))
            self.counts[Status.FAILED] += failed
            self.counts[Status.OK] += n_unrecorded - failed
        return self._improve(records, statuses, values)

    def revise(self, changes: list[tuple[int, int, float]]) -> None:
        """Count evaluations that were done again by how they ended now: (old status, new status, violation) each."""
        for old, new, violation in changes:
            self.counts[_STATUS[old]] -= 1
            self.counts[_STATUS[new]] += 1
            if violation > 0.0:  # it was called now, and what failed before had none
                self.violations += Violations(n_infeasible=1)

    def _improve(self, records: NDArray[Any], statuses: list[int], values: Floats) -> bool:
        improved = False
        best = self.best.key
        rows = zip(statuses, records["cost"].tolist(), records["violation"].tolist(), strict=True)
        for index, (status, cost, violation) in enumerate(rows):
            if status != Status.OK or not isfinite(cost):
                continue
            key = rank_key(cost, violation, int(records["id"][index]))
            if key < best:
                best = key
                self.best = BestRow(cost, violation, key[3], np.array(values[index]))
                improved = True
        if improved:
            self.n_at_best = self.done.n
        return improved
