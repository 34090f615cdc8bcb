"""Every format that was ever released stays readable.

tests/data/segments/format-N.h5 is the same few rows in each format version. When the format changes, raise
FORMAT_VERSION and add the file of the new one (old files are never made again):

    python tests/unit/storage/test_storage_formats.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from osprey_mpi.continuity.records import BLOCK, RECORD, Status, reasons_of
from osprey_mpi.search.columns import Column, Kind
from osprey_mpi.storage.reading import read_segment
from osprey_mpi.storage.schema import FORMAT_VERSION
from osprey_mpi.storage.segment import Segment

FOLDER = Path(__file__).parents[2] / "data" / "segments"
COLUMNS = (
    Column("x", 0, Kind.REAL),
    Column("x", 1, Kind.REAL),
    Column("opt", None, Kind.CATEGORICAL, ("adam", "ß")),
    Column("c", None, Kind.FIXED, (3,)),
)
ROWS = [
    (0, 1.5, 0.0, 0.25, 0.5, 3, 1, 0, 0, Status.OK, 0),
    (7, np.nan, 0.5, 1.0, 2.0, -1, 2, 1, 1, Status.FAILED, 0),
]
VALUES = np.array([[0.125, -4.0, 1, 0], [np.nan, np.nan, 0, 0]])
BLOCKS = [(100, 50), (2**40, 1)]
REASONS = {7: "ValueError: ß", 120: "no row"}


def write(path: Path) -> None:
    segment = Segment(path, COLUMNS, 2, 3)
    records = np.array(ROWS, RECORD)
    segment.append(records, VALUES, np.array(BLOCKS, BLOCK), reasons_of(REASONS, records))
    segment.close()


def test_there_is_a_file_for_the_current_format() -> None:
    assert (FOLDER / f"format-{FORMAT_VERSION}.h5").exists()


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.h5")), ids=lambda path: path.name)
def test_every_format_is_read(path: Path) -> None:
    data = read_segment(path)
    assert (data.notes, data.life, data.epoch, data.step, data.columns) == ((), 2, 3, 1, COLUMNS)
    assert data.records.tobytes() == np.array(ROWS, RECORD).tobytes()
    np.testing.assert_array_equal(data.values, VALUES)
    assert data.blocks.tolist() == BLOCKS
    assert {int(row["id"]): data.reason(row) for row in data.reasons} == REASONS


if __name__ == "__main__":
    write(FOLDER / f"format-{FORMAT_VERSION}.h5")
