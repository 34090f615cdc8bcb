"""Share the points and results of one child process with its rank: memory that survives the child's death.

The rank writes points into a slot, the child writes each result beside its point and notes which row it is in.
So a crash costs the evaluation that crashed and nothing else, and the rank sees how long the current one runs.

Layout, little-endian: the head (64 bytes), then N_SLOTS slots of `capacity` rows of RESULT and of values
(n_columns float64 each), then the child's instructions (UTF-8 JSON), then the trace of a crash.

The rank reads results after a DONE frame, after the child's death, or when the child has been in a later row for
SETTLED_S: a pipe, a wait and 10 ms each order memory between processes, two bare reads of it would not everywhere.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

N_SLOTS = 2  # one slot is evaluated while the other is filled: the child never waits for the rank's next look
SETTLED_S = 0.01
TRACE_BYTES = 1 << 16  # a dump has at most 100 frames of each thread

RESULT = np.dtype(
    [
        ("id", "<i8"),
        ("cost", "<f8"),
        ("violation", "<f8"),
        ("t_start_s", "<f8"),  # CLOCK_MONOTONIC, which all processes of a host share
        ("t_end_s", "<f8"),
        ("status", "<i8"),
    ]
)
_RESULT_AFTER_ID = struct.Struct("<ddddq")
_RUNNING = struct.Struct("<qqd")
_GROUP = struct.Struct("<q")
_GROUP_AT = 24
_HEAD_BYTES = 64


@dataclass(frozen=True, slots=True)
class Running:
    """Say where the child is: rows below `row` of chunk `serial` are done; `since_s` is 0 when no row runs."""

    serial: int
    row: int
    since_s: float


class Board:
    """Map the shared memory; both sides hold one over the same file descriptor."""

    def __init__(self, fd: int, capacity: int, n_columns: int) -> None:
        self.fd = fd
        self.capacity = capacity
        self._map = mmap.mmap(fd, 0)
        self.results: list[NDArray[np.void]] = []
        self.values: list[NDArray[np.float64]] = []
        self._results_at: list[int] = []
        offset = _HEAD_BYTES
        for _ in range(N_SLOTS):
            self._results_at.append(offset)
            self.results.append(np.frombuffer(self._map, RESULT, capacity, offset))
            offset += capacity * RESULT.itemsize
            rows = np.frombuffer(self._map, np.float64, capacity * n_columns, offset)
            self.values.append(rows.reshape(capacity, n_columns))
            offset += capacity * n_columns * 8
        self._instructions_at = offset

    @classmethod
    def create(cls, capacity: int, n_columns: int, instructions: bytes) -> Board:
        """Make a new board in memory (in a temporary file where the kernel has no memfd)."""
        if hasattr(os, "memfd_create"):
            fd = os.memfd_create("osprey-board", os.MFD_CLOEXEC)
        else:
            with tempfile.TemporaryFile() as file:
                fd = os.dup(file.fileno())
        slots = N_SLOTS * capacity * (RESULT.itemsize + n_columns * 8)
        try:
            os.ftruncate(fd, _HEAD_BYTES + slots + len(instructions))
            board = cls(fd, capacity, n_columns)
        except OSError:
            os.close(fd)
            raise
        board._map[board._instructions_at :] = instructions
        board.set_running(-1, 0, 0.0)
        return board

    @property
    def instructions(self) -> bytes:
        """Return the child's instructions as they were given to `create`."""
        return self._map[self._instructions_at :]

    def trace_fd(self) -> int:
        """Return the descriptor, at the place of the trace: a handler of signals can write nowhere but to a file."""
        os.lseek(self.fd, len(self._map), os.SEEK_SET)
        return self.fd

    def trace(self) -> str:
        """Return what was written there."""
        return os.pread(self.fd, TRACE_BYTES, len(self._map)).decode(errors="replace")

    def set_running(self, serial: int, row: int, since_s: float) -> None:
        """Note that rows below `row` are done and that `row` runs since `since_s` (0: not yet)."""
        _RUNNING.pack_into(self._map, 0, serial, row, since_s)

    def running(self) -> Running:
        """Return where the child is."""
        return Running(*_RUNNING.unpack_from(self._map, 0))

    def set_group(self, group: int) -> None:
        """Note the process group of the external program that runs, 0 for none."""
        _GROUP.pack_into(self._map, _GROUP_AT, group)

    def group(self) -> int:
        """Return the process group of the external program that runs, 0 for none."""
        return int(_GROUP.unpack_from(self._map, _GROUP_AT)[0])

    def set_result(
        self, slot: int, row: int, cost: float, violation: float, t_start_s: float, t_end_s: float, status: int
    ) -> None:
        """Write one result; `id` beside it stays as the rank wrote it."""
        at = self._results_at[slot] + row * RESULT.itemsize + 8
        _RESULT_AFTER_ID.pack_into(self._map, at, cost, violation, t_start_s, t_end_s, status)

    def close(self) -> None:
        """Give the memory back."""
        self.results.clear()
        self.values.clear()
        self._map.close()
        os.close(self.fd)
