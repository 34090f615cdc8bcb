"""Share the evaluations of a flock between its parties, by what each has achieved."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.search.states import State

# Shares of the dives until the first has ended: gradients pay most where a covariance cannot be learnt any more.
FIRST_SHARE, FIRST_SHARE_LARGE, LARGE = 0.5, 0.7, 64
# A party without a record of the flock for half the run goes on with this weight against 1.
STALE = 0.2
# Weights are looked at again after so many evaluations per dimension.
PERIOD = 20


class Party(IntEnum):
    """Name who asked for an evaluation."""

    HOVER = 0
    DIVE = 1
    START = 2


class Credit:
    """Hold for hover and dive: evaluations used in this period, those still open, and when each last had a record."""

    def __init__(self, d: int) -> None:
        self._d = d
        share = FIRST_SHARE_LARGE if d > LARGE else FIRST_SHARE
        self._weights = np.array([1.0 - share, share])
        self._used, self._open = np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.int64)
        self._last_record = np.zeros(2, dtype=np.int64)
        self.n_told, self._period_end = 0, -1  # -1: the first dive has not ended

    def prefers_dive(self) -> bool:
        """Tell whose turn it is: the party that used least of its share."""
        used = self._used / self._weights
        return bool(used[Party.DIVE] < used[Party.HOVER])

    def charge(self, party: Party, n: int) -> None:
        """Book evaluations that were handed out."""
        if party is not Party.START:
            self._used[party] += n
            self._open[party] += n

    def close(self, party: Party, n: int) -> None:
        """Book evaluations that were told."""
        self.n_told += n
        if party is not Party.START:
            self._open[party] = max(self._open[party] - n, 0)

    def refund(self, party: Party, n: int) -> None:
        """Take back evaluations that will never be told."""
        if party is not Party.START:
            self._open[party] = max(self._open[party] - n, 0)
            self._used[party] = max(self._used[party] - n, 0)

    def record(self, party: Party) -> None:
        """Book a new best of the flock."""
        if party is not Party.START:
            self._last_record[party] = self.n_told

    def review(self, has_dived: bool, unit: int) -> None:
        """Weigh the parties again when a period is over; unit: evaluations per block of a batched objective, else 1."""
        if not has_dived or self.n_told < self._period_end:
            return
        stale = self._last_record * 2 < self.n_told
        self._weights = np.where(stale, STALE, 1.0)
        self._used[:] = 0
        self._period_end = self.n_told + PERIOD * max(self._d, unit)

    def state(self) -> State:
        """Give everything that `load` needs; what is open counts as never asked."""
        counts = np.array([self.n_told, self._period_end], dtype=np.int64)
        used = np.maximum(self._used - self._open, 0)
        return {"weights": self._weights, "used": used, "records": self._last_record, "counts": counts}

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from `state`."""
        self._weights, self._used, self._last_record = state["weights"], state["used"], state["records"]
        self.n_told, self._period_end = (int(number) for number in state["counts"])
        self._open[:] = 0
