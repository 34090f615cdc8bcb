"""Describe what a segment holds; a reader of any later version can tell from here what an older one wrote."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.continuity.records import BLOCK, RECORD
from osprey_mpi.search.columns import Column, Kind
from osprey_mpi.storage.files import parse_json

FORMAT = "osprey-mpi segment"
FORMAT_VERSION = 1

# Why an evaluation did not end well: bytes [start, start + n_bytes) of `text`. attempt and status are those of its row,
# or NO_ROW where it has none.
REASON = np.dtype(
    [("id", "<i8"), ("start", "<i8"), ("n_bytes", "<i4"), ("attempt", "<i2"), ("status", "u1"), ("_pad", "u1")]
)

MAX_REASON_BYTES = 4096  # a traceback fits; 100,000 evaluations that print their data do not fill the disk

# The commit counter of a segment, its `step` attribute: readers cut every dataset to these lengths.
STEP = ("step", "n_records", "n_blocks", "n_reasons", "n_text_bytes")

_CHUNK_BYTES = 16 * 1024  # every append rewrites the last chunk: a small one must stay small


def chunk_rows(row_bytes: int, chunk_bytes: int = _CHUNK_BYTES) -> int:
    """Return how many rows make one chunk: about `chunk_bytes`, at least 4 and at most 65536 rows."""
    return max(4, min(65536, chunk_bytes // max(row_bytes, 1)))


def columns_to_json(columns: Sequence[Column]) -> str:
    """Return the columns of a value row as a JSON list."""
    return json.dumps(
        [
            {
                "parameter": column.parameter,
                "index": column.index,
                "kind": str(column.kind),
                "choices": None if column.choices is None else list(column.choices),
            }
            for column in columns
        ],
        ensure_ascii=False,
    )


def columns_from_json(text: str) -> tuple[Column, ...]:
    """Return the columns that `columns_to_json` wrote."""
    return tuple(
        Column(
            item["parameter"],
            item["index"],
            Kind(item["kind"]),
            None if item["choices"] is None else tuple(item["choices"]),
        )
        for item in parse_json(text)
    )


@dataclass(frozen=True, slots=True, eq=False)
class SegmentData:
    """Hold what could be read of one segment; `notes` says what could not.

    values: (n_records, n_columns); reasons: rows of REASON, their text in `text`.
    """

    path: Path
    life: int
    epoch: int
    step: int = 0
    columns: tuple[Column, ...] = ()
    records: NDArray[Any] = field(default_factory=lambda: np.empty(0, RECORD))
    values: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0)))
    blocks: NDArray[Any] = field(default_factory=lambda: np.empty(0, BLOCK))
    reasons: NDArray[Any] = field(default_factory=lambda: np.empty(0, REASON))
    text: bytes = b""
    notes: tuple[str, ...] = ()

    def reason(self, row: Any) -> str:
        """Return the text of one row of `reasons`."""
        start = int(row["start"])
        return self.text[start : start + int(row["n_bytes"])].decode("utf-8", "replace")
