"""Do finished evaluations again, at the same points (resume --retry)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.continuity.ids import IdRanges
from osprey_mpi.continuity.messages import Lease
from osprey_mpi.continuity.records import FINAL


class Redo:
    """Hold the ids that are to be done again and their positions.

    ids: (n,) int64, ascending; positions: (n, n_dims) float64; attempt: a number above that of every earlier attempt.
    statuses: (n,), how they ended so far; without them the counts of the run do not follow.
    """

    def __init__(
        self, ids: NDArray[np.int64] | None = None, positions: NDArray[np.float64] | None = None, attempt: int = 1,
        statuses: NDArray[np.uint8] | None = None,
    ) -> None:  # fmt: skip
        self._ids = np.empty(0, np.int64) if ids is None else ids
        self._positions = np.empty((0, 0)) if positions is None else positions
        self._attempt = attempt
        self._at = 0
        self._status = {} if statuses is None else dict(zip(self._ids.tolist(), statuses.tolist(), strict=True))
        self.missing = IdRanges((int(id), int(id) + 1) for id in self._ids)

    def lease(self, n: int) -> Lease | None:
        """Return a lease of the next ids that are to be done again, or None when all are handed out."""
        part = slice(self._at, self._at + n)
        ids = self._ids[part]
        if not len(ids):
            return None
        self._at += len(ids)
        return Lease(self._attempt, ranges=np.stack([ids, ids + 1], axis=1), positions=self._positions[part])

    def enter(self, pieces: NDArray[Any], records: NDArray[Any]) -> list[tuple[int, int, float]]:
        """Take in what came back; return (old status, new status, violation) of what was done again."""
        revised: list[tuple[int, int, float]] = []
        if not self.missing.n:
            return revised
        rows = zip(*(records[name].tolist() for name in ("id", "attempt", "status", "violation")), strict=True)
        for id, attempt, status, violation in rows:
            if attempt >= self._attempt and status in FINAL and id in self._status and id in self.missing:
                revised.append((self._status.pop(id), status, violation))
        for first, row_start, row_stop in zip(
            pieces["first"].tolist(), pieces["row_start"].tolist(), pieces["row_stop"].tolist(), strict=True
        ):
            self.missing.remove(first + row_start, first + row_stop)
        return revised
