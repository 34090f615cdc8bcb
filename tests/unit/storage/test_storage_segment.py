"""Segments: what is appended is what is read, and never twice."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from osprey_mpi.continuity.records import BLOCK, NO_ROW, RowReason, Status, reasons_of
from osprey_mpi.errors import StorageError
from osprey_mpi.search.columns import Column, Kind
from osprey_mpi.storage.journal import journal_path
from osprey_mpi.storage.reading import read_segment
from osprey_mpi.storage.rows import merge
from osprey_mpi.storage.schema import MAX_REASON_BYTES
from osprey_mpi.storage.segment import Segment


def test_what_is_appended_is_read(path: Path, columns: Any, rows: Any) -> None:
    segment = Segment(path, columns, 3, 2)
    first, second = rows([0, 1, 2]), rows([5, 4], attempt=1, status=Status.FAILED)
    segment.append(*first)
    why = reasons_of({4: "ValueError: ü", 5: "ValueError: ü", 12: "no row"}, second[0])
    segment.append(*second, np.array([(10, 5)], BLOCK), why)
    data = read_segment(path)
    assert (data.life, data.epoch, data.step, data.columns, data.notes) == (3, 2, 2, columns, ())
    np.testing.assert_array_equal(data.records, np.concatenate((first[0], second[0])))
    np.testing.assert_array_equal(data.values, np.concatenate((first[1], second[1])))
    assert data.blocks.tolist() == [(10, 5)]
    assert [(r["id"], r["attempt"], data.reason(r)) for r in data.reasons] == [
        (4, 1, "ValueError: ü"),
        (5, 1, "ValueError: ü"),
        (12, -1, "no row"),
    ]
    assert data.text == "ValueError: üno row".encode()  # equal texts are stored once


def test_a_reason_stays_with_its_row_whatever_else_there_is_of_the_same_evaluation(
    path: Path, columns: Any, rows: Any
) -> None:
    """All within one append: one was lost and done again, one was lost and failed, one failed twice, one has no row."""
    tries = [
        rows([100, 101, 103], status=Status.LOST), rows([100]), rows([101, 102], status=Status.FAILED),
        rows([102], attempt=1, status=Status.FAILED),
    ]  # fmt: skip
    why = [RowReason(id, 0, Status.LOST, f"{id} was lost") for id in (100, 101, 103)]
    why += [RowReason(101, 0, Status.FAILED, "boom"), RowReason(102, 0, Status.FAILED, "first")]
    why += [RowReason(102, 1, Status.FAILED, "second"), RowReason(103, *NO_ROW, "no row")]
    records, values = (np.concatenate(part) for part in zip(*tries, strict=True))
    Segment(path, columns, 1, 1).append(records, values, np.array([(103, 1)], BLOCK), why)
    data = read_segment(path)
    stored = [(*row, data.reason(full)) for full in data.reasons for row in [full[["id", "attempt", "status"]].item()]]
    assert stored == [tuple(reason) for reason in why]
    merged = merge([data])
    assert merged.reasons == {101: "boom", 102: "second", 103: "no row"}
    assert merged.counts == {"ok": 1, "failed": 3, "timeout": 0, "lost": 0, "cancelled": 0, "stopped": 0}


def test_reasons_of_later_appends_point_to_their_own_text(path: Path, columns: Any, rows: Any) -> None:
    segment = Segment(path, columns, 1, 1)
    for id in range(3):
        segment.append(*rows([id], status=Status.FAILED), None, [RowReason(id, 0, Status.FAILED, f"reason {id}")])
    data = read_segment(path)
    assert [data.reason(row) for row in data.reasons] == ["reason 0", "reason 1", "reason 2"]


def test_a_long_reason_keeps_both_ends(path: Path, columns: Any, rows: Any) -> None:
    segment = Segment(path, columns, 1, 1)
    segment.append(*rows([0], status=Status.FAILED), None, [RowReason(0, 0, 1, "first " + "x" * 50_000 + " last")])
    data = read_segment(path)
    text = data.reason(data.reasons[0])
    assert text.startswith("first x") and text.endswith("x last") and "bytes left out" in text
    assert len(text.encode()) <= MAX_REASON_BYTES


def test_an_empty_append_writes_nothing(path: Path, columns: Any, rows: Any) -> None:
    segment = Segment(path, columns, 1, 1)
    before = path.stat().st_mtime_ns
    segment.append(*rows([]))
    assert path.stat().st_mtime_ns == before and read_segment(path).step == 0


def test_close_leaves_plain_hdf5(path: Path, columns: Any, rows: Any) -> None:
    segment = Segment(path, columns, 1, 1)
    segment.append(*rows([0, 1]))
    segment.close()
    assert not journal_path(path).exists()
    with h5py.File(path) as file:
        assert file["records"]["id"].tolist() == [0, 1]
        assert file["records"].fletcher32 and file["values"].fletcher32
        assert file.attrs["step"].tolist() == [1, 2, 0, 0, 0]
    assert len(read_segment(path).records) == 2


def test_a_segment_is_never_overwritten(path: Path, columns: Any) -> None:
    Segment(path, columns, 1, 1)
    with pytest.raises(StorageError, match=r"life-0001-epoch-0001\.h5 cannot be created: File exists"):
        Segment(path, columns, 1, 1)


def test_thousands_of_parameters_fit(path: Path, rows: Any) -> None:
    columns = tuple(Column(f"a_rather_long_parameter_name_{i}", None, Kind.REAL) for i in range(3000))
    segment = Segment(path, columns, 1, 1)
    segment.append(*rows([1], width=3000))
    data = read_segment(path)
    assert data.columns == columns and data.values[0, 2999] == 1 + 2999 / 8


def test_a_removed_segment_is_an_error_that_says_so(path: Path, columns: Any, rows: Any) -> None:
    segment = Segment(path, columns, 1, 1)
    path.unlink()
    with pytest.raises(StorageError, match="removed by another program"):
        segment.append(*rows([0]))


@pytest.mark.parametrize("n_limit_bytes", [60_000, 200_000, 400_000])
def test_a_file_size_limit_fails_cleanly_and_can_be_repeated(
    path: Path, columns: Any, rows: Any, n_limit_bytes: int
) -> None:
    """RLIMIT_FSIZE stops a write anywhere, as a full disk does, and needs no mount."""
    segment = Segment(path, columns, 1, 1)
    segment.append(*rows(range(10)))
    big = rows(range(10, 8010))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_limit_bytes, hard))
    try:
        for _ in range(3):
            with pytest.raises(StorageError, match=r"File too large \(errno 27\); \d+ bytes free; .*ulimit -f"):
                segment.append(*big)
            data = read_segment(path)
            assert (data.step, len(data.records), data.notes) == (1, 10, ())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    segment.append(*big)
    data = read_segment(path)
    assert data.step == 2
    np.testing.assert_array_equal(data.records["id"], np.arange(8010))


def test_a_second_append_after_a_failure_may_be_another_one(path: Path, columns: Any, rows: Any) -> None:
    segment = Segment(path, columns, 1, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    try:
        with pytest.raises(StorageError):
            segment.append(*rows(range(8000)))
        segment.append(*rows([1, 2]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert read_segment(path).records["id"].tolist() == [1, 2]


def test_appends_are_quick(path: Path, rows: Any) -> None:
    """About 10 ms for 10,000 x 20 and 3 ms for 5 rows on one core; a wide margin for a busy machine."""
    segment = Segment(path, tuple(Column(f"p{i}", None, Kind.REAL) for i in range(20)), 1, 1)
    best: dict[int, float] = {}
    for n in (10_000, 5):
        batch = rows(range(n), width=20)
        for _ in range(5):
            start = time.perf_counter()
            segment.append(*batch)
            best[n] = min(best.get(n, 9.0), time.perf_counter() - start)
    assert best[10_000] < 0.1 and best[5] < 0.03, best


def test_a_file_held_open_by_a_reader_does_not_stop_the_writer(path: Path, columns: Any, rows: Any) -> None:
    segment = Segment(path, columns, 1, 1)
    segment.append(*rows([0]))
    with h5py.File(path):  # holds HDF5's lock
        segment.append(*rows([1]))
    assert read_segment(path).records["id"].tolist() == [0, 1]


def test_a_read_only_file_is_named(path: Path, columns: Any, rows: Any) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everything")
    segment = Segment(path, columns, 1, 1)
    path.chmod(0o444)
    with pytest.raises(StorageError, match="Permission denied"):
        segment.append(*rows([0]))
