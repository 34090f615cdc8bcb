"""The worker as a state machine: every transition and every rule of its header."""

from __future__ import annotations

import numpy as np
import pytest
from protocol_helpers import evaluated, sends, started

from osprey_mpi.continuity.events import (
    CancelEvaluations,
    Evaluate,
    Event,
    Finish,
    HaltEvaluation,
    Log,
    PeerLost,
    Received,
    Reported,
    Send,
    StopAsked,
    Tick,
)
from osprey_mpi.continuity.ledger import Ledger, Verdict
from osprey_mpi.continuity.messages import (
    Ack,
    Delta,
    Farewell,
    Goodbye,
    Halt,
    Heartbeat,
    Hello,
    Message,
    Order,
    Progress,
    Resync,
    Role,
    Steer,
    Stop,
    Trouble,
)
from osprey_mpi.continuity.records import NO_ROW, RowReason, Status
from osprey_mpi.continuity.sender import parse_reasons
from osprey_mpi.continuity.worker import HOLD_S, Phase, Worker

STEER = Steer(3, 0.2, np.zeros(2), np.ones((2, 1)))


class Driver:
    """A worker and its clock; every event is followed by its check()."""

    def __init__(self, **options: object) -> None:
        self.worker = Worker(5, 2, 1, 2, 2, cycle_s=1.0, patience_s=10.0, **options)  # type: ignore[arg-type]
        self.now = 0.0

    def __call__(self, event: Event | Message) -> list:  # type: ignore[type-arg]
        actions = self.worker.handle(Received(1, event) if isinstance(event, Message) else event, self.now)
        self.worker.check()
        return actions

    def wait(self, seconds: float) -> list:  # type: ignore[type-arg]
        """Tick ten times a cycle, as a loop that is awake does; return all actions."""
        actions = []
        end = self.now + seconds
        while self.now < end:
            self.now = round(self.now + 0.1, 6)
            actions += self(Tick())
        return actions


@pytest.fixture
def drive() -> Driver:
    driver = Driver()
    assert driver(Tick()) == [Send(1, Role.LEADER, Hello(1, 1))], "it says hello once"
    driver(STEER)
    return driver


def test_orders_are_evaluated_one_after_the_other(drive: Driver) -> None:
    one, two = Order(0, 2, 0, 2, 0), Order(2, 1, 0, 1, 0, 0, np.ones((1, 2)))
    assert drive(one) == [Evaluate(one, STEER)]
    assert drive(two) == []
    assert drive(evaluated(one, 0, 1, [1.0])) == []
    assert drive(evaluated(one, 1, 2, [2.0])) == [Evaluate(two, None)], "given points need no distribution"
    assert drive(evaluated(one, 1, 2, [2.0])) == [], "an order that is over"
    assert drive(evaluated(two, 0, 1, [2.0])) == []
    assert not drive.worker.given


def test_a_deeper_evaluator_gets_the_next_order_while_one_runs() -> None:
    drive = Driver(depth=2)
    drive(Tick())
    drive(STEER)
    one, two, three = (Order(first, 1, 0, 1, 0) for first in range(3))
    assert drive(one) == [Evaluate(one, STEER)]
    assert drive(two) == [Evaluate(two, STEER)]
    assert drive(three) == []
    assert drive(evaluated(one, 0, 1, [1.0])) == [Evaluate(three, STEER)]
    assert list(drive.worker.given) == [two, three]


def test_the_newest_distribution_counts(drive: Driver) -> None:
    drive(Steer(2, 9.0))
    assert drive.worker.steer is STEER
    newer = Steer(4, 0.1)
    drive(newer)
    assert drive.worker.steer is newer


def test_what_is_finished_goes_up_together(drive: Driver) -> None:
    order = Order(0, 4, 0, 4, 7)
    drive(order)
    drive(evaluated(order, 0, 1, [3.0]))
    assert sends(drive(Tick())) == [], "it waits for company"
    drive.now += HOLD_S
    assert sends(drive(Tick(sendable=False))) == []
    drive(evaluated(order, 1, 2, [1.0]))
    drive(evaluated(order, 2, 3, [2.0]))
    (delta,) = sends(drive(Tick()))
    assert isinstance(delta, Delta)
    assert (delta.counter, delta.n_evaluations, delta.cost, delta.best_id) == (1, 3, 1.0, 1)
    assert delta.records["id"].tolist() == [0, 1, 2]
    assert set(delta.records["rank"].tolist()) == {5} and set(delta.records["flock"].tolist()) == {2}
    assert [(p["row_start"], p["row_stop"], p["cycle"]) for p in delta.pieces] == [(0, 1, 7), (1, 2, 7), (2, 3, 7)]
    drive(evaluated(order, 3, 4, [9.0]))
    (second,) = sends(drive(Tick()))  # at once: the order is over
    assert second.position.size == 0 and second.best_id == 1, "no capture"
    ledger = Ledger()
    assert [ledger.admit(d) for d in (delta, second)] == [Verdict.ADMITTED] * 2
    assert sends(drive(Tick())) == []


def test_failures_are_no_captures_and_infeasible_rows_no_failures(drive: Driver) -> None:
    order = Order(0, 3, 0, 3, 0)
    drive(order)
    drive(evaluated(order, 0, 3, [np.nan, np.nan, np.inf], violations=[0.0, 1.5, 0.0], reasons={0: "it raised"}))
    (delta,) = sends(drive(Tick()))
    assert delta.pieces["n_failed"].tolist() == [1] and delta.best_id == -1
    assert parse_reasons(delta.reasons) == [RowReason(0, 0, Status.FAILED, "it raised")]


def test_reasons_name_the_row_that_they_belong_to(drive: Driver) -> None:
    """Of a batch that records captures only, a failure has no row."""
    order = Order(0, 2, 0, 2, 0, 3)
    drive(order)
    drive(evaluated(order, 0, 2, [np.nan, np.nan], keep=[1], reasons={0: "one", 1: "two"}))
    (delta,) = sends(drive(Tick()))
    assert parse_reasons(delta.reasons) == [RowReason(0, *NO_ROW, "one"), RowReason(1, 3, Status.FAILED, "two")]


def test_batches_send_survivors_or_the_costs_of_given_points(drive: Driver) -> None:
    hovered = Order(0, 3, 0, 3, 0)
    drive(hovered)
    survivors = np.array([2, 0]), np.ones((2, 2))
    drive(evaluated(hovered, 0, 3, [2.0, 3.0, 1.0], keep=[0, 2], survivors=survivors))
    given = Order(3, 3, 0, 3, 0, 0, np.ones((3, 2)))
    drive(given)
    drive(evaluated(given, 0, 3, [2.0, 3.0, 4.0], keep=[], violations=[0.0, 0.5, 0.0], survivors=survivors))
    (delta,) = sends(drive(Tick()))
    assert delta.survivor_costs.tolist() == [1.0, 2.0]
    assert delta.costs.tolist() == [2.0, 3.0, 4.0] and delta.violations.tolist() == [0.0, 0.5, 0.0]
    assert delta.pieces["n_records"].tolist() == [2, 0] and delta.pieces["n_survivors"].tolist() == [2, 0]
    assert delta.pieces["n_costs"].tolist() == [0, 3] and delta.pieces["generation"].tolist() == [0, -1]


def test_resync_gives_a_sign_of_life_and_what_is_not_durable(drive: Driver) -> None:
    order = Order(0, 3, 0, 3, 0)
    drive(order)
    deltas = []
    for row in range(3):
        drive(evaluated(order, row, row + 1, [1.0]))
        drive.now += HOLD_S
        deltas += sends(drive(Tick()))
    drive(Ack(1, 1))
    assert sends(drive(Resync(1))) == [Heartbeat(1, 3), *deltas[1:]]
    drive(Ack(1, 3))
    assert sends(drive(Resync(1))) == [Heartbeat(1, 3)]


def test_it_says_that_it_is_there_once_a_cycle_whatever_else_it_says(drive: Driver) -> None:
    drive(Order(0, 1, 0, 1, 0))
    said = sends(drive.wait(5.05))
    assert said == [Heartbeat(1, 0)] * 5


def test_progress_halts_and_signals(drive: Driver) -> None:
    assert drive(Halt(0)) == []
    drive(Order(4, 2, 0, 2, 0))
    assert sends(drive(Reported(5, 1, 0.5))) == [Progress(5, 1, 0.5)]
    assert drive(Halt(5)) == [HaltEvaluation(5)] and drive(Halt(6)) == []
    assert sends(drive(StopAsked("signal TERM"))) == [Trouble("signal TERM", is_signal=1)]


def test_an_early_stop_is_no_failure_that_stops_the_run() -> None:
    drive = Driver(stop_on_failure=True)
    drive(STEER)
    order = Order(0, 2, 0, 2, 0)
    drive(order)
    stopped = evaluated(order, 0, 1, [3.0], reasons={0: "stopped early"})
    stopped.records["status"] = Status.STOPPED
    assert sends(drive(stopped)) == []
    (trouble,) = sends(drive(evaluated(order, 1, 2, [np.nan], reasons={1: "bad"})))
    assert trouble == Trouble("evaluation 1 failed: bad", is_failure=1)


def test_a_failure_that_should_stop_the_run_says_so() -> None:
    drive = Driver(stop_on_failure=True)
    drive(STEER)
    order = Order(8, 1, 0, 1, 0)
    drive(order)
    (trouble,) = sends(drive(evaluated(order, 0, 1, [np.nan], reasons={8: "boom"})))
    assert trouble == Trouble("evaluation 8 failed: boom", is_failure=1)


def test_leaving(drive: Driver) -> None:
    order = Order(0, 3, 0, 3, 0, 2)
    drive(order)
    drive(Order(3, 3, 0, 3, 0))
    drive(evaluated(order, 0, 1, [1.0]))
    actions = drive(Stop("why"))
    assert actions[0] == CancelEvaluations() and drive.worker.phase is Phase.LEAVING
    delta, farewell = sends(actions)
    assert farewell == Farewell(1, 1) and delta.counter == 1
    rows = [(int(r["id"]), Status(int(r["status"])), int(r["attempt"])) for r in delta.records]
    assert rows == [(0, Status.OK, 2), (1, Status.CANCELLED, 2)], "the row that ran; the queue had not begun"
    cut_off = RowReason(1, 2, Status.CANCELLED, "cut off because the run stopped")
    assert delta.n_evaluations == 1 and parse_reasons(delta.reasons) == [cut_off]
    assert drive(Order(9, 1, 0, 1, 0)) == [] and drive(evaluated(order, 1, 2, [1.0])) == [] and drive(Stop()) == []
    assert sends(drive(Resync(0))) == [Heartbeat(1, 1), delta]
    assert drive(Goodbye(75)) == [Finish(75)] and drive.worker.phase is Phase.GONE
    assert drive(Tick()) == [] and drive(Goodbye(0)) == [] and drive(Order(9, 1, 0, 1, 0)) == []


def test_leaving_with_nothing_to_send(drive: Driver) -> None:
    assert drive(Stop()) == [Send(1, Role.LEADER, Farewell(1, 0))]


def test_a_goodbye_that_never_comes(drive: Driver) -> None:
    drive(Stop())
    assert not [a for a in drive.wait(9.5) if isinstance(a, Finish)]
    log, finish = drive.wait(1.0)[-2:]
    assert finish == Finish(4)
    assert log == Log("rank 5 leaves: it has waited 10 s for a goodbye of its leader on rank 1", warning=True)
    assert drive.wait(5.0) == []


def test_a_leader_that_is_gone(drive: Driver) -> None:
    drive(Order(0, 1, 0, 1, 0))
    drive.wait(9.0)
    drive(Ack(0, 0))
    assert not [a for a in drive.wait(9.0) if isinstance(a, Finish)], "a word is enough"
    assert drive.wait(2.0)[-2:] == [CancelEvaluations(), Finish(4)]


def test_who_cannot_answer_does_not_ask_others_to() -> None:
    drive = Driver(responsive=False)
    assert sends(drive(Tick())) == [Hello(1, 0)]
    assert not [a for a in drive.wait(60.0) if isinstance(a, Finish)]
    drive(Stop())
    assert drive.wait(11.0)[-1] == Finish(4), "a leader that has said stop is not evaluating"


def test_time_in_which_it_stood_still_is_not_waiting(drive: Driver) -> None:
    drive(Stop())
    drive.now += 3600.0
    assert not [a for a in drive(Tick()) if isinstance(a, Finish)]


def test_the_order_is_started_with_the_distribution_of_its_start(drive: Driver) -> None:
    one = Order(0, 1, 0, 1, 0)
    drive(one)
    drive(Order(1, 1, 0, 1, 0))
    drive(Steer(9, 0.1))
    (action,) = drive(evaluated(one, 0, 1, [1.0]))
    assert isinstance(action, Evaluate) and action.steer is not None and action.steer.generation == 9
    assert started([action])[0].first == 1


def test_without_its_leader_it_leaves_at_once(drive: Driver) -> None:
    drive(Order(0, 1, 0, 1, 0))
    assert drive(PeerLost(77)) == [], "somebody else"
    actions = drive(PeerLost(1))
    assert actions == [Log("rank 5 leaves: its leader on rank 1 is lost"), CancelEvaluations(), Finish(75)]
