"""Evaluate a function that no other process can import in a thread of the rank.

A thread cannot be killed: there is no time limit, a crash ends the rank, and what is cancelled runs on unheard until
it reports or returns. The rank stays responsive as long as the function releases the interpreter's lock now and then.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.continuity.records import Status
from osprey_mpi.evaluate.context import Context, scratch_name
from osprey_mpi.evaluate.jobs import Clock, Job, Jobs
from osprey_mpi.evaluate.loading import load_objective
from osprey_mpi.evaluate.objective import Function, Objective, Reply
from osprey_mpi.evaluate.schema import Schema
from osprey_mpi.evaluate.task import Outcome, Progress, Task
from osprey_mpi.evaluate.wake import USER_CODE, Wake

CHUNK_ROWS = 64  # rows that the thread gets at once, so that it does not wait for the rank between fast ones
N_AHEAD = 2
WAKE_S = 0.005  # between two signals to the rank that rows are done
JOIN_S = 1.0

Done = tuple[Job, NDArray[np.int64], list[Reply], float, float]  # with the times at which it began and ended


class _Hand(threading.Thread):
    """Evaluate chunks until told to leave; what it says is heard only while `is_heard`."""

    def __init__(self, objective: Objective, schema: Schema, settings: Settings, wake: Wake) -> None:
        super().__init__(name="osprey objective", daemon=True)
        self.inbox: queue.SimpleQueue[tuple[Job, NDArray[np.int64]] | None] = queue.SimpleQueue()
        self.outbox: deque[Done | Progress | BaseException] = deque()
        self.is_heard = True
        self.running_id = self.stop_id = -1
        self._objective, self._schema, self._settings, self._wake = objective, schema, settings, wake
        self._woken_s = 0.0

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # beyond what a failed evaluation may raise: the rank's to judge
            self.outbox.append(error)
            self._signal()

    def _work(self) -> None:
        batch = self._settings.batch
        while self.is_heard and (item := self.inbox.get()) is not None:
            job, rows = item
            for start in range(0, len(rows), batch):
                if not self.is_heard:
                    return
                with USER_CODE:
                    self._evaluate(job, rows[start : start + batch], is_last=start + batch >= len(rows))

    def _evaluate(self, job: Job, rows: NDArray[np.int64], is_last: bool) -> None:
        settings = self._settings
        id = int(job.ids[rows[0]])
        self.running_id = id
        for _ in range(1 + settings.retries):
            context = Context(id, settings.seed, settings.scratch_root, scratch_name(id, settings.rank), self)
            t_start_s = settings.clock()
            if settings.batch == 1:
                parameters = self._schema.parameters(job.values[rows[0]])
                replies = [self._objective.evaluate(parameters, context)]
            else:
                replies = self._objective.evaluate_batch(self._schema.batch(job.values[rows]), len(rows), context)
            t_end_s = settings.clock()
            context.close()
            if any(reply.status is not Status.FAILED for reply in replies):
                break
        self.outbox.append((job, rows, replies, t_start_s, t_end_s))
        if is_last or time.monotonic() - self._woken_s > WAKE_S:
            self._signal()

    def _signal(self) -> None:
        self._woken_s = time.monotonic()
        self._wake.ring()

    def report(self, id: int, step: int, value: float) -> None:
        """Pass an intermediate value on."""
        self.outbox.append(Progress(id, step, value))
        self._signal()

    def stopping(self, id: int) -> bool:
        """Return whether this evaluation is to stop early, or is not wanted any more."""
        return self.stop_id == id or not self.is_heard


class Settings:
    """Say how the function is called."""

    def __init__(self, config: Any, rank: int, clock: Clock, scratch_root: Path) -> None:
        self.batch: int = config.objective.batch
        self.retries: int = config.objective.retries
        self.seed: int = config.seed
        self.rank = rank
        self.clock = clock
        self.scratch_root = scratch_root


class ThreadEvaluator:
    """Feed one thread."""

    responsive = True
    depth = 1

    def __init__(self, function: Function | None, config: Any, jobs: Jobs, schema: Schema, settings: Settings) -> None:
        """`function` is what to call instead of `objective.python`."""
        self._function, self._config = function, config
        self._jobs, self._schema, self._settings = jobs, schema, settings
        self._objective: Objective | None = None
        self._hand: _Hand | None = None
        self._n_out = 0
        self._wake = Wake()

    @property
    def idle(self) -> bool:
        """Return whether nothing is queued, running or waiting to be polled."""
        return not self._jobs and not (self._hand and self._hand.outbox)

    def start(self) -> None:
        """Do nothing: the thread starts with its first task."""

    def check(self) -> None:
        """Import the function and look at its signature; raises ConfigError."""
        self._objective = load_objective(self._config, self._function)

    def submit(self, task: Task) -> None:
        """Queue a task."""
        self._jobs.add(task)
        self._fill()

    def poll(self) -> list[Outcome | Progress]:
        """Return what is finished."""
        self._wake.silence()
        result: list[Outcome | Progress] = []
        while self._hand is not None and self._hand.outbox:
            item = self._hand.outbox.popleft()
            if isinstance(item, BaseException):
                raise item
            if isinstance(item, Progress):
                result.append(item)
                continue
            job, rows, replies, t_start_s, t_end_s = item
            self._n_out -= len(rows)
            for row, reply in zip(rows.tolist(), replies, strict=True):
                self._jobs.finish(job, row, reply, t_start_s, t_end_s)
        self._fill()
        return [*result, *self._jobs.outcomes()]

    def filenos(self) -> list[int]:
        """Return the descriptor that wakes the rank."""
        return [self._wake.fileno]

    def stop(self, id: int) -> None:
        """Tell one evaluation to stop early; ignored if another one runs."""
        if self._hand is not None and self._hand.running_id == id:
            self._hand.stop_id = id

    def cancel(self) -> None:
        """Drop everything; what runs is not heard any more."""
        if self._hand is not None:
            self._hand.is_heard = False
            self._hand.inbox.put(None)
            self._hand = None
        self._jobs.clear()
        self._n_out = 0

    def close(self) -> None:
        """Leave the thread: it ends with its evaluation, or with the process."""
        hand = self._hand
        self.cancel()
        if hand is not None:
            hand.join(JOIN_S)
        self._wake.close()

    def _fill(self) -> None:
        size = max(CHUNK_ROWS // self._settings.batch, 1) * self._settings.batch
        while self._n_out < N_AHEAD * size and (item := self._jobs.take(size)) is not None:
            if self._hand is None:
                if self._objective is None:
                    self.check()
                assert self._objective is not None
                self._hand = _Hand(self._objective, self._schema, self._settings, self._wake)
                self._hand.start()
            self._n_out += len(item[1])
            self._hand.inbox.put(item)
