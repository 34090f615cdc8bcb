"""Do finished evaluations again, at the same points (resume --retry)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.continuity.ids import IdRanges
from osprey_mpi.continuity.messages import Lease


class Redo:
    """Hold the ids that are to be done again and their positions.

    ids: (n,) int64, ascending; positions: (n, n_dims) float64; attempt: a number above that of every earlier attempt.
    """

    def __init__(
        self, ids: NDArray[np.int64] | None = None, positions: NDArray[np.float64] | None = None, attempt: int = 1
    ) -> None:
        self._ids = np.empty(0, np.int64) if ids is None else ids
        self._positions = np.empty((0, 0)) if positions is None else positions
        self._attempt = attempt
        self._at = 0
        self.missing = IdRanges((int(id), int(id) + 1) for id in self._ids)

    def lease(self, n: int) -> Lease | None:
        """Return a lease of the next ids that are to be done again, or None when all are handed out."""
        part = slice(self._at, self._at + n)
        ids = self._ids[part]
        if not len(ids):
            return None
        self._at += len(ids)
        return Lease(self._attempt, np.stack([ids, ids + 1], axis=1), self._positions[part])

    def enter(self, pieces: NDArray[Any]) -> None:
        """Take in what came back."""
        if self.missing.n:
            for piece in pieces:
                self.missing.remove(int(piece["first"] + piece["row_start"]), int(piece["first"] + piece["row_stop"]))
