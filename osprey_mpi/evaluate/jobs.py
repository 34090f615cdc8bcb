"""Queue tasks for an evaluator: draw their points, hand out rows, take results back, cut outcomes in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.continuity.records import RECORD, Status
from osprey_mpi.evaluate.objective import Reply, name_parameters
from osprey_mpi.evaluate.task import Outcome, Task
from osprey_mpi.search import osprey, streams
from osprey_mpi.search.space import Space

Floats = NDArray[np.float64]
Clock = Callable[[], float]
PENDING = -1


class Job:
    """Hold the points and the results of one task. Arrays have one row for each row that the task asks for."""

    def __init__(self, task: Task, space: Space, seed: int, now_s: float) -> None:
        rows = slice(task.row_start, task.row_stop)
        self.task = task
        self.latent: Floats | None = None
        if task.positions is None:
            assert task.distribution is not None
            self.latent = streams.latent(seed, task.first, task.n, space)[rows]
            self.positions: Floats = osprey.hover(task.distribution, self.latent, space)
        else:
            self.positions = np.asarray(task.positions, dtype=np.float64)[rows]
        self.values: Floats = space.decode(self.positions)
        n = len(self.values)
        self.ids = np.arange(task.first + task.row_start, task.first + task.row_start + n)
        self.costs = np.full(n, np.nan)
        self.violations: Floats = space.violation(self.values)
        self.t_start_s = np.full(n, now_s)
        self.t_end_s = np.full(n, now_s)
        # A point that breaks the config's constraints is not evaluated: its violation alone ranks it.
        infeasible = self.violations > 0
        self.status = np.where(infeasible, int(Status.OK), PENDING)
        self.todo: NDArray[np.int64] = np.flatnonzero(~infeasible)
        self.reasons: dict[int, str] = {}
        self.n_emitted = 0
        self.n_failures: dict[int, int] = {}
        self.was_ended_outside = False


class Jobs:
    """Keep jobs in the order of their tasks.

    batch: points per call; record_all: whether every row of a batch gets a record.
    """

    def __init__(self, space: Space, seed: int, clock: Clock, batch: int = 1, record_all: bool = True) -> None:
        self._space = space
        self._seed = seed
        self._clock = clock
        self._batch = batch
        self._record_all = record_all or batch == 1
        self._queue: deque[Job] = deque()
        self.best_cost = np.inf

    def __bool__(self) -> bool:
        return bool(self._queue)

    @property
    def has_rows(self) -> bool:
        """Return whether any row waits to be handed out."""
        return any(job.todo.size for job in self._queue)

    def add(self, task: Task) -> None:
        """Queue a task and draw its points."""
        self._queue.append(Job(task, self._space, self._seed, self._clock()))

    def clear(self) -> None:
        """Drop all jobs."""
        self._queue.clear()

    def take(self, n: int) -> tuple[Job, NDArray[np.int64]] | None:
        """Hand out at most n rows of the first job that has any left."""
        for job in self._queue:
            if job.todo.size:
                rows, job.todo = job.todo[:n], job.todo[n:]
                return job, rows
        return None

    def give_back(self, job: Job, rows: NDArray[np.int64]) -> None:
        """Put rows that were handed out in front again."""
        job.todo = np.concatenate([rows, job.todo])

    def finish(self, job: Job, row: int, reply: Reply, t_start_s: float, t_end_s: float) -> None:
        """Take the result of one row, times in seconds since the run first started."""
        job.costs[row], job.violations[row], job.status[row] = reply.cost, reply.violation, int(reply.status)
        job.t_start_s[row], job.t_end_s[row] = t_start_s, t_end_s
        if reply.status is not Status.OK:
            job.reasons[int(job.ids[row])] = reply.reason

    def finish_rows(self, job: Job, rows: NDArray[np.int64], results: NDArray[np.void], offset_s: float) -> None:
        """Take results (n,) of dtype RESULT; `offset_s` turns their times into seconds since the run first started."""
        job.costs[rows], job.violations[rows] = results["cost"], results["violation"]
        job.status[rows] = results["status"]
        job.t_start_s[rows], job.t_end_s[rows] = results["t_start_s"] + offset_s, results["t_end_s"] + offset_s
        for id in results["id"][results["status"] != Status.OK].tolist():
            job.reasons.setdefault(id, "its process ended before it could say why")

    def outcomes(self) -> list[Outcome]:
        """Cut what is finished, in the order of the tasks, into outcomes."""
        result: list[Outcome] = []
        while self._queue:
            job = self._queue[0]
            pending = np.flatnonzero(job.status[job.n_emitted :] == PENDING)
            stop = job.n_emitted + int(pending[0]) if pending.size else len(job.status)
            if stop > job.n_emitted:
                result.append(self._cut(job, job.n_emitted, stop))
                job.n_emitted = stop
            if pending.size:
                break
            self._queue.popleft()
        return result

    def _cut(self, job: Job, start: int, stop: int) -> Outcome:
        costs, violations = job.costs[start:stop], job.violations[start:stop]
        feasible = np.where(violations > 0, np.nan, costs)
        rows = start + (np.arange(stop - start) if self._record_all else osprey.captures(feasible, self.best_cost))
        self.best_cost = float(np.fmin(self.best_cost, np.fmin.reduce(feasible)))
        reasons: dict[int, str] = {}
        if job.reasons:
            ids = set(job.ids[start:stop].tolist())
            reasons = {id: text for id, text in job.reasons.items() if id in ids}
            recorded = set(job.ids[rows].tolist())
            for id in reasons.keys() - recorded:  # no row will say what its parameters were
                parameters = self._space.parameters(job.values[id - int(job.ids[0])])
                reasons[id] += f"\nparameters {name_parameters(parameters)}"
        return Outcome(
            job.task,
            row_start=job.task.row_start + start,
            row_stop=job.task.row_start + stop,
            records=self._records(job, rows),
            values=job.values[rows],
            positions=job.positions[rows],
            costs=costs,
            violations=violations,
            survivors=self._survivors(job, start, stop),
            reasons=reasons,
            elapsed_s=self._elapsed_s(job, start, stop),
        )

    def _elapsed_s(self, job: Job, start: int, stop: int) -> float:
        times = np.stack([job.t_start_s[start:stop], job.t_end_s[start:stop]], axis=1)
        if self._batch > 1:
            times = np.unique(times, axis=0)  # the points of a batched call share its time
        return float((times[:, 1] - times[:, 0]).sum())

    def _records(self, job: Job, rows: NDArray[np.int64]) -> NDArray[np.void]:
        records = np.zeros(len(rows), RECORD)
        records["id"] = job.ids[rows]
        records["cost"] = job.costs[rows]
        records["violation"] = job.violations[rows]
        records["t_start_s"] = job.t_start_s[rows]
        records["t_end_s"] = job.t_end_s[rows]
        records["generation"] = job.task.generation
        records["attempt"] = job.task.attempt
        records["status"] = job.status[rows]
        return records

    def _survivors(self, job: Job, start: int, stop: int) -> tuple[NDArray[np.int64], Floats] | None:
        if self._record_all or job.latent is None:
            return None  # every row comes back, or was not drawn: nothing to choose
        n = osprey.n_survivors(job.task.n, job.latent.shape[1])
        best = osprey.survivors(job.costs[start:stop], job.violations[start:stop], n)
        return best, job.latent[start + best]
