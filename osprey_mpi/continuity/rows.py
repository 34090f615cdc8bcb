"""Hold the rows that are not on disk yet."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.continuity.ids import IdRanges
from osprey_mpi.continuity.messages import Delta
from osprey_mpi.continuity.records import BLOCK, FINAL, RECORD, RowReason, join
from osprey_mpi.continuity.sender import parse_reasons

Floats = NDArray[np.float64]


class RowBuffer:
    """Collect deltas, hand them out as one batch, keep it until it is written."""

    def __init__(self, n_columns: int) -> None:
        self._n_columns = n_columns
        self._deltas: list[Delta] = []
        self._out: list[Delta] = []

    def __bool__(self) -> bool:
        return bool(self._deltas or self._out)

    @property
    def in_flight(self) -> bool:
        """Tell whether a batch is handed out and not yet written."""
        return bool(self._out)

    @property
    def waiting(self) -> bool:
        """Tell whether there are rows that the next batch will hold, not the one that is handed out."""
        return bool(self._deltas)

    @property
    def elapsed_s(self) -> float:
        """Return the time that the objective took for the batch that is handed out."""
        return sum(float(delta.pieces["elapsed_s"].sum()) for delta in self._out)

    def add(self, delta: Delta) -> None:
        """Take in the rows of a delta."""
        self._deltas.append(delta)

    def batch(self) -> tuple[NDArray[Any], Floats, NDArray[Any], list[RowReason]]:
        """Return records, values (n, n_columns), blocks, reasons; the same again until written() or put_back()."""
        if not self._out:
            self._out, self._deltas = self._deltas, []
        records = [delta.records for delta in self._out if len(delta.records)]
        values = [delta.values for delta in self._out if len(delta.records)]
        reasons = [reason for delta in self._out for reason in parse_reasons(delta.reasons)]
        all_records = join(records, np.empty(0, RECORD))
        all_values = join(values, np.empty((0, self._n_columns)))
        return all_records, all_values, self._blocks(all_records), reasons

    def _blocks(self, records: NDArray[Any]) -> NDArray[Any]:
        """Return the ids that are done and have no final row of their own, as ranges."""
        done = IdRanges()
        for delta in self._out:
            first = delta.pieces["first"]
            starts, stops = first + delta.pieces["row_start"], first + delta.pieces["row_stop"]
            for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
                done.add(start, stop)
        final = np.sort(records["id"][np.isin(records["status"], FINAL)])
        for run in np.split(final, np.flatnonzero(np.diff(final) > 1) + 1):
            if len(run):
                done.remove(int(run[0]), int(run[-1]) + 1)
        return np.array([(start, stop - start) for start, stop in done], BLOCK)

    def written(self) -> None:
        """Forget the batch: it is on disk."""
        self._out = []

    def put_back(self) -> None:
        """Take the batch back: it could not be written."""
        self._deltas, self._out = self._out + self._deltas, []
