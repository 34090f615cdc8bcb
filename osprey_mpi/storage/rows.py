"""Merge the segments of a run by evaluation id: what counts, what is only an attempt, and what is done."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.continuity.records import BLOCK, NO_ROW, RECORD, Status
from osprey_mpi.continuity.violations import Violations
from osprey_mpi.errors import UsageError
from osprey_mpi.search.columns import Column
from osprey_mpi.storage import ranges as rg
from osprey_mpi.storage.facts import read_facts
from osprey_mpi.storage.reading import read_segments
from osprey_mpi.storage.remains import gone_notes, missing_notes
from osprey_mpi.storage.schema import SegmentData
from osprey_mpi.storage.status import read_status

# An evaluation that ends so has no result: it is open again, and any other row of its id counts before it.
OPEN = (Status.LOST, Status.CANCELLED)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Hold the evaluations of a run, one row an id.

    records (n,) RECORD, sorted by id: the final row of each id: the best that is OK, else the highest attempt that is
        neither LOST nor CANCELLED, or the highest attempt; of equal ones the first written. Two are OK where the work
        of a worker that was taken for lost was done by another as well: then the best is what the run went on with.
    values (n, n_columns): their value rows; `columns` names the columns.
    lives (n,): the life in which each row was written.
    blocks (k,) BLOCK, sorted, disjoint: ids that were done and have no row, or only an open one.
    done (k, 2) [start, stop): ids that have a result, with a row or without; these are the budget spent.
    attempts, attempt_values: all other rows, each distinct (id, attempt, status) once.
    reasons: id -> why the final row did not end well; of ids in `blocks`, why the evaluation without a row failed.
    best_index: row of the best result in `records`, or None.
    notes: one sentence for each thing that could not be read, or is gone.
    """

    columns: tuple[Column, ...]
    records: NDArray[Any]
    values: NDArray[np.float64]
    lives: NDArray[np.int32]
    blocks: NDArray[Any]
    done: rg.Ranges
    attempts: NDArray[Any]
    attempt_values: NDArray[np.float64]
    reasons: dict[int, str]
    best_index: int | None
    notes: tuple[str, ...]

    @property
    def n_evaluations(self) -> int:
        """Return how many evaluations have a result."""
        return rg.size(self.done)

    @property
    def own(self) -> NDArray[Any]:
        """Return the records that tell how their ids ended: of an open one in a block, that tells that it was done."""
        return self.records[~rg.inside(self.records["id"], rg.from_blocks(self.blocks))]

    @property
    def counts(self) -> dict[str, int]:
        """Return how many ids ended in each status; those without a row are ok unless a reason says otherwise."""
        by_status = np.bincount(self.own["status"], minlength=len(Status))
        counts = {status.name.lower(): int(by_status[status]) for status in Status}
        rowless = rg.from_blocks(self.blocks)
        n_failed = int(rg.inside(np.fromiter(self.reasons, np.int64, len(self.reasons)), rowless).sum())
        counts["failed"] += n_failed
        counts["ok"] += rg.size(rowless) - n_failed
        return counts

    @property
    def violations(self) -> Violations:
        """Return how many evaluations violate constraints."""
        return Violations.of(self.own[~np.isin(self.own["status"], OPEN)], rg.size(rg.from_blocks(self.blocks)))


def read_run(path: Path) -> Rows:
    """Merge all segments in the run folder `path`; damaged and lost ones give what is readable, see `Rows.notes`."""
    path, status = Path(path), read_status(path)  # before the rows: a run that goes on adds to both
    try:
        facts = read_facts(path)
    except UsageError:  # who reads the rows alone needs no run.json
        facts = {}
    gone = tuple(gone_notes(path, facts, status))
    rows = merge(read_segments(path / "results", facts.get("started_unix_s", 0.0)))
    return replace(rows, notes=(*gone, *rows.notes, *missing_notes(facts, status, rows.n_evaluations)))


def merge(segments: Iterable[SegmentData]) -> Rows:
    """Merge segments, oldest first. Rows may come in any order, and more than once."""
    parts = list(segments)
    notes = [note for part in parts for note in part.notes]
    columns = next((part.columns for part in reversed(parts) if part.columns), ())
    usable = [part for part in parts if part.columns == columns and part.columns]
    notes += [
        f"{part.path} is left out: it was written for other parameters than the newest segment"
        for part in parts
        if part.columns and part.columns != columns
    ]
    records = np.concatenate([np.empty(0, RECORD), *(part.records for part in usable)])
    values = np.concatenate([np.empty((0, len(columns))), *(part.values for part in usable)])
    lives = np.repeat(np.array([part.life for part in usable], np.int32), [len(part.records) for part in usable])
    blocks = np.concatenate([np.empty(0, BLOCK), *(part.blocks for part in usable)])
    final, others = _split(records)
    chosen = records[final]
    solid_ids = np.asarray(chosen["id"][~np.isin(chosen["status"], OPEN)], np.int64)
    rowless = rg.without(rg.from_blocks(blocks), solid_ids)
    return Rows(
        columns=columns,
        records=chosen,
        values=values[final],
        lives=lives[final],
        blocks=_to_blocks(rowless),
        done=rg.union(rg.ranges_of(solid_ids), rowless),
        attempts=records[others],
        attempt_values=values[others],
        reasons=_reasons(usable, chosen, rowless),
        best_index=_best(chosen),
        notes=tuple(notes),
    )


def _split(records: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the indices of the final rows, by id, and those of all other distinct rows, by id and attempt."""
    ids = records["id"]
    order = np.argsort(ids, kind="stable")
    if not np.any(ids[order][1:] == ids[order][:-1]):
        return order, order[:0]
    # Resends of a ledger are equal rows: keep the best of each (id, attempt, status), of equal ones the first written.
    violation, cost = _keys(records)
    order = np.lexsort((cost, violation, records["status"], records["attempt"], ids))  # stable
    order = order[_first_of(records[["id", "attempt", "status"]][order])]
    kept = records[order]
    is_open, is_ok = np.isin(kept["status"], OPEN), kept["status"] == Status.OK
    worst = np.where(is_ok, 0, -kept["attempt"].astype(np.int64))
    keys = (order, worst, np.where(is_ok, cost[order], 0.0), np.where(is_ok, violation[order], 0.0), ~is_ok, is_open)
    ranked = order[np.lexsort((*keys, kept["id"]))]
    first = _first_of(records["id"][ranked])
    others = np.sort(ranked[~first])
    return ranked[first], others[np.lexsort((others, records["attempt"][others], records["id"][others]))]


def _keys(records: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what orders results: violation first, then cost (Deb 2000); what is no number comes last."""
    violation = np.nan_to_num(np.maximum(records["violation"], 0.0), nan=np.inf, posinf=np.inf)
    return violation, np.where(np.isfinite(records["cost"]), records["cost"], np.inf)


def _first_of(keys: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which of sorted keys differ from the one before."""
    return np.concatenate((np.ones(min(1, len(keys)), bool), keys[1:] != keys[:-1]))


def _to_blocks(ranges: rg.Ranges) -> NDArray[Any]:
    blocks = np.empty(len(ranges), BLOCK)
    blocks["first"], blocks["n"] = ranges[:, 0], ranges[:, 1] - ranges[:, 0]
    return blocks


def _best(records: NDArray[Any]) -> int | None:
    """Return the row of the best result: the lowest cost of the feasible, else the least violation (Deb 2000).

    An evaluation that was stopped early is a result only where there is no whole one: its cost is not comparable.
    """
    for status in (Status.OK, Status.STOPPED):
        rows = np.flatnonzero((records["status"] == status) & np.isfinite(records["cost"]))
        if rows.size:
            violation, cost = _keys(records[rows])
            return int(rows[np.lexsort((records["id"][rows], cost, violation))[0]])
    return None


def _reasons(parts: list[SegmentData], final: NDArray[Any], rowless: rg.Ranges) -> dict[int, str]:
    """Return the reason of each final row, and of ids that have no row."""
    reasons: dict[int, str] = {}
    for part in parts:
        ids = part.reasons["id"].astype(np.int64)
        at = np.minimum(np.searchsorted(final["id"], ids), max(len(final) - 1, 0))
        is_rowless = rg.inside(ids, rowless)
        wanted = is_rowless & (part.reasons["status"] == NO_ROW[1])  # why an open row came to nothing is no failure
        if len(final):
            is_final = final[["id", "attempt", "status"]][at] == part.reasons[["id", "attempt", "status"]]
            wanted |= is_final & ~is_rowless
        for row in part.reasons[wanted]:
            reasons.setdefault(int(row["id"]), part.reason(row))
    return reasons
