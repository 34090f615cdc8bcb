"""The median stopping rule."""

from __future__ import annotations

import math

from osprey_mpi.search.early_stop import MedianRule


def test_stops_what_is_worse_than_half_of_the_others_at_the_same_step() -> None:
    rule = MedianRule(min_steps=2, min_reports=3)
    for i in range(3):
        for step, value in ((1, 1.0 + i), (2, 0.5 + i)):
            assert not rule.report(i, step, value)
        rule.finished(i)
    # at step 2 they had 0.5, 1.5, 2.5
    assert not rule.report(7, 1, 9.0)  # before min_steps
    assert rule.report(7, 2, 1.6)
    assert not rule.report(8, 2, 1.5)


def test_curves_that_fall_are_stopped_too() -> None:
    """Each ends a little above the one before; all are far below their own beginnings."""
    rule = MedianRule(3, 5)
    stopped = [any(rule.report(i, step, 1.0 / (step + 1) + 0.01 * i) for step in range(20)) for i in range(20)]
    assert stopped == [False] * 5 + [True] * 15


def test_looks_at_the_best_value_so_far() -> None:
    rule = MedianRule(1, 1)
    rule.report(0, 1, 1.0)
    rule.report(0, 2, 1.0)
    assert not rule.report(1, 1, 0.5)
    assert not rule.report(1, 2, 7.0)


def test_waits_for_enough_reports_and_survives_values_that_are_none() -> None:
    rule = MedianRule(1, 3)
    assert not any(rule.report(i, 1, float(i)) for i in range(3))
    assert rule.report(3, 1, math.nan)  # nothing good was ever reported
    assert rule.report(4, 1, 5.0)


def test_stays_bounded() -> None:
    """It keeps the newest 128 values of a step, and of who reports no more nothing else."""
    rule = MedianRule(1, 2)
    for i in range(500):
        for step in range(1, 4):
            rule.report(i, step, float((i * 7919) % 101))
        if i % 10:
            rule.finished(i)
    newest = sorted(float((i * 7919) % 101) for i in range(372, 500))
    assert [sorted(values) for values in rule._values.values()] == [newest] * 3
    assert list(rule._best) == list(range(0, 500, 10))
