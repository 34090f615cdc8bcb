"""Open a run on the root: a new folder, or an old one with what its lives have done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.config import Config, load_config, with_overrides
from osprey_mpi.config.changing import allowed_changes
from osprey_mpi.config.parameters import INTEGER_LIMIT
from osprey_mpi.config.retelling import retold
from osprey_mpi.config.source import place_of
from osprey_mpi.continuity.budget import BudgetRule, Reason
from osprey_mpi.continuity.ids import IdRanges
from osprey_mpi.continuity.messages import Best, Delta
from osprey_mpi.continuity.records import Status
from osprey_mpi.continuity.redo import Redo
from osprey_mpi.continuity.rescue import Attempts, attempts_in, rescue
from osprey_mpi.continuity.tally import BestRow, Tally
from osprey_mpi.drivers.check import constraint_notes, template_notes
from osprey_mpi.errors import ConfigError, UsageError
from osprey_mpi.search.space import Space

if TYPE_CHECKING:
    from osprey_mpi.drivers.request import Request
    from osprey_mpi.storage.checkpoint import Checkpoint
    from osprey_mpi.storage.folder import RunFolder
    from osprey_mpi.storage.rows import Rows

RESCUED = 0  # the epoch of a life's segment for what the life before has left; the root's own follow
RETRYABLE = {"failed": Status.FAILED, "lost": Status.LOST, "timeout": Status.TIMEOUT}


@dataclass(slots=True)
class Opened:
    """Hold an open run. snapshots: flock number -> arrays; notes, warnings: what the user should know.

    changes: of its settings, from this life on.
    folder: None for a new run until `claim`: nothing is made, or overwritten, for an objective that cannot be loaded.
    replaces: when the run began that a new one takes the place of.
    """

    path: Path
    folder: RunFolder | None
    config: Config
    overwrite: bool = False
    replaces: float | None = None
    tally: Tally = field(default_factory=Tally)
    best: Best | None = None
    snapshots: dict[int, dict[str, NDArray[Any]]] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)
    redo: Redo = field(default_factory=Redo)
    attempts: Attempts = field(default_factory=set)  # on disk beside each evaluation's first
    wall_before_s: float = 0.0
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def life(self) -> int:
        """Return the number of the life that may begin."""
        return 1 if self.folder is None else self.folder.life

    def claim(self) -> tuple[int, float]:
        """Make the folder of a new run; return the life and when the run first started.

        Raises UsageError or StorageError.
        """
        from osprey_mpi.storage.folder import RunFolder

        if self.folder is None:
            with naming_key(self.config, self.path):
                self.folder = RunFolder.create(self.path, self.config, self.overwrite)
        return self.life, self.folder.started_unix_s

    def rescue(self, held: Iterable[Delta]) -> None:
        """Put on disk what survivors hold of a life that is gone, and count it: each evaluation once.

        Raises StorageError.
        """
        from osprey_mpi.storage.segment import Segment

        space = Space(self.config.parameters, self.config.constraints)
        rows = rescue(held, self.tally, self.attempts, space.n_columns)
        if not rows or self.folder is None:
            return
        path, began = self.folder.segment_path(RESCUED), self.folder.started_unix_s
        Segment(path, space.columns, self.folder.life, RESCUED, began).append(*rows.batch())
        if self.tally.best.id >= 0:
            best = self.tally.best
            self.best = Best(best.cost, best.violation, best.id, space.encode(best.values[None, :])[0])

    def close(self) -> None:
        """Give the folder free."""
        if self.folder is not None:
            self.folder.close()


@contextmanager
def naming_key(config: Config, path: Path) -> Iterator[None]:
    """Let a UsageError about the folder of a run begin with the place of `output.dir`, where that gave it."""
    try:
        yield
    except UsageError as error:
        place = config.places.get("output.dir")
        if place is None or config.output.dir is None or path != config.output_dir.absolute():
            raise
        raise type(error)(f"{place_of(place, 'output.dir')}: {error}") from error


def open_run(request: Request) -> Opened:
    """Open what a request asks for. Raises ConfigError, UsageError or StorageError."""
    from osprey_mpi.storage.folder import RunFolder

    if request.resume is not None:
        return _reopen(request)
    assert request.load is not None
    config = request.load()
    path = (request.out or config.output_dir).absolute()
    with naming_key(config, path):
        RunFolder.refuse_used(path, request.overwrite)
    space = Space(config.parameters, config.constraints)
    replaces = RunFolder.began(path) if request.overwrite else None
    return Opened(
        path, None, config, request.overwrite, replaces, notes=template_notes(config),
        warnings=constraint_notes(config, space),
    )  # fmt: skip


def _reopen(request: Request) -> Opened:
    from osprey_mpi.storage.folder import RunFolder

    assert request.resume is not None
    limit = request.max_evaluations
    if limit is not None and not 1 <= limit <= INTEGER_LIMIT:
        raise UsageError(f"--max-evaluations is {limit}, must be at least 1 and at most {INTEGER_LIMIT}")
    wanted = None if request.load is None else request.load()
    folder = RunFolder.open(request.resume, request.lock_wait_s)
    try:
        former = folder.config()
        if wanted is None:
            overrides = [*request.overrides, *([] if limit is None else [f"budget.evaluations={limit}"])]
            wanted = with_overrides(former, overrides) if overrides else former
        changes = allowed_changes(former, wanted, folder.path)
        config = former
        if changes:
            steps = [f"life {folder.life}: {text}" for text in changes]
            config = retold(wanted.placed(former.base_dir, former.source_text, wanted.places), steps)
        edits = _edits(folder, former)
        opened = _read_back(folder, config, request)
        opened.changes, opened.warnings = changes, [*edits, *opened.warnings]
        if changes:
            _refuse_less(former, opened)
            folder.change_config(config)
        return opened
    except BaseException:
        folder.close()
        raise


def _refuse_less(former: Config, opened: Opened) -> None:
    """Raise UsageError for a new budget of fewer evaluations than are done."""
    limit, n_done = opened.config.budget.evaluations, opened.tally.n_evaluations
    if limit is not None and limit != former.budget.evaluations and limit < n_done:
        raise UsageError(
            f"budget.evaluations is {limit}, but {opened.path} has {n_done} already: a budget can only grow"
        )


def _edits(folder: RunFolder, config: Config) -> list[str]:
    """Say what was edited in the run's copy of its config, which changes nothing."""
    path = folder.path / "config.yaml"
    if not folder.is_edited(config):
        return []
    try:
        changes = config.differences(load_config(path))
    except ConfigError:
        changes = ["it is no config any more"]
    rule = "has no effect: a run keeps its config, but for what `osprey resume --set KEY=VALUE` changes"
    return [f"what was edited in {path} {rule}; {'; '.join(changes)}"] if changes else []


def _read_back(folder: RunFolder, config: Config, request: Request) -> Opened:
    from osprey_mpi.storage.checkpoint import load_checkpoint
    from osprey_mpi.storage.rows import read_run

    space = Space(config.parameters, config.constraints)
    rows = read_run(folder.path)
    opened = Opened(folder.path, folder, config, warnings=list(rows.notes))
    opened.tally = tally_of(rows)
    opened.attempts = attempts_of(rows)
    best = opened.tally.best
    if best.id >= 0:
        opened.best = Best(best.cost, best.violation, best.id, space.encode(best.values[None, :])[0])
    checkpoint, notes = load_checkpoint(folder.path, lambda found: misfit(found, folder.started_unix_s, space))
    opened.warnings += notes
    if checkpoint is None:
        opened.notes.append("no checkpoint to go on from: the search starts afresh, what was evaluated counts")
    else:
        opened.notes.append(f"the search goes on from {checkpoint.path.name}")
        opened.snapshots = {int(name.removeprefix("flock-")): arrays for name, arrays in checkpoint.groups.items()}
    status, _ = folder.observe()
    opened.wall_before_s = 0.0 if status is None else status.wall_s
    opened.redo = redo_of(rows, space, request.retry)
    is_over = over(opened)
    if request.retry and not opened.redo.missing.n:
        nothing = f"there is nothing to retry: no evaluation ended as {' or '.join(request.retry)}"
        opened.notes = [nothing] if is_over else [nothing, *opened.notes]
    elif is_over:
        opened.notes = [is_over]
    return opened


def misfit(checkpoint: Checkpoint, run_unix_s: float, space: Space) -> str:
    """Say why a checkpoint is not of this run; '' if it may be: one of an older version does not name its run."""
    if checkpoint.meta.get("run_unix_s", run_unix_s) != run_unix_s:
        return "it is of another run"
    positions = [arrays["start_positions"] for arrays in checkpoint.groups.values() if "start_positions" in arrays]
    if any(found.shape[1:] != (space.n_dims,) for found in positions):
        return "it is of a run with other parameters"
    return ""


def budget_of(config: Config) -> BudgetRule:
    """Return the budget of a config."""
    budget = config.budget
    return BudgetRule(budget.evaluations, budget.walltime_s, budget.target, budget.stagnation)


def over(opened: Opened) -> str:
    """Say that a run has met its budget before it goes on, and which; '' if it has not."""
    budget = opened.config.budget
    if opened.redo.missing.n:
        return ""
    match budget_of(opened.config).verdict(opened.tally, 0.0):
        case Reason.EVALUATIONS:
            done = f"all {budget.evaluations} evaluations of its budget are on disk"
            return f"the run is over, {done}: give it more with --max-evaluations"
        case Reason.TARGET:
            return f"the run is over, its target {budget.target:g} is met"
        case Reason.STAGNATION:
            return f"the run is over, its best cost has stood for {budget.stagnation} evaluations"
    return ""


def tally_of(rows: Rows) -> Tally:
    """Return the tally of what is on disk."""
    tally = Tally(IdRanges.from_array(rows.done))
    tally.counts.update({Status[name.upper()]: n for name, n in rows.counts.items()})
    tally.violations = rows.violations
    usable = (rows.records["status"] == Status.OK) & np.isfinite(rows.records["cost"])
    if rows.best_index is not None and usable[rows.best_index]:
        record = rows.records[rows.best_index]
        tally.best = BestRow(
            float(record["cost"]), float(record["violation"]), int(record["id"]), rows.values[rows.best_index]
        )
        tally.n_at_best = sum(high - low for low, high in tally.done.overlap(0, tally.best.id + 1))
    return tally


def attempts_of(rows: Rows) -> Attempts:
    """Return the attempts that are on disk beside each evaluation's first."""
    return attempts_in(rows.records) | attempts_in(rows.attempts)


def redo_of(rows: Rows, space: Space, names: tuple[str, ...]) -> Redo:
    """Return which evaluations are to be done again. Raises UsageError for an unknown status."""
    from osprey_mpi.storage.ranges import inside
    unknown = [name for name in names if name not in RETRYABLE]
    if unknown:
        raise UsageError(f"--retry got {unknown[0]!r}, must be of {', '.join(RETRYABLE)}")
    wanted = np.isin(rows.records["status"], [RETRYABLE[name] for name in names])
    # What was lost in an earlier life is open anyway: only ids that are done need a second attempt.
    wanted &= inside(rows.records["id"], rows.done)
    chosen = rows.records[wanted]
    if not len(chosen):
        return Redo()
    attempts = [int(chosen["attempt"].max())]
    if len(rows.attempts):
        attempts.append(int(rows.attempts["attempt"].max()))
    return Redo(
        np.array(chosen["id"], np.int64), space.encode(rows.values[wanted]), max(attempts) + 1,
        np.array(chosen["status"]),
    )  # fmt: skip
