"""Evaluate batched objectives in the rank itself: draw, decode, call and select on the device, a slice at a time.

Costs, captures and survivors come to the host, nothing else does. A built-in's batch is worked through in chunks that
stay in the cache, and `poll` returns after a few milliseconds even within a batch; a Python function is one call.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.continuity.records import RECORD, Status
from osprey_mpi.errors import ConfigError
from osprey_mpi.evaluate import draws
from osprey_mpi.evaluate.batched import Array, BatchCall, BuiltinCall, Costs, Device, PythonCall, guarded
from osprey_mpi.evaluate.objective import name_parameters
from osprey_mpi.evaluate.task import Outcome, Progress, Task
from osprey_mpi.search import osprey, streams
from osprey_mpi.search.space import Space

Floats = NDArray[np.float64]

NAMED = 16  # failures of one call whose parameters are named: 65536 would be a burden for the leader and the disk
SLICE_S = 0.005  # a rank that also coordinates must not be away from its messages longer


@dataclass(slots=True)
class _Job:
    """Hold a task between two slices; `row` is the next one to evaluate."""

    task: Task
    row: int
    costs: Floats
    violations: Floats
    t_start_s: float = math.nan
    records: list[NDArray[np.void]] = field(default_factory=list)
    values: list[Floats] = field(default_factory=list)
    positions: list[Floats] = field(default_factory=list)
    reasons: dict[int, str] = field(default_factory=dict)
    latent: Array | None = None


class InlineEvaluator:
    """Evaluate tasks of a built-in, or of a Python function that takes batches, without a child process.

    record_all: a record for every row; the search then redraws the block from `streams.latent`. Otherwise records
    for rows that beat `best_cost`, and survivors with the latent numbers they were drawn from (`draws.latent`).
    clock: seconds since the run first started.
    """

    depth = 1

    def __init__(
        self,
        config: Any,
        space: Space,
        *,
        rank: int,
        clock: Callable[[], float],
        record_all: bool,
        device: Device,
        scratch_root: Path,
        function: Any = None,
    ) -> None:
        self._config, self._space, self._device = config, space, device
        self._rank, self._clock = rank, clock
        self._record_all = record_all or config.objective.batch == 1  # single points always have their records
        self._scratch_root, self._function = scratch_root, function
        self._retries: int = config.objective.retries if config.objective.builtin is None else 0
        self._call: BatchCall | None = None
        self._jobs: deque[_Job] = deque()
        self.best_cost = math.inf
        self.responsive: bool = config.objective.builtin is not None

    @property
    def idle(self) -> bool:
        """Return whether no task is waiting."""
        return not self._jobs

    def start(self) -> None:
        """Do nothing: there is no child to start."""

    def check(self) -> None:
        """Prepare the objective; raises ConfigError if it does not fit the parameters or cannot be imported."""
        objective = self._config.objective
        if objective.builtin is not None:
            self._call = BuiltinCall(self._config, self._device, self._space.n_columns)
            return
        if any(layout.when for layout in self._space.layouts):
            raise ConfigError("objective.batch is above 1, but a conditional parameter has no place in an array")
        self._call = PythonCall(
            self._config, self._device, self._space.layouts, self._rank, self._scratch_root, self._function
        )

    def submit(self, task: Task) -> None:
        """Queue a task."""
        n = task.row_stop - task.row_start
        self._jobs.append(_Job(task, task.row_start, np.empty(n), np.zeros(n)))

    def poll(self) -> list[Outcome | Progress]:
        """Work on the oldest task for one slice (a Python function: one call); return its outcome once it is done."""
        if not self._jobs:
            return []
        if self._call is None:
            self.check()
        assert self._call is not None, "check() prepares the call or raises"
        job, call = self._jobs[0], self._call
        now = self._clock()
        if math.isnan(job.t_start_s):
            job.t_start_s = now
        slice_end = now + (SLICE_S if call.sliceable else 0.0)
        while job.row < job.task.row_stop:
            self._evaluate(job, call, min(job.row + call.rows_per_call, job.task.row_stop))
            now = self._clock()
            if now >= slice_end and job.row < job.task.row_stop:
                return []
        self._jobs.popleft()
        return [self._outcome(job, now)]

    def filenos(self) -> list[int]:
        """Return nothing: while not idle, poll() always has something to do."""
        return []

    def stop(self, id: int) -> None:
        """Do nothing: one point of a call cannot be stopped."""

    def cancel(self) -> None:
        """Drop every task."""
        self._jobs.clear()

    def close(self) -> None:
        """Drop every task and give device memory back."""
        self.cancel()
        self._device.free()

    def _draw(self, job: _Job, stop: int) -> Array:
        """Return the positions of rows [job.row, stop), on the device."""
        task, space, xp = job.task, self._space, self._device.xp
        if task.distribution is None:
            assert task.positions is not None, "a task is explicit or drawn"
            return xp.asarray(task.positions[job.row : stop])
        seed = self._config.seed
        if self._record_all:  # what the search redraws when it is told all costs of the block
            if job.latent is None:
                job.latent = xp.asarray(streams.latent(seed, task.first, task.n, space))
            latent = job.latent[job.row : stop]
        else:
            latent = draws.latent(seed, task.first + job.row, stop - job.row, space, xp)
        return osprey.hover(task.distribution, latent, space, xp)

    def _evaluate(self, job: _Job, call: BatchCall, stop: int) -> None:
        """Evaluate rows [job.row, stop) in one call."""
        first = job.task.first + job.row
        here = slice(job.row - job.task.row_start, stop - job.task.row_start)
        positions = values = None
        try:
            positions = self._draw(job, stop)
            values = self._space.decode(positions, self._device.xp)
        except Exception as error:
            if not self._device.is_out_of_memory(error):
                raise
            reason = f"out of memory while drawing points\n{stop - job.row} points: {error}"
        if positions is None or values is None:
            self._device.free()
            answer = Costs(np.full(stop - job.row, np.nan), None, dict.fromkeys(range(stop - job.row), reason))
        else:
            answer = self._answer(call, values, first)
        job.costs[here] = answer.costs
        if answer.violations is not None:
            job.violations[here] = answer.violations
        job.reasons.update({first + row: text for row, text in self._named(answer.reasons, values).items()})
        self._keep(job, here, first, positions, values)
        job.row = stop

    def _answer(self, call: BatchCall, values: Array, first: int) -> Costs:
        """Call the objective, for the points that it is for."""
        n, device, xp = len(values), self._device, self._device.xp
        if not self._space.constraints:
            return guarded(call, values, range(first, first + n), self._retries, device)
        costs, violations = np.full(n, np.nan), device.to_host(self._space.violation(values, xp))
        rows = np.flatnonzero(violations == 0) if call.feasible_only else np.arange(n)
        if len(rows) == 0:
            return Costs(costs, violations)
        called = values if len(rows) == n else xp.take(values, xp.asarray(rows), axis=0)
        answer = guarded(call, called, first + rows, self._retries, device)
        costs[rows] = answer.costs
        if answer.violations is not None:
            violations[rows] += answer.violations
        return Costs(costs, violations, {int(rows[row]): text for row, text in answer.reasons.items()})

    def _named(self, reasons: dict[int, str], values: Array) -> dict[int, str]:
        """Return reasons by row, of rows without a record, the first ones, with their parameters."""
        if self._record_all or values is None or not reasons:
            return reasons
        xp, rows = self._device.xp, sorted(reasons)[:NAMED]
        chosen = self._device.to_host(xp.take(values, xp.asarray(rows), axis=0))
        parameters = map(name_parameters, map(self._space.parameters, chosen))
        return reasons | {row: f"{reasons[row]}\nparameters {text}" for row, text in zip(rows, parameters, strict=True)}

    def _keep(self, job: _Job, here: slice, first: int, positions: Array, values: Array) -> None:
        """Keep the rows that get a record: all, or those that beat every row before them."""
        costs, violations = job.costs[here], job.violations[here]
        if self._record_all:
            rows = np.arange(len(costs))
        else:
            rows = osprey.captures(_feasible(costs, violations), self.best_cost)
            if len(rows) == 0:
                return
        feasible = violations[rows] == 0
        if feasible.any():
            self.best_cost = float(np.fmin.reduce(costs[rows][feasible], initial=self.best_cost))
        records = np.zeros(len(rows), RECORD)
        records["id"], records["cost"], records["violation"] = first + rows, costs[rows], violations[rows]
        records["t_start_s"] = job.t_start_s
        records["generation"], records["attempt"], records["rank"] = job.task.generation, job.task.attempt, self._rank
        if job.reasons:
            failed = [int(id) in job.reasons for id in records["id"]]
            records["status"][failed] = Status.FAILED
        job.records.append(records)
        if values is None:  # out of memory before there were any: the rows say so themselves
            job.values.append(np.full((len(rows), self._space.n_columns), np.nan))
            job.positions.append(np.full((len(rows), self._space.n_dims), np.nan))
            return
        xp, everything = self._device.xp, len(rows) == len(costs)
        for kept, array in ((job.values, values), (job.positions, positions)):
            kept.append(self._device.to_host(array if everything else xp.take(array, xp.asarray(rows), axis=0)))

    def _outcome(self, job: _Job, now_s: float) -> Outcome:
        task, space = job.task, self._space
        survivors = None
        if task.distribution is not None and not self._record_all:
            rows = osprey.survivors(job.costs, job.violations, osprey.n_survivors(task.n, space.n_dims))
            # Drawn again: cheaper than keeping the latent numbers of a whole batch.
            latent = draws.latent_of(self._config.seed, task.first + task.row_start + rows, space, self._device.xp)
            survivors = rows, self._device.to_host(latent)
        is_partial = self._call is not None and self._call.feasible_only and bool(space.constraints)
        for records, values in zip(job.records, job.values, strict=True):
            records["t_end_s"] = now_s
            if is_partial:  # a point that breaks a constraint takes part in no call, and no time
                records["t_start_s"][space.violation(values) > 0] = now_s
        return Outcome(
            task,
            row_start=task.row_start,
            row_stop=task.row_stop,
            records=_joined(job.records, np.empty(0, RECORD)),
            values=_joined(job.values, np.empty((0, space.n_columns))),
            positions=_joined(job.positions, np.empty((0, space.n_dims))),
            costs=job.costs,
            violations=job.violations,
            survivors=survivors,
            reasons=job.reasons,
            elapsed_s=now_s - job.t_start_s,
        )


def _feasible(costs: Floats, violations: Floats) -> Floats:
    """Return the costs (n,), NaN where a row is infeasible."""
    return np.where(violations == 0, costs, np.nan) if violations.any() else costs


def _joined(parts: list[Any], empty: Any) -> Any:
    return empty if not parts else parts[0] if len(parts) == 1 else np.concatenate(parts)
