"""Build simulated runs: the real machines and the real search on a small problem, at any number of ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.comm.tree import Flock as FlockOfRanks
from osprey_mpi.comm.tree import plan
from osprey_mpi.config import Config, config_from_mapping
from osprey_mpi.continuity.budget import BudgetRule
from osprey_mpi.continuity.carry import Carry
from osprey_mpi.continuity.ids import IdRanges
from osprey_mpi.continuity.leader import Leader, LeaderSettings
from osprey_mpi.continuity.messages import Role
from osprey_mpi.continuity.redo import Redo
from osprey_mpi.continuity.root import Root, RootSettings
from osprey_mpi.continuity.tally import Tally
from osprey_mpi.continuity.worker import Worker
from osprey_mpi.search.flock import Flock
from osprey_mpi.search.space import Space
from osprey_mpi.simulate.cluster import Cluster, VirtualDisk
from osprey_mpi.simulate.network import Weather

Objective = Callable[[NDArray[np.float64]], NDArray[np.float64]]


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
    costs: NDArray[np.float64] = ((values - 1.25) ** 2).sum(axis=1)
    return costs


def _worker(rank: int, flock: FlockOfRanks, space: Space, patience_s: float) -> Worker:
    return Worker(
        rank, flock.number, flock.leader, space.n_columns, space.n_dims, cycle_s=1.0, patience_s=patience_s
    )


def build(
    n_ranks: int,
    *,
    seed: int = 0,
    flock_size: int = 16,
    evaluations: int | None = 200,
    deterministic: bool = False,
    disk: VirtualDisk | None = None,
    weather: Weather | None = None,
    objective: Objective = sphere,
    mean_s: float = 0.01,
    sigma: float = 0.5,
    slow: dict[int, float] | None = None,
    batch: int = 1,
    budget: BudgetRule | None = None,
    redo: Redo | None = None,
    suspect_after_s: float = 5.0,
    lost_after_s: float = 30.0,
    checkpoint_interval_s: float = 30.0,
    patience_s: float = 900.0,
    size: int = 3,
    disk_error: Callable[[], str] = lambda: "",
    **search: Any,
) -> Cluster:
    """Return a cluster at its start; with a disk that has something on it, at a resume.

    mean_s, sigma: median and spread of the log-normal time of an evaluation; slow: rank -> factor. size: dimensions.
    """
    x = {"type": "real", "low": -5, "high": 5, "size": size}
    made = config(seed=seed, parameters={"x": x}, swarm={"search": search} if search else {})
    space = Space(made.parameters)
    disk = disk or VirtualDisk()
    placed = plan(n_ranks, n_ranks if deterministic else flock_size)
    exact = deterministic or sum(len(flock.workers) for flock in placed.flocks) == 1
    machines: dict[int, dict[Role, Any]] = {rank: {} for rank in range(n_ranks)}
    tally = Tally(IdRanges(disk.tally.done), dict(disk.tally.counts), disk.tally.best)
    root_settings = RootSettings(
        budget or BudgetRule(evaluations), space.n_columns, exact, checkpoint_interval_s=checkpoint_interval_s,
        suspect_after_s=suspect_after_s, lost_after_s=lost_after_s,
    )  # fmt: skip
    settings = LeaderSettings(
        space.n_columns, space.n_dims, batch=batch, exact=exact, suspect_after_s=suspect_after_s,
        lost_after_s=lost_after_s, patience_s=patience_s, speed_exponent=made.swarm.search.speed_exponent,
        has_others=len(placed.flocks) > 1,
    )  # fmt: skip
    snapshots = {int(name.removeprefix("flock-")): arrays for name, arrays in disk.groups.items()}
    machines[0][Role.ROOT] = Root(0, placed.leaders, root_settings, 0.0, tally=tally, snapshots=snapshots, redo=redo)
    for flock in placed.flocks:
        saved, carry = Carry.split(disk.groups.get(f"flock-{flock.number:04d}", {}))
        args = (space, made.swarm.search, seed, flock.number, batch)
        searcher = Flock.restore(saved, *args) if saved else Flock(*args)
        machines[flock.leader][Role.LEADER] = Leader(
            flock.leader, flock.number, 0, flock.workers, searcher, settings, 0.0, carry=carry,
            leaders=placed.leaders,
        )
        for rank in flock.workers:
            machines[rank][Role.WORKER] = _worker(rank, flock, space, patience_s)
    factors = slow or {}
    return Cluster(
        machines, space, seed, disk, objective=objective, weather=weather, batch=batch, disk_error=disk_error,
        duration_s=lambda rank, rng: mean_s * factors.get(rank, 1.0) * float(rng.lognormal(0.0, sigma)),
    )  # fmt: skip
