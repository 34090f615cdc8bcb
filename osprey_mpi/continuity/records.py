"""The rows that the wire, the search and the files share: one evaluation, one block of evaluations."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Status(IntEnum):
    """Tell how an evaluation ended."""

    OK = 0
    FAILED = 1  # exception, NaN, None, crash, out of memory
    TIMEOUT = 2  # ended by objective.time_limit
    LOST = 3  # its worker was lost while it ran
    CANCELLED = 4  # cut off because the run stopped
    STOPPED = 5  # told to stop early; its cost is the last value it reported


# How an evaluation that counts may have ended; a lost or cancelled one is an attempt, and its id is done again.
FINAL = (Status.OK, Status.FAILED, Status.TIMEOUT, Status.STOPPED)
# What has a reason and is nobody's fault: it was ended on purpose.
NO_FAILURES = (Status.STOPPED, Status.CANCELLED)

# One evaluation. `id` is its identity; times are seconds since the run first started; `attempt` counts from 0.
# Written whole, byte for byte, both to the wire and to HDF5: little-endian, no hidden padding.
RECORD = np.dtype(
    [
        ("id", "<i8"),
        ("cost", "<f8"),
        ("violation", "<f8"),
        ("t_start_s", "<f8"),
        ("t_end_s", "<f8"),
        ("generation", "<i4"),
        ("rank", "<i4"),
        ("flock", "<i4"),
        ("attempt", "<i2"),
        ("status", "u1"),
        ("_pad", "u1"),
    ]
)

# Evaluations that were done and have no row of their own: a batched objective records its captures only.
BLOCK = np.dtype([("first", "<i8"), ("n", "<i8")])

# Rows [row_start, row_stop) of a block [first, first + n): what one call of the objective gave. The counts say how many
# records, costs and survivors of the delta's arrays belong to it, in order. `cycle` is the health cycle of its order.
# `elapsed_s` is the time that the objective took for them together.
PIECE = np.dtype(
    [
        ("first", "<i8"),
        ("n", "<i8"),
        ("row_start", "<i4"),
        ("row_stop", "<i4"),
        ("generation", "<i4"),
        ("cycle", "<i4"),
        ("n_records", "<i4"),
        ("n_costs", "<i4"),
        ("n_survivors", "<i4"),
        ("n_failed", "<i4"),
        ("elapsed_s", "<f8"),
    ]
)

# What one leader says of its flock; `round` counts its words within an incarnation.
VIEW = np.dtype(
    [
        ("leader", "<i8"),
        ("incarnation", "<i8"),
        ("round", "<i8"),
        ("n_evaluations", "<i8"),
        ("n_workers", "<i8"),
        ("n_lost", "<i8"),
    ]
)

NO_ID = -1  # the id of "nothing yet"
EXPLICIT = -1  # the generation of a block whose positions were given, not drawn


NO_ROW = (-1, 255)  # attempt and status in the reason of an evaluation that failed in a batch and has no row


class RowReason(NamedTuple):
    """Say why a row did not end well. The id does not name the row: what was lost may be done again within a second."""

    id: int
    attempt: int
    status: int
    text: str


def reasons_of(texts: Mapping[int, str], records: NDArray[Any]) -> list[RowReason]:
    """Return texts by id as reasons of rows; records: (n,) RECORD, the rows that there are, each id once."""
    if not texts:
        return []
    rows = {id: (attempt, status) for id, attempt, status in records[["id", "attempt", "status"]].tolist()}
    found = ((id, rows.get(id, NO_ROW), text) for id, text in texts.items())
    return [RowReason(id, attempt, status, text) for id, (attempt, status), text in found]


def unfinished(id: int, rank: int, flock: int, attempt: int, status: Status) -> NDArray[Any]:
    """Return the row (1,) of an evaluation that was lost or cancelled while it ran: an attempt without a result."""
    record = np.zeros(1, RECORD)
    record["id"], record["rank"], record["flock"] = id, rank, flock
    record["attempt"], record["status"] = attempt, status
    record["cost"] = record["t_start_s"] = record["t_end_s"] = np.nan
    return record


def count_rows(pieces: NDArray[Any]) -> int:
    """Return how many rows the pieces hold together."""
    if len(pieces) == 1:  # most deltas; NumPy would take four times as long
        return int(pieces["row_stop"][0] - pieces["row_start"][0])
    return int((pieces["row_stop"] - pieces["row_start"]).sum())


def join(parts: list[NDArray[Any]], empty: NDArray[Any]) -> NDArray[Any]:
    """Concatenate arrays of one dtype; `empty` where there are none. Rows of fields are joined as plain bytes.

    NumPy promotes the fields of structured arrays one by one, which takes 70 us however few rows there are.
    """
    if not parts:
        return empty
    if len(parts) == 1:
        return parts[0]
    if empty.dtype.names is None:
        return np.concatenate(parts)
    raw = np.dtype((np.void, empty.dtype.itemsize))
    return np.concatenate([np.ascontiguousarray(part).view(raw) for part in parts]).view(empty.dtype)
