"""Run a schedule of faults to the end of its run: launch after launch, until the budget is on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.config import Config, config_from_mapping
from osprey_mpi.continuity.records import Status
from osprey_mpi.errors import ExitCode
from osprey_mpi.simulate.crew import Plan
from osprey_mpi.simulate.faults import Fault, Kind, draw
from osprey_mpi.simulate.folder import VirtualFolder
from osprey_mpi.simulate.launch import Launch, place
from osprey_mpi.simulate.network import Weather

MOST_LAUNCHES = 12


@dataclass(frozen=True, slots=True)
class Scale:
    """Say how large a run is. mean_s: median of the time of an evaluation."""

    n_ranks: int = 40
    n_evaluations: int = 150
    flock_size: int = 12
    mean_s: float = 0.1


@dataclass(slots=True)
class Outcome:
    """Tell how a schedule went."""

    n_launches: int = 0
    n_epochs: int = 0
    n_lost: int = 0
    end_s: float = 0.0


def objective(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return coarse costs, so that some are the same: ties must be broken alike everywhere."""
    costs: NDArray[np.float64] = np.floor(2.0 * ((values - 1.25) ** 2).sum(axis=1)) / 2.0
    return costs


def config(n_evaluations: int) -> Config:
    """Return the config of the runs."""
    x = {"type": "real", "low": -5, "high": 5, "size": 3}
    return config_from_mapping(
        {
            "name": "sim",
            "objective": {"python": "coarse:f"},
            "parameters": {"x": x},
            "budget": {"evaluations": n_evaluations},
        }
    )


def faults_of(seed: int, scale: Scale) -> list[Fault]:
    """Return the schedule of a seed."""
    placed = place(tuple(range(scale.n_ranks)), scale.flock_size)
    return draw(seed, scale.n_ranks, (0, 0, 1, *placed.leaders))


def run(seed: int, faults: Sequence[Fault], scale: Scale) -> Outcome:
    """Run a schedule. Raises AssertionError when what must hold does not."""
    weather = Weather(0.002, 0.8, *((0.02, 0.05, 0.05, 1.0) if seed % 2 else ()))
    folder, outcome, left = VirtualFolder(), Outcome(), list(faults)
    made = config(scale.n_evaluations)
    n_ranks = scale.n_ranks
    while outcome.n_launches < MOST_LAUNCHES:
        outcome.n_launches += 1
        launch = Launch(
            Plan(made, seed), n_ranks, folder, left, objective, flock_size=scale.flock_size, mean_s=scale.mean_s,
            weather=weather,
        )  # fmt: skip
        launch.run()
        outcome.end_s += launch.queue.now
        outcome.n_epochs += len(launch.witness.worlds)
        outcome.n_lost += len(launch.dead)
        _judge(launch, scale)
        if launch.is_done:
            break
        left, n_ranks = _resume(launch, left), max(1, n_ranks // 2)
    tally = folder.disk.tally
    assert list(tally.done) == [(0, scale.n_evaluations)], f"the budget is not on disk: {list(tally.done)}"
    assert tally.counts[Status.OK] == scale.n_evaluations
    return outcome


def _judge(launch: Launch, scale: Scale) -> None:
    """Assert what must hold at the end of a launch."""
    codes = {p.rank: p.exit_code for p in launch.processes if p.rank not in launch.dead}
    said = " ".join(launch.logs)
    if launch.is_done:
        assert list(launch.disk.tally.done) == [(0, scale.n_evaluations)], "a run is done without its budget"
        for rank, code in codes.items():
            if code == ExitCode.DONE:
                launch.witness.survived(rank)
    else:
        excuses = ("stopping:", "leaves:", "no farewell")
        assert not codes or any(excuse in said for excuse in excuses), f"survivors end without a reason: {codes}"


def _resume(launch: Launch, faults: Sequence[Fault]) -> list[Fault]:
    """Free the folder of a launch that is gone; return the faults that are left for the next."""
    launch.folder.lock = None
    crash = launch.crashed
    if crash is None:
        return []
    launch.folder.turn_back(crash.at_s - crash.for_s)
    launch.folder.checkpoints = [(0.0, groups) for _, groups in launch.folder.checkpoints]
    return [replace(f, at_s=f.at_s - crash.at_s) for f in faults if f.at_s > crash.at_s and f.kind is not Kind.CRASH]
