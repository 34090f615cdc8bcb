"""The merge: counts are exact whatever the order, the overlap and the number of copies."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from osprey_mpi.continuity.records import BLOCK, RECORD, Status
from osprey_mpi.drivers.opening import tally_of
from osprey_mpi.report.tables import failures
from osprey_mpi.search.columns import Column, Kind
from osprey_mpi.storage.ranges import from_blocks, inside, ranges_of, size, union, without
from osprey_mpi.storage.rows import Rows, merge, read_run
from osprey_mpi.storage.schema import REASON, SegmentData
from osprey_mpi.storage.segment import Segment

COLUMNS = (Column("x", None, Kind.REAL),)


def part(
    rows: list[tuple[int, int, Status, float]], blocks: Sequence[tuple[int, int]] = (), life: int = 1, **more: Any
) -> SegmentData:
    """A segment from (id, attempt, status, cost); the value is the cost too."""
    records = np.zeros(len(rows), RECORD)
    for record, (id, attempt, status, cost) in zip(records, rows, strict=True):
        record["id"], record["attempt"], record["status"], record["cost"] = id, attempt, status, cost
    values = records["cost"][:, None].copy()
    return SegmentData(Path(f"{life}.h5"), life, 1, 1, COLUMNS, records, values, np.array(list(blocks), BLOCK), **more)


def final(rows: Rows) -> list[tuple[int, int, int, float]]:
    return [tuple(row) for row in rows.records[["id", "attempt", "status", "cost"]].tolist()]


def test_an_empty_run() -> None:
    rows = merge([])
    assert (rows.n_evaluations, rows.best_index, rows.done.shape, rows.notes) == (0, None, (0, 2), ())
    assert rows.counts == {"ok": 0, "failed": 0, "timeout": 0, "lost": 0, "cancelled": 0, "stopped": 0}


def test_equal_rows_count_once() -> None:
    one = [(4, 0, Status.OK, 1.0), (2, 0, Status.FAILED, np.nan)]
    rows = merge([part(one), part(one, life=2), part(list(reversed(one)), life=3)])
    assert [row[:3] for row in final(rows)] == [(2, 0, 1), (4, 0, 0)]
    assert rows.n_evaluations == 2 and len(rows.attempts) == 0
    assert rows.lives.tolist() == [1, 1]  # the first written


def test_the_highest_attempt_with_a_result_is_final() -> None:
    rows = merge(
        [
            part([(1, 0, Status.FAILED, np.nan), (1, 1, Status.OK, 5.0), (1, 2, Status.LOST, np.nan)]),
            part([(2, 1, Status.LOST, np.nan), (2, 0, Status.CANCELLED, np.nan), (3, 0, Status.LOST, np.nan)], life=2),
            part([(3, 0, Status.OK, 7.0)], life=2),  # a late result of a worker that was given up
        ]
    )
    assert [row[:3] for row in final(rows)] == [(1, 1, 0), (2, 1, 3), (3, 0, 0)]
    assert rows.done.tolist() == [[1, 2], [3, 4]]  # 2 is open again
    assert rows.counts == {"ok": 2, "failed": 0, "timeout": 0, "lost": 1, "cancelled": 0, "stopped": 0}
    assert rows.attempts[["id", "attempt", "status"]].tolist() == [(1, 0, 1), (1, 2, 3), (2, 0, 4), (3, 0, 3)]
    np.testing.assert_array_equal(rows.values[:, 0], [5.0, np.nan, 7.0])


def test_of_several_results_the_best_is_final() -> None:
    """A worker that was taken for lost comes back with what another has done as well: the run kept the better."""
    late = [(1, 0, Status.OK, 4.0), (2, 0, Status.FAILED, np.nan), (2, 1, Status.OK, 7.0), (3, 0, Status.OK, 8.0)]
    rows = merge([part([(1, 0, Status.OK, 5.0), (2, 0, Status.OK, 6.0), (3, 1, Status.FAILED, np.nan)]), part(late)])
    assert [row[:4] for row in final(rows)] == [(1, 0, 0, 4.0), (2, 0, 0, 6.0), (3, 0, 0, 8.0)]
    assert rows.counts["ok"] == 3 and rows.best_index == 0


def test_blocks_count_once() -> None:
    rows = merge(
        [
            part([(3, 0, Status.OK, 1.0), (12, 0, Status.CANCELLED, np.nan)], [(0, 5), (3, 4), (10, 0), (11, 3)]),
            part([(6, 0, Status.OK, 2.0), (20, 0, Status.OK, 3.0)], [(0, 5), (7, 1)], life=2),
        ]
    )
    assert rows.done.tolist() == [[0, 8], [11, 14], [20, 21]]
    assert rows.n_evaluations == 8 + 3 + 1
    assert rows.blocks.tolist() == [(0, 3), (4, 2), (7, 1), (11, 3)]  # without 3 and 6, which have rows
    assert rows.counts["ok"] == 12 and rows.counts["cancelled"] == 0


def test_reasons_belong_to_the_final_row() -> None:
    text = b"firstsecondno row"
    reasons = np.array([(1, 0, 5, 0, 1, 0), (1, 5, 6, 1, 1, 0), (2, 0, 5, 0, 1, 0), (9, 11, 6, -1, 255, 0)], REASON)
    rows = merge(
        [
            part(
                [(1, 0, Status.FAILED, np.nan), (1, 1, Status.FAILED, np.nan), (2, 0, Status.FAILED, np.nan)],
                [(9, 1)],
                reasons=reasons,
                text=text,
            ),
            part([(2, 1, Status.OK, 1.0)], life=2),
        ]
    )
    assert rows.reasons == {1: "second", 9: "no row"}
    assert rows.counts == {"ok": 1, "failed": 2, "timeout": 0, "lost": 0, "cancelled": 0, "stopped": 0}


def test_what_came_to_nothing_and_was_then_done_in_a_block_is_no_failure() -> None:
    """Cut off by a stop, or lost with its worker, and after that one of many in a batch that records captures only."""
    text = b"cut offlostno row"
    why = [(1, 0, 7, 0, 4, 0), (2, 7, 4, 0, 3, 0), (3, 11, 6, -1, 255, 0), (4, 0, 7, 0, 4, 0), (4, 11, 6, -1, 255, 0)]
    rows = [(1, 0, Status.CANCELLED, np.nan), (2, 0, Status.LOST, np.nan), (4, 0, Status.CANCELLED, np.nan)]
    merged = merge([part(rows, reasons=np.array(why, REASON), text=text), part([], [(0, 6)], life=2)])
    assert merged.counts == {"ok": 4, "failed": 2, "timeout": 0, "lost": 0, "cancelled": 0, "stopped": 0}
    assert merged.reasons == {3: "no row", 4: "no row"}
    assert tally_of(merged).counts == {**dict.fromkeys(Status, 0), Status.OK: 4, Status.FAILED: 2}
    assert failures(merged).rows == [(2, 3, "no row")]


def test_the_best_is_feasible_first() -> None:
    data = part([(i, 0, Status.OK, c) for i, c in enumerate((5.0, 1.0, 2.0, 2.0, np.nan, -9.0))])
    data.records["violation"] = (0, 1, 0, 0, 0, np.nan)
    rows = merge([data])
    assert rows.best_index is not None and rows.records[rows.best_index]["id"] == 2
    data.records["violation"] = (3, 1, 2, 2, 0, 4)
    rows = merge([data])
    assert rows.best_index is not None and rows.records[rows.best_index]["id"] == 1
    assert merge([part([(0, 0, Status.FAILED, np.nan)])]).best_index is None


def test_a_cost_that_was_cut_short_is_best_only_without_a_whole_one() -> None:
    stopped = (0, 0, Status.STOPPED, -5.0)
    assert merge([part([stopped])]).best_index == 0
    assert merge([part([stopped, (1, 0, Status.OK, 3.0)])]).best_index == 1


def test_segments_of_other_parameters_are_named() -> None:
    other = SegmentData(
        Path("old.h5"), 1, 1, 1, (Column("z", None, Kind.REAL),), part([(0, 0, Status.OK, 1.0)]).records
    )
    rows = merge([other, part([(1, 0, Status.OK, 1.0)], life=2)])
    assert rows.n_evaluations == 1 and rows.notes == (
        "old.h5 is left out: it was written for other parameters than the newest segment",
    )


@pytest.mark.parametrize("seed", range(30))
def test_the_merge_agrees_with_a_plain_one(seed: int) -> None:
    chance = random.Random(seed)
    parts: list[SegmentData] = []
    plain: dict[int, list[tuple[int, int, Status, float]]] = {}
    done_by_block: set[int] = set()
    for life in range(1, 5):
        rows = [
            (chance.randrange(25), chance.randrange(3), chance.choice(list(Status)), chance.random())
            for _ in range(chance.randrange(30))
        ]
        rows += chance.sample(rows, len(rows) // 3)
        blocks = [(chance.randrange(40), chance.randrange(6)) for _ in range(chance.randrange(5))]
        parts.append(part(rows, blocks, life))
        for row in rows:
            plain.setdefault(row[0], []).append(row)
        done_by_block |= {id for first, n in blocks for id in range(first, first + n)}
    merged = merge(parts)
    is_open = (Status.LOST, Status.CANCELLED)
    expected = []
    for id in sorted(plain):
        solid = [row for row in plain[id] if row[2] not in is_open] or plain[id]
        good = [row for row in solid if row[2] is Status.OK]
        expected.append(min(good, key=lambda row: row[3])[:2] if good else (id, max(row[1] for row in solid)))
    assert [row[:2] for row in final(merged)] == expected
    solid_ids = {id for id, rows in plain.items() if any(row[2] not in is_open for row in rows)}
    done = {id for start, stop in merged.done.tolist() for id in range(start, stop)}
    assert done == solid_ids | done_by_block and merged.n_evaluations == len(done)
    rowless = {id for first, n in merged.blocks.tolist() for id in range(first, first + n)}
    assert rowless == done_by_block - solid_ids
    n_distinct = len({(id, row[1], row[2]) for id, rows in plain.items() for row in rows})
    assert len(merged.attempts) + len(merged.records) == n_distinct
    assert sum(merged.counts.values()) == len(set(plain) | done_by_block)


def test_ranges() -> None:
    assert ranges_of(np.array([1, 2, 3, 7, 9, 10])).tolist() == [[1, 4], [7, 8], [9, 11]]
    assert union(np.array([[5, 8], [0, 2], [2, 4], [6, 7]])).tolist() == [[0, 4], [5, 8]]
    assert from_blocks(np.array([(4, 2), (0, 0), (1, 1)], BLOCK)).tolist() == [[1, 2], [4, 6]]
    assert without(np.array([[0, 5]]), np.array([0, 2, 4, 9])).tolist() == [[1, 2], [3, 4]]
    assert inside(np.array([0, 1, 4, 5]), np.array([[1, 5]])).tolist() == [False, True, True, False]
    assert size(np.array([[0, 5], [7, 8]])) == 6


def test_a_run_of_several_segments(tmp_path: Path, columns: Any, rows: Any) -> None:
    for life, epoch, ids in ((1, 1, range(5)), (1, 2, range(3, 8)), (10, 1, [8, 2])):
        segment = Segment(tmp_path / "results" / f"life-{life:04d}-epoch-{epoch:04d}.h5", columns, life, epoch)
        segment.append(*rows(ids))
    (tmp_path / "results" / "notes.txt").write_text("not ours")
    found = read_run(tmp_path)
    assert found.records["id"].tolist() == list(range(9)) and found.notes == ()
    assert found.lives.tolist() == [1, 1, 1, 1, 1, 1, 1, 1, 10]
    assert read_run(tmp_path / "nothing").n_evaluations == 0


def test_a_million_rows_merge_in_seconds() -> None:
    n = 10**6
    records = np.zeros(n, RECORD)
    records["id"] = np.random.default_rng(0).permutation(n) // 2
    records["attempt"] = np.arange(n) % 2
    data = SegmentData(Path("a.h5"), 1, 1, 1, COLUMNS, records, np.zeros((n, 1)))
    start = time.process_time()
    rows = merge([data])
    assert time.process_time() - start < 10
    assert rows.n_evaluations == n // 2
