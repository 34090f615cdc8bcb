"""What a leader reckons with: the workers that are there, without the lost ones, with those that are back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from leader_driver import Driver, Make, ids
from protocol_helpers import sends

from osprey_mpi.continuity.carry import Carry
from osprey_mpi.continuity.dispatch import Dispatch
from osprey_mpi.continuity.events import PeerLost
from osprey_mpi.continuity.messages import Heartbeat, Order, Want
from osprey_mpi.continuity.settings import LeaderSettings

SECONDS = {1: 0.25, 2: 1.0, 3: 50.0}  # that an evaluation takes


def wanted(dispatch: Dispatch) -> int:
    """Return how many ids it asks for, as if it had not asked."""
    dispatch._n_wanted = 0
    return dispatch.want()


def stride(dispatch: Dispatch) -> float:
    """Return the scale of the steps of worker 2, told anew."""
    dispatch.steering.forget(2)
    steer = dispatch.steering.update(2, dispatch.search.distribution, dispatch.living)
    assert steer is not None
    return float(steer.sigma / dispatch.search.distribution.sigma)


@pytest.mark.parametrize(
    ("lost", "quantity", "whole", "without", "options"),
    [
        pytest.param(3, Dispatch.slowest_s, 50.0, 1.0, {}, id="the slowest order"),
        pytest.param(1, Dispatch.slack_s, 0.25, 1.0, {}, id="the time in which all have work"),
        pytest.param(3, Dispatch._rate, 5.02, 5.0, {}, id="the rate"),
        pytest.param(3, wanted, 3, 2, {"exact": True}, id="a round in exact mode"),
        pytest.param(3, wanted, 96, 64, {"batch": 4}, id="ids of batches"),
        pytest.param(3, Dispatch._most_rows, 6, 9, {"n_evaluations": 600}, id="the largest order"),
        pytest.param(1, stride, 0.5, 1.0, {"speed_exponent": 0.5}, id="the stride beside the fastest"),
    ],
)  # fmt: skip
def test_what_is_to_come_is_reckoned_by_who_is_there(
    make_search: Make, lost: int, quantity: Callable[[Dispatch], Any], whole: float, without: float,
    options: dict[str, Any],
) -> None:  # fmt: skip
    dispatch = Dispatch(SECONDS, make_search(options.get("batch", 1)), LeaderSettings(2, 20, **options), Carry())
    for worker, seconds in SECONDS.items():
        dispatch.paces[worker].learn(1, seconds)
        dispatch.adopt(worker, Order(1000 + worker, 1, 0, 1, 0))
    before = quantity(dispatch)
    dispatch.take_back(lost)
    dispatch.pool.remove(1000 + lost, 1001 + lost)
    assert (before, quantity(dispatch)) == (pytest.approx(whole), pytest.approx(without))
    dispatch.take_in(lost)
    dispatch.adopt(lost, Order(2000, 1, 0, 1, 0))
    assert quantity(dispatch) == before


def test_without_workers_nobody_has_work_and_nothing_is_wanted(make_search: Make) -> None:
    dispatch = Dispatch((1,), make_search(), LeaderSettings(2, 2, exact=True), Carry())
    dispatch.take_back(1)
    assert (dispatch.slack_s(), dispatch.slowest_s(), dispatch._rate(), dispatch.want()) == (0.0, 0.0, 0.0, 0)


def test_a_worker_that_is_back_after_its_silence_is_reckoned_with(make_search: Make) -> None:
    drive = Driver(make_search(), exact=True)
    drive.hello()
    drive.wait(10.2, alive=(1,))
    assert drive.leader.dispatch.living.keys() == {1}
    drive(Heartbeat(1, 0), 2)
    assert drive.leader.dispatch.living.keys() == {1, 2}
    assert sends(drive(ids(0, 1))) == [Want(1)], "a round has an order for each"
    drive(ids(1, 2))
    assert drive.running.keys() == {1, 2}


def test_a_worker_that_was_lost_for_a_gap_is_back_with_the_delta_that_fills_it(make_search: Make) -> None:
    drive = Driver(make_search())
    drive.hello()
    drive(ids(0, 10))
    missed = drive.finish(2)
    drive.leader.members[2].pulse.doubt(drive.now)
    drive.wait(10.2)
    assert drive.leader.dispatch.living.keys() == {1}
    drive(missed, 2)
    assert drive.leader.dispatch.living.keys() == {1, 2} and 2 in drive.running


def test_a_worker_whose_process_has_ended_is_never_back(make_search: Make) -> None:
    drive = Driver(make_search())
    drive.hello()
    drive(ids(0, 10))
    late = drive.finish(2)
    drive(PeerLost(2))
    drive(late, 2)
    drive(Heartbeat(1, 1), 2)
    assert drive.leader.dispatch.living.keys() == {1}
