"""Keep what a rank takes along from one life of a run to the next, when the launch has lost ranks and goes on."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from osprey_mpi.comm.tree import Communicators
from osprey_mpi.continuity.messages import Order
from osprey_mpi.continuity.rescue import open_orders
from osprey_mpi.device.backend import Backend
from osprey_mpi.evaluate.task import Evaluator


@dataclass(slots=True)
class Kept:
    """Hold an evaluator that goes on from one life to the next, with the orders that it is at.

    rows_back: row of the first up to which all have come back.
    """

    evaluator: Evaluator
    backend: Backend
    given: list[Order]
    rows_back: int

    def open_orders(self) -> list[Order]:
        """Return what of the orders has not come back."""
        return open_orders(self.given, self.rows_back)


@dataclass(slots=True)
class Past:
    """Hold what a rank keeps from one life of the run to the next of the same launch.

    out: the run's folder, once it is known. replaces: when the run there began whose place this one takes. newest_life:
    of the run that this rank may have a part in, 0 before any. has_begun: evaluations have, in this launch. limit_s:
    how long the root waits for other ranks. held: encoded deltas that nobody had called durable. warnings: for the
    user, in the next life. began: when the launch did, for its budget of time. gone: ranks that a majority has gone on
    without.
    """

    out: Path | None = None
    replaces: float | None = None
    newest_life: int = 0
    has_begun: bool = False
    limit_s: float = 0.0
    held: list[bytes] = field(default_factory=list)
    communicators: Communicators = field(default_factory=Communicators)
    warnings: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    kept: Kept | None = None
    gone: set[int] = field(default_factory=set)

    def close(self) -> None:
        """End an evaluator that nobody takes over."""
        if self.kept is not None:
            self.kept.evaluator.close()
            self.kept = None
