"""Whole runs without faults: the budget is met exactly, nobody waits for the slowest, exact runs repeat.

Seeds are the parameters of the tests, so that a failure prints its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scenario import build, config, sphere

from osprey_mpi.continuity.budget import BudgetRule
from osprey_mpi.continuity.messages import Role
from osprey_mpi.continuity.orders import OpenOrder
from osprey_mpi.continuity.records import Status
from osprey_mpi.continuity.redo import Redo
from osprey_mpi.search.space import Space
from osprey_mpi.simulate.cluster import Cluster, VirtualDisk
from osprey_mpi.simulate.network import Weather

RANKS = (1, 2, 3, 5, 9, 17, 18, 40, 100)


@pytest.mark.parametrize("n_ranks", RANKS)
def test_budget_is_met_exactly(n_ranks: int) -> None:
    cluster = build(n_ranks, seed=n_ranks)
    cluster.run()
    tally = cluster.disk.tally
    assert list(tally.done) == [(0, 200)]
    assert tally.counts[Status.OK] == 200 and sum(tally.counts.values()) == 200
    assert cluster.disk.n_rows == 200
    assert set(cluster.exit_codes.values()) == {0} and len(cluster.exit_codes) == n_ranks
    assert not [line for line in cluster.logs if line.startswith("warning")]


@pytest.mark.parametrize("budget", [1, 7, 39])
@pytest.mark.parametrize("n_ranks", [1, 4, 40])
def test_small_budgets(n_ranks: int, budget: int) -> None:
    cluster = build(n_ranks, evaluations=budget)
    cluster.run()
    assert list(cluster.disk.tally.done) == [(0, budget)]


@pytest.mark.parametrize("n_ranks", [1, 3, 18])
def test_batches_meet_the_budget_and_count_rows_without_records(n_ranks: int) -> None:
    def objective(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.where(values[:, 0] > 2.0, np.nan, sphere(values))

    failed = 0

    def counting(values: NDArray[np.float64]) -> NDArray[np.float64]:
        nonlocal failed
        costs = objective(values)
        failed += int(np.isnan(costs).sum())
        return costs

    cluster = build(n_ranks, evaluations=203, batch=8, objective=counting)
    cluster.run()
    counts = cluster.disk.tally.counts
    assert list(cluster.disk.tally.done) == [(0, 203)]
    assert cluster.disk.n_rows < 203
    root = cluster.root.tally.counts
    assert root[Status.FAILED] == failed > 0 and root[Status.OK] == 203 - failed
    assert sum(counts.values()) == 203


def test_target_stops_early_with_code_0() -> None:
    cluster = build(9, budget=BudgetRule(10_000, target=0.5))
    cluster.run()
    assert cluster.root.detail == "target" and cluster.exit_codes[0] == 0
    assert cluster.disk.tally.best.cost <= 0.5 and cluster.disk.tally.n_evaluations < 10_000


def test_walltime_is_resumable() -> None:
    cluster = build(5, budget=BudgetRule(100_000, walltime_s=1.0))
    cluster.run()
    assert cluster.exit_codes == dict.fromkeys(range(5), 75)
    assert 1.0 <= cluster.queue.now < 1.2


def test_no_usable_evaluation_is_code_3() -> None:
    cluster = build(3, evaluations=20, objective=lambda values: np.full(len(values), np.nan))
    cluster.run()
    assert set(cluster.exit_codes.values()) == {3}
    assert cluster.disk.tally.counts[Status.FAILED] == 20


def test_nobody_waits_for_the_slowest() -> None:
    """0.05 s and 1 s on four workers: wall < 1.3 x work / 3."""
    n = 120
    cluster = build(4, evaluations=n, mean_s=0.05, sigma=0.0, slow={3: 20.0})
    cluster.run()
    rows = np.concatenate(cluster.disk.records)
    work_s = float((rows["t_end_s"] - rows["t_start_s"]).sum())
    assert cluster.queue.now < 1.3 * work_s / 3
    assert {int(n) for n in np.unique(rows["rank"])} == {0, 1, 2, 3}


def test_a_slow_flock_does_not_keep_ids_that_others_could_use() -> None:
    """Two flocks, one 20 times as slow: at the end the fast one does not wait for ids that the other holds."""
    slow = dict.fromkeys(range(18, 40), 20.0)
    cluster = build(35, evaluations=2000, mean_s=0.05, sigma=0.3, slow=slow)
    cluster.run()
    rows = np.concatenate(cluster.disk.records)
    fast_end_s = max(row["t_end_s"] for row in rows if int(row["rank"]) < 18)
    assert rows["t_end_s"].max() - fast_end_s < 3.0  # s; a slow evaluation takes 1 s, 4 s at most
    busy_s = float((rows["t_end_s"] - rows["t_start_s"])[rows["rank"] < 18].sum())
    n_fast = len({int(rank) for rank in rows["rank"] if rank < 18})
    assert busy_s > 0.8 * n_fast * fast_end_s


def _paths(n_ranks: int, seed: int, **options: Any) -> tuple[dict[int, float], dict[str, dict[str, NDArray[Any]]]]:
    cluster = build(n_ranks, seed=seed, deterministic=True, evaluations=150, **options)
    cluster.run()
    return cluster.disk.costs(), cluster.disk.groups


@pytest.mark.parametrize("n_ranks", [1, 4, 20])
def test_deterministic_runs_repeat_whatever_the_network_does(n_ranks: int) -> None:
    costs, groups = _paths(n_ranks, 3)
    again, same_groups = _paths(
        n_ranks, 3, sigma=1.5, slow={1: 4.0}, weather=Weather(0.004, 1.0, 0.05, 0.05, 0.05, busy=0.2)
    )
    assert costs == again and len(costs) == 150
    for name, arrays in groups["flock-0000"].items():
        np.testing.assert_array_equal(arrays, same_groups["flock-0000"][name], err_msg=name)
    assert _paths(n_ranks, 4)[0] != costs


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("lives", [(30, 60), (1, 2, 3, 11, 89), (45,)])
def test_serial_run_in_lives_is_the_run_at_once_bit_for_bit(batch: int, lives: tuple[int, ...]) -> None:
    seen: list[tuple[float, ...]] = []

    def objective(values: NDArray[np.float64]) -> NDArray[np.float64]:
        seen.extend(tuple(row) for row in values.tolist())
        return sphere(values)

    whole = build(1, seed=5, evaluations=90, batch=batch, objective=objective)
    whole.run()
    at_once = list(seen)
    seen.clear()
    disk = VirtualDisk()
    for budget in (*lives, 90):
        life = build(1, seed=5, evaluations=budget, batch=batch, objective=objective, disk=disk)
        life.run()
        assert disk.tally.n_evaluations == budget
    assert seen == at_once and len(seen) == 90
    assert disk.tally.best.key == whole.disk.tally.best.key
    expected = whole.disk.groups["flock-0000"]
    assert expected.keys() == disk.groups["flock-0000"].keys()
    for name, arrays in expected.items():
        np.testing.assert_array_equal(arrays, disk.groups["flock-0000"][name], err_msg=name)


@pytest.mark.parametrize("batch", [1, 8])
def test_a_life_whose_rows_fit_on_no_disk_leaves_the_search_as_it_was(batch: int) -> None:
    """As with `ulimit -f`: the segment has reached it, the small file of a checkpoint has not."""
    seen: list[tuple[float, ...]] = []

    def objective(values: NDArray[np.float64]) -> NDArray[np.float64]:
        seen.extend(tuple(row) for row in values.tolist())
        return sphere(values)

    def live(disk: VirtualDisk, budget: int, error: str = "") -> Cluster:
        seen.clear()
        life = build(
            1, seed=5, evaluations=budget, batch=batch, objective=objective, disk=disk, disk_error=lambda: error,
            checkpoint_interval_s=0.3,
        )  # fmt: skip
        life.run()
        return life

    whole, disk = VirtualDisk(), VirtualDisk()
    live(whole, 90)
    at_once = list(seen)
    live(disk, 30)
    full = live(disk, 60, "File too large")
    assert full.exit_codes == {0: 75} and 0 < len(seen) <= 30 and disk.tally.n_evaluations == 30
    live(disk, 90)
    assert seen == at_once[30:] and disk.tally.best.key == whole.tally.best.key
    for name, arrays in whole.groups["flock-0000"].items():
        np.testing.assert_array_equal(arrays, disk.groups["flock-0000"][name], err_msg=name)


def test_failed_evaluations_are_done_again_at_the_same_points() -> None:
    disk = VirtualDisk()
    broken = build(3, evaluations=60, disk=disk, objective=lambda v: np.where(v[:, 0] > 1.0, np.nan, sphere(v)))
    broken.run()
    records, values = np.concatenate(disk.records), np.concatenate(disk.values)
    failed = records["status"] == Status.FAILED
    n_failed = disk.tally.counts[Status.FAILED]
    assert n_failed == int(failed.sum()) > 5
    order = np.argsort(records["id"][failed])
    ids, points = records["id"][failed][order], values[failed][order]
    space = Space(config().parameters)
    redo = Redo(ids, space.encode(points), 1, records["status"][failed][order])
    repaired = build(4, evaluations=60, disk=disk, redo=redo)
    repaired.run()
    again = np.concatenate(disk.records)[len(records) :]
    assert sorted(again["id"].tolist()) == ids.tolist() and set(again["attempt"].tolist()) == {1}
    np.testing.assert_allclose(np.concatenate(disk.values)[len(records) :][np.argsort(again["id"])], points, atol=1e-12)
    counts = repaired.root.tally.counts
    assert counts[Status.FAILED] == 0 and counts[Status.OK] == 60 == repaired.root.tally.n_evaluations


@pytest.mark.parametrize("batch", [1, 8])
def test_slow_workers_stride_less_and_their_results_are_read_so(batch: int) -> None:
    cluster = build(5, evaluations=600, batch=batch, slow={2: 4.0, 3: 16.0}, speed_exponent=0.5)
    scales: dict[int, set[float]] = {rank: set() for rank in range(5)}
    leader = cluster.machines[0][Role.LEADER]
    tell = leader.dispatch._tell

    def spy(entry: OpenOrder) -> None:
        scales[entry.worker].add(leader.dispatch.steering.scale(entry.worker, entry.generation))
        tell(entry)

    leader.dispatch._tell = spy
    cluster.run()
    assert list(cluster.disk.tally.done) == [(0, 600)]
    assert max(scales[1]) == 1.0 and 0.1 < min(scales[3]) < 0.5 and min(scales[3]) < min(scales[2]) < 0.9
    assert cluster.disk.tally.best.cost < 0.05
