"""The leader at work: every rule of its header and of dispatch.py."""

from __future__ import annotations

import numpy as np
import pytest
from leader_driver import Driver, Make, ids
from protocol_helpers import sends

from osprey_mpi.continuity.events import Received, Tick
from osprey_mpi.continuity.messages import (
    Ack,
    Delta,
    Halt,
    Heartbeat,
    Hello,
    Lease,
    Order,
    Progress,
    Resync,
    Snapshot,
    SnapshotRequest,
    Steer,
    Trouble,
    Want,
)
from osprey_mpi.continuity.records import RowReason, Status
from osprey_mpi.continuity.relay import COMPANY
from osprey_mpi.continuity.sender import parse_reasons
from osprey_mpi.search.early_stop import MedianRule


@pytest.fixture
def drive(make_search: Make) -> Driver:
    return Driver(make_search())


def test_it_says_hello_and_asks_for_ids(drive: Driver) -> None:
    assert sends(drive(Tick())) == [Hello(1, 1), Want(2)], "one for each worker"
    assert sends(drive(Tick())) == []


def test_orders_go_to_who_has_joined(drive: Driver) -> None:
    drive(Tick())
    assert sends(drive(ids(0, 10)), Order) == []
    actions = drive(Hello(1), 2)
    assert [type(m) for m in sends(actions)] == [Steer, Order] and {a.rank for a in actions} == {2}
    order = sends(actions, Order)[0]
    assert (order.first, order.n, order.row_start, order.row_stop) == (0, 1, 0, 1)
    assert [m.first for m in sends(drive(Hello(1), 1), Order)] == [1]


def test_nobody_waits_for_the_others(drive: Driver) -> None:
    drive.hello()
    drive(ids(0, 10))
    for n in range(4):
        actions = drive(drive.finish(1), 1)
        ((rank, order),) = [(a.rank, a.message) for a in actions if isinstance(getattr(a, "message", None), Order)]
        assert (rank, order.first) == (1, 2 + n)
    assert [first for first, _, _ in drive.told] == [0, 2, 3, 4]


def test_a_block_teaches_once_and_only_while_it_is_fresh(drive: Driver) -> None:
    drive.hello()
    drive(ids(0, 10))
    delta = drive.finish(1)
    drive(delta, 1)
    drive(delta, 1)
    assert drive.told == [(0, [1.0], True)]
    drive.wait(8.5)  # a cycle lasts twice as long as the slowest order, which took 1 s
    drive(drive.finish(2), 2)
    assert drive.told[1] == (1, [1.0], False), "4 cycles old, more than the window of 3"


def test_results_go_up_with_the_tick_and_acknowledgements_come_back(drive: Driver) -> None:
    drive.hello()
    drive(ids(0, 10))
    drive(drive.finish(1, 3.0), 1)
    drive(drive.finish(2, 2.0), 2)
    assert sends(drive(Tick(sendable=False)), Delta) == []
    (delta,) = sends(drive(Tick()), Delta)
    assert sorted(delta.records["id"].tolist()) == [0, 1] and (delta.cost, delta.n_evaluations) == (2.0, 2)
    assert sends(drive(Ack(1, 1))) == [Ack(1, 1), Ack(1, 1)]
    assert not drive.workers[1].sender.unacknowledged
    assert sends(drive(Resync(0))) == [Heartbeat(1, 1)]


def test_what_it_has_learned_from_goes_up_before_its_search(drive: Driver) -> None:
    """Else a run that ends in between would go on with a search that knows evaluations that it has to do again."""
    drive.hello()
    drive(ids(0, 10))
    drive(drive.finish(1, 3.0), 1)
    delta, snapshot = sends(drive(SnapshotRequest(7)))
    assert delta.records["id"].tolist() == [0] and (snapshot.serial, snapshot.flock) == (7, 4)
    assert [type(message) for message in sends(drive(SnapshotRequest(8)))] == [Snapshot], "nothing is left to send"
    assert sends(drive(Ack(1, 1)), Ack) == [Ack(1, 1)]


def test_a_gap_of_a_worker_is_asked_for(drive: Driver) -> None:
    drive.hello()
    drive(ids(0, 10))
    missed = drive.finish(1)
    drive.workers[1].handle(Received(0, Order(50, 1, 0, 1, 0, 0, np.zeros((1, 2)))), 0.0)
    drive.running[1] = drive.workers[1].given[0]
    second = drive.finish(1)
    assert sends(drive(second, 1)) == [Resync(0)] and drive.told == []
    drive(missed, 1)
    drive(second, 1)
    assert drive.told == [(0, [1.0], True)]


def test_a_heartbeat_is_answered_and_shows_what_is_missing(drive: Driver) -> None:
    drive.hello()
    assert sends(drive(Heartbeat(1, 0), 1), Ack) == [Ack(0, 0)]
    assert sends(drive(Heartbeat(1, 3), 1)) == [Resync(0), Ack(0, 0)]
    assert drive.leader.members[1].pulse.doubted_at == 0.0


def test_what_a_lost_worker_had_is_done_by_others(drive: Driver) -> None:
    drive.hello()
    drive(ids(0, 2))
    assert drive.running.keys() == {1, 2}
    actions = drive.wait(10.1, alive=(1,))
    (delta,) = [d for d in sends(actions, Delta) if len(d.records)]
    row = delta.records[0]
    assert (int(row["id"]), int(row["rank"]), int(row["status"])) == (1, 2, Status.LOST)
    assert delta.n_evaluations == 0
    assert parse_reasons(delta.reasons) == [RowReason(1, 0, Status.LOST, "rank 2 was lost")]
    late = drive.finish(2)
    assert [m.first for m in sends(drive(drive.finish(1), 1), Order)] == [1], "the id is given to the other"
    drive(late, 2)
    assert [first for first, _, _ in drive.told] == [0], "late: a fact, no vote"
    drive(drive.finish(1), 1)
    assert [first for first, _, _ in drive.told] == [0, 1]


def test_what_came_late_is_not_ordered_again(drive: Driver) -> None:
    drive.hello()
    drive(ids(0, 2))
    drive.wait(10.1, alive=(1,))
    assert list(drive.leader.dispatch.pool) == [(1, 2)]
    assert sends(drive(drive.finish(2), 2), Order) == []
    assert drive.leader.dispatch.pool.n == 0


def test_an_old_order_of_the_same_ids_at_the_same_worker_is_no_vote(make_search: Make) -> None:
    drive = Driver(make_search(), cycle_s=1000.0)
    drive.hello()
    drive(ids(0, 2))
    before = drive.finish(2, cost=8.0)  # on its way when the worker is lost
    drive.wait(10.1, alive=(1,))
    drive(Heartbeat(1, 1), 2)
    again = drive.running[2]
    assert (again.first, again.n) == (1, 1)
    drive(before, 2)
    assert drive.told == []
    drive(drive.finish(2, cost=7.0), 2)
    assert drive.told == [(1, [7.0], True)]


def test_only_the_row_that_ran_is_recorded_as_lost(make_search: Make) -> None:
    drive = Driver(make_search(), (1, 2))
    drive.hello()
    drive(ids(0, 300))
    drive(drive.finish(2, elapsed_s=1e-5), 2)
    assert len(drive.leader.dispatch.book.rows_at(2)) == 2, "fast: one more order waits behind"
    drive(Tick())
    lost = [d for d in sends(drive.wait(10.1, alive=(1,)), Delta) if len(d.records)]
    assert [int(r["id"]) for d in lost for r in d.records if r["status"] == Status.LOST] == [2]


def test_without_workers_the_run_is_to_end(drive: Driver) -> None:
    drive.hello()
    assert Trouble("flock 4 has no workers left") in sends(drive.wait(10.2, alive=()))


def test_who_was_lost_while_idle_gets_orders_again(drive: Driver) -> None:
    drive.hello()
    drive.wait(10.2, alive=(1,))
    drive(ids(0, 10))
    assert 2 not in drive.running
    drive(Heartbeat(1, 0), 2)
    assert 2 in drive.running


def test_repetitions_of_a_lost_worker_are_repeated(drive: Driver) -> None:
    drive.hello()
    point = np.array([[0.1, 0.2]])
    drive(Lease(3, -1, np.array([[5, 6]]), point))
    (rank,) = drive.running
    other = 3 - rank
    assert drive.running[rank].attempt == 3
    drive.wait(10.2, alive=(other,))
    again = drive.running[other]
    assert (again.first, again.attempt, again.positions.tolist()) == (5, 3, point.tolist())
    drive(drive.finish(other), other)
    assert drive.told == [] and drive.leader.dispatch.pool.n == 0


def test_progress_and_the_median_rule(make_search: Make) -> None:
    drive = Driver(make_search(), early_stop=MedianRule(1, 2))
    drive.hello()
    drive(ids(0, 10))
    for _ in range(3):
        id = drive.running[1].first
        assert sends(drive(Progress(id, 1, 1.0), 1)) == []
        drive(drive.finish(1), 1)
    bad = drive.running[2].first
    assert sends(drive(Progress(bad, 1, 9.0), 1), Halt) == [], "another worker's evaluation"
    assert sends(drive(Progress(bad, 1, 9.0), 2), Halt) == [Halt(bad)]
    rule = drive.leader._early_stop
    assert rule is not None and set(rule._best) == {bad}
    drive.wait(10.2, alive=(1,))
    assert not rule._best, "a lost evaluation is begun anew"


def test_beside_other_flocks_rows_wait_for_company_but_news_and_the_last_ones_do_not(make_search: Make) -> None:
    drive = Driver(make_search(), has_others=True)
    drive.hello()
    drive(ids(0, 100))

    def sent_after(cost: float) -> list[float]:
        """Return when a result went up, in s: a tick each eighth of a second."""
        drive(drive.finish(1, cost), 1)
        began, times = drive.now, []
        while not times and drive.now < began + 1.0:
            times = [drive.now - began for _ in sends(drive(Tick()), Delta)]
            drive.now += 0.125
        return times

    assert sent_after(5.0) == [0.0], "a new best"
    assert sent_after(6.0) == [0.25]
    for _ in range(COMPANY):
        drive(drive.finish(1, 7.0), 1)
    assert len(sends(drive(Tick()), Delta)) == 1, "as many as save the root anything"
    drive(Lease(0, 0))
    assert sent_after(8.0) == [0.0], "the root has no more to give: it waits for the last ones"
