"""The folder of a run in simulated time: its rows, its checkpoints, its lock and its lives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.continuity.events import Append, WriteCheckpoint
from osprey_mpi.continuity.records import FINAL
from osprey_mpi.continuity.rescue import Attempts, attempts_in
from osprey_mpi.continuity.rows import RowBuffer
from osprey_mpi.simulate.cluster import VirtualDisk

Groups = dict[str, dict[str, NDArray[Any]]]


@dataclass(eq=False, slots=True)
class Lock:
    """Be the right of one rank to write, in one life."""

    rank: int
    life: int


@dataclass(slots=True)
class VirtualFolder:
    """Hold a disk for one writer at a time.

    Whoever has lost the lock, because the lease of its host ran out while it stood still, is refused by the file system
    (EIO). begun: the newest life that left a trace.
    """

    disk: VirtualDisk = field(default_factory=VirtualDisk)
    lock: Lock | None = None
    begun: int = 0
    attempts: Attempts = field(default_factory=set)
    checkpoints: list[tuple[float, Groups]] = field(default_factory=list)  # time, state
    _newest: Lock | None = None  # that anybody was given
    _done: set[int] = field(default_factory=set)  # ids with a final row
    _rows: set[tuple[int, int, float]] = field(default_factory=set)  # rank, id, beginning of what is on disk

    def open(self, rank: int) -> Lock | None:
        """Lock the folder for the next life; None when another has it."""
        if self.lock is not None:
            return None
        self.lock = self._newest = Lock(rank, self.begun + 1)
        return self.lock

    def close(self, lock: Lock | None) -> None:
        """Give the folder free."""
        if self.lock is lock:
            self.lock = None

    def may_write(self, lock: Lock | None) -> bool:
        """Tell whether the file system takes what the holder of a lock writes."""
        return lock is not None and lock is self.lock

    def begin(self, lock: Lock | None) -> bool:
        """Leave the first trace of a life; return whether that was possible."""
        return self._write(lock)

    def append(self, lock: Lock | None, action: Append) -> str:
        """Write rows; return why they cannot be written."""
        if not self._write(lock):
            return "input/output error"
        for row in action.records[np.isfinite(action.records["t_start_s"])]:
            key = int(row["rank"]), int(row["id"]), float(row["t_start_s"])
            assert key not in self._rows, f"evaluation {key[1]} of rank {key[0]} at {key[2]:g} s is on disk twice"
            self._rows.add(key)
        self.disk.append(action)
        self.attempts |= attempts_in(action.records)
        self._done.update(action.records["id"][np.isin(action.records["status"], FINAL)].tolist())
        assert self.disk.tally.n_evaluations == len(self._done), "an evaluation counts that has no row"
        return ""

    def rescue(self, lock: Lock | None, rows: RowBuffer) -> str:
        """Write what ranks held; return why it cannot be written."""
        return self.append(lock, Append(0, *rows.batch())) if rows else ""

    def write_checkpoint(self, lock: Lock | None, action: WriteCheckpoint, now: float) -> None:
        """Write a checkpoint, beside the older ones."""
        if self._write(lock):
            groups = {name: dict(arrays) for name, arrays in action.groups.items()}
            self.checkpoints = [*self.checkpoints[-2:], (now, groups)]
            self.disk.groups = groups

    def turn_back(self, until_s: float) -> None:
        """Lose the checkpoints that are newer, as when they are broken."""
        self.checkpoints = [(at, groups) for at, groups in self.checkpoints if at <= until_s]
        self.disk.groups = self.checkpoints[-1][1] if self.checkpoints else {}

    def _write(self, lock: Lock | None) -> bool:
        if not self.may_write(lock):
            return False
        assert lock is self._newest, "a life that others have gone on from is written to"
        self.begun = lock.life if lock is not None else self.begun
        return True
