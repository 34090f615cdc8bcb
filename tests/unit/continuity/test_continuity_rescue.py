"""What survivors hold goes on disk once, row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
from protocol_helpers import piece

from osprey_mpi.continuity.messages import Delta
from osprey_mpi.continuity.records import RECORD, Status, unfinished
from osprey_mpi.continuity.rescue import attempts_in, rescue
from osprey_mpi.continuity.tally import Tally


def rows(id: int, cost: float = 5.0) -> Any:
    record = np.zeros(1, RECORD)
    record["id"], record["cost"] = id, cost
    return record


def delta(id: int, *records: Any, capture: float | None = None) -> Delta:
    """Return a delta of one finished evaluation, and of further records; capture: it is the sender's best, so good."""
    joined = np.concatenate(records)
    facts: dict[str, Any] = {"pieces": piece(id, 1), "records": joined, "values": np.full((len(joined), 2), 0.25)}
    if capture is not None:
        facts |= {"cost": capture, "best_id": id, "position": np.array([0.5, 0.5])}
    return Delta(1, 1, 0, 0, **facts)


def test_a_leader_that_adds_a_lost_attempt_to_what_its_worker_holds_writes_no_row_twice() -> None:
    worker, leader = delta(5, rows(5)), delta(5, rows(5), unfinished(9, 3, 0, 0, Status.LOST))
    for held in ([worker, leader], [leader, worker]):
        tally, attempts = Tally(), set[tuple[int, int]]()
        records, *_ = rescue(held, tally, attempts, 2).batch()
        assert records["id"].tolist() == [5, 9] and attempts == attempts_in(records) == {(9, 0)}
        assert (tally.n_evaluations, tally.counts[Status.OK], tally.counts[Status.LOST]) == (1, 1, 1)


def test_a_better_point_of_an_evaluation_that_counts_already_is_kept() -> None:
    """Its worker was taken for lost, another did it as well: a point that a living rank has captured is never lost."""
    tally = Tally()
    rescue([delta(5, rows(5, 3.0), capture=3.0)], tally, set(), 2)
    worse, better = delta(5, rows(5, 4.0), capture=4.0), delta(5, rows(5, 2.0), capture=2.0)
    assert not rescue([worse], tally, set(), 2)
    records, *_ = rescue([better], tally, set(), 2).batch()
    assert (records["cost"].tolist(), tally.best.cost) == ([2.0], 2.0)
    assert (tally.n_evaluations, tally.counts[Status.OK]) == (1, 1)
