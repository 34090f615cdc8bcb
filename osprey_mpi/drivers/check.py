"""Look at a config's objective and constraints before a run. Needs no MPI."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from pathlib import Path

from osprey_mpi.config import Config
from osprey_mpi.config.nearest import listed, nearest
from osprey_mpi.config.section import show_constraint
from osprey_mpi.drivers.importing import check_interruptibly
from osprey_mpi.evaluate.command import read_template
from osprey_mpi.evaluate.placeholders import SPECIAL, names_in, strangers_in
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


def template_notes(config: Config) -> list[str]:
    """Say what in the templates of a command may be a placeholder with a mistake, and what is searched and never used.

    Files of programs have braces of their own: those that are like no name and have no format are passed over.
    """
    objective = config.objective
    try:
        texts = {item.source: read_template(config.base_dir / item.source) for item in objective.template}
    except (OSError, UnicodeDecodeError):  # the objective's own check refuses it
        return []
    known = (*config.parameters, *SPECIAL)
    notes: dict[tuple[str, str], str] = {}
    for source, text in texts.items():
        for line, placeholder, name, has_format in strangers_in(text, known):
            meant = nearest(name, known)
            if meant is not None or has_format:
                hint = f"; did you mean {{{meant}}}?" if meant is not None else ""
                what = f"{source} line {line} has {placeholder}, which is no parameter and stays as it is{hint}"
                notes.setdefault((source, placeholder), what)
    used = {name for text in (*(objective.command or ()), *texts.values()) for name in names_in(text)}
    unused = [name for name in config.parameters if name not in used] if texts else []
    if unused:
        them = "it" if len(unused) == 1 else "them"
        what = f"no argument and no template has a placeholder for {listed(unused)}: the program never sees {them}"
        notes["", ""] = what
    return list(notes.values())


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
