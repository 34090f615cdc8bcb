"""What follows a launch, from how it ended."""

from __future__ import annotations

import pytest

from osprey_mpi.storage.status import State
from osprey_mpi.supervise.restart import FRUITLESS, End, Ended, Relaunch, RestartPolicy


@pytest.mark.parametrize(
    ("ended", "decision"),
    [
        (Ended(0, State.DONE, 90, exit_code=0), End(0)),
        (Ended(137, State.DONE, 90, exit_code=0), End(0)),
        (Ended(137, State.DONE, 90, exit_code=4), End(4)),
        (Ended(1, State.FAILED, 90, exit_code=3), End(3)),
        (Ended(0, State.INTERRUPTED, 9), Relaunch(0.0)),
        (Ended(75, State.STOPPED, 9, "signal TERM"), Relaunch(0.0)),
        (Ended(75, State.STOPPED, 9, "walltime"), End(75)),
        (Ended(2, State.INTERRUPTED, 0), End(2)),
        (Ended(4, None, 0), End(4)),
        (Ended(2, State.INTERRUPTED, 9), Relaunch(0.0)),
        (Ended(0, None, 0), Relaunch(1.0)),
    ],
)
def test_one_launch(ended: Ended, decision: Relaunch | End) -> None:
    assert RestartPolicy(20).after(ended, is_asked=False) == decision


@pytest.mark.parametrize("state", [State.STOPPED, State.INTERRUPTED, None])
def test_who_asked_for_the_end_gets_it(state: State | None) -> None:
    said = "" if state else "stopped before the run began: there is nothing to resume, start it again"
    assert RestartPolicy(20).after(Ended(75, state, 9), is_asked=True) == End(75, said)


def test_a_run_that_was_done_before_the_stop_is_done() -> None:
    assert RestartPolicy(20).after(Ended(0, State.DONE, 9, exit_code=0), is_asked=True) == End(0)


def test_launches_that_get_nowhere_come_later_and_end() -> None:
    policy = RestartPolicy(20, 5)
    lost = Ended(137, State.INTERRUPTED, 5)
    waits = [policy.after(lost, is_asked=False) for _ in range(FRUITLESS - 1)]
    assert waits == [Relaunch(1.0), Relaunch(3.0)]
    assert policy.after(lost, is_asked=False) == End(75, "3 launches in a row ended without one evaluation; giving up")


def test_one_evaluation_makes_patient_again() -> None:
    policy = RestartPolicy(1000)
    for n in range(1, 400, 2):
        assert policy.after(Ended(1, State.INTERRUPTED, n), is_asked=False) == Relaunch(0.0)
        assert policy.after(Ended(1, State.INTERRUPTED, n), is_asked=False) == Relaunch(1.0)


def test_there_is_a_last_launch() -> None:
    policy = RestartPolicy(2)
    assert policy.after(Ended(1, State.INTERRUPTED, 3), is_asked=False) == Relaunch(0.0)
    end = policy.after(Ended(1, State.INTERRUPTED, 6), is_asked=False)
    assert end == End(75, "launch 2 of at most 2 was lost, too; giving up")


def test_a_launcher_that_never_brings_a_run_up_is_a_fault_of_the_environment() -> None:
    policy = RestartPolicy(20)
    for _ in range(FRUITLESS - 1):
        assert isinstance(policy.after(Ended(213, None, 0), is_asked=False), Relaunch)
    end = policy.after(Ended(213, None, 0), is_asked=False)
    assert isinstance(end, End) and end.code == 4
