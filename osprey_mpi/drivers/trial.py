"""Try an objective once, as a run would, before a run spends its budget on it. Needs no MPI."""

from __future__ import annotations

import contextlib
import logging
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.config import Config
from osprey_mpi.continuity.records import EXPLICIT, FINAL, Status
from osprey_mpi.drivers.importing import check_interruptibly
from osprey_mpi.drivers.signals import Signals
from osprey_mpi.errors import UsageError
from osprey_mpi.evaluate import draws
from osprey_mpi.evaluate.make import is_inline, make_evaluator, records_all
from osprey_mpi.evaluate.task import Evaluator, Outcome, Task
from osprey_mpi.search import streams
from osprey_mpi.search.flock import Flock
from osprey_mpi.search.osprey import hover
from osprey_mpi.search.space import Space
from osprey_mpi.storage.status import plain
from osprey_mpi.waiting import readable

MOST_POINTS = 1000  # looked at for one that the constraints allow
LOOK_S = 0.05  # between two looks at an evaluator that says nothing


@dataclass(frozen=True, slots=True)
class Trial:
    """Tell what became of one evaluation; of a batch, of its first point that has a result. elapsed_s: of the call."""

    id: int
    parameters: dict[str, Any]
    status: Status
    cost: float
    violation: float
    elapsed_s: float
    reason: str

    def to_mapping(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "id": self.id, "parameters": plain(self.parameters), "status": self.status.name.lower(), "cost": self.cost,
            "violation": self.violation, "elapsed_s": self.elapsed_s, "reason": self.reason,
        }  # fmt: skip

    def to_text(self) -> list[str]:
        """Return a few lines for a person."""
        named = ", ".join(f"{name} = {value}" for name, value in plain(self.parameters).items())
        broken = f", violation {self.violation:g}" if self.violation > 0 else ""
        result = f"cost {self.cost!r}{broken} in" if self.status is Status.OK else f"{self.status.name.lower()} after"
        reason = f": {self.reason}" if self.reason else ""
        return [f"tried evaluation {self.id}: {named}", f"result: {result} {self.elapsed_s:.3g} s{reason}"]


def try_objective(config: Config, space: Space) -> Trial:
    """Evaluate the first point of a run that its constraints allow. What the objective prints goes to stderr.

    Raises ConfigError for an objective that cannot be loaded, UsageError where one process cannot evaluate, and
    StoppedEarly after a signal.
    """
    from osprey_mpi.device import select as select_device

    if config.objective.ranks > 1:
        raise UsageError(
            f"--try is for one process, but objective.ranks is {config.objective.ranks}: try it by "
            f"`mpirun -n {config.objective.ranks} osprey run CONFIG --set budget.evaluations=1`"
        )
    first, positions = _first_call(config, space)
    with contextlib.redirect_stdout(sys.stderr), _logged_to_stderr(), _scratch() as scratch:
        with config.locating():
            evaluator = make_evaluator(
                config, space, rank=0, clock=time.monotonic, record_all=True,
                device=select_device(config.device.kind), scratch_root=scratch,
            )  # fmt: skip
        with contextlib.closing(evaluator):
            check_interruptibly(evaluator, config)
            with Signals(launched=False) as signals, signals.interrupting(f"while evaluation {first} was tried"):
                evaluator.start()
                evaluator.submit(Task(first, len(positions), 0, len(positions), EXPLICIT, 0, positions, None))
                outcomes = _drain(evaluator)
    return _trial(outcomes, space)


def first_calls(config: Config, space: Space) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """Yield the first id and the positions of the first calls of a run on one rank, without what it would learn.

    On more ranks small batches are cut, and a block's points depend on where it begins.
    """
    search = Flock(space, config.swarm.search, config.seed, 0, config.objective.batch, config.start)
    first, left = 0, config.budget.evaluations or 0
    while True:
        proposal = search.ask(first, config.objective.batch)
        positions = proposal.positions
        if positions is None:
            numbers = streams if not is_inline(config.objective) or records_all(config) else draws
            positions = hover(search.distribution, numbers.latent(config.seed, first, proposal.n, space), space)
        yield first, positions[:left] if left > 0 else positions  # the last call of a budget may be a part
        first, left = first + proposal.n, left - proposal.n


def _first_call(config: Config, space: Space) -> tuple[int, NDArray[np.float64]]:
    """Return the first call that has a point which the constraints allow."""
    for first, positions in first_calls(config, space):
        if first >= MOST_POINTS:
            break
        if _allowed(space, space.decode(positions)).any():
            return first, positions
    raise UsageError(f"--try found none of the first {MOST_POINTS} points that satisfies the constraints")


def _allowed(space: Space, values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which rows of values (n, n_columns) satisfy the constraints of the config."""
    return np.asarray(space.violation(values) == 0.0)


@contextlib.contextmanager
def _logged_to_stderr() -> Iterator[None]:
    """Let the log of rank 0, to which the objective's output goes, be stderr."""
    log, handler = logging.getLogger("osprey_mpi.rank0"), logging.StreamHandler(sys.stderr)
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """Make a folder, and remove it unless a scratch folder was kept in it, which a reason then names."""
    folder = Path(tempfile.mkdtemp(prefix="osprey-try-"))
    try:
        yield folder
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _drain(evaluator: Evaluator) -> list[Outcome]:
    outcomes: list[Outcome] = []
    while not evaluator.idle:
        outcomes += [item for item in evaluator.poll() if isinstance(item, Outcome)]
        if filenos := evaluator.filenos():
            readable(filenos, LOOK_S)
    return outcomes


def _trial(outcomes: list[Outcome], space: Space) -> Trial:
    rows = [
        (record, values, outcome)
        for outcome in outcomes
        for record, values, is_allowed in zip(
            outcome.records, outcome.values, _allowed(space, outcome.values), strict=True
        )
        if is_allowed
    ]
    usable = [row for row in rows if row[0]["status"] == Status.OK and np.isfinite(row[0]["cost"])]
    record, values, outcome = (usable or rows)[0]
    status = Status(int(record["status"]))
    assert status in FINAL, "what is tried is neither lost nor cancelled"
    return Trial(
        int(record["id"]), dict(space.parameters(values)), status, float(record["cost"]), float(record["violation"]),
        float(record["t_end_s"] - record["t_start_s"]), outcome.reasons.get(int(record["id"]), ""),
    )  # fmt: skip
