"""Schedules of faults on 40 ranks: the run ends with its budget on disk; a mistake planted in the protocol is seen.

`python tests/bench/schedules.py` runs any range of seeds and shrinks a schedule that fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from osprey_mpi.continuity import ledger, rescue, tally
from osprey_mpi.continuity.ledger import Account, Ledger, Verdict
from osprey_mpi.continuity.sender import Sender
from osprey_mpi.continuity.succession import Succession
from osprey_mpi.simulate.faults import Fault, Kind, shrink
from osprey_mpi.simulate.folder import VirtualFolder
from osprey_mpi.simulate.launch import Launch
from osprey_mpi.simulate.schedule import Scale, faults_of, run

SCALE = Scale()
N_SEEDS = 200  # within which a planted mistake must be seen


@pytest.mark.parametrize("first", range(0, 100, 10))
def test_schedules(first: int) -> None:
    for seed in range(first, first + 10):
        try:
            run(seed, faults_of(seed, SCALE), SCALE)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_a_schedule_repeats() -> None:
    assert run(3, faults_of(3, SCALE), SCALE) == run(3, faults_of(3, SCALE), SCALE)


@pytest.mark.parametrize("n_ranks", [1, 2, 5])
def test_small_launches(n_ranks: int) -> None:
    scale = Scale(n_ranks, n_evaluations=40, flock_size=2, mean_s=0.05)
    for seed in range(12):
        run(seed, faults_of(seed, scale), scale)


def test_loss_during_recovery_costs_no_launch() -> None:
    """The root, its heir, and the heir's heir, 30 ms apart, and a leader on top."""
    faults = [Fault(0.3 + 0.03 * rank, Kind.KILL, (rank,)) for rank in range(3)] + [Fault(0.45, Kind.KILL, (14,))]
    outcome = run(0, faults, SCALE)
    assert (outcome.n_launches, outcome.n_lost) == (1, 4) and outcome.n_epochs >= 1


def test_what_a_rank_captured_that_wakes_up_at_the_end_is_on_disk() -> None:
    """Its delta got lost, it stood still until others had done its work again: only the rank itself holds its best."""
    faults = [
        Fault(0.1388, Kind.KILL, (23, 32)),
        Fault(0.1547, Kind.KILL, (14,)),
        Fault(0.1877, Kind.FENCE, (1,), 2.673),
        Fault(0.3428, Kind.PAUSE, (9,), 2.431),
    ]
    assert run(9319, faults, SCALE).n_launches == 1


def _admit_duplicates(self: Ledger, delta: Any, admit: Callable[..., Verdict] = Ledger.admit) -> Verdict:
    verdict = admit(self, delta)
    return Verdict.ADMITTED if verdict is Verdict.DUPLICATE else verdict


def _admit_gaps(self: Ledger, delta: Any) -> Verdict:
    self.account.counter = delta.counter
    return Verdict.ADMITTED


def _higher_id_first(cost: float, violation: float, id: int, key: Any = ledger.rank_key) -> Any:
    return (*key(cost, violation, id)[:3], -id if id >= 0 else 2**63)


PLANTED: dict[str, list[tuple[Any, str, Any]]] = {
    "a duplicate is admitted": [(Ledger, "admit", _admit_duplicates)],
    "a gap is admitted": [(Ledger, "admit", _admit_gaps)],
    "a roster of an older epoch counts": [(Succession, "_counts", lambda self, epoch, members: self.rank in members)],
    "a message of an older epoch counts": [(Launch, "is_current", staticmethod(lambda process, epoch: True))],
    "a fenced root goes on writing": [(VirtualFolder, "may_write", lambda self, lock: lock is not None)],
    "the later point wins": [(Account, "improved_by", lambda self, cost, violation, id: True)],
    "ties go to the higher id": [(module, "rank_key", _higher_id_first) for module in (ledger, tally)],
    "nothing is handed over": [(Sender, "kept", lambda self: [])],
    "all that is handed over is news": [(rescue, "_is_news", lambda delta, tally, attempts: True)],
}  # fmt: skip


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_planted_mistake_is_seen(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name, planted in PLANTED[mistake]:
        monkeypatch.setattr(owner, name, planted)
    for seed in range(N_SEEDS):
        try:
            run(seed, faults_of(seed, SCALE), SCALE)
        except AssertionError as seen:
            print(f"{mistake}: seed {seed}: {seen}")
            return
    pytest.fail(f"{mistake}: not seen within {N_SEEDS} seeds")


def test_a_failing_schedule_shrinks_to_what_it_takes() -> None:
    kills = [Fault(0.1 * i, Kind.KILL, (i, i + 10)) for i in range(9)]

    def fails(faults: list[Fault]) -> bool:
        return {3, 17} <= {rank for fault in faults for rank in fault.ranks}

    smallest = shrink(kills, fails)
    assert smallest == [Fault(kills[3].at_s, Kind.KILL, (3,)), Fault(kills[7].at_s, Kind.KILL, (17,))]
