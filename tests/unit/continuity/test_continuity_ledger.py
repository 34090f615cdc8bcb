"""The account of one sender: only delta n+1 with the right checksum is admitted; ranking is a total order."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from protocol_helpers import piece

from osprey_mpi.continuity.ledger import Account, Ledger, Verdict, rank_key
from osprey_mpi.continuity.messages import Delta
from osprey_mpi.continuity.records import NO_ID
from osprey_mpi.continuity.sender import Sender


def deltas(n: int, incarnation: int = 1) -> list[Delta]:
    """Return the first n deltas of a sender that captures with each second one."""
    sender = Sender(incarnation, 2, 2)
    made = []
    for i in range(n):
        sender.load.pieces.append(piece(10 * i, 2))
        if i % 2 == 0:
            sender.capture(100.0 - i, 0.0, 10 * i, np.array([0.1, 0.2 + i]))
        made.append(sender.stamp())
    return made


def test_in_order() -> None:
    ledger = Ledger()
    for delta in deltas(5):
        assert ledger.admit(delta) is Verdict.ADMITTED
    account = ledger.account
    assert (account.counter, account.n_evaluations, account.cost, account.best_id) == (5, 10, 96.0, 40)
    assert account.position.tolist() == [0.1, 4.2]


def test_duplicate_and_gap_change_nothing() -> None:
    ledger, made = Ledger(), deltas(4)
    ledger.admit(made[0])
    before = ledger.account
    assert ledger.admit(made[0]) is Verdict.DUPLICATE
    assert ledger.admit(made[2]) is Verdict.GAP
    assert ledger.account is before and ledger.admitted == 1
    assert [ledger.admit(delta) for delta in made[1:]] == [Verdict.ADMITTED] * 3


CHANGES: list[Callable[[Delta], Delta]] = [
    lambda d: replace(d, checksum=d.checksum ^ 1),
    lambda d: replace(d, n_evaluations=d.n_evaluations + 1),
    lambda d: replace(d, cost=np.nextafter(d.cost, 0.0)),
    lambda d: replace(d, violation=-0.0),
    lambda d: replace(d, best_id=d.best_id + 1),
    lambda d: replace(d, position=np.nextafter(d.position, 1.0)),
    lambda d: replace(d, position=np.empty(0)),
    lambda d: replace(d, pieces=np.concatenate([d.pieces, piece(500)])),
    lambda d: replace(d, pieces=d.pieces[:0]),
]


@pytest.mark.parametrize("change", CHANGES)
def test_one_wrong_bit_is_corrupt_and_nothing_of_it_counts(change: Callable[[Delta], Delta]) -> None:
    ledger, made = Ledger(), deltas(3)
    for delta in made[:2]:
        ledger.admit(delta)
    before = ledger.account
    assert ledger.admit(change(made[2])) is Verdict.CORRUPT
    assert ledger.account is before
    assert ledger.admit(made[2]) is Verdict.ADMITTED


def test_incarnations() -> None:
    ledger, again = Ledger(Account(incarnation=2)), deltas(3, incarnation=2)
    assert ledger.admit(again[1]) is Verdict.GAP
    assert ledger.admit(again[0]) is Verdict.ADMITTED
    assert (ledger.account.incarnation, ledger.account.counter, ledger.account.n_evaluations) == (2, 1, 2)
    assert ledger.admit(deltas(4)[3]) is Verdict.LATE
    assert ledger.admit(again[1]) is Verdict.ADMITTED


class Wire(RuleBasedStateMachine):
    """A wire that loses, repeats, overtakes and garbles: the ledger always holds a prefix of what was sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sender, self.ledger = Sender(1, 2, 2), Ledger()
        self.sent: list[Delta] = []
        self.states = [Account()]
        self.admitted: list[int] = []

    @rule(n=st.integers(0, 3), cost=st.floats(allow_nan=False), violation=st.floats(0, 2), capture=st.booleans())
    def send(self, n: int, cost: float, violation: float, capture: bool) -> None:
        first = 10 * len(self.sent)
        if n:
            self.sender.load.pieces.append(piece(first, n))
        if capture:
            self.sender.capture(cost, violation, first, np.array([0.5, 0.5]))
        self.sent.append(self.sender.stamp())
        self.states.append(replace(self.sender.account))

    @rule(back=st.integers(0, 5), garble=st.booleans())
    def arrive(self, back: int, garble: bool) -> None:
        if back >= len(self.sent):
            return
        delta = self.sent[-1 - back]
        if garble:
            delta = replace(delta, checksum=delta.checksum + 1)
        due = delta.counter == self.ledger.admitted + 1
        verdict = self.ledger.admit(delta)
        expected = Verdict.DUPLICATE if delta.counter <= len(self.admitted) else Verdict.GAP
        assert verdict is ((Verdict.CORRUPT if garble else Verdict.ADMITTED) if due else expected)
        if verdict is Verdict.ADMITTED:
            self.admitted.append(delta.counter)

    @rule()
    def resync(self) -> None:
        for delta in self.sender.unacknowledged:
            if delta.counter > self.ledger.admitted:
                assert self.ledger.admit(delta) is Verdict.ADMITTED
                self.admitted.append(delta.counter)
        assert self.ledger.account.checksum() == self.sender.account.checksum()

    @rule()
    def acknowledge(self) -> None:
        self.sender.acknowledge(1, self.ledger.admitted)

    @invariant()
    def a_prefix(self) -> None:
        assert self.admitted == list(range(1, len(self.admitted) + 1))
        assert self.ledger.account.checksum() == self.states[len(self.admitted)].checksum()
        self.ledger.check()
        self.sender.check()


TestWire = Wire.TestCase
TestWire.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)

Point = tuple[float, float, int]
POINTS = st.tuples(
    st.sampled_from([-1.0, -0.0, 0.0, 1.0, math.inf, -math.inf, math.nan]),
    st.sampled_from([0.0, -0.0, 0.5, math.inf, math.nan]),
    st.sampled_from([NO_ID, 0, 1, 2]),
)


def better(a: Point, b: Point) -> Point:
    """Merge two points: the join."""
    return b if rank_key(*b) < rank_key(*a) else a


class Join(RuleBasedStateMachine):
    """Three ranks that find points and tell each other their best, in any order, repeated or late: all come to one."""

    def __init__(self) -> None:
        super().__init__()
        self.ranks = [Account() for _ in range(3)]
        self.told: list[Account] = []
        self.found: list[list[Point]] = [[], [], []]  # what each knows of, itself or by others
        self.known: list[list[Point]] = []  # what each word that was told knew of

    @rule(rank=st.integers(0, 2), point=POINTS)
    def find(self, rank: int, point: Point) -> None:
        self._take(rank, point)
        self.found[rank].append(point)

    @rule(rank=st.integers(0, 2))
    def tell(self, rank: int) -> None:
        self.told.append(replace(self.ranks[rank]))
        self.known.append(list(self.found[rank]))

    @rule(rank=st.integers(0, 2), back=st.integers(0, 4))
    def hear(self, rank: int, back: int) -> None:
        if back < len(self.told):
            word = self.told[-1 - back]
            self._take(rank, (word.cost, word.violation, word.best_id))
            self.found[rank] += self.known[-1 - back]

    def _take(self, rank: int, point: Point) -> None:
        account = self.ranks[rank]
        if account.improved_by(*point):
            account.cost, account.violation, account.best_id = point

    @invariant()
    def each_has_the_best_of_what_it_knows_of(self) -> None:
        for account, found in zip(self.ranks, self.found, strict=True):
            keys = [rank_key(*point) for point in found]
            mine = rank_key(account.cost, account.violation, account.best_id)
            assert mine == min([rank_key(math.inf, 0.0, NO_ID), *keys])


TestJoin = Join.TestCase
TestJoin.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


@given(POINTS, POINTS, POINTS)
def test_ranking_is_total_and_merging_a_join(a: Point, b: Point, c: Point) -> None:
    keys = [rank_key(*point) for point in (a, b, c)]
    assert all(value == value for key in keys for value in key), "a NaN in a key has no order"
    assert (keys[0] < keys[1]) + (keys[1] < keys[0]) + (keys[0] == keys[1]) == 1
    assert rank_key(*better(a, b)) == rank_key(*better(b, a))
    assert rank_key(*better(better(a, b), c)) == rank_key(*better(a, better(b, c)))
    assert better(a, a) is a and rank_key(*better(better(a, b), b)) == rank_key(*better(a, b))


def test_ranking_by_rule() -> None:
    """Feasible before infeasible, then cost or violation, then the lower id; NaN last; nothing after everything."""
    order = [
        (-math.inf, 0.0, 5), (1.0, 0.0, 3), (1.0, 0.0, 4), (2.0, 0.0, 0), (math.nan, 0.0, 1),
        (-5.0, 0.5, 2), (-9.0, 0.7, 2), (0.0, math.nan, 2), (0.0, 0.0, NO_ID),
    ]  # fmt: skip
    assert sorted(order, key=lambda point: rank_key(*point)) == order
