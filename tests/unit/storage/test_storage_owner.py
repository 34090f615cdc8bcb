"""Files of another run among one's own: each is told apart by itself, named once, and left out."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from osprey_mpi.storage.journal import JournaledFile, Transaction, journal_path
from osprey_mpi.storage.owner import Owner, owner_of
from osprey_mpi.storage.reading import read_segment
from osprey_mpi.storage.segment import Segment

MINE, OTHER = 1.5, 2.5


@pytest.fixture
def segments(tmp_path: Path, columns: Any, rows: Any) -> tuple[Path, Path]:
    """One segment each of two runs with the same parameters, as a killed writer leaves them."""
    paths = []
    for run_unix_s, ids in ((MINE, range(5)), (OTHER, range(100, 109))):
        path = tmp_path / str(run_unix_s) / "life-0001-epoch-0001.h5"
        segment = Segment(path, columns, 1, 1, run_unix_s)
        segment.append(*rows(ids))
        segment.append(*rows(np.array(ids) + 1000))
        paths.append(path)
    return paths[0], paths[1]


def test_a_segment_is_read_by_its_own_run_only(segments: tuple[Path, Path]) -> None:
    mine, other = segments
    assert len(read_segment(mine, 1, 1, MINE).records) == 10 and read_segment(mine, 1, 1, MINE).notes == ()
    assert len(read_segment(other, 1, 1, 0.0).records) == 18, "by who does not ask whose it is"
    for also_journal in (False, True):
        shutil.copy(other, mine)
        if also_journal:
            shutil.copy(journal_path(other), journal_path(mine))
        data = read_segment(mine, 1, 1, MINE)
        note = f"{mine} cannot be read, its evaluations are left out: it is of another run"
        assert (len(data.records), data.notes) == (0, (note,))


def test_a_journal_is_applied_to_its_own_segment_only(segments: tuple[Path, Path]) -> None:
    mine, other = segments
    journal = journal_path(mine).read_bytes()
    shutil.copy(journal_path(other), journal_path(mine))
    data = read_segment(mine, 1, 1, MINE)
    assert data.records["id"].tolist() == [*range(5), *range(1000, 1005)]
    assert data.notes == (f"{journal_path(mine)} is left out: it belongs to another segment",)
    transaction = Transaction.unpack(journal)
    assert transaction is not None and transaction.mark == Owner(MINE, 1, 1).mark
    flipped = bytearray(journal)
    flipped[36] ^= 1  # in the mark: a damaged one is no foreign one
    assert Transaction.unpack(bytes(flipped)) is None


def test_files_of_older_versions_say_nothing_of_their_run(tmp_path: Path, segments: tuple[Path, Path]) -> None:
    old = tmp_path / "life-0001-epoch-0001.h5"
    old.write_bytes((Path(__file__).parents[2] / "data" / "segments" / "format-1.h5").read_bytes())
    assert owner_of(old.read_bytes()) is None
    JournaledFile(old).update(lambda file: file.attrs.modify("step", file.attrs["step"]))
    data = read_segment(old, 2, 3, MINE)
    assert (len(data.records), data.notes) == (2, ())


def test_a_damaged_head_costs_no_row(segments: tuple[Path, Path]) -> None:
    mine, _ = segments
    data = bytearray(mine.read_bytes())
    for index in range(len(Owner(MINE, 1, 1).pack())):
        flipped = bytearray(data)
        flipped[index] ^= 16
        mine.write_bytes(flipped)
        assert (len(read_segment(mine, 1, 1, MINE).records), read_segment(mine, 1, 1, MINE).notes) == (10, ()), index


def test_the_head_keeps_every_bit_of_the_time() -> None:
    began = struct.unpack("<d", struct.pack("<Q", 0x41DAF3F26912D687))[0]
    assert owner_of(Owner(began, 7, 2).pack() + bytes(480)) == Owner(began, 7, 2)
    assert owner_of(b"") is None and owner_of(b"\x89HDF\r\n\x1a\n" + bytes(100)) is None
