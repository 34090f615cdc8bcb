"""Keep a run's files for the root: segment, checkpoint, status, and at the end the merged results.

When the state machines have ended, ranks may still hold what nobody heard of: one that stood still wakes up, one has
lost its leader. They hand it over when all part; if it is news the files are made again, and then the result is given.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from logging import Logger
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi import __version__
from osprey_mpi.config import Config
from osprey_mpi.continuity.events import Append, Appended, Conclude, Concluded, WriteCheckpoint, WriteStatus
from osprey_mpi.continuity.messages import Delta
from osprey_mpi.continuity.records import NO_FAILURES, PIECE, RowReason, Status
from osprey_mpi.continuity.rescue import rescue
from osprey_mpi.continuity.root import Root
from osprey_mpi.continuity.tally import BestRow, Tally
from osprey_mpi.continuity.violations import Violations
from osprey_mpi.drivers.opening import attempts_of, tally_of
from osprey_mpi.drivers.outcome import RunResult
from osprey_mpi.errors import ExitCode, StorageError
from osprey_mpi.search.space import Space
from osprey_mpi.storage.checkpoint import write_checkpoint
from osprey_mpi.storage.files import is_full
from osprey_mpi.storage.folder import RunFolder
from osprey_mpi.storage.reading import segments_of
from osprey_mpi.storage.results import write_results
from osprey_mpi.storage.rows import read_run
from osprey_mpi.storage.segment import Segment
from osprey_mpi.storage.status import Best, RunStatus, State, idle_share

EPOCH = 1  # of the root within this life
SMALLEST_PART = 16  # of the rows that do not fit whole: as many appends at most, since messages wait meanwhile


class Desk:
    """Carry out what the root wants written; be the only writer of the run's folder.

    on_status: called with every new status; on_result: called once, before anybody is let go.
    """

    def __init__(
        self, folder: RunFolder, config: Config, space: Space, root: Root, log: Logger, *, n_ranks: int, n_workers: int,
        n_flocks: int, fault_tolerance: str, wall_before_s: float, on_status: Callable[[RunStatus], None],
        on_result: Callable[[RunResult], None], on_warning: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._wall_before_s, self._began = wall_before_s, time.monotonic()  # before a segment is made, which takes time
        self.folder, self.config, self.space, self.root, self.log = folder, config, space, root, log
        self._started_unix_s = folder.started_unix_s
        self.segment = Segment(folder.segment_path(EPOCH), space.columns, folder.life, EPOCH, self._started_unix_s)
        self._segments = [path for _, _, path in segments_of(folder.path / "results") if path.is_file()]
        self._n_ranks, self._n_workers, self._n_flocks = n_ranks, n_workers, n_flocks
        self._fault_tolerance = fault_tolerance
        self._ended: float | None = None  # when the life did: what comes after, such as results.h5, counts nowhere
        self._on_status, self._on_result, self._on_warning = on_status, on_result, on_warning
        self._durable = _seen(root.tally)
        self._busy_s, self._first_s, self._last_s, self._is_whole = 0.0, np.inf, -np.inf, True
        self._n_written = self._n_counted = 0  # of the rows that come again: already on disk, and in `_durable`
        self._shown_reasons: set[str] = set()
        self._ailing: set[str] = set()  # files that could not be written the last time
        self._exit_code = int(ExitCode.DONE)  # of the run, once it is concluded
        self._has_files = True  # False: the folder is gone, or another's

    def append(self, action: Append) -> Appended:
        """Write rows; an error comes back as a sentence."""
        self._show_reasons(action)
        seen = _seen(self.root.tally)
        try:
            self.folder.refuse_taken()
            self._write_rows(action)
        except StorageError as error:
            return Appended(action.serial, str(error))
        self._n_written = 0
        self._note_times(action)
        # Between append() and now nothing was tallied: the loop runs one event at a time.
        self._durable, self._n_counted = seen, 0
        return Appended(action.serial)

    def _note_times(self, action: Append) -> None:
        """Note how long the ranks evaluated, and the span of it, known where each evaluation has a row."""
        self._busy_s += action.elapsed_s
        timed = action.records[np.isfinite(action.records["t_end_s"] - action.records["t_start_s"])]
        self._first_s = min(self._first_s, float(timed["t_start_s"].min(initial=np.inf)))
        self._last_s = max(self._last_s, float(timed["t_end_s"].max(initial=-np.inf)))
        self._is_whole = self._is_whole and not len(action.blocks)

    def _idle_share(self, elapsed_s: float) -> float | None:
        span_s = self._last_s - self._first_s if self._is_whole else elapsed_s
        return idle_share(self._busy_s, span_s * self._n_workers) if self._busy_s else None

    def _write_rows(self, action: Append) -> None:
        """Write all rows, or as many as there is room for: those are passed over when they come again."""
        n = len(action.records)
        most = n - self._n_written
        least = max(1, most // SMALLEST_PART)
        while True:
            stop = min(n, self._n_written + most)
            try:
                self.segment.append(*part_of(action, self._n_written, stop))
            except StorageError as error:
                most //= 2
                if most < least or not is_full(error):
                    raise
                continue
            self._n_written = stop
            if stop == n:
                return

    def _show_reasons(self, action: Append) -> None:
        """Tell the user of failed evaluations, the first of each kind: all are in the logs and in results.h5."""
        for id, _, status, reason in action.reasons:
            kind = reason.partition("\n")[0]
            if status not in NO_FAILURES and kind not in self._shown_reasons and len(self._shown_reasons) < 100:
                self._shown_reasons.add(kind)
                self._on_warning(f"evaluation {id}: {reason}")

    def write_checkpoint(self, action: WriteCheckpoint) -> None:
        """Write a checkpoint; without one the run goes on, and says so."""
        meta = {**action.meta, "life": self.folder.life, "run_unix_s": self._started_unix_s}
        try:
            self.folder.refuse_taken()
            write_checkpoint(self.folder.path, action.groups, meta, self.config.checkpoint.keep)
            self._heal("checkpoint.h5")
        except StorageError as error:
            if self._ail("checkpoint.h5"):
                self._say(str(error))

    def _ail(self, name: str) -> bool:
        """Note that a file cannot be written; return whether that is news."""
        is_news = name not in self._ailing
        self._ailing.add(name)
        return is_news

    def _heal(self, name: str) -> None:
        if name in self._ailing:
            self._ailing.discard(name)
            self.log.info("%s can be written again", name)

    def _say(self, text: str) -> None:
        self.log.warning("%s", text)
        self._on_warning(text)

    def write_status(self, action: WriteStatus) -> None:
        """Write status.json: it shows what is on disk, nothing else."""
        status = self.status(action)
        try:
            self.folder.write_status(status)
            self._heal("status.json")
        except StorageError as error:
            if self._ail("status.json"):
                self._say(str(error))
        self._on_status(status)

    def status(self, action: WriteStatus) -> RunStatus:
        """Return the status as it is; where the last rows were written in part, an ended run is counted anew."""
        state = State(action.state)
        if self._n_counted < self._n_written and not state.is_active:
            self._durable, self._n_counted = _seen(tally_of(read_run(self.folder.path))), self._n_written
        n_evaluations, counts, best, violations = self._durable
        n_infeasible, n_not_called = violations.known(
            has_constraints=bool(self.config.constraints), is_builtin=self.config.objective.kind == "builtin"
        )
        elapsed_s = (time.monotonic() if self._ended is None else self._ended) - self._began
        budget: dict[str, Any] = self.config.budget.model_dump(exclude_none=True)
        return RunStatus(
            state=state,
            exit_code=action.exit_code,
            reason=action.reason,
            n_evaluations=n_evaluations,
            counts={Status(status).name.lower(): n for status, n in counts.items()},
            n_infeasible=n_infeasible,
            n_not_called=n_not_called,
            best=None if best.id < 0 else Best(best.cost, best.violation, self.space.parameters(best.values), best.id),
            n_ranks=self._n_ranks,
            n_flocks=self._n_flocks,
            life=self.folder.life,
            epoch=EPOCH,
            budget=budget,
            wall_s=self._wall_before_s + elapsed_s,
            updated_unix_s=time.time(),
            started_unix_s=self._started_unix_s,
            host=socket.gethostname(),
            pid=os.getpid(),
            fault_tolerance=self._fault_tolerance,
            idle_share=self._idle_share(elapsed_s),
            version=__version__,
        )

    def conclude(self, action: Conclude) -> Concluded:
        """Merge the segments into results.h5.

        A run that is done has another exit code without it. One that stopped has not: a resume makes it, unless the
        folder itself or a part of its results is gone, or another's.
        """
        if (gone := self.folder.removed(self._segments)) is not None:
            text = f"{gone} was removed while the run went on: this result is all that is left of it"
            return self._conclude_without(text)
        try:
            self.folder.refuse_taken()
        except StorageError as error:
            return self._conclude_without(str(error))
        self._try("the segment was not closed", self.segment.close)
        self._end(action.exit_code)
        is_merged = self._try("results.h5 was not written", lambda: write_results(self.folder.path))
        if not is_merged:
            self.folder.drop_results()  # an export made while the run went on would look like the whole
        if not is_merged and action.exit_code == ExitCode.DONE:
            self._end(ExitCode.ENVIRONMENT)
        return Concluded(self._exit_code)

    def _end(self, exit_code: int) -> None:
        self._exit_code, self._ended = int(exit_code), time.monotonic()
        detail = self.root.detail
        self._try(
            "the end of this life was not noted",
            lambda: self.folder.end_life(exit_code, detail, self.status(WriteStatus("done")).n_evaluations),
        )

    def _conclude_without(self, text: str) -> Concluded:
        """Touch no file."""
        self._say(text)
        self._ailing.add("status.json")  # that it cannot be written either goes without saying
        self._n_counted = self._n_written  # there is nothing to count anew
        self._exit_code, self._has_files = int(ExitCode.ENVIRONMENT), False
        return Concluded(self._exit_code)

    def part(self, held: Sequence[Delta]) -> int:
        """Take in what ranks held when all parted, then give the result; return the exit code of the run."""
        is_saved = self._try("what ranks held at the end is not on disk", lambda: self._take_in(held))
        result = RunResult.of(self.status(WriteStatus("done")), self.root, self.folder.path, self._exit_code)
        is_given = self._try("the result was not printed", lambda: self._give(result))
        if self._exit_code == ExitCode.DONE and not (is_saved and is_given):
            self._end(ExitCode.ENVIRONMENT)
            self.write_status(self.root.last_status(self._exit_code))
        return self._exit_code

    def _take_in(self, held: Sequence[Delta]) -> None:
        """Put on disk what is news, and conclude anew. Raises StorageError."""
        if not held or not self._has_files or self.root.books.rows:  # of those rows the user knows: a resume does them
            return
        tally, redo = self.root.tally, self.root.redo  # its machine is over: the tally is what is on disk
        rows = rescue(held, tally, attempts_of(read_run(self.folder.path)), self.space.n_columns)
        if not rows:
            return
        records, values, blocks, reasons = rows.batch()
        tally.revise(redo.enter(np.empty(0, PIECE), records))
        if error := self.append(Append(0, records, values, blocks, reasons, rows.elapsed_s)).error:
            raise StorageError(error)
        self.log.info("what ranks held at the end is on disk: results.h5 is made again")
        self.conclude(Conclude(int(self.root.exit_code)))
        self.write_status(self.root.last_status(self._exit_code))

    def _give(self, result: RunResult) -> None:
        hint = f"`osprey report {self.folder.path}` shows the result"
        try:
            self._on_result(result)
        except BrokenPipeError:  # who closed it had enough: that is no failure
            self._say(f"nobody reads stdout any more; {hint}")
        except StorageError as error:
            raise StorageError(f"{error}; {hint}") from error

    def _try(self, failure: str, task: Callable[[], object]) -> bool:
        """Do what no evaluation hangs on; return whether that went well."""
        try:
            task()
        except StorageError as error:
            self._say(f"{failure}: {error}")
        except Exception as error:  # of h5py, NumPy or the system: nobody may lose the exit code for it
            self.log.exception("%s", failure)
            self._say(f"{failure}: {type(error).__name__}: {error}")
        else:
            return True
        return False


def _seen(tally: Tally) -> tuple[int, dict[Status, int], BestRow, Violations]:
    """Return what a status shows of a tally, as it is now."""
    return tally.n_evaluations, dict(tally.counts), tally.best, tally.violations


def part_of(action: Append, start: int, stop: int) -> tuple[NDArray[Any], NDArray[np.float64], Any, list[RowReason]]:
    """Return rows [start, stop) as `Segment.append` takes them; what belongs to no row goes with the last ones."""
    n = len(action.records)
    if (start, stop) == (0, n):
        return action.records, action.values, action.blocks, action.reasons
    rows = action.records[["id", "attempt", "status"]].tolist()
    mine, before = set(rows[start:stop]), set(rows[:start])
    reasons = [reason for reason in action.reasons if reason[:3] in mine or (stop == n and reason[:3] not in before)]
    return action.records[start:stop], action.values[start:stop], action.blocks if stop == n else None, reasons
