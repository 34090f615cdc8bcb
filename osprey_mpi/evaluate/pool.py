"""Evaluate in a child process, which may crash, hang or be told to stop without harm to the rank."""

from __future__ import annotations

import json
import math
import signal
import time
from collections import deque
from dataclasses import dataclass
from logging import getLogger
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.continuity.records import Status
from osprey_mpi.errors import ConfigError
from osprey_mpi.evaluate import frames
from osprey_mpi.evaluate.board import N_SLOTS, SETTLED_S, Board, Running
from osprey_mpi.evaluate.command import ending
from osprey_mpi.evaluate.context import remove_scratch, scratch_name
from osprey_mpi.evaluate.frames import Kind, pack_frame
from osprey_mpi.evaluate.jobs import Job, Jobs
from osprey_mpi.evaluate.objective import Reply
from osprey_mpi.evaluate.printed import Printed
from osprey_mpi.evaluate.process import ChildProcess, user_part
from osprey_mpi.evaluate.schema import Schema
from osprey_mpi.evaluate.specification import Settings, check_command
from osprey_mpi.evaluate.task import Outcome, Progress, Task
from osprey_mpi.waiting import readable

_log = getLogger("osprey_mpi")

CHUNK_BYTES = 1 << 20  # of points per slot: a few milliseconds of the fastest function, and small beside a rank
CHUNK_ROWS = 512
START_LIMIT_S = 300.0  # importing a large framework from a cold parallel file system takes minutes, not more
CLOSE_LIMIT_S = 5.0  # past SIGKILL only a process stuck in a file system is left, and it must not hold up the run
DEAF_S = 30.0  # to begin with a row takes microseconds: a child that has rows and is in none does not hear us any more
N_IDLE_DEATHS = 3  # a child that dies so often without evaluating anything will not do better the next time


@dataclass(slots=True)
class Chunk:
    """Hold rows that are in a slot of the board."""

    serial: int
    slot: int
    job: Job
    rows: NDArray[np.int64]
    n_taken: int = 0


class ProcessEvaluator:
    """Feed one child process, and start another when it ends."""

    responsive = True
    depth = N_SLOTS

    def __init__(self, jobs: Jobs, schema: Schema, settings: Settings, clock: Any) -> None:
        self._jobs = jobs
        self._schema = schema
        self._settings = settings
        self._clock = clock
        row_bytes = 8 * max(1, schema.n_columns)
        self._capacity = settings.batch if settings.batch > 1 else max(1, min(CHUNK_ROWS, CHUNK_BYTES // row_bytes))
        self._printed = Printed(settings.rank)
        self._child: ChildProcess | None = None
        self._dying: list[ChildProcess] = []
        self._chunks: deque[Chunk] = deque()
        self._serial = 0
        self._seen: Running | None = None
        self._still_since_s = 0.0  # since when the child has neither moved nor been given anything
        self._overtime: tuple[int, int] | None = None
        self._progress: list[Progress] = []
        self._load_error: str | None = None
        self._n_idle_deaths = 0

    @property
    def idle(self) -> bool:
        """Return whether nothing is queued, running or waiting to be polled."""
        return not self._jobs and not self._progress

    def start(self) -> None:
        """Start the child process if there is none."""
        if self._child is None:
            instructions = json.dumps(dict(self._settings.order)).encode()
            board = Board.create(self._capacity, self._schema.n_columns, instructions)
            self._child = ChildProcess(board, self._settings.folder, self._printed)
            self._seen = self._overtime = self._load_error = None

    def check(self) -> None:
        """Check the command, or wait until the child has imported the function; raises ConfigError."""
        if self._settings.is_command:
            check_command(self._settings.order["command"])
        self.start()
        assert self._child is not None
        try:
            self._await_import(self._child)
        except BaseException:  # of a signal, too: what hangs in its import hears nothing but SIGKILL
            if self._child is not None:
                self._discard(self._child)
            raise

    def _await_import(self, child: ChildProcess) -> None:
        while not child.is_ready:
            readable(child.filenos(), 0.1)
            child.pump()
            self._hear(child)
            if self._load_error is not None:
                raise ConfigError(self._load_error)
            late = time.monotonic() - child.started_s > START_LIMIT_S
            if late or (child.has_ended() and not child.is_ready):
                how, trace = f"did not end within {START_LIMIT_S:g} s", user_part(child.board.trace())
                if not late:
                    self._child, how = None, f"ended its process ({ending(child.bury())})"
                tail = trace + self._printed.tail(-1)
                raise ConfigError(f"objective.python is {self._settings.order['python']!r}: its import {how}{tail}")

    def submit(self, task: Task) -> None:
        """Queue a task and give the child what it has room for."""
        self._jobs.add(task)
        if self._child is not None:
            self._fill(self._child)

    def poll(self) -> list[Outcome | Progress]:
        """Return what is finished, keep the time limit, replace a dead child, refill its slots."""
        self._dying = [child for child in self._dying if not _buried(child)]
        child = self._child
        if child is not None:
            self._hear(child)
            child.pump()  # after what it says: then the log has all that the finished evaluations printed
            if child.has_ended():
                self._hear(child)
                self._bury(child)
            else:
                self._look(child)
        if self._child is None and self._jobs.has_rows:
            self.start()
        if self._child is not None:
            self._fill(self._child)
        result: list[Outcome | Progress] = [*self._progress, *self._jobs.outcomes()]
        self._progress.clear()
        return result

    def filenos(self) -> list[int]:
        """Return the child's pipes; nothing while idle, when nobody polls and output would wake the rank for ever."""
        return [] if self._child is None or self.idle else self._child.filenos()

    def stop(self, id: int) -> None:
        """Tell one evaluation to stop early; the child ignores it if another one runs."""
        if self._child is not None and any(id in chunk.job.ids[chunk.rows] for chunk in self._chunks):
            self._child.send(pack_frame(Kind.STOP, frames.STOP.pack(id)))

    def cancel(self) -> None:
        """Drop everything; a child that runs something is killed, one that is idle stays."""
        child = self._child
        if child is not None and self._chunks:
            self._remove_scratch(child)
            self._discard(child)
        self._jobs.clear()
        self._chunks.clear()
        self._progress.clear()

    def close(self) -> None:
        """End the child within a few seconds."""
        self.cancel()
        if self._child is not None:
            self._child.hang_up()
            self._dying.append(self._child)
            self._child = None
        end_s = time.monotonic() + CLOSE_LIMIT_S
        while self._dying and time.monotonic() < end_s:
            self._dying = [child for child in self._dying if not _buried(child)]
            time.sleep(0.005 if self._dying else 0.0)

    def _discard(self, child: ChildProcess) -> None:
        child.hang_up()
        if not self._settings.is_command:  # which ends its program by itself, knowing all that it started
            child.kill()
        self._dying.append(child)
        self._child = None

    def _hear(self, child: ChildProcess) -> None:
        for kind, payload in child.receive():
            if kind is Kind.DONE:
                serial, n_done = frames.DONE.unpack(payload)
                self._take(child, serial, n_done)
            elif kind is Kind.REASON:
                (id,) = frames.REASON_ID.unpack_from(payload)
                self._note(id, payload[frames.REASON_ID.size :].decode(errors="replace"))
            elif kind is Kind.REPORT:
                self._progress.append(Progress(*frames.REPORT.unpack(payload)))
            elif kind is Kind.READY:
                self._load_error = json.loads(payload)["error"]
                child.is_ready = self._load_error is None

    def _note(self, id: int, text: str) -> None:
        for chunk in self._chunks:
            if id in chunk.job.ids[chunk.rows]:
                chunk.job.reasons[id] = text

    def _take(self, child: ChildProcess, serial: int, n_done: int) -> None:
        """Take results of the chunk `serial` up to its row n_done, and of all chunks before it."""
        self._n_idle_deaths = 0
        while self._chunks and self._chunks[0].serial <= serial:
            chunk = self._chunks[0]
            stop = n_done if chunk.serial == serial else len(chunk.rows)
            if stop > chunk.n_taken:
                part = slice(chunk.n_taken, stop)
                results = child.board.results[chunk.slot][part].copy()
                self._jobs.finish_rows(chunk.job, chunk.rows[part], results, self._offset_s())
                chunk.n_taken = stop
            if chunk.n_taken < len(chunk.rows):
                break
            self._chunks.popleft()

    def _offset_s(self) -> float:
        return float(self._clock()) - time.monotonic()

    def _look(self, child: ChildProcess) -> None:
        """Take rows that are done though the child did not say so yet, and end a row that is over its time."""
        now_s, seen, running = time.monotonic(), self._seen, child.board.running()
        self._seen = running
        if not child.is_ready and now_s - child.started_s > START_LIMIT_S:
            child.kill()
        if running != seen or not child.is_ready:
            self._still_since_s = now_s
        elif running.since_s == 0.0 and self._chunks and now_s - self._still_since_s > DEAF_S:
            chunk = self._chunks[0]
            _log.warning(
                "the child process of rank %d has not begun evaluation %d, given to it %g s ago, and is replaced",
                self._settings.rank, chunk.job.ids[chunk.rows[chunk.n_taken]], DEAF_S,
            )  # fmt: skip
            child.kill()
        # Two equal looks: one alone might catch the child between two writes.
        if running != seen or running.since_s == 0.0 or self._overtime is not None:
            return
        elapsed_s = now_s - running.since_s
        if elapsed_s > SETTLED_S and running.row > 0:
            self._take(child, running.serial, running.row)
        limit_s = self._settings.time_limit_s
        if limit_s is not None and elapsed_s > limit_s and not self._settings.is_command:
            self._overtime = (running.serial, running.row)
            child.terminate()

    def _fill(self, child: ChildProcess) -> None:
        busy = {chunk.slot for chunk in self._chunks}
        for slot in range(N_SLOTS):
            if slot in busy or self._overtime is not None:
                continue
            taken = self._jobs.take(self._capacity)
            if taken is None:
                return
            job, rows = taken
            child.board.results[slot]["id"][: len(rows)] = job.ids[rows]
            child.board.values[slot][: len(rows)] = job.values[rows]
            self._chunks.append(Chunk(self._serial, slot, job, rows))
            child.send(pack_frame(Kind.CHUNK, frames.CHUNK.pack(self._serial, slot, len(rows))))
            self._still_since_s = time.monotonic()
            self._serial += 1

    def _bury(self, child: ChildProcess) -> None:
        """Take what the dead child had finished, settle the row that it died in, give the rest to the next one."""
        running = child.board.running()
        if running.serial >= 0 and self._chunks:
            self._take(child, running.serial, running.row)
        self._remove_scratch(child)
        overtime, since_s = self._overtime, running.since_s
        self._child = self._overtime = None
        trace, code = user_part(child.board.trace()), child.bury()
        how = ending(code)
        left = list(self._chunks)
        self._chunks.clear()
        first = left[0] if left else None
        died_in_row = first is not None and first.serial == running.serial and since_s > 0.0
        for chunk in reversed(left):
            self._jobs.give_back(chunk.job, chunk.rows[chunk.n_taken :])
        if died_in_row and first is not None:
            if overtime == (running.serial, running.row):
                limit_s = self._settings.time_limit_s
                reply = Reply(Status.TIMEOUT, math.nan, 0.0, f"ended by the time limit of {limit_s:g} s")
                self._settle(first.job, reply, since_s, "")
            elif overtime is not None:
                return  # it had just begun when its predecessor's time was up: it is done again
            elif code == -signal.SIGTERM and not first.job.was_ended_outside:
                first.job.was_ended_outside = True  # the job's time is up, not the row's fault: it is done again
            else:
                reply = Reply(Status.FAILED, math.nan, 0.0, how)
                id = int(first.job.ids[first.rows[running.row]])
                self._settle(first.job, reply, since_s, trace + self._printed.tail(id))
        elif overtime is None and self._jobs.has_rows:
            self._died_idle(how, trace + self._printed.tail(-1))

    def _died_idle(self, how: str, tail: str) -> None:
        self._n_idle_deaths += 1
        if self._n_idle_deaths < N_IDLE_DEATHS:
            return
        taken = self._jobs.take(1)
        if taken is not None:
            job, rows = taken
            self._jobs.give_back(job, rows)
            what = self._load_error or f"{how} before it evaluated anything"
            self._settle(job, Reply(Status.FAILED, math.nan, 0.0, what), time.monotonic(), tail)

    def _settle(self, job: Job, reply: Reply, since_s: float, tail: str) -> None:
        """Give the first rows of a job (one row, or one batch) the reply, or another try."""
        row = int(job.todo[0])
        n_failures = job.n_failures.get(row, 0)
        if reply.status is Status.FAILED and n_failures < self._settings.retries:
            job.n_failures[row] = n_failures + 1
            return
        rows, job.todo = job.todo[: self._settings.batch], job.todo[self._settings.batch :]
        offset_s = self._offset_s()
        for i in rows.tolist():
            full = Reply(reply.status, reply.cost, reply.violation, f"{reply.reason}{tail}")
            self._jobs.finish(job, i, full, since_s + offset_s, time.monotonic() + offset_s)

    def _remove_scratch(self, child: ChildProcess) -> None:
        """Remove the folder of the Python evaluation that is being killed; a command's is its child's business."""
        running = child.board.running()
        chunk = self._chunks[0] if self._chunks else None
        if chunk is not None and not self._settings.is_command and chunk.serial == running.serial:
            row = 0 if self._settings.batch > 1 else min(running.row, len(chunk.rows) - 1)
            name = scratch_name(int(chunk.job.ids[chunk.rows[row]]), self._settings.rank)
            remove_scratch(self._settings.scratch_root, name)


def _buried(child: ChildProcess) -> bool:
    """Bury a child that was told to end, if it has."""
    if not child.has_ended():
        return False
    child.bury()
    return True
