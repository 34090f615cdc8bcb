"""How often to save: Young's formula, its limits, and what it follows."""

from __future__ import annotations

import pytest

from osprey_mpi.continuity.interval import HORIZON, LEAST_S, UNMEASURED_S, Interval


def test_a_given_interval_stays() -> None:
    interval = Interval(7.5, 1.0)
    interval.learn(100.0)
    assert interval.seconds == 7.5


@pytest.mark.parametrize(
    ("cost_s", "failures_per_day", "seconds"),
    [
        (0.005, 1.0, 29.393876913398138),  # sqrt(2 * 0.005 * 86400)
        (2.0, 24.0, 200.0),  # sqrt(2 * 2 * 3600) is 120: more than 1 % of the time
        (1e-9, 1.0, LEAST_S),
        (0.0, 1.0, LEAST_S),
    ],
)
def test_the_interval_follows_the_measured_cost(cost_s: float, failures_per_day: float, seconds: float) -> None:
    interval = Interval(None, failures_per_day)
    assert interval.seconds == UNMEASURED_S
    interval.learn(cost_s)
    assert interval.seconds == pytest.approx(seconds, rel=1e-12)


def test_the_cost_is_that_of_the_last_few() -> None:
    interval = Interval(None, 1.0)
    interval.learn(10.0)
    for _ in range(20 * HORIZON):
        interval.learn(0.02)
    assert interval.cost_s == pytest.approx(0.02, rel=1e-6)
