"""Keep a run's files for the root: segment, checkpoint, status, and at the end the merged results."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from logging import Logger
from typing import Any

import numpy as np

from osprey_mpi import __version__
from osprey_mpi.config import Config
from osprey_mpi.continuity.events import Append, Appended, Conclude, WriteCheckpoint, WriteStatus
from osprey_mpi.continuity.records import NO_FAILURES, Status
from osprey_mpi.continuity.root import Root
from osprey_mpi.drivers.outcome import RunResult
from osprey_mpi.errors import StorageError
from osprey_mpi.search.space import Space
from osprey_mpi.storage.checkpoint import write_checkpoint
from osprey_mpi.storage.folder import RunFolder
from osprey_mpi.storage.results import write_results
from osprey_mpi.storage.segment import Segment
from osprey_mpi.storage.status import Best, RunStatus, State

EPOCH = 1  # of the root within this life


class Desk:
    """Carry out what the root wants written; be the only writer of the run's folder.

    on_status: called with every new status; on_result: called once, before anybody is let go.
    """

    def __init__(
        self, folder: RunFolder, config: Config, space: Space, root: Root, log: Logger, *, n_ranks: int, n_workers: int,
        n_flocks: int, fault_tolerance: str, wall_before_s: float, on_status: Callable[[RunStatus], None],
        on_result: Callable[[RunResult], None], on_warning: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.folder, self.config, self.space, self.root, self.log = folder, config, space, root, log
        self.segment = Segment(folder.segment_path(EPOCH), space.columns, folder.life, EPOCH)
        self._n_ranks, self._n_workers, self._n_flocks = n_ranks, n_workers, n_flocks
        self._fault_tolerance = fault_tolerance
        self._wall_before_s, self._began = wall_before_s, time.monotonic()
        self._on_status, self._on_result, self._on_warning = on_status, on_result, on_warning
        self._durable = (root.tally.n_evaluations, dict(root.tally.counts), root.tally.best)
        self._busy_s = 0.0
        self._shown_reasons: set[str] = set()
        self._failed_status = False

    def append(self, action: Append) -> Appended:
        """Write rows; an error comes back as a sentence."""
        self._show_reasons(action)
        tally = self.root.tally
        seen = (tally.n_evaluations, dict(tally.counts), tally.best)
        try:
            self.segment.append(action.records, action.values, action.blocks, action.reasons)
        except StorageError as error:
            return Appended(action.serial, str(error))
        self._busy_s += action.elapsed_s
        # Between append() and now nothing was tallied: the loop runs one event at a time.
        self._durable = seen
        return Appended(action.serial)

    def _show_reasons(self, action: Append) -> None:
        """Tell the user of failed evaluations, the first of each kind: all are in the logs and in results.h5."""
        if not action.reasons:
            return
        no_failures = np.isin(action.records["status"], NO_FAILURES)
        unshown = set(action.records["id"][no_failures].tolist())
        for id, reason in action.reasons.items():
            kind = reason.partition("\n")[0]
            if id not in unshown and kind not in self._shown_reasons and len(self._shown_reasons) < 100:
                self._shown_reasons.add(kind)
                self._on_warning(f"evaluation {id}: {reason}")

    def write_checkpoint(self, action: WriteCheckpoint) -> None:
        """Write a checkpoint; without one the run goes on, and says so."""
        meta = {**action.meta, "life": self.folder.life}
        try:
            write_checkpoint(self.folder.path, action.groups, meta, self.config.checkpoint.keep)
        except StorageError as error:
            self._say(str(error))

    def _say(self, text: str) -> None:
        self.log.warning("%s", text)
        self._on_warning(text)

    def write_status(self, action: WriteStatus) -> None:
        """Write status.json: it shows what is on disk, nothing else."""
        status = self.status(action)
        try:
            self.folder.write_status(status)
            self._failed_status = False
        except StorageError as error:
            if not self._failed_status:
                self.log.warning("%s", error)
            self._failed_status = True
        self._on_status(status)

    def status(self, action: WriteStatus) -> RunStatus:
        """Return the status as it is."""
        n_evaluations, counts, best = self._durable
        state = State(action.state)
        elapsed_s = time.monotonic() - self._began
        available_s = max(elapsed_s, 1e-9) * max(self._n_workers, 1)
        budget: dict[str, Any] = self.config.budget.model_dump(exclude_none=True)
        return RunStatus(
            state=state,
            exit_code=None if state.is_active else int(self.root.exit_code),
            reason=action.reason,
            n_evaluations=n_evaluations,
            counts={Status(status).name.lower(): n for status, n in counts.items()},
            best=None if best.id < 0 else Best(best.cost, best.violation, self.space.parameters(best.values), best.id),
            n_ranks=self._n_ranks,
            n_flocks=self._n_flocks,
            life=self.folder.life,
            epoch=EPOCH,
            budget=budget,
            wall_s=self._wall_before_s + elapsed_s,
            updated_unix_s=time.time(),
            started_unix_s=self.folder.started_unix_s,
            host=socket.gethostname(),
            pid=os.getpid(),
            fault_tolerance=self._fault_tolerance,
            idle_share=max(0.0, 1.0 - self._busy_s / available_s) if self._busy_s else None,
            version=__version__,
        )

    def conclude(self, action: Conclude) -> None:
        """Merge the segments into results.h5 and give the result."""
        status = self.status(WriteStatus("done"))
        try:
            self.segment.close()
            self.folder.end_life(action.exit_code)
            write_results(self.folder.path)
        except StorageError as error:
            text = f"results.h5 was not written: {error}; `osprey export --format hdf5` makes it from the segments"
            self._say(text)
        self._on_result(RunResult.of(status, self.root, self.folder.path, action.exit_code))
