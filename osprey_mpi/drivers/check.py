"""Look at a config's objective and constraints before a run. Needs no MPI."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from pathlib import Path

from osprey_mpi.config import Config
from osprey_mpi.config.section import show_constraint
from osprey_mpi.drivers.importing import check_interruptibly
from osprey_mpi.search.feasible import feasible_share
from osprey_mpi.search.space import Space
from osprey_mpi.words import counted

N_POINTS = 10_000
# Random numbers one estimate may draw: about half a second.
MOST_NUMBERS = 2**25


def check_objective(config: Config, space: Space) -> None:
    """Import the objective as a rank would, on the CPU.

    Raises ConfigError if that cannot work, StoppedEarly after a signal.
    """
    from osprey_mpi.device import select
    from osprey_mpi.evaluate.make import make_evaluator

    with contextlib.redirect_stdout(sys.stderr), tempfile.TemporaryDirectory(prefix="osprey-") as scratch:
        with config.locating():
            evaluator = make_evaluator(
                config,
                space,
                rank=0,
                clock=time.monotonic,
                record_all=True,
                device=select("cpu"),
                scratch_root=Path(scratch),
            )
        with contextlib.closing(evaluator):
            check_interruptibly(evaluator, config)


def constraint_notes(config: Config, space: Space) -> list[str]:
    """Say which constraints no random point of the space satisfies, alone or together; empty if some point does."""
    if not config.constraints:
        return []
    n = max(1, min(N_POINTS, MOST_NUMBERS // max(space.n_dims, 1)))
    if feasible_share(space, n, config.seed) > 0.0:
        return []
    alone = [
        text
        for text in config.constraints
        if feasible_share(Space(config.parameters, (text,)), n, config.seed) == 0.0
    ]
    points = f"{counted(n, 'random point')} of the space (share 0)"
    hint = "" if config.start else "; if there are such points, give one under start"
    if not alone:
        return [f"all {len(config.constraints)} constraints together are satisfied by none of {points}{hint}"]
    return [f"the constraint {show_constraint(text)} is satisfied by none of {points}{hint}" for text in alone]
