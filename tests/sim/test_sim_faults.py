"""Runs with faults: messages lost, repeated, overtaken; ranks that die, stand still, are told to stop; full disks.

Promised: deltas heal, counts are exact, no id is counted twice, the best point on disk never gets worse, no wait is
without end. Checked after every event by the cluster and the machines themselves. Seeds are the tests' parameters.
"""

from __future__ import annotations

import numpy as np
import pytest
from scenario import build

from osprey_mpi.continuity.codec import decode, encode
from osprey_mpi.continuity.messages import Ack, Delta, Goodbye, Role
from osprey_mpi.continuity.records import Status
from osprey_mpi.simulate.cluster import Cluster, VirtualDisk
from osprey_mpi.simulate.network import Weather


@pytest.mark.parametrize("n_ranks", [2, 9, 18, 40])
@pytest.mark.parametrize("seed", range(5))
def test_bad_luck_of_deltas_heals(n_ranks: int, seed: int) -> None:
    weather = Weather(0.002, 1.0, lost=0.1, repeated=0.1, overtaken=0.1, busy=0.3)
    cluster = build(n_ranks, seed=seed, weather=weather)
    cluster.run()
    assert list(cluster.disk.tally.done) == [(0, 200)]
    assert cluster.disk.tally.counts[Status.OK] == sum(cluster.disk.tally.counts.values()) == 200
    assert set(cluster.exit_codes.values()) == {0}


def test_corrupt_deltas_heal_when_they_come_whole_again() -> None:
    cluster = build(5, seed=1)
    deliver = cluster.network.deliver
    n_corrupted = 0

    def corrupt(source: int, destination: int, tag: int, data: bytes) -> None:
        nonlocal n_corrupted
        message = decode(data)
        if isinstance(message, Delta) and message.counter == 5 and n_corrupted < 3:
            n_corrupted += 1
            data = encode(Delta(message.incarnation, message.counter, message.n_evaluations + 1, message.checksum))
        deliver(source, destination, tag, data)

    cluster.network.deliver = corrupt
    cluster.run()
    assert n_corrupted == 3
    assert cluster.disk.tally.counts[Status.OK] == 200


def test_a_sender_whose_deltas_stay_corrupt_is_lost_and_its_work_is_done_by_others() -> None:
    cluster = build(4, seed=1, evaluations=100, suspect_after_s=0.5, lost_after_s=2.0)
    deliver = cluster.network.deliver

    def corrupt(source: int, destination: int, tag: int, data: bytes) -> None:
        message = decode(data)
        if isinstance(message, Delta) and source == 2 and message.counter >= 3:
            message = Delta(message.incarnation, message.counter, message.n_evaluations + 1, message.checksum)
        deliver(source, destination, tag, encode(message))

    cluster.network.deliver = corrupt
    cluster.run()
    assert list(cluster.disk.tally.done) == [(0, 100)]
    assert [line for line in cluster.logs if "rank 2 is lost" in line and "has been missing" in line]


@pytest.mark.parametrize("n_ranks", [2, 5, 18, 40])
@pytest.mark.parametrize("seed", range(3))
def test_the_work_of_a_dead_worker_is_done_by_others(n_ranks: int, seed: int) -> None:
    cluster = build(n_ranks, seed=seed, mean_s=0.05, suspect_after_s=0.5, lost_after_s=2.0)
    victim = n_ranks - 1
    cluster.queue.at(0.2 + 0.01 * seed, lambda: cluster.kill(victim))
    cluster.run()
    tally = cluster.disk.tally
    assert list(tally.done) == [(0, 200)]
    assert tally.counts[Status.OK] == 200
    assert tally.counts[Status.LOST] == 1
    lost = [row for rows in cluster.disk.records for row in rows if row["status"] == Status.LOST]
    assert [int(row["rank"]) for row in lost] == [victim]
    assert cluster.exit_codes == dict.fromkeys(range(n_ranks - 1), 0)


def test_a_worker_that_dies_before_its_hello_stops_nobody() -> None:
    for deterministic in (False, True):
        cluster = build(4, deterministic=deterministic, suspect_after_s=0.5, lost_after_s=2.0)
        cluster.kill(3)
        cluster.run()
        assert list(cluster.disk.tally.done) == [(0, 200)]
        assert cluster.disk.tally.counts[Status.LOST] == 0


@pytest.mark.parametrize("seed", range(8))
def test_a_round_of_the_exact_mode_goes_on_without_a_dead_worker(seed: int) -> None:
    cluster = build(4, seed=seed, deterministic=True, evaluations=60, suspect_after_s=0.5, lost_after_s=2.0)
    cluster.queue.at(0.07 + 0.013 * seed, lambda: cluster.kill(1 + seed % 3))
    cluster.run()
    assert list(cluster.disk.tally.done) == [(0, 60)]
    assert any("does not repeat" in line for line in cluster.logs)


def test_a_flock_without_workers_asks_for_the_end() -> None:
    cluster = build(18, flock_size=8, mean_s=0.05, evaluations=2000, suspect_after_s=0.5, lost_after_s=2.0)
    leader = next(rank for rank in range(17, 0, -1) if Role.LEADER in cluster.machines[rank])
    workers = list(cluster.machines[leader][Role.LEADER].members)
    cluster.queue.at(0.3, lambda: [cluster.kill(worker) for worker in workers])
    cluster.run()
    assert cluster.exit_codes == dict.fromkeys(set(range(18)) - set(workers), 75)
    assert "no workers left" in cluster.root.detail
    again = build(9, disk=cluster.disk, evaluations=2000)
    again.run()
    assert list(cluster.disk.tally.done) == [(0, 2000)]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("deterministic", [False, True])
def test_a_paused_worker_that_comes_back_is_no_second_count(seed: int, deterministic: bool) -> None:
    cluster = build(
        4, seed=seed, deterministic=deterministic, mean_s=0.05, evaluations=300, suspect_after_s=0.5, lost_after_s=1.0
    )
    cluster.queue.at(0.3 + 0.01 * seed, lambda: cluster.pause(2, 1.4 + 0.1 * seed))
    cluster.run()
    tally = cluster.disk.tally
    assert list(tally.done) == [(0, 300)] and tally.counts[Status.OK] == 300
    assert tally.counts[Status.LOST] == 1
    late = [row for rows in cluster.disk.records for row in rows if row["rank"] == 2 and row["t_end_s"] > 1.7]
    assert len(late) > 3, "it gets orders again"
    assert set(cluster.exit_codes.values()) == {0}


def test_a_worker_that_was_idle_when_it_was_lost_gets_orders_again() -> None:
    cluster = build(3, mean_s=0.02, sigma=0.0, evaluations=2000, suspect_after_s=0.5, lost_after_s=1.0)
    cluster.queue.at(0.0001, lambda: cluster.pause(2, 3.0))
    cluster.run()
    rows = np.concatenate(cluster.disk.records)
    assert (rows["rank"] == 2).sum() > 300


def test_a_run_that_was_suspended_as_a_whole_loses_nobody() -> None:
    """A batch system that stops all ranks for an hour, or a file system that holds rank 0 up, kills nobody."""
    cluster = build(40, evaluations=3000)
    cluster.queue.at(0.3, lambda: [cluster.pause(rank, 3600.0 + 0.01 * rank) for rank in range(40)])
    cluster.run()
    assert list(cluster.disk.tally.done) == [(0, 3000)]
    assert not [line for line in cluster.logs if "lost" in line]
    alone = build(5, evaluations=500)
    alone.queue.at(0.1, lambda: alone.pause(0, 100.0))
    alone.run()
    assert alone.disk.tally.counts[Status.OK] == 500 and alone.disk.tally.counts[Status.LOST] == 0


def test_flocks_go_on_and_improve_each_other_while_the_root_is_away() -> None:
    """The root stands still from second 3 to 9; what any flock finds meanwhile all know two rounds of gossip later."""
    cluster = build(40, evaluations=60_000, mean_s=0.1, flock_size=12)
    leaders = [machines[Role.LEADER] for machines in cluster.machines.values() if Role.LEADER in machines]
    assert len(leaders) == 3
    found: list[float] = []
    cluster.queue.at(3.0, lambda: cluster.pause(0, 6.0))
    cluster.queue.at(6.5, lambda: found.extend(leader.sender.account.cost for leader in leaders))
    known: list[float] = []
    cluster.queue.at(8.9, lambda: known.extend(leader.rumours.best.cost for leader in leaders))
    cluster.run(until_s=12.0)
    assert max(known) <= min(found)
    rows = np.concatenate(cluster.disk.records)
    n_before, n_away = (((rows["t_end_s"] > at) & (rows["t_end_s"] <= at + 2.0)).sum() for at in (0.9, 5.0))
    assert n_away > 0.9 * n_before
    said = [line for line in cluster.logs if "is silent: flock" in line or "is back: what is known" in line]
    assert len(said) == 6


def test_a_dead_leader_stops_the_run_and_its_workers_leave_by_themselves() -> None:
    cluster = build(40, evaluations=5000, mean_s=0.05, suspect_after_s=0.5, lost_after_s=2.0, patience_s=5.0)
    leader = 14
    assert Role.LEADER in cluster.machines[leader]
    workers = set(cluster.machines[leader][Role.LEADER].members)
    cluster.queue.at(0.5, lambda: cluster.kill(leader))
    cluster.run(until_s=60.0)
    assert {rank for rank, code in cluster.exit_codes.items() if code == 4} == workers
    assert {code for rank, code in cluster.exit_codes.items() if rank not in workers} == {75}
    assert len(cluster.exit_codes) == 39
    text = "it has waited 5 s for a "
    assert len([line for line in cluster.logs if text in line and "of its leader on rank 14" in line]) == len(workers)


@pytest.mark.parametrize("at_s", [0.0, 0.5])
def test_without_a_root_everybody_leaves(at_s: float) -> None:
    cluster = build(40, evaluations=5000, mean_s=0.05, patience_s=5.0)
    cluster.queue.at(at_s, lambda: cluster.kill(0))
    cluster.run(until_s=60.0)
    assert cluster.exit_codes == dict.fromkeys(range(1, 40), 4)
    assert any("of the root on rank 0" in line for line in cluster.logs)


def test_a_goodbye_that_never_comes_is_not_waited_for_without_end() -> None:
    weather = Weather(lost=1.0, classes=(Goodbye, Ack))
    cluster = build(5, evaluations=50, patience_s=5.0, weather=weather)
    cluster.run(until_s=60.0)
    assert cluster.exit_codes == {0: 0, **dict.fromkeys(range(1, 5), 4)}
    assert any("for a goodbye of its leader on rank 0" in line for line in cluster.logs)


@pytest.mark.parametrize("n_ranks", [1, 4, 20])
def test_everything_killed_at_any_moment_then_resumed_elsewhere(n_ranks: int) -> None:
    """100 kills: what is on disk is exact, a resume on other ranks finishes the budget and loses nothing."""
    rng = np.random.default_rng(n_ranks)
    moments = rng.uniform(0.0, {1: 1.9, 4: 0.6, 20: 0.2}[n_ranks], 34)
    for seed, moment in enumerate(moments.tolist()):
        disk = VirtualDisk()
        weather = Weather(lost=0.05, repeated=0.05, overtaken=0.05)
        first = build(
            n_ranks, seed=seed, disk=disk, mean_s=0.02, evaluations=80, weather=weather, checkpoint_interval_s=0.1
        )
        first.run(until_s=moment)
        on_disk, best = disk.tally.n_evaluations, disk.tally.best.key
        costs = disk.costs()
        assert on_disk == len(costs), (seed, moment)
        other = int(rng.choice([1, 2, 3, 18, 25]))
        second = build(other, seed=seed, disk=disk, mean_s=0.02, evaluations=80)
        second.run()
        context = (seed, moment, other)
        assert list(disk.tally.done) == [(0, 80)], context
        assert disk.tally.counts[Status.OK] == sum(disk.tally.counts.values()) == 80, context
        assert disk.tally.best.key <= best and disk.tally.best.cost == min(disk.costs().values()), context
        assert {id: disk.costs()[id] for id in costs} == costs, context


@pytest.mark.parametrize("n_ranks", [1, 5, 18, 40])
@pytest.mark.parametrize("seed", range(6))
def test_a_signal_at_any_moment_leaves_a_consistent_disk(n_ranks: int, seed: int) -> None:
    rng = np.random.default_rng([n_ranks, seed])
    disk = VirtualDisk()
    cluster = build(n_ranks, seed=seed, disk=disk, mean_s=0.02, evaluations=4000)
    at_s, rank = float(rng.uniform(0.0, 1.0)), int(rng.integers(n_ranks))
    cluster.queue.at(at_s, lambda: cluster.stop(rank))
    cluster.run()
    assert cluster.exit_codes == dict.fromkeys(range(n_ranks), 75)
    assert cluster.queue.now < at_s + 0.5
    counts, n = disk.tally.counts, disk.tally.n_evaluations
    assert n == counts[Status.OK] == len(disk.costs()) == cluster.root.tally.n_evaluations
    assert counts[Status.CANCELLED] <= n_ranks
    budget = max((stop for _, stop in disk.tally.done), default=0) + 50
    build(3, seed=seed, disk=disk, evaluations=budget, mean_s=0.02).run()
    assert list(disk.tally.done) == [(0, budget)]


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("seed", range(6))
def test_a_serial_run_that_was_stopped_goes_on_bit_for_bit(batch: int, seed: int) -> None:
    """A call that was cut off leaves no trace in the search, so the resumed run asks for it again."""
    whole = build(1, seed=seed, evaluations=90, batch=batch, mean_s=0.02)
    whole.run()
    disk = VirtualDisk()
    for life in range(4):
        cluster = build(1, seed=seed, evaluations=90, batch=batch, mean_s=0.02, disk=disk)
        cluster.queue.at(0.03 + 0.041 * seed + 0.01 * life, lambda c=cluster: c.stop(0))  # type: ignore[misc]
        cluster.run()
    build(1, seed=seed, evaluations=90, batch=batch, mean_s=0.02, disk=disk).run()
    for name, arrays in whole.disk.groups["flock-0000"].items():
        np.testing.assert_array_equal(arrays, disk.groups["flock-0000"][name], err_msg=name)
    assert disk.costs() == whole.disk.costs()


def test_a_full_disk_stops_the_run_and_loses_no_row_that_it_promised() -> None:
    cluster: Cluster
    disk = VirtualDisk()
    cluster = build(5, disk=disk, evaluations=5000, disk_error=lambda: "no space" if cluster.queue.now > 2.0 else "")
    cluster.run()
    assert set(cluster.exit_codes.values()) == {75}
    assert "no space" in cluster.root.detail
    assert any("could not be written" in line for line in cluster.logs)
    n = disk.tally.n_evaluations
    assert 0 < n == len(disk.costs())
    build(5, disk=disk, evaluations=n + 50).run()
    assert list(disk.tally.done) == [(0, n + 50)]


def test_a_disk_that_is_full_for_a_moment_doubles_no_row() -> None:
    cluster: Cluster
    disk = VirtualDisk()
    cluster = build(
        5, disk=disk, evaluations=5000, disk_error=lambda: "no space" if 2.0 < cluster.queue.now < 2.5 else ""
    )
    cluster.run()
    assert set(cluster.exit_codes.values()) == {75}
    assert disk.n_rows == disk.tally.n_evaluations + disk.tally.counts[Status.CANCELLED]
    assert disk.tally.n_evaluations == cluster.root.tally.n_evaluations
