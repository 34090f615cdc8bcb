"""What a flock promises: its order of work, exact repetition, losses, and bounds."""

from __future__ import annotations

import math
import resource
from collections import deque

import numpy as np
import pytest
from numpy.typing import NDArray
from search_helpers import Serial, box, category, ellipsoid, integer, real, rosenbrock, serial, sphere

from osprey_mpi.config.running import Search
from osprey_mpi.errors import ConfigError
from osprey_mpi.search import streams
from osprey_mpi.search.flock import Flock
from osprey_mpi.search.osprey import hover
from osprey_mpi.search.ranking import Best
from osprey_mpi.search.space import Space

Floats = NDArray[np.float64]

MIXED = Space({"x": real(-5, 5, size=3), "n": integer(1, 100), "k": category("a", "b", "c")})


def mixed_cost(p: dict[str, object]) -> float:
    return float(((p["x"] - 1) ** 2).sum()) + abs(p["n"] - 77) / 10 + (p["k"] != "b")  # type: ignore[operator]  # known types


def tell_hovered(flock: Flock, first: int, cost: float, generation: int) -> None:
    flock.tell(first, np.array([cost]), generation)


def test_evaluates_start_points_first_and_puts_lost_ones_back() -> None:
    space = box(2)
    flock = Flock(space, Search(), 1, start=[{"x": 1.0}, {"x": -2.0}, {}])
    first = flock.ask(0, 2)
    assert first.positions is not None
    np.testing.assert_allclose(space.decode(first.positions), [[1, 1], [-2, -2]])
    (last,) = flock.ask(2, 8).positions  # type: ignore[misc]  # explicit
    assert last.tolist() == [0.5, 0.5]
    assert flock.ask(3, 1).positions is None
    flock.forget(0, 2)
    again = flock.ask(4, 1)
    np.testing.assert_array_equal(again.positions, first.positions[:1])
    flock.tell(4, np.array([3.0]), -1)
    assert flock.best is not None
    assert flock.best.cost == 3.0
    np.testing.assert_array_equal(flock.best.position, again.positions[0])
    np.testing.assert_allclose(flock.distribution.mean, [0.6, 0.6])


@pytest.mark.parametrize("case", ["dives", "hover", "mixed", "large"])
def test_continues_from_a_snapshot_bit_for_bit(case: str) -> None:
    space = {"dives": box(6), "hover": box(6), "mixed": MIXED, "large": box(70)}[case]
    objective = {"dives": rosenbrock, "hover": ellipsoid(6), "mixed": mixed_cost, "large": sphere(70)}[case]
    search = Search(dives=False) if case == "hover" else Search()
    whole = Serial(space, objective, Flock(space, search, 5, 2), 5)
    parts = Serial(space, objective, Flock(space, search, 5, 2), 5)
    for stop in (7, 120, 377, 611, 1500):
        while parts.next_id < stop:
            parts.step()
        snapshot = parts.flock.snapshot()
        assert all(array.dtype.kind in "iuf" for array in snapshot.values())
        parts.flock = Flock.restore(snapshot, space, search, 5, 2)
        parts.flock.check()
    while whole.next_id < parts.next_id:
        whole.step()
    assert parts.tells == whole.tells
    assert parts.flock.snapshot().keys() == whole.flock.snapshot().keys()
    for key, array in whole.flock.snapshot().items():
        np.testing.assert_array_equal(parts.flock.snapshot()[key], array, err_msg=key)


def test_forgets_open_blocks_in_a_snapshot() -> None:
    space = box(4)
    run = serial(space, sphere(4), 1)
    while run.flock.ask(10**6, 1).positions is None:  # until a dive has points
        run.flock.forget(10**6, 1)
        run.step()
    run.flock.forget(10**6, 1)
    expected = run.flock.snapshot()
    for i in range(40):
        run.flock.ask(2 * 10**6 + i, 1)
    snapshot = run.flock.snapshot()
    for key, array in expected.items():
        np.testing.assert_array_equal(snapshot[key], array, err_msg=key)


def test_asks_lost_points_of_a_dive_again() -> None:
    space, objective = box(5), rosenbrock
    flock = Flock(space, Search(), 3, 1)
    random = np.random.default_rng(0)
    best = math.inf
    for i in range(4000):
        proposal = flock.ask(i, 1)
        generation, positions = -1, proposal.positions
        if positions is None:
            generation = flock.generation
            positions = hover(flock.distribution, streams.latent(3, i, 1, space), space)
        if random.random() < 0.3:
            flock.forget(i, 1)
            continue
        cost = objective(space.parameters(space.decode(positions)[0]))
        best = min(best, cost)
        flock.tell(i, np.array([cost]), generation)
        flock.check()
    assert flock.best is not None
    assert flock.best.cost == best < 1e-8


def test_ignores_rows_of_a_dive_that_were_told_after_a_restart() -> None:
    space = box(2)
    flock = Flock(space, Search(), 1)
    before = flock.snapshot()
    flock.tell(99, np.array([5.0]), -1)  # unknown, no position: nothing to learn
    assert flock.best is None
    flock.tell(99, np.array([5.0]), -1, positions=np.array([[0.25, 0.75]]))
    assert flock.best is not None
    assert flock.best.position.tolist() == [0.25, 0.75]
    np.testing.assert_array_equal(flock.snapshot()["hunt.evolution.mean"], before["hunt.evolution.mean"])


def test_stale_results_are_facts_only() -> None:
    space = box(3)
    flock, idle = Flock(space, Search(), 1), Flock(space, Search(), 1)
    for i in range(50):
        flock.tell(i, np.array([float(i)]), 0, steer=False)
        flock.tell(100 + i, np.array([float(i)]), -7)
    for i in range(50):
        flock.tell(200 + i, np.array([float(i)]), 77)  # never drawn
    assert flock.generation == idle.generation == 0
    assert flock.best is not None
    assert flock.best.cost == 0.0
    drawn = hover(flock.distribution, streams.latent(1, 0, 1, space), space)
    np.testing.assert_array_equal(flock.best.position, drawn[0])


def test_moves_after_a_population_of_results_in_order_of_arrival() -> None:
    space = box(10)  # population 4 + floor(3 ln 10) = 10
    flock = Flock(space, Search(dives=False), 1)
    for i in range(9):
        tell_hovered(flock, i, float(i), 0)
    assert flock.generation == 0
    old = flock.distribution.mean
    tell_hovered(flock, 9, 9.0, 0)
    assert flock.generation == 1
    weights = np.log(5.5) - np.log(np.arange(1, 6))
    steps = 0.2 * np.concatenate([streams.latent(1, i, 1, space) for i in range(5)])
    np.testing.assert_allclose(flock.distribution.mean, old + weights / weights.sum() @ steps, rtol=1e-13)


def test_ranks_failures_last_and_violations_by_amount() -> None:
    flock = Flock(box(2), Search(), 1)
    flock.tell(0, np.array([np.nan]), 0)
    assert flock.best is None
    flock.tell(1, np.array([np.nan]), 0, violations=np.array([3.0]))
    assert flock.best is not None
    assert flock.best.violation == 3.0
    flock.tell(2, np.array([-9.0]), 0, violations=np.array([2.0]))
    flock.tell(3, np.array([5.0]), 0, violations=np.array([0.0]))
    flock.tell(4, np.array([-1e9]), 0, violations=np.array([1e-9]))
    flock.tell(5, np.array([np.inf]), 0)
    flock.tell(6, np.array([-np.inf]), 0)  # no cost is infinitely good
    assert (flock.best.cost, flock.best.violation) == (5.0, 0.0)


def test_dives_from_an_adopted_point_without_steering_the_hover() -> None:
    space = box(3)
    flock = Flock(space, Search(), 1)
    mean = flock.distribution.mean
    better = Best(-1.0, 0.0, np.array([0.9, 0.8, 0.7]))
    flock.adopt(better)
    np.testing.assert_array_equal(flock.distribution.mean, mean)
    flock.adopt(Best(4.0, 0.0, np.zeros(3)))  # worse: ignored
    flock.ask(0, 1)
    proposal = flock.ask(1, 1)
    assert proposal.positions is not None
    assert proposal.positions.tolist() == [[0.9, 0.8, 0.7]]
    assert flock.best is None


def test_does_not_dive_into_noise() -> None:
    random = np.random.default_rng(0)
    run = serial(box(4), lambda p: float((p["x"] ** 2).sum() + random.normal()), 1)
    for _ in range(400):
        run.step()
    # two evaluations of one start showed the noise: explicit points are no more than those
    assert sum(generation < 0 for _, _, generation in run.tells) == 2


def test_dives_only_where_there_are_slopes() -> None:
    with pytest.raises(ConfigError, match="dives is true"):
        Flock(MIXED, Search(dives=True), 1)
    with pytest.raises(ConfigError, match="dives is true"):
        Flock(box(2, ["sum(x) <= 1"]), Search(dives=True), 1)


def test_fits_the_population_to_the_evaluations_in_flight() -> None:
    flock = Flock(box(20), Search(dives=False), 1)
    flock.set_parallelism(64)
    for i in range(32):
        assert flock.generation == 0
        tell_hovered(flock, i, float(i), 0)
    assert flock.generation == 1
    flock.set_parallelism(10_000)  # at most 6 d
    for i in range(120):
        assert flock.generation == 1
        tell_hovered(flock, 100 + i, float(i), 1)
    assert flock.generation == 2


@pytest.mark.parametrize("n_open", [1, 64])
def test_dives_get_their_share_however_many_evaluate(n_open: int) -> None:
    space, n_dived, n_asked = box(5), 0, 5000
    flock = Flock(space, Search(), 1, 1)
    open_blocks: deque[tuple[int, int, Floats]] = deque()
    for number in range(2 * n_asked):
        if len(open_blocks) == n_open:
            first, generation, positions = open_blocks.popleft()
            x = space.decode(positions)
            flock.tell(first, 50.0 + (x**2 - 10.0 * np.cos(2.0 * np.pi * x)).sum(axis=1), generation)
        proposal = flock.ask(number, 1)
        generation, positions = -1, proposal.positions
        if positions is None:
            generation = flock.generation
            positions = hover(flock.distribution, streams.latent(1, number, 1, space), space)
        elif number >= n_asked:
            n_dived += 1
        open_blocks.append((number, generation, positions))
    flock.check()
    # weights 1 and 0.2, or equal ones, as one of them or both have had a record
    assert 0.16 * n_asked < n_dived < 0.84 * n_asked


def test_hovers_without_restarts_in_one_place() -> None:
    run = serial(box(2), sphere(2), 1, dives=False, restarts=False)
    for _ in range(3000):
        run.step()
    assert run.flock.distribution.sigma * run.flock.distribution.factor.max() < 1e-6
    assert run.flock.best is not None
    assert run.flock.best.cost < 1e-11


def test_memory_and_snapshots_do_not_grow() -> None:
    flock = Flock(box(10), Search(), 1, 1)
    run = Serial(box(10), rosenbrock, flock, 1)
    sizes, peaks = [], []
    for stop in (3000, 12_000):
        while run.next_id < stop:
            run.step()
            run.tells.clear()
        sizes.append(sum(array.nbytes for array in flock.snapshot().values()))
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    assert sizes[1] < 2 * sizes[0] + 100_000  # histories are bounded by a few thousand numbers
    assert peaks[1] - peaks[0] < 8 * 1024  # kB
