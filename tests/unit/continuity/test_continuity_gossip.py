"""Gossip is a join: the order, the number and the way of the messages do not matter; log2(n) rounds tell everybody."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leader_driver import Driver, Make, ids

from osprey_mpi.continuity.codec import decode, encode
from osprey_mpi.continuity.events import Log, Tick
from osprey_mpi.continuity.gossip import Rumours
from osprey_mpi.continuity.messages import Ack, Best, Gossip, Stop
from osprey_mpi.continuity.records import VIEW

COSTS = st.sampled_from([float("nan"), float("-inf"), -1.0, -0.0, 0.0, 2.0, float("inf")])
VIEWS = st.tuples(st.integers(1, 2), st.integers(0, 3), st.integers(0, 5), st.integers(1, 4), st.integers(0, 4))
WORDS = st.tuples(
    st.dictionaries(st.integers(0, 3), VIEWS), COSTS, st.sampled_from([0.0, 0.5, float("nan")]), st.integers(-1, 4)
)


def _message(word: tuple[dict[int, tuple[int, ...]], float, float, int]) -> Gossip:
    rumours = Rumours(9, ())
    rumours.views = dict(word[0])  # type: ignore[arg-type]
    rumours.best = Best(word[1], word[2], word[3], np.array([float(word[3])] * (word[3] >= 0)))
    message = decode(encode(rumours.message(is_answer=False)))
    assert isinstance(message, Gossip)
    return message


def _state(rumours: Rumours) -> tuple[dict[int, tuple[int, ...]], str]:
    best = rumours.best
    return rumours.views, repr((best.cost, best.violation, best.id, best.position.tolist()))


@given(st.lists(WORDS, max_size=6), st.randoms())
def test_merging_commutes_associates_and_repeats(words: list[tuple], random: object) -> None:
    """Points with one id are one evaluation, and have one cost."""
    points: dict[int, tuple[float, float]] = {}
    words = [(views, *points.setdefault(id, (cost, violation)), id) for views, cost, violation, id in words]
    messages = [_message(word) for word in words]
    straight = Rumours(0, (1, 2, 3))
    for message in messages:
        straight.merge(message)
    shuffled = [*messages, *messages[: len(messages) // 2]]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    left, right = Rumours(0, (1, 2, 3)), Rumours(0, (1, 2, 3))
    for n, message in enumerate(shuffled):
        (left if n % 2 else right).merge(message)
    left.merge(right.message(is_answer=True))
    assert _state(left) == _state(straight)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 13])
def test_all_know_all_after_log2_rounds(n: int) -> None:
    everybody = {10 * i: Rumours(10 * i, [10 * j for j in range(n)]) for i in range(n)}
    for rank, rumours in everybody.items():
        rumours.speak(1, rank, 3, 0)
        rumours.hear_of(Best(100.0 - rank, 0.0, rank, np.array([0.5])))
    for _ in range((n - 1).bit_length()):
        said = [(rumours.next_peer(), rumours.message(is_answer=False)) for rumours in everybody.values()]
        for peer, message in said:
            assert peer is not None
            everybody[peer].merge(message)
    for rumours in everybody.values():
        assert sorted(rumours.views) == sorted(everybody) and rumours.best.id == 10 * (n - 1)
        assert rumours.n_evaluations == sum(everybody)


def test_nobody_to_turn_to() -> None:
    assert Rumours(3, ()).next_peer() is None and Rumours(3, (3,)).next_peer() is None


def test_a_leader_says_once_that_the_root_is_silent_and_once_that_it_is_back(make_search: Make) -> None:
    drive = Driver(make_search())
    drive.hello()
    drive(ids(0, 40))
    logs: list[str] = []

    def tick_for(seconds: float) -> None:
        for _ in range(round(10 * seconds)):
            drive.now = round(drive.now + 0.1, 6)
            logs.extend(action.text for action in drive(Tick()) if isinstance(action, Log) and "root" in action.text)

    tick_for(6.0)
    n_ids = drive.leader.dispatch.n_ids
    assert logs == [f"the root on rank 99 is silent: flock 4 goes on with {n_ids} evaluations to begin"]
    drive(Gossip(1, 0.25, 0.0, 17, np.array([0.5, 0.5]), np.array([(7, 1, 0, 300, 4, 0)], VIEW)), 7)
    drive(Ack(0, 0))
    tick_for(1.0)
    known = "300 evaluations in this life, best 0.25"
    assert logs[1:] == [f"the root on rank 99 is back: what is known here of all flocks is {known}"]


def test_a_leader_answers_gossip_and_takes_over_a_better_point(make_search: Make) -> None:
    search = make_search()
    adopted: list[float] = []
    search.adopt = lambda best: adopted.append(best.cost)
    drive = Driver(search)
    drive.hello()
    word = Gossip(0, 0.25, 0.0, 17, np.array([0.5, 0.5]))
    (answer,) = drive(word, 7)
    assert (answer.rank, answer.message.is_answer, answer.message.best_id) == (7, 1, 17)
    assert answer.message.views.tolist() == [(0, 1, 0, 0, 2, 0)]
    assert drive(Gossip(1, 0.5, 0.0, 18, np.array([0.1, 0.5])), 7) == []
    drive(word, 7)
    assert adopted == [0.25], "once, and only the better one"
    drive(Stop("enough"))
    assert drive(Gossip(0, 0.1, 0.0, 19, np.array([0.1, 0.5])), 7) == [], "whoever leaves answers no more"
