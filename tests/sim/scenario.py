"""Build simulated runs: the real machines and the real search on a small problem, at any number of ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.comm.tree import plan
from osprey_mpi.config import Config, config_from_mapping
from osprey_mpi.continuity.budget import BudgetRule
from osprey_mpi.continuity.carry import Carry
from osprey_mpi.continuity.leader import Leader, LeaderSettings
from osprey_mpi.continuity.messages import Role
from osprey_mpi.continuity.root import Root, RootSettings
from osprey_mpi.continuity.tally import Tally
from osprey_mpi.continuity.ids import IdRanges
from osprey_mpi.continuity.worker import Worker
from osprey_mpi.search.flock import Flock
from osprey_mpi.search.space import Space
from osprey_mpi.simulate.cluster import Cluster, VirtualDisk
from osprey_mpi.simulate.network import Weather


def config(**changes: Any) -> Config:
    """Return a config of a sphere in three dimensions."""
    mapping: dict[str, Any] = {
        "name": "sim",
        "objective": {"python": "sphere:f"},
        "parameters": {"x": {"type": "real", "low": -5, "high": 5, "size": 3}},
        "budget": {"evaluations": 200},
    }
    return config_from_mapping({**mapping, **changes})


def sphere(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sum of squares about a point that is not the middle."""
    return ((values - 1.25) ** 2).sum(axis=1)


def build(
    n_ranks: int,
    *,
    seed: int = 0,
    flock_size: int = 16,
    evaluations: int | None = 200,
    deterministic: bool = False,
    disk: VirtualDisk | None = None,
    weather: Weather | None = None,
    mean_s: float = 0.01,
    sigma: float = 0.5,
    slow: dict[int, float] | None = None,
    target: float | None = None,
    suspect_after_s: float = 5.0,
    lost_after_s: float = 30.0,
) -> Cluster:
    """Return a cluster at its start; with a disk that has something on it, at a resume."""
    made = config(seed=seed)
    space = Space(made.parameters)
    disk = disk or VirtualDisk()
    placed = plan(n_ranks, n_ranks if deterministic else flock_size)
    exact = deterministic or sum(len(flock.workers) for flock in placed.flocks) == 1
    machines: dict[int, dict[Role, Any]] = {rank: {} for rank in range(n_ranks)}
    tally = Tally(IdRanges(disk.tally.done), dict(disk.tally.counts), disk.tally.best)
    machines[0][Role.ROOT] = Root(
        0,
        placed.leaders,
        RootSettings(
            BudgetRule(evaluations, target=target), space.n_columns, exact, suspect_after_s=suspect_after_s,
            lost_after_s=lost_after_s,
        ),  # fmt: skip
        0.0,
        tally=tally,
    )
    for flock in placed.flocks:
        saved, carry = Carry.split(disk.groups.get(f"flock-{flock.number:04d}", {}))
        search = Flock.restore(saved, space, made.swarm.search, seed, flock.number) if saved else Flock(
            space, made.swarm.search, seed, flock.number
        )  # fmt: skip
        settings = LeaderSettings(
            space.n_columns, space.n_dims, exact=exact, suspect_after_s=suspect_after_s, lost_after_s=lost_after_s
        )
        machines[flock.leader][Role.LEADER] = Leader(
            flock.leader, flock.number, 0, flock.workers, search, settings, 0.0, carry=carry
        )
        for rank in flock.workers:
            machines[rank][Role.WORKER] = Worker(
                rank, flock.number, flock.leader, space.n_columns, space.n_dims, cycle_s=1.0
            )
    factors = slow or {}
    return Cluster(
        machines, space, seed, disk, objective=sphere, weather=weather,
        duration_s=lambda rank, rng: mean_s * factors.get(rank, 1.0) * float(rng.lognormal(0.0, sigma)),
    )  # fmt: skip
