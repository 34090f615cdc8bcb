"""Keep the books of a run: what was done, what of it is on disk, and what a checkpoint holds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from numpy.typing import NDArray

from osprey_mpi.continuity.events import Append, Appended, WriteCheckpoint
from osprey_mpi.continuity.messages import Delta
from osprey_mpi.continuity.rows import RowBuffer
from osprey_mpi.continuity.tally import Tally

Snapshots = dict[int, dict[str, NDArray[Any]]]  # flock -> arrays
Stamps = dict[int, tuple[int, int]]  # leader -> (incarnation, counter) of its newest delta


class Books:
    """Hold the tally, the rows that are not on disk yet, and the newest snapshot of every flock."""

    def __init__(self, n_columns: int, tally: Tally, snapshots: Snapshots) -> None:
        self.tally, self.snapshots = tally, snapshots
        self.rows = RowBuffer(n_columns)
        self._serial = 0
        self._admitted: Stamps = {}  # since the last Append
        self._in_append: Stamps = {}
        self._durable = 0  # serial number of the newest Append that is on disk, and with it all that were before
        self._due: tuple[int, WriteCheckpoint] | None = None  # with the Append that is to be on disk before it
        self._snapshot_serial = 0
        self._awaiting: set[int] = set()

    def enter(self, source: int, delta: Delta, *, admitted: bool) -> bool:
        """Enter a delta, to be acknowledged if it was admitted; return whether the best point of the run changed."""
        if admitted:
            self._admitted[source] = (delta.incarnation, delta.counter)
        self.rows.add(delta)
        return self.tally.enter(delta.pieces, delta.records, delta.values)

    def append(self) -> list[Append]:
        """Return what is to be written, if there is something and nothing is being written already."""
        if not self.rows or self.rows.in_flight:
            return []
        self._serial += 1
        self._in_append, self._admitted = self._admitted, {}
        return [Append(self._serial, *self.rows.batch(), self.rows.elapsed_s)]

    def appended(self, event: Appended) -> Stamps | None:
        """Return what is durable now; None when it could not be written, or was no answer to the last Append."""
        if event.serial != self._serial or not self.rows.in_flight:
            return None
        if event.error:
            self.rows.put_back()
            self._admitted = {**self._in_append, **self._admitted}
            self._in_append = {}
            return None
        self.rows.written()
        self._durable = event.serial
        stamps, self._in_append = self._in_append, {}
        return stamps

    def request_snapshots(self, leaders: Iterable[int]) -> int:
        """Begin a checkpoint; return the serial number of the request."""
        self._snapshot_serial += 1
        self._awaiting = set(leaders)
        return self._snapshot_serial

    def take_snapshot(self, source: int, serial: int, flock: int, arrays: dict[str, NDArray[Any]]) -> bool:
        """Take in the state of a flock's search; return whether it was the last one of a checkpoint."""
        self.snapshots[flock] = arrays
        if serial != self._snapshot_serial or source not in self._awaiting:
            return False
        self._awaiting.discard(source)
        return not self._awaiting

    def checkpoint(self) -> list[WriteCheckpoint]:
        """Return the checkpoint as it is; if rows that it knows are not on disk, nothing yet: it is due after them."""
        groups = {f"flock-{flock:04d}": arrays for flock, arrays in sorted(self.snapshots.items())}
        checkpoint = WriteCheckpoint(groups, {"n_evaluations": self.tally.n_evaluations})
        self._due = self._serial + self.rows.waiting, checkpoint
        return self.due()

    def due(self) -> list[WriteCheckpoint]:
        """Return the checkpoint that is due, once, if all that it knows is on disk."""
        if self._due is None or self._due[0] > self._durable:
            return []
        (_, checkpoint), self._due = self._due, None
        return [checkpoint]

    def check(self) -> None:
        """Assert the invariants."""
        assert self.tally.n_evaluations == sum(stop - start for start, stop in self.tally.done)
        assert self._due is None or self.rows, "a checkpoint waits for rows only"
