"""Tally, repetitions, rows, books, budget, leases: the parts of the root."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_helpers import delta_of, piece, record

from osprey_mpi.continuity.books import Books
from osprey_mpi.continuity.budget import BudgetRule, Reason
from osprey_mpi.continuity.events import Appended
from osprey_mpi.continuity.ids import IdRanges
from osprey_mpi.continuity.leases import Leases
from osprey_mpi.continuity.records import FINAL, RECORD, RowReason, Status
from osprey_mpi.continuity.redo import Redo
from osprey_mpi.continuity.rows import RowBuffer
from osprey_mpi.continuity.sender import Sender
from osprey_mpi.continuity.tally import Tally
from osprey_mpi.continuity.violations import Violations

EMPTY = np.empty((0, 2))


# tally


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_tally_counts_each_id_once_whatever_comes_twice(data: st.DataObject) -> None:
    """One row per evaluation, in any grouping, with repetitions: the model keeps the first final row of each id."""
    tally, model = Tally(), dict[int, tuple[int, float]]()
    attempts = {Status.LOST: 0, Status.CANCELLED: 0}
    for _ in range(data.draw(st.integers(1, 6))):
        ids = data.draw(st.lists(st.integers(0, 12), max_size=8))
        statuses = [data.draw(st.sampled_from(list(Status))) for _ in ids]
        costs = [data.draw(st.sampled_from([1.0, 2.0, 3.0, np.inf, np.nan])) for _ in ids]
        rows = [record(id, cost, status) for id, cost, status in zip(ids, costs, statuses, strict=True)]
        final = [id for id, status in zip(ids, statuses, strict=True) if status in FINAL]
        tally.enter(
            np.concatenate([piece(0)[:0], *(piece(id) for id in final)]),
            np.concatenate([np.empty(0, RECORD), *rows]),
            np.arange(2.0 * len(ids)).reshape(-1, 2),
        )
        for id, status, cost in zip(ids, statuses, costs, strict=True):
            if status in FINAL:
                model.setdefault(id, (int(status), cost))
            else:
                attempts[status] += 1
    assert tally.n_evaluations == len(model)
    for status in Status:
        expected = attempts.get(status, sum(s == status for s, _ in model.values()))
        assert tally.counts[status] == expected


def test_tally_of_blocks_without_rows_and_batched_failures() -> None:
    tally = Tally()
    tally.enter(piece(0, 8, n_failed=3, n_records=1), record(2, 5.0), np.zeros((1, 2)))
    assert (tally.counts[Status.OK], tally.counts[Status.FAILED]) == (5, 3)
    tally.enter(piece(0, 8, n_failed=3), np.empty(0, RECORD), EMPTY)
    assert (tally.counts[Status.OK], tally.counts[Status.FAILED]) == (5, 3), "a repetition counts nothing"
    tally.enter(piece(8, 2, n_failed=2), np.concatenate([record(8, np.nan, Status.TIMEOUT)]), np.zeros((1, 2)))
    assert tally.counts[Status.TIMEOUT] == 1 and tally.counts[Status.FAILED] == 4
    assert sum(tally.counts.values()) == tally.n_evaluations == 10
    tally.enter(piece(6, 8, n_failed=8), np.empty(0, RECORD), EMPTY)  # two of its rows were known
    assert sum(tally.counts.values()) == tally.n_evaluations == 14 and tally.counts[Status.FAILED] == 8


def test_tally_counts_what_violates_constraints_once() -> None:
    tally = Tally()
    uncalled, called = record(0, np.nan, violation=1.0), record(1, 2.0, violation=1.0)
    own = record(2, np.nan, violation=1.0, t_end_s=1.0)  # an objective that said so itself
    for _ in range(2):
        for id, row in enumerate((uncalled, called, own, record(3, 1.0))):
            tally.enter(piece(id), row, np.zeros((1, 2)))
    assert tally.violations == Violations(n_infeasible=3, n_not_called=1)
    tally.enter(piece(4, 8, n_records=1), record(5, 0.5), np.zeros((1, 2)))
    assert tally.violations == Violations(3, 1, n_rowless=7)
    tally.revise([(Status.FAILED, Status.OK, 0.5), (Status.FAILED, Status.OK, 0.0)])
    assert tally.violations == Violations(4, 1, 7)


def test_what_is_known_of_violations() -> None:
    """Without rows nothing is, where there may be some; built-ins are always called and violate nothing themselves."""
    for has_constraints, is_builtin, expected in (
        (True, True, (None, 1)), (True, False, (None, None)), (False, True, (3, 1)), (False, False, (None, 1))
    ):  # fmt: skip
        known = Violations(3, 1, 7).known(has_constraints=has_constraints, is_builtin=is_builtin)
        assert known == expected
        assert Violations(3, 1).known(has_constraints=has_constraints, is_builtin=is_builtin) == (3, 1)


def test_tally_keeps_the_best_of_all_attempts() -> None:
    tally = Tally()
    assert tally.enter(piece(0), record(0, 3.0, violation=1.0), np.array([[1.0, 1.0]]))
    assert tally.enter(piece(1), record(1, 9.0), np.array([[2.0, 2.0]])), "feasible before infeasible"
    assert not tally.enter(piece(2), record(2, 9.0), np.array([[3.0, 3.0]])), "a tie stays with the lower id"
    assert not tally.enter(piece(3), record(3, 1.0, Status.STOPPED), np.zeros((1, 2))), "no cost of its own"
    assert (tally.best.id, tally.best.values.tolist(), tally.n_at_best) == (1, [2.0, 2.0], 2)
    rows = np.concatenate([record(4, 8.0), record(5, 2.0), record(6, 7.0)])
    assert tally.enter(np.concatenate([piece(4), piece(5), piece(6)]), rows, np.arange(6.0).reshape(3, 2))
    assert (tally.best.id, tally.best.cost, tally.best.values.tolist(), tally.n_at_best) == (5, 2.0, [2.0, 3.0], 7)


def test_tally_is_revised_by_repetitions() -> None:
    tally = Tally()
    tally.enter(piece(0), record(0, np.nan, Status.FAILED), np.zeros((1, 2)))
    redo = Redo(np.array([0]), np.zeros((1, 2)), 1, np.array([Status.FAILED], np.uint8))
    done = record(0, 1.0, attempt=1)
    tally.enter(piece(0), done, np.zeros((1, 2)))
    tally.revise(redo.enter(piece(0), done))
    assert (tally.counts[Status.OK], tally.counts[Status.FAILED], tally.n_evaluations) == (1, 0, 1)
    assert redo.enter(piece(0), done) == [], "once"


# redo


def test_redo_leases_each_id_once_and_knows_what_is_missing() -> None:
    redo = Redo(np.array([3, 4, 9]), np.arange(6.0).reshape(3, 2), 2)
    first, second = redo.lease(2), redo.lease(5)
    assert first is not None and second is not None and redo.lease(5) is None
    assert first.ranges.tolist() == [[3, 4], [4, 5]] and first.attempt == 2
    assert second.positions.tolist() == [[4.0, 5.0]]
    assert redo.missing.n == 3
    assert redo.enter(piece(2, 3), np.empty(0, RECORD)) == []
    assert list(redo.missing) == [(9, 10)]
    lost = record(9, np.nan, Status.LOST, attempt=2)
    assert redo.enter(np.empty(0, piece(0).dtype), lost) == [] and redo.missing.n == 1
    assert Redo().lease(1) is None and Redo().missing.n == 0


# rows and books


def test_rows_come_again_until_they_are_written() -> None:
    rows, sender = RowBuffer(2), Sender(1, 2, 2)
    lost, failed = RowReason(1, 0, Status.LOST, "x"), RowReason(1, 0, Status.FAILED, "y")
    assert not rows
    rows.add(delta_of(sender, piece(0, 2, n_records=1), records=record(1, 1.0), reasons=[lost]))
    rows.add(delta_of(sender, records=record(5, np.nan, Status.CANCELLED), reasons=[failed]))
    records, values, blocks, reasons = rows.batch()
    assert records["id"].tolist() == [1, 5] and values.shape == (2, 2) and reasons == [lost, failed]
    assert blocks.tolist() == [(0, 1)], "done, without a final row"
    rows.add(delta_of(sender, piece(7)))
    assert rows.in_flight and rows.batch()[0]["id"].tolist() == [1, 5]
    rows.put_back()
    assert rows and not rows.in_flight
    assert rows.batch()[2].tolist() == [(0, 1), (7, 1)]
    rows.written()
    assert not rows and len(rows.batch()[0]) == 0 and rows.batch()[1].shape == (0, 2)


def test_books_acknowledge_what_is_on_disk_and_nothing_else() -> None:
    books, sender = Books(2, Tally(), {}), Sender(1, 2, 2)
    assert books.append() == []
    books.enter(4, delta_of(sender, piece(0)), admitted=True)
    books.enter(5, delta_of(Sender(1, 2, 2), piece(1)), admitted=False)
    (append,) = books.append()
    assert append.blocks.tolist() == [(0, 2)]
    books.enter(4, delta_of(sender, piece(2)), admitted=True)
    assert books.append() == [], "one at a time"
    assert books.appended(Appended(append.serial + 1)) is None
    assert books.appended(Appended(append.serial, "full")) is None
    (again,) = books.append()
    assert again.serial == append.serial + 1 and again.blocks.tolist() == [(0, 3)]
    assert books.appended(Appended(again.serial)) == {4: (1, 2)}
    assert books.appended(Appended(again.serial)) is None, "an answer counts once"
    books.check()


def test_a_checkpoint_waits_for_the_snapshots_of_its_own_request() -> None:
    books = Books(2, Tally(), {3: {"old": np.zeros(1)}})
    serial = books.request_snapshots([1, 2])
    assert not books.take_snapshot(1, serial - 1, 0, {"a": np.zeros(1)})
    assert not books.take_snapshot(1, serial, 0, {"a": np.ones(1)})
    assert not books.take_snapshot(1, serial, 0, {"a": np.ones(1)})
    assert books.take_snapshot(2, serial, 1, {})
    (made,) = books.checkpoint()
    assert list(made.groups) == ["flock-0000", "flock-0001", "flock-0003"] and made.meta == {"n_evaluations": 0}
    assert books.due() == [], "once"


def test_a_checkpoint_is_due_when_all_that_it_knows_is_on_disk() -> None:
    books, sender = Books(2, Tally(), {}), Sender(1, 2, 2)
    books.enter(4, delta_of(sender, piece(0)), admitted=True)
    (first,) = books.append()
    assert books.checkpoint() == [], "its rows are on their way"
    books.enter(4, delta_of(sender, piece(1)), admitted=True)
    books.appended(Appended(first.serial))
    (made,) = books.due()
    assert made.meta == {"n_evaluations": 1} and books.due() == []
    (append,) = books.append()
    books.enter(4, delta_of(sender, piece(2)), admitted=True)
    assert books.checkpoint() == [], "one row is on its way, and one waits"
    for _ in range(2):
        books.appended(Appended(append.serial, "full"))
        assert books.due() == []
        (append,) = books.append()
        books.check()
    books.appended(Appended(append.serial))
    (made,) = books.due()
    assert made.meta == {"n_evaluations": 3}
    books.check()


# budget and leases


def test_budget_verdicts() -> None:
    tally = Tally()
    tally.enter(piece(0), record(0, 2.0), np.zeros((1, 2)))
    tally.enter(piece(1), record(1, 5.0), np.zeros((1, 2)))
    assert BudgetRule().verdict(tally, 1e9) is None
    assert BudgetRule(evaluations=2).verdict(tally, 0.0) is Reason.EVALUATIONS
    assert BudgetRule(evaluations=3).verdict(tally, 0.0) is None
    assert BudgetRule(evaluations=2, target=2.0).verdict(tally, 0.0) is Reason.TARGET
    assert BudgetRule(target=1.9).verdict(tally, 0.0) is None
    assert BudgetRule(stagnation=1).verdict(tally, 0.0) is Reason.STAGNATION
    assert BudgetRule(stagnation=2).verdict(tally, 0.0) is None
    assert BudgetRule(walltime_s=5.0).verdict(tally, 5.0) is Reason.WALLTIME
    infeasible = Tally()
    infeasible.enter(piece(0), record(0, -9.0, violation=0.1), np.zeros((1, 2)))
    assert BudgetRule(target=0.0).verdict(infeasible, 0.0) is None


def test_what_a_batch_system_should_start_again() -> None:
    rule = BudgetRule(evaluations=10, walltime_s=1.0)
    assert [reason for reason in Reason if rule.resumable(reason)] == [Reason.WALLTIME, Reason.SIGNAL, Reason.TROUBLE]
    assert not BudgetRule(walltime_s=1.0).resumable(Reason.WALLTIME), "then the wall time is the budget"


def _granted(leases: Leases, n_done: int, done_by: dict[int, int]) -> dict[int, list[list[int]]]:
    return {leader: lease.ranges.tolist() for leader, lease in leases.grant(n_done, done_by)}


def test_leases_fill_holes_first_and_end_at_the_budget() -> None:
    leases = Leases(IdRanges([(2, 4), (6, 8)]), Redo(), 12, exact=True)
    leases.want(0, 5)
    assert _granted(leases, 4, {0: 4}) == {0: [[0, 2], [4, 6], [8, 9]]}
    leases.want(0, 50)
    assert _granted(leases, 9, {0: 9}) == {0: [[9, 12]]}
    leases.want(0, 1)
    assert _granted(leases, 12, {0: 12}) == {0: []}, "an exact round is told that there are no more"


def test_shares_get_smaller_and_those_without_wait() -> None:
    leases = Leases(IdRanges(), Redo(), 40, exact=False)
    sizes = []
    for n_done in (0, 20, 36, 39):
        leases.want(1, 100)
        ((start, stop),) = _granted(leases, n_done, {1: n_done // 2, 2: n_done // 2})[1]
        sizes.append(stop - start)
    assert sizes == [10, 5, 1, 1]
    no_budget = Leases(IdRanges(), Redo(), None, exact=False)
    no_budget.want(1, 100)
    assert _granted(no_budget, 0, {1: 0, 2: 0}) == {1: [[0, 100]]}
    used_up = Leases(IdRanges([(0, 40)]), Redo(), 40, exact=False)
    used_up.want(1, 3)
    assert _granted(used_up, 40, {1: 20, 2: 20}) == {}


def test_a_fast_flock_gets_more_of_what_is_left() -> None:
    leases = Leases(IdRanges([(0, 78)]), Redo(), 178, exact=False)
    for leader, n_left in ((1, 25), (2, 75)):
        leases.want(leader, 100)
        ((_, lease),) = leases.grant(78, {1: 19, 2: 59})
        assert (lease.n_left, int(lease.ranges[0, 1] - lease.ranges[0, 0])) == (n_left, n_left // 2)


def test_repetitions_are_leased_before_new_ids() -> None:
    leases = Leases(IdRanges([(0, 5)]), Redo(np.array([3]), np.zeros((1, 2))), 6, exact=False)
    leases.want(0, 2)
    assert _granted(leases, 5, {0: 0}) == {0: [[3, 4]]}
    leases.want(0, 2)
    assert _granted(leases, 5, {0: 0}) == {0: [[5, 6]]}
