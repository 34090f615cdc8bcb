"""What goes into an evaluator and what comes out of it: Task, Outcome, Progress and the Evaluator protocol."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from osprey_mpi.search.distribution import Distribution

# Host arrays are NumPy's; those of a device-resident objective are CuPy's, which has no stubs.
Array = Any


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """Ask for rows [row_start, row_stop) of the block of evaluations [first, first + n).

    `positions` is (n, n_dims) float64, explicit points of the whole block, or None: the evaluator draws the block
    from `distribution` with the latent numbers of `first` (the same on every rank).
    """

    first: int
    n: int
    row_start: int
    row_stop: int
    generation: int
    attempt: int
    positions: Array | None
    distribution: Distribution | None

    def __post_init__(self) -> None:
        assert 0 <= self.row_start < self.row_stop <= self.n, "a task has at least one row, all inside its block"
        assert (self.positions is None) != (self.distribution is None), "a task is explicit or drawn, never both"


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """Give what became of rows [row_start, row_stop) of a task; a task may come back in several, in order.

    records: (n_records,) of dtype RECORD; all rows of one-point objectives, only captures of a batched one that
        records captures. `rank` and `flock` are filled in by the worker.
    values: (n_records, n_columns) float64; positions: (n_records, n_dims) float64, on the host.
    costs, violations: (row_stop - row_start,) float64; a cost is NaN where the evaluation gave none.
    survivors: batched objectives only: the places (s,) in `costs` that came out best and their latent numbers
        (s, n_dims), None otherwise.
    elapsed_s: time that the objective took for these rows together.
    reasons: evaluation id -> text, for every row whose status is not OK.
    """

    task: Task
    _: KW_ONLY  # a swap of two arrays would pass for right
    row_start: int
    row_stop: int
    records: NDArray[np.void]
    values: NDArray[np.float64]
    positions: NDArray[np.float64]
    costs: NDArray[np.float64]
    violations: NDArray[np.float64]
    survivors: tuple[NDArray[np.int64], NDArray[np.float64]] | None = None
    reasons: dict[int, str] = field(default_factory=dict)
    elapsed_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Progress:
    """Carry one intermediate value that a running evaluation reported."""

    id: int
    step: int
    value: float


class Evaluator(Protocol):
    """Evaluate tasks in the order they were submitted, without ever keeping the rank's loop waiting.

    responsive: poll() returns within a few milliseconds, whatever the objective does.
    idle: nothing is queued, running or waiting to be polled.
    depth: how many tasks it holds to advantage: one, or one more while that runs.
    """

    responsive: bool
    depth: int

    @property
    def idle(self) -> bool: ...

    def start(self) -> None:
        """Start what it needs beside this process."""

    def check(self) -> None:
        """Import the objective and look at its signature; raises ConfigError."""

    def submit(self, task: Task) -> None:
        """Queue a task."""

    def poll(self) -> list[Outcome | Progress]:
        """Return what is finished. Inline evaluators evaluate one call here."""
        ...

    def filenos(self) -> list[int]:
        """Return file descriptors that become readable when poll() has something to return."""
        ...

    def stop(self, id: int) -> None:
        """Tell one running evaluation to stop early; ignored when it is not running here."""

    def cancel(self) -> None:
        """Drop every task and kill what runs: poll() returns nothing of them afterwards."""

    def close(self) -> None:
        """End child processes and release files within a few seconds."""
