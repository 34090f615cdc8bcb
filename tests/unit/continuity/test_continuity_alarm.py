"""The alarm: said once, when enough evaluations of this life have failed before a first result."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from protocol_helpers import record

from osprey_mpi.continuity.alarm import Alarm
from osprey_mpi.continuity.events import Log
from osprey_mpi.continuity.messages import Delta
from osprey_mpi.continuity.records import NO_ROW, RECORD, RowReason, Status
from osprey_mpi.continuity.tally import BestRow, Tally

AFTER = (
    "; the run goes on, Ctrl-C saves and stops it, and `osprey validate CONFIG --try` shows one evaluation in full"
)


class Driver:
    def __init__(self, n_enough: int | None, **counts: int) -> None:
        self.tally = Tally()
        self.tally.counts.update({Status[name]: n for name, n in counts.items()})
        self.alarm = Alarm(self.tally, n_enough)

    def __call__(self, *reasons: str, status: Status = Status.FAILED) -> list[Log]:
        self.tally.counts[status] += len(reasons)
        rows = [record(id, math.nan, status) for id in range(len(reasons))]
        said = json.dumps([RowReason(id, 0, status, text) for id, text in enumerate(reasons)]) if reasons else ""
        return self.alarm.hear(Delta(1, 1, 0, 0, reasons=said, records=np.concatenate([np.empty(0, RECORD), *rows])))


def test_enough_failures_before_a_result_are_told_once() -> None:
    drive = Driver(3)
    assert drive("KeyError: 'x'\nline 1") == drive("KeyError: 'x'\nline 2") == drive() == []
    told = drive("KeyError: 'x'", "KeyError: 'x'")
    text = f"no result yet, and 4 evaluations failed, all for one reason: KeyError: 'x'{AFTER}"
    assert told == [Log(text, warning=True)]
    assert drive("KeyError: 'x'") == []


def test_of_several_reasons_the_most_frequent_is_told() -> None:
    drive = Driver(5)
    assert drive("a", "b", "b") == []
    (told,) = drive("ended by the time limit of 1 s", "b", status=Status.TIMEOUT)
    assert told.text == f"no result yet, and 5 evaluations failed, most often for this reason: b{AFTER}"


@pytest.mark.parametrize("n_enough", [2, None])
def test_nothing_is_told_once_there_is_a_result(n_enough: int | None) -> None:
    drive = Driver(n_enough)
    if n_enough is not None:
        drive.tally.best = BestRow(1.0, 0.0, 0, np.zeros(1))
    assert drive("a", "a", "a") == []


def test_failures_of_an_earlier_life_do_not_count() -> None:
    drive = Driver(2, FAILED=9)
    assert drive("a") == []
    (told,) = drive("a")
    assert told.text.startswith("no result yet, and 2 evaluations failed")


def test_what_was_lost_is_no_failure() -> None:
    drive = Driver(2)
    assert drive("rank 3 was lost", "rank 3 was lost", "rank 3 was lost", status=Status.LOST) == []
    rowless = RowReason(7, *NO_ROW, "a")
    drive.tally.counts[Status.FAILED] += 1
    assert drive.alarm.hear(Delta(1, 1, 0, 0, reasons=json.dumps([rowless]))) == []
    (told,) = drive("a")
    assert told.text == f"no result yet, and 2 evaluations failed, all for one reason: a{AFTER}"
