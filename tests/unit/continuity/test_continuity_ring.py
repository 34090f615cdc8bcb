"""The ring that notices silent ranks: in simulated time, over a network that may lose what is said."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from osprey_mpi.continuity.ring import Kind, Ring

LIMIT_S, STEP_S = 3.0, 0.05


class Net:
    """Run the rings of all ranks; `passes` says whether a word from one rank reaches another."""

    def __init__(self, n: int, passes: Callable[[int, int], bool] = lambda source, target: True) -> None:
        self.now, self.passes = 100.0, passes
        self.rings = {rank: Ring(rank, range(n), LIMIT_S, self.now) for rank in range(n)}
        self.due = dict.fromkeys(self.rings, self.now)
        self.silent: set[int] = set()  # killed, or stopped
        self.kept: dict[int, list[tuple[int, Kind, frozenset[int]]]] = {rank: [] for rank in self.rings}
        self.n_said = 0

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += STEP_S
            for rank, ring in self.rings.items():
                if rank in self.silent:
                    continue
                words, self.kept[rank] = self.kept[rank], []
                for word in words:
                    self._say(rank, ring.hear(*word, self.now))
                if self.now >= self.due[rank]:
                    self.due[rank] = self.now + ring.period_s
                    self._say(rank, ring.tick(self.now))
                ring.check()

    def _say(self, source: int, says: list) -> None:  # type: ignore[type-arg]
        for say in says:
            self.n_said += 1
            if self.passes(source, say.rank):
                self.kept[say.rank].append((source, say.kind, self.rings[source].lost))

    def until(self, condition: Callable[[], bool], limit_s: float) -> float:
        """Return how long it takes; fail beyond the limit."""
        began = self.now
        while not condition():
            assert self.now - began < limit_s, {rank: sorted(ring.lost) for rank, ring in self.rings.items()}
            self.run(STEP_S)
        return self.now - began

    def all_know(self, lost: set[int]) -> bool:
        return all(ring.lost == lost for rank, ring in self.rings.items() if rank not in self.silent)


@pytest.mark.parametrize("n", [2, 5, 40])
def test_nobody_is_lost_who_answers(n: int) -> None:
    net = Net(n)
    net.run(20.0)
    before = net.n_said
    net.run(10 * net.rings[0].period_s)
    assert net.all_know(set())
    assert net.n_said - before <= 22 * n, "an ask and an answer each and period, whatever the number of ranks"


@pytest.mark.parametrize(
    ("n", "waves"),
    [
        pytest.param(2, [{1}], id="one of two"),
        pytest.param(9, [{0}, {1}, {2}], id="one after the other"),
        pytest.param(9, [{8, 0, 1}], id="neighbours"),
        pytest.param(9, [{1, 3, 5, 7}], id="every other"),
        pytest.param(9, [set(range(9)) - {2, 6}], id="all but two"),
        pytest.param(40, [set(range(5, 30))], id="many in a row"),
    ],
)
def test_all_know_who_is_lost_soon_after_the_limit(n: int, waves: list[set[int]]) -> None:
    """A row of losses takes a few periods more: the ring closes over them while they are judged."""
    net, lost = Net(n), set[int]()
    net.run(10.0)
    for wave in waves:
        net.silent |= wave
        lost |= wave
        took_s = net.until(lambda known=frozenset(lost): net.all_know(known), 60.0)
        assert LIMIT_S - 0.5 < took_s < LIMIT_S + (3 + 2 * len(wave).bit_length()) * net.rings[0].period_s


def test_datagrams_may_get_lost() -> None:
    """Of every ten one: nobody is lost for that, and all learn of a real loss."""
    for seed in range(20):
        draw = random.Random(seed)
        net = Net(8, lambda source, target, draw=draw: draw.random() > 0.1)  # type: ignore[misc]
        net.run(120.0)
        assert net.all_know(set()), seed
        net.silent = {3, 4}
        net.until(lambda net=net: net.all_know({3, 4}), 20.0)  # type: ignore[misc]


def test_who_was_never_heard_is_not_judged() -> None:
    """A blocked port makes no losses, but a rank that others hear is lost for all."""
    net = Net(6, lambda source, target: 2 not in (source, target))
    net.run(30.0)
    assert net.all_know(set())
    net.silent = {3}  # behind the one that nobody hears
    net.until(lambda: all(net.rings[rank].lost == {3} for rank in (0, 1, 4, 5)), 10.0)
    net.run(30.0)
    assert net.rings[2].lost == frozenset() and net.rings[0].lost == {3}


def test_a_rank_that_is_not_vital_may_be_silent_and_come_back() -> None:
    net = Net(5)
    net.run(5.0)
    for ring in net.rings.values():
        ring.judge({0}, net.now)
    net.silent = {4}  # it watches rank 0
    net.run(30.0)
    assert net.all_know(set()) and net.rings[3].silent(net.now) == [4]
    net.silent = {4, 0}
    net.until(lambda: net.all_know({0}), 10.0)
    net.silent = {0}
    net.run(5.0)
    assert net.all_know({0}) and net.rings[3].silent(net.now) == []
    net.silent = {0, 4}
    net.run(LIMIT_S + 1.0)
    for ring in net.rings.values():
        ring.judge(None, net.now)
    assert 0.4 * LIMIT_S < net.until(lambda: net.all_know({0, 4}), 5.0) < 0.8 * LIMIT_S


def test_a_judge_that_was_stopped_blames_nobody() -> None:
    """All are stopped, as by a batch system, and go on one after the other: nobody is lost."""
    net = Net(6)
    net.run(5.0)
    net.silent = set(range(6))
    net.run(500.0)
    for rank in range(6):
        net.silent.discard(rank)
        net.run(0.5)
    net.run(20.0)
    assert net.all_know(set())


def test_who_is_lost_hears_of_it_and_its_own_losses_count_nothing() -> None:
    net = Net(4)
    net.run(5.0)
    net.silent = {1}
    net.until(lambda: net.all_know({1}), 10.0)
    net.silent = set()
    net.rings[1].condemn([0])  # what it thinks of them
    net.run(0.5)
    assert net.rings[1].is_out and not any(net.rings[rank].is_out for rank in (0, 2, 3))
    assert all(net.rings[rank].lost == {1} for rank in (0, 2, 3))


def test_a_loss_that_is_known_by_other_means_is_told() -> None:
    net = Net(7)
    net.run(5.0)
    net.silent = {5}
    net.rings[2].condemn([5])
    assert net.until(lambda: net.all_know({5}), 5.0) < 2 * net.rings[0].period_s


def test_who_leaves_in_order_is_not_lost() -> None:
    net = Net(4)
    net.run(5.0)
    net._say(2, net.rings[2].leave())
    net.silent = {2}
    net.run(20.0)
    assert net.all_know(set())


@pytest.fixture(params=range(30))
def schedule(request: pytest.FixtureRequest) -> Iterator[tuple[random.Random, Net]]:
    draw = random.Random(request.param)
    loss = draw.choice([0.0, 0.05, 0.1])
    net = Net(draw.randrange(2, 20), lambda source, target: draw.random() >= loss)
    yield draw, net


def test_at_random_the_living_come_to_know_exactly_the_lost(schedule: tuple[random.Random, Net]) -> None:
    """Ranks are killed at any moment, others stopped for less than the limit."""
    draw, net = schedule
    net.run(8.0)
    killed: set[int] = set()
    for _ in range(draw.randrange(1, 6)):
        living = sorted(set(net.rings) - killed)
        killed |= set(draw.sample(living, draw.randrange(0, len(living))))
        paused = set(draw.sample(living, 1)) - killed
        net.silent = killed | paused
        net.run(0.6 * draw.random() * LIMIT_S)
        net.silent = set(killed)
        net.run(draw.random() * 5.0)
    net.until(lambda: net.all_know(killed), 60.0)
