"""The leader at its end, in exact mode, and the sizes of orders and pools."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from leader_driver import Driver, Make, ids
from protocol_helpers import evaluated, sends

from osprey_mpi.continuity.codec import unpack_arrays
from osprey_mpi.continuity.events import Finish, Log, PeerLost, StopAsked, Tick
from osprey_mpi.continuity.leader import Phase
from osprey_mpi.continuity.messages import (
    Best,
    Delta,
    Farewell,
    Goodbye,
    Lease,
    Order,
    Snapshot,
    SnapshotRequest,
    Stop,
    Trouble,
    Want,
)
from osprey_mpi.continuity.records import Status


@pytest.fixture
def drive(make_search: Make) -> Driver:
    return Driver(make_search())


def test_leaving(drive: Driver) -> None:
    drive.hello()
    drive(ids(0, 10))
    actions = drive(Stop("why"))
    assert sends(actions) == [Stop("why")] * 2 and drive.leader.phase is Phase.LEAVING
    assert sends(drive(ids(10, 20)), Order) == []
    (one,), (two,) = (drive.workers[rank].sender.unacknowledged for rank in (1, 2))
    drive(one, 1)
    drive(Farewell(1, 1), 1)
    drive(Farewell(1, 1), 2)
    assert drive.leader.missing() == [2], "its delta is missing"
    assert not sends(drive(Tick()), Farewell)
    drive(two, 2)
    delta, snapshot, farewell = sends(drive(Tick()), Delta | Snapshot | Farewell)  # type: ignore[arg-type]
    assert delta.records["status"].tolist() == [Status.CANCELLED]
    assert snapshot.flock == 4 and farewell == Farewell(1, 2)
    assert drive.leader.phase is Phase.LEFT
    actions = drive(Goodbye(75))
    assert sends(actions) == [Goodbye(75)] * 2 and actions[-1] == Finish(75)
    assert drive(Tick()) == [] and drive(Goodbye(0)) == []


def test_a_farewell_that_never_comes_is_waited_for_a_bounded_time(drive: Driver) -> None:
    drive.hello()
    drive(Stop())
    drive(Farewell(1, 1), 1)
    actions = drive.wait(3.2, alive=(2,))
    assert Log("flock 4: no farewell from ranks 1, 2", warning=True) in actions
    assert drive.leader.phase is Phase.LEFT


def test_what_a_worker_sends_after_the_farewell_goes_up_at_once(drive: Driver) -> None:
    """It was given up, and is back before the root has ended the run: what it captured is news until then."""
    drive.hello()
    drive(ids(0, 10))
    delta = drive.finish(1, cost=-5.0)
    drive(Stop())
    drive.wait(3.2, alive=(2,))
    assert drive.leader.phase is Phase.LEFT
    (passed_on,) = sends(drive(delta, 1), Delta)
    assert (passed_on.cost, passed_on.records["id"].tolist()) == (-5.0, delta.records["id"].tolist())


def test_a_batch_that_failed_whole_teaches_nothing(make_search: Make) -> None:
    """No row came back: its places in the block say nothing of where to search."""
    drive = Driver(make_search(4), (1,), batch=4)
    drive.hello()
    drive(ids(0, 80))
    for _ in range(10):
        worker, order = drive.workers[1], drive.running.pop(1)
        drive.run(1, worker.handle(evaluated(order, 0, 4, [float("nan")] * 4, keep=[]), drive.now))
        (delta,) = sends(worker.handle(Tick(), drive.now), Delta)
        drive(delta, 1)
    assert drive.told == [] and drive.search.generation == 0 and drive.search.best is None


def test_what_another_leader_had_ordered_is_no_account_of_this_search(make_search: Make) -> None:
    """Its worker is lost, too: the search here was never asked for it, and gets nothing back."""
    states = []
    for foreign in ([], [Order(500, 3, 0, 3, 0)]):
        drive = Driver(make_search())
        drive.hello()
        drive(ids(0, 20))
        for _ in range(6):
            drive(drive.finish(1), 1)
        for order in foreign:
            drive.leader.dispatch.adopt(1, order)
        taken = drive.leader.dispatch.take_back(1)
        assert [entry.order for entry in taken if entry.is_foreign] == foreign
        assert list(drive.leader.dispatch.pool.overlap(500, 503)) == [(500, 503)] * len(foreign)
        states.append(drive.search.snapshot())
    alone, beside = states
    assert alone.keys() == beside.keys() and all(np.array_equal(alone[key], beside[key]) for key in alone)


def test_a_root_that_is_gone(drive: Driver) -> None:
    drive.hello()
    actions: list[Any] = []
    while drive.now < 21.0:
        drive.now = round(drive.now + 0.1, 6)
        actions += drive(Tick())
    assert Finish(4) in actions
    assert Log("rank 0 leaves: it has waited 20 s for a word of the root on rank 99", warning=True) in actions


def test_snapshots_best_points_and_signals(drive: Driver) -> None:
    drive.hello()
    (snapshot,) = sends(drive(SnapshotRequest(6)))
    assert (snapshot.serial, snapshot.flock) == (6, 4)
    expected = drive.search.snapshot()
    assert unpack_arrays(snapshot.state).keys() == expected.keys()
    drive(Best(-7.0, 0.0, 77, np.array([0.3, 0.3])))
    assert drive.search.snapshot()["adopted.position"].tolist() == [0.3, 0.3]
    assert sends(drive(StopAsked("signal INT"))) == [Trouble("signal INT", is_signal=1)]
    assert sends(drive(Trouble("x"), 1)) == [Trouble("x")]


def test_a_round_of_the_exact_mode(make_search: Make) -> None:
    drive = Driver(make_search(), exact=True)
    drive.hello()
    assert drive.running == {}
    assert sends(drive(ids(0, 1))) == [Want(1)], "a round begins with all ids that it needs"
    drive(ids(1, 4))
    assert {rank: order.first for rank, order in drive.running.items()} == {1: 0, 2: 1}
    assert sends(drive(drive.finish(2), 2)) == [] and drive.told == []
    actions = drive(drive.finish(1), 1)
    assert [first for first, _, _ in drive.told] == [0, 1], "in the order of their ids"
    assert type(sends(actions)[0]) is Delta, "the root judges the budget before the next round"
    assert {rank: order.first for rank, order in drive.running.items()} == {1: 2, 2: 3}
    drive(drive.finish(1), 1)
    drive(drive.finish(2), 2)
    drive(Lease())
    assert drive.running == {} and not drive.leader.dispatch.book.open


def test_a_round_goes_on_without_a_lost_worker(make_search: Make) -> None:
    drive = Driver(make_search(), exact=True)
    drive.hello()
    drive(ids(0, 4))
    drive(drive.finish(1), 1)
    actions = drive.wait(10.2, alive=(1,))
    assert Log("with a worker lost this run does not repeat exactly", warning=True) in actions
    assert [first for first, _, _ in drive.told] == [0]
    assert drive.running[1].first == 1


def test_a_failed_evaluation_costs_the_penalty(make_search: Make) -> None:
    drive = Driver(make_search(), penalty=50.0)
    drive.hello()
    drive(ids(0, 4))
    drive(drive.finish(1, float("nan")), 1)
    assert drive.told == [(0, [50.0], True)]


def test_slow_batches_are_fresh_when_they_come_back(make_search: Make) -> None:
    """A call of 64 points that takes 20 s is no 20 cycles old: cycles are as long as the orders need."""
    drive = Driver(make_search(batch=64), batch=64)
    drive.hello()
    drive(ids(0, 640))
    drive.now = 20.0
    drive(Tick())
    drive(drive.finish(1, elapsed_s=20.0), 1)
    drive.leader.dispatch.cycle = 0
    order = drive.running[1]
    drive.wait(20.0)
    assert drive.leader.dispatch.cycle - order.cycle <= 1


def test_the_pool_holds_little_where_evaluations_are_slow(drive: Driver, make_search: Make) -> None:
    drive.hello()
    assert sends(drive(ids(0, 3)), Want) == []
    assert sends(drive(drive.finish(1, elapsed_s=2.0), 1), Want) == [Want(4)]
    fast = Driver(make_search())
    fast.hello()
    fast(ids(0, 3))
    assert sends(fast(fast.finish(1, elapsed_s=1e-4), 1), Want) == [Want(36)]


def test_a_process_that_has_ended_is_lost_at_once_and_for_good(make_search: Make) -> None:
    """Its work is done by the other; what still comes of it is a fact, and no sign of life."""
    drive = Driver(make_search())
    drive.hello()
    drive(ids(0, 4))
    late = drive.finish(2, cost=0.5)
    actions = drive(PeerLost(2))
    assert [a for a in actions if isinstance(a, Log)] == [Log("rank 2 is lost: its process has ended", warning=True)]
    assert drive(PeerLost(2)) == [] and drive(PeerLost(77)) == []
    drive(late, 2)
    assert drive.leader.members[2].lost, "a message on its way does not bring it back"
    assert drive.leader.sender.account.cost == 0.5, "but its point counts"
    drive.wait(30.0, alive=(1,))
    assert drive.leader.members[2].lost and not drive.leader.members[1].lost


def test_a_leader_without_its_root_leaves(make_search: Make) -> None:
    drive = Driver(make_search())
    drive.hello()
    assert drive(PeerLost(99)) == [Log("rank 0 leaves: the root on rank 99 is lost"), Finish(75)]
