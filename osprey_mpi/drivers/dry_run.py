"""Tell what a run would do, on how many ranks, and write nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from osprey_mpi.comm import tree
from osprey_mpi.config import Config, advice
from osprey_mpi.drivers.agree import launched, on_root
from osprey_mpi.drivers.check import check_objective, constraint_notes, template_notes
from osprey_mpi.drivers.hosts import spare_notes
from osprey_mpi.drivers.session import flock_size
from osprey_mpi.drivers.trial import first_calls
from osprey_mpi.search.space import Space
from osprey_mpi.storage.status import plain

N_POINTS = 3  # first points shown


def dry_run(load: Callable[[], Config], out: Path | None, show: Callable[[dict[str, Any]], None]) -> None:
    """Show ranks, folder, budget, parameters and the first points. Collective over the launch.

    load, show: called on rank 0 alone; what is shown are the facts of `describe`.
    """
    with launched() as world:
        on_root(world, lambda: show(describe(load(), out, world.n_ranks)))


def describe(config: Config, out: Path | None, n_ranks: int) -> dict[str, Any]:
    """Return what would run. Raises ConfigError if its objective cannot be loaded."""
    space = Space(config.parameters, config.constraints)
    check_objective(config, space)
    placed = tree.plan(n_ranks, flock_size(config, n_ranks), config.objective.ranks)
    return {
        "name": config.name,
        "out": str((out or config.output_dir).absolute()),
        "n_ranks": n_ranks,
        "n_workers": sum(len(flock.workers) for flock in placed.flocks),
        "n_flocks": len(placed.flocks),
        "n_dims": space.n_dims,
        "parameters": list(config.parameters),
        "budget": config.budget.model_dump(by_alias=True, exclude_none=True),
        "first_points": first_points(config, space),
        "warnings": [
            *spare_notes(placed.spare, config.objective.ranks, n_ranks),
            *constraint_notes(config, space),
        ],
        "advice": [*template_notes(config), *advice(config, n_ranks)],
    }


def first_points(config: Config, space: Space) -> list[dict[str, Any]]:
    """Return the parameters that the first evaluations would get, on one rank."""
    calls = (positions for _, positions in first_calls(config, space))
    positions = itertools.islice(itertools.chain.from_iterable(calls), N_POINTS)
    return [plain(space.parameters(space.decode(position[None, :])[0])) for position in positions]
