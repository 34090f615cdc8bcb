"""Bit flips and foreign files: read what is readable, name what is not, never die."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from osprey_mpi.continuity.records import RowReason
from osprey_mpi.storage.reading import read_segment
from osprey_mpi.storage.rows import read_run
from osprey_mpi.storage.segment import Segment


@pytest.fixture
def segment(path: Path, columns: Any, rows: Any) -> Path:
    written = Segment(path, columns, 1, 1)
    written.append(*rows(range(5000)), None, [RowReason(i, 0, 0, f"reason {i}") for i in range(50)])
    written.close()
    return path


def chunk_of(path: Path, name: str, number: int) -> int:
    with h5py.File(path) as file:
        return int(file[name].id.get_chunk_info(number).byte_offset)


def flip(path: Path, offset: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1 << bit
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["records", "values"])
def test_a_flipped_bit_costs_its_chunk_only(segment: Path, name: str) -> None:
    with h5py.File(segment) as file:
        n_chunk = file[name].chunks[0]
    flip(segment, chunk_of(segment, name, 1) + 100, 3)
    data = read_segment(segment)
    lost = np.arange(n_chunk, min(2 * n_chunk, 5000))
    np.testing.assert_array_equal(data.records["id"], np.setdiff1d(np.arange(5000), lost))
    np.testing.assert_array_equal(data.values[:, 0], data.records["id"])  # never a cost with another's point
    assert data.notes == (
        f"{segment} is damaged: {lost.size} of 5000 evaluations fail their checksum and are left out",
    )


def test_a_flipped_bit_in_the_reasons_costs_no_evaluation(segment: Path) -> None:
    flip(segment, chunk_of(segment, "text", 0) + 5)
    data = read_segment(segment)
    assert len(data.records) == 5000 and len(data.reasons) == 0
    assert "50 of 50 reasons fail their checksum" in data.notes[0]


@pytest.mark.parametrize("content", [b"", b"not HDF5 at all", bytes(5000)])
def test_a_file_that_is_no_hdf5_is_named(segment: Path, rows: Any, columns: Any, content: bytes) -> None:
    broken = segment.with_name("life-0002-epoch-0001.h5")
    broken.write_bytes(content)
    found = read_run(segment.parent.parent)
    assert found.n_evaluations == 5000
    assert len(found.notes) == 1 and str(broken) in found.notes[0] and "left out" in found.notes[0]


def test_a_truncated_segment_is_named(segment: Path) -> None:
    segment.write_bytes(segment.read_bytes()[:9000])
    assert str(segment) in read_segment(segment).notes[0]


def test_a_newer_format_is_named(segment: Path) -> None:
    with h5py.File(segment, "r+") as file:
        file.attrs["format_version"] = 99
    assert "its format is 99, this version reads up to 1: update osprey-mpi" in read_segment(segment).notes[0]


def test_any_flipped_bit_gives_true_rows_or_a_note(segment: Path) -> None:
    """HDF5 has no checksum on its old metadata: whatever a flip there does, no wrong row may come out as right."""
    whole = segment.read_bytes()
    chance = random.Random(5)
    for _ in range(60):
        data = bytearray(whole)
        data[chance.randrange(8000) if chance.random() < 0.5 else chance.randrange(len(whole))] ^= (
            1 << chance.randrange(8)
        )
        segment.write_bytes(data)
        found = read_segment(segment)
        if not found.notes:
            np.testing.assert_array_equal(found.values[:, 0], found.records["id"])


@pytest.mark.parametrize("count", [-1, 4999, 1 << 60])
def test_a_count_that_cannot_be_is_noted_and_costs_nothing_else(segment: Path, count: int) -> None:
    with h5py.File(segment, "r+") as file:
        step = file.attrs["step"]
        step[1] = count
        file.attrs.modify("step", step)
    data = read_segment(segment)
    assert len(data.records) == min(max(count, 0), 5000) and "is damaged" in data.notes[0]


def test_values_that_do_not_fit_the_columns_leave_the_segment_out(segment: Path) -> None:
    with h5py.File(segment, "r+") as file:
        del file["values"]
        file.create_dataset("values", (5000, 99), "<f8", maxshape=(None, 99), chunks=(100, 99))
    assert read_run(segment.parent.parent).notes[0].endswith("its values do not fit its columns")


def test_a_segment_whose_structure_lost_a_bit_is_noticed(segment: Path) -> None:
    """The sizes of its arrays lie in the structure of the file, which must have a checksum as well."""
    data = segment.read_bytes()
    assert data.count(b"OHDR") >= 5 and b"SNOD" not in data
