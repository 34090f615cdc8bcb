"""Health, sender, relay, orders, steering: the parts of a leader."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from protocol_helpers import delta_of, piece, record

from osprey_mpi.continuity.health import Awake, Health, Patience, Pulse
from osprey_mpi.continuity.messages import Heartbeat, Order
from osprey_mpi.continuity.orders import OpenOrder, OrderBook, Pace, Part, Piece, order_s, parts
from osprey_mpi.continuity.records import NO_ROW, RECORD, RowReason, Status, count_rows, join
from osprey_mpi.continuity.relay import Relay
from osprey_mpi.continuity.sender import Sender, parse_reasons
from osprey_mpi.continuity.steering import Steering
from osprey_mpi.search.distribution import Distribution

EMPTY = np.empty((0, 2))


# health


def test_pulse_by_silence() -> None:
    pulse = Pulse(2.0, 10.0, heard_at=0.0)
    assert pulse.judge(1.99) is None and pulse.health is Health.HEALTHY
    assert pulse.judge(2.0) is Health.SUSPECT and pulse.judge(5.0) is None
    assert not pulse.hear(5.0) and pulse.health is Health.HEALTHY
    assert pulse.judge(7.0) is Health.SUSPECT and pulse.judge(15.0) is Health.LOST
    assert pulse.judge(99.0) is None, "lost once, said once"
    assert pulse.hear(100.0) and pulse.health is Health.HEALTHY
    assert pulse.judge(110.0) is Health.LOST, "one long silence skips SUSPECT"


def test_slow_is_not_dead() -> None:
    pulse = Pulse(2.0, 10.0, heard_at=0.0, responsive=False)
    pulse.doubt(0.0)
    assert pulse.judge(1e9) is None


def test_a_gap_that_stays_makes_lost_however_much_is_heard() -> None:
    pulse = Pulse(2.0, 10.0, heard_at=0.0)
    pulse.doubt(1.0)
    assert pulse.health is Health.SUSPECT
    pulse.doubt(9.0)
    assert not pulse.hear(10.9) and pulse.judge(10.9) is None and pulse.health is Health.SUSPECT
    assert pulse.judge(11.0) is Health.LOST
    assert not pulse.hear(12.0) and pulse.health is Health.LOST
    pulse.trust()
    assert pulse.health is Health.HEALTHY and pulse.judge(12.1) is None


def test_time_without_a_judge_does_not_count() -> None:
    awake = Awake(0.0)
    assert awake.nap_s(0.1) == 0.0
    assert awake.nap_s(100.0) == pytest.approx(99.8)
    pulse = Pulse(2.0, 10.0, heard_at=0.0)
    pulse.doubt(0.0)
    pulse.excuse(99.8, 100.0)
    assert pulse.judge(100.0) is None
    pulse.excuse(1e9, 100.0)
    assert pulse.heard_at == 100.0, "never in the future"


def test_patience_ends_after_the_limit_awake() -> None:
    patience = Patience(1.0, 0.0)
    assert not patience.is_over(500.0)
    at = 500.0
    while not patience.is_over(at):
        at += 0.05
    assert at == pytest.approx(501.0, abs=0.15)
    patience.hear(at)
    assert not patience.is_over(at + 0.05)


# sender and relay


def test_sender_folds_what_comes_while_the_way_is_blocked_and_keeps_until_durable() -> None:
    sender = Sender(3, 2, 2)
    assert not sender.load
    assert sender.capture(2.0, 0.0, 1, np.zeros(2)) and not sender.capture(2.0, 0.0, 2, np.ones(2))
    why = RowReason(4, 0, Status.FAILED, "é")
    one = delta_of(sender, piece(0, 2), piece(2, 3), records=record(1, 2.0), reasons=[why])
    assert (one.incarnation, one.counter, one.n_evaluations, one.best_id) == (3, 1, 5, 1)
    assert one.position.tolist() == [0.0, 0.0] and parse_reasons(one.reasons) == [why]
    assert not sender.load
    two = delta_of(sender, piece(5))
    assert two.counter == 2 and two.position.size == 0 and two.best_id == 1, "the position travels once"
    assert sender.answer(1) == [Heartbeat(3, 2), two]
    sender.acknowledge(2, 2)
    assert list(sender.unacknowledged) == [one, two], "another incarnation"
    sender.acknowledge(3, 1)
    assert list(sender.unacknowledged) == [two]
    assert sender.answer(0) == [Heartbeat(3, 2), two]
    sender.acknowledge(3, 9)
    sender.check()
    assert not sender.unacknowledged and sender.answer(2) == [Heartbeat(3, 2)]


def test_the_collector_may_not_change_what_a_sender_captured() -> None:
    sender, position = Sender(1, 2, 2), np.zeros(2)
    sender.capture(1.0, 0.0, 0, position)
    position[0] = 9.0
    assert sender.account.position.tolist() == [0.0, 0.0]


def test_relay_hands_acknowledgements_back_only_for_what_is_durable() -> None:
    relay, worker = Relay(Sender(1, 2, 2)), Sender(1, 2, 2)
    relay.pass_on(7, delta_of(worker, piece(0), records=record(0)), admitted=True)
    relay.pass_on(7, delta_of(worker, piece(1), records=record(1)), admitted=True)
    relay.pass_on(8, delta_of(Sender(2, 2, 2), piece(2)), admitted=True)
    first = relay.stamp()
    relay.pass_on(7, delta_of(worker, piece(3)), admitted=True)
    relay.pass_on(9, delta_of(Sender(1, 2, 2), piece(4)), admitted=False)  # late: passed on, not acknowledged
    second = relay.stamp()
    assert (count_rows(first.pieces), count_rows(second.pieces)) == (3, 2)
    assert relay.durable(1, 0) == {} and relay.durable(2, 2) == {}
    assert relay.durable(1, 1) == {7: (1, 2), 8: (2, 1)}
    assert relay.durable(1, 2) == {7: (1, 3)} and relay.durable(1, 2) == {}


def test_relay_keeps_every_reason_of_an_evaluation() -> None:
    relay = Relay(Sender(1, 2, 2))
    why = [RowReason(0, 0, Status.LOST, "lost"), RowReason(0, 0, Status.FAILED, "x"), RowReason(0, *NO_ROW, "y")]
    for worker, reason in enumerate(why):
        relay.pass_on(worker, delta_of(Sender(1, 2, 2), piece(0), reasons=[reason]), admitted=True)
    assert parse_reasons(relay.stamp().reasons) == why


def test_relay_keeps_what_only_the_search_needs_and_merges_the_best() -> None:
    relay, worker = Relay(Sender(1, 2, 2)), Sender(1, 2, 2)
    worker.load.survivor_costs.append(np.array([1.0]))
    worker.load.survivor_latent.append(np.ones((1, 2)))
    worker.load.survivor_violations.append(np.zeros(1))
    worker.capture(0.5, 0.0, 3, np.array([0.1, 0.2]))
    sent = delta_of(worker, piece(0, 4, n_survivors=1, n_costs=4))
    relay.pass_on(7, sent, admitted=True)
    passed = relay.stamp()
    assert passed.survivor_costs.size == passed.costs.size == 0
    assert passed.pieces["n_survivors"][0] == passed.pieces["n_costs"][0] == 0
    assert sent.pieces["n_survivors"][0] == 1, "the worker's own is not changed"
    assert (passed.cost, passed.best_id, passed.position.tolist()) == (0.5, 3, [0.1, 0.2])


# orders and pace


@pytest.mark.parametrize(
    ("n_dims", "dives", "seconds"),
    [(1, False, 0.02), (1, True, 0.03), (150, False, 0.02), (150, True, 0.03), (151, True, 0.04), (5000, False, 0.02)],
)
def test_orders_last_longer_with_dives_and_in_many_dimensions(n_dims: int, dives: bool, seconds: float) -> None:
    pace = Pace()
    pace.learn(10, 0.01)
    assert order_s(n_dims, dives) == seconds
    assert pace.n_rows(64, seconds) == round(1000 * seconds)


def test_pace_sizes_orders() -> None:
    pace = Pace()
    assert pace.n_rows(64) == 1 and pace.n_behind(1) == 0, "unknown: one at a time"
    pace.learn(4, 4e-5)
    assert pace.mean_s == pytest.approx(1e-5) and pace.n_rows(64) == 64
    assert pace.n_behind(64) == 1, "shorter than a message"
    assert pace.n_behind(400) == 2, "4 ms: one alone does not last as long as the leader may look away"
    for _ in range(200):
        pace.learn(1, 0.001)
    assert pace.mean_s == pytest.approx(0.001, rel=0.01) and pace.n_rows(64) == 20 and pace.n_behind(20) == 1
    for _ in range(400):
        pace.learn(1, 2.0)
    assert pace.n_rows(64) == 1 and pace.n_behind(1) == 0
    before = pace.mean_s
    pace.learn(0, 1.0)
    pace.learn(1, float("nan"))
    pace.learn(1, -1.0)
    assert pace.mean_s == before


def test_pace_knows_how_much_is_sure() -> None:
    steady, varied = Pace(), Pace()
    assert steady.sure_s(10) == 0.0, "nothing is known"
    for i in range(400):
        steady.learn(2, 0.020)
        varied.learn(1, 0.019 if i % 2 else 0.001)
    assert steady.sure_s(3) == pytest.approx(0.030, rel=1e-3)
    assert varied.mean_s == pytest.approx(0.010, rel=0.1) and varied.variance == pytest.approx(81e-6, rel=0.15)
    assert varied.sure_s(4) == pytest.approx(4 * varied.mean_s - 1.6 * varied.variance**0.5)
    assert (steady.n_behind(2), varied.n_behind(2)) == (1, 2), "short rows in a row must not leave it without work"
    for _ in range(400):
        varied.learn(1, 0.100)
    assert varied.n_behind(1) == 1


def test_the_variance_of_one_point_is_learnt_from_pieces_of_several() -> None:
    random = np.random.default_rng(1)
    one, four = Pace(), Pace()
    ones, fours = [], []
    for _ in range(4000):
        times = random.exponential(0.01, 4)
        one.learn(1, times[0])
        four.learn(4, times.sum())
        ones.append(one.variance)
        fours.append(four.variance)
    assert np.mean(ones) == pytest.approx(1e-4, rel=0.1) and np.mean(fours) == pytest.approx(1e-4, rel=0.1)


def _piece(**fields: Any) -> Piece:
    return Piece._make(piece(**fields).tolist()[0])


def _part(costs: list[float] = (), records: Any = None, violations: Any = None, survivors: Any = ()) -> Part:  # type: ignore[assignment]
    rows = np.empty(0, RECORD) if records is None else records
    array = np.array(survivors, float)
    return Part(
        rows, np.array(costs, float), np.zeros(len(costs)) if violations is None else np.array(violations),
        array, np.zeros(len(array)), np.ones((len(array), 2)),
    )  # fmt: skip


def test_order_book() -> None:
    book = OrderBook()
    book.add(OpenOrder.of(Order(30, 4, 0, 3, 0), 7))
    book.add(OpenOrder.of(Order(10, 2, 0, 2, 0), 7))
    book.add(OpenOrder.of(Order(20, 1, 0, 1, 0), 8))
    book.check()
    assert [entry.order.first for entry in book.of(7)] == [30, 10], "in the order in which they went out"
    assert (book.rows_at(7), book.rows_at(8), book.rows_at(9), book.n_rows_out) == ([3, 2], [1], [], 6)
    assert book.holds(7, 33) and not book.holds(7, 34) and not book.holds(8, 10)
    entry = book.open[30]
    book.take(entry, _piece(first=30, n=4, row_start=0, row_stop=3), _part([1.0, 2.0, np.nan]))
    assert entry.finished and not entry.complete and (book.rows_at(7), book.n_rows_out) == ([2], 3)
    np.testing.assert_array_equal(entry.costs, [1.0, 2.0, np.nan, np.nan])
    assert book.close(30) is entry and book.of(7)[0].order.first == 10
    book.close(10)
    book.check()
    assert book.n_rows_out == 1


def test_an_open_order_takes_records_costs_or_survivors() -> None:
    entry = OpenOrder.of(Order(0, 3, 0, 3, 0), 7)
    entry.take(_piece(first=0, n=3, row_start=0, row_stop=1), _part(records=record(0, 5.0, violation=0.5)))
    entry.take(_piece(first=0, n=3, row_start=1, row_stop=3), _part([6.0, np.nan], violations=[0.0, 2.0]))
    np.testing.assert_array_equal(entry.costs, [5.0, 6.0, np.nan])
    assert entry.violations.tolist() == [0.5, 0.0, 2.0] and entry.complete
    survived = OpenOrder.of(Order(0, 3, 0, 3, 0), 7)
    survived.take(_piece(first=0, n=3, row_stop=3, generation=4), _part(survivors=[1.0, 2.0]))
    assert survived.generation == 4 and survived.survivor_costs[0].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    "other",
    [{"n": 5}, {"cycle": 2}, {"row_start": 0}, {"row_start": 2}, {"row_stop": 5}, {"generation": -1}],
)
def test_what_comes_back_of_an_older_order_of_the_same_ids_is_none_of_this_one(other: dict[str, int]) -> None:
    entry = OpenOrder.of(Order(10, 4, 1, 4, 3), 7)
    fits = {"first": 10, "n": 4, "row_start": 1, "row_stop": 2, "cycle": 3, "generation": 6}
    assert entry.follows(_piece(**fits))
    assert not entry.follows(_piece(**{**fits, **other}))


def test_parts_of_a_delta() -> None:
    sender = Sender(1, 2, 2)
    load = sender.load
    load.costs.append(np.array([1.0, 2.0, 3.0]))
    load.violations.append(np.array([0.0, 0.1, 0.2]))
    load.survivor_costs.append(np.array([4.0]))
    load.survivor_violations.append(np.zeros(1))
    load.survivor_latent.append(np.ones((1, 2)))
    rows = np.concatenate([record(1), record(5), record(6)])
    sent = delta_of(
        sender, piece(0, 2, n_records=1, n_costs=2), piece(5, 2, n_records=2, n_survivors=1), piece(9, n_costs=1),
        records=rows,
    )  # fmt: skip
    (a, first), (b, second), (c, third) = parts(sent)
    assert (a.first, b.first, c.first) == (0, 5, 9)
    assert first.records["id"].tolist() == [1] and second.records["id"].tolist() == [5, 6]
    assert first.costs.tolist() == [1.0, 2.0] and third.costs.tolist() == [3.0] and third.violations.tolist() == [0.2]
    assert second.survivor_costs.tolist() == [4.0] and third.survivor_latent.shape == (0, 2)


def test_join_of_rows_is_bit_for_bit() -> None:
    rows = [record(1, np.nan), np.empty(0, RECORD), record(2, -0.0)]
    assert join(rows, rows[1]).tobytes() == rows[0].tobytes() + rows[2].tobytes()
    assert join([], rows[1]).dtype == RECORD and join([rows[0]], rows[1]) is rows[0]


# steering


def test_results_are_read_with_the_scale_of_their_own_generation() -> None:
    paces = {1: Pace(1.0, 5), 2: Pace(4.0, 5)}
    steering = Steering([1, 2], 0.5)

    def distribution(generation: int) -> Distribution:
        return Distribution(generation, np.zeros(2), 0.2, np.ones(2), np.empty(0))

    assert steering.scale(2, 0) == 1.0
    steer = steering.update(2, distribution(0), paces)
    assert steer is not None and steer.sigma == pytest.approx(0.1) and steer.factor.shape == (2, 1)
    assert steering.update(2, distribution(0), paces) is None, "it holds the newest"
    paces[2].mean_s = 1.0
    assert steering.update(2, distribution(0), paces) is None and steering.scale(2, 0) == 0.5
    steering.update(2, distribution(1), paces)
    assert (steering.scale(2, 0), steering.scale(2, 1)) == (0.5, 1.0)
    first = steering.update(1, distribution(1), paces)
    assert first is not None and first.sigma == 0.2
    steering.forget(2)
    assert steering.update(2, distribution(1), paces) is not None
    for generation in range(2, 200):
        steering.update(1, distribution(generation), paces)
    assert len(steering._scales[1]) == 64
