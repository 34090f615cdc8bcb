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
        # Lists, because NumPy scalars cost ten times as much, for every result.
        self._weights = [1.0 - share, share]
        self._used, self._open, self._last_record = [0, 0], [0, 0], [0, 0]
        self.n_told, self._period_end = 0, -1  # -1: the first dive has not ended

    def prefers_dive(self) -> bool:
        """Tell whose turn it is: the party that used least of its share."""
        hover, dive = (used / weight for used, weight in zip(self._used, self._weights, strict=True))
        return dive < hover

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
        self._weights = [STALE if 2 * last < self.n_told else 1.0 for last in self._last_record]
        self._used = [0, 0]
        self._period_end = self.n_told + PERIOD * max(self._d, unit)

    def state(self) -> State:
        """Give everything that `load` needs; what is open counts as never asked."""
        counts = np.array([self.n_told, self._period_end], dtype=np.int64)
        told = [max(used - still_open, 0) for used, still_open in zip(self._used, self._open, strict=True)]
        used, records = np.array(told, dtype=np.int64), np.array(self._last_record, dtype=np.int64)
        return {"weights": np.array(self._weights), "used": used, "records": records, "counts": counts}

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from `state`."""
        self._weights, self._used = state["weights"].tolist(), state["used"].tolist()
        self._last_record = state["records"].tolist()
        self.n_told, self._period_end = (int(number) for number in state["counts"])
        self._open = [0, 0]
