"""Evaluate a Python function in the rank itself, or in a group of ranks that work on each point together.

Rank 0 of the group is the evaluator, the others `follow`. Control goes over `comm`, the function gets a duplicate of
it as `context.comm`, so that what a failed evaluation left there is never mistaken for control.

The rule for failures: after each call every rank of the group tells the others whether it raised, and one that did
fails the evaluation on all. So an exception on all ranks, or on some after the function's last communication, costs
that evaluation only. Nobody can be called back out of a collective that a failed rank will not enter: a function that
may fail on one rank before further communication asks `context.agree(ok)` there. Only rank 0's result counts, what
others return is ignored.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.console import say
from osprey_mpi.continuity.records import Status
from osprey_mpi.evaluate.context import Context, scratch_name
from osprey_mpi.evaluate.jobs import Clock, Jobs
from osprey_mpi.evaluate.loading import load_objective
from osprey_mpi.evaluate.objective import Function, Objective, Reply, describe, without_scratch
from osprey_mpi.evaluate.schema import Schema
from osprey_mpi.evaluate.task import Outcome, Progress, Task

SLEEP_S = 0.001  # between looks at a pending message: a core that waits must stay free for one that computes
SAY_S = 5.0  # that the others of a group have to come out of a call in which one has failed, before the user is told
EVALUATE, CLOSE = 1, 0
VOTE = np.dtype([("failed", "u1"), ("text", "S1500")])
_HEAD = np.dtype([("op", "<i8"), ("id", "<i8"), ("n", "<i8")])


class Member:
    """Hold one rank's part of a group; `comm` is None for a group of one. Collective over `comm`: it is duplicated."""

    def __init__(
        self, config: Any, schema: Schema, rank: int, scratch_root: Path, comm: Any, function: Function | None
    ) -> None:
        self._config, self._schema, self._rank, self._scratch_root = config, schema, rank, scratch_root
        self._function = function
        self._comm = comm if comm is not None and comm.Get_size() > 1 else None
        self._users = None if self._comm is None else self._comm.Dup()
        self._batch: int = config.objective.batch
        self._message = np.zeros(_HEAD.itemsize + 8 * self._batch * schema.n_columns, np.uint8)
        self.progress: list[Progress] = []
        self._objective: Objective | None = None

    def load(self) -> None:
        """Import the function; raises ConfigError, on every rank of the group alike if it fails everywhere."""
        self._objective = load_objective(self._config, self._function)

    def send(self, op: int, id: int, values: NDArray[np.float64]) -> None:
        """Hand a call to the other ranks of the group."""
        if self._comm is not None:
            head = np.array([(op, id, len(values))], _HEAD)
            self._message[: _HEAD.itemsize] = head.view(np.uint8)
            self._message[_HEAD.itemsize : _HEAD.itemsize + values.nbytes] = values.ravel().view(np.uint8)
            _sleep_until(self._comm.Ibcast(self._message, 0))

    def receive(self) -> tuple[int, int, NDArray[np.float64]]:
        """Wait asleep for the next call: (op, id, values)."""
        assert self._comm is not None
        _sleep_until(self._comm.Ibcast(self._message, 0))
        op, id, n = self._message[: _HEAD.itemsize].view(_HEAD)[0].tolist()
        stop = _HEAD.itemsize + 8 * n * self._schema.n_columns
        values = self._message[_HEAD.itemsize : stop].view(np.float64).reshape(n, self._schema.n_columns)
        return op, id, values.copy()

    def evaluate(self, id: int, values: NDArray[np.float64]) -> list[Reply]:
        """Call the function on this rank's part and agree on whether it worked. Collective over the group."""
        if self._objective is None:
            self.load()
        objective = self._objective
        assert objective is not None
        name = scratch_name(id, self._rank)
        context = Context(id, self._config.seed, self._scratch_root, name, self, self._users)
        if self._comm is not None and self._comm.Get_rank() > 0:
            replies: list[Reply] = []
            failure = self._follow(objective, values, context)
        else:
            if self._batch > 1:
                replies = objective.evaluate_batch(self._schema.batch(values), len(values), context)
            else:
                replies = [objective.evaluate(self._schema.parameters(values[0]), context)]
            raised = all(reply.status is Status.FAILED for reply in replies)
            failure = replies[0].reason if raised else ""
        context.close()
        return self._agreed(replies, failure)

    def _follow(self, objective: Objective, values: NDArray[np.float64], context: Context) -> str:
        try:
            schema = self._schema
            objective.call(schema.batch(values) if self._batch > 1 else schema.parameters(values[0]), context)
        except BaseException as error:
            return without_scratch(describe(error), context)
        return ""

    def _agreed(self, replies: list[Reply], failure: str) -> list[Reply]:
        if self._comm is None:
            return replies
        mine = np.array([(failure != "", failure.encode(errors="replace")[:1500])], VOTE)
        votes = np.empty(self._comm.Get_size(), VOTE)
        request = self._comm.Iallgather(mine.view(np.uint8), votes.view(np.uint8))
        deadline = time.monotonic() + SAY_S
        if failure and not _sleep_until(request, lambda: time.monotonic() > deadline):
            where = f"rank {self._rank} failed and has waited {SAY_S:g} s for the others of its group"
            say(f"osprey: {where} (`context.agree` tells them): {failure}")
        _sleep_until(request)
        failed = np.flatnonzero(votes["failed"])
        if failed.size == 0 or votes["failed"][0]:  # rank 0's own reasons are the better ones
            return replies
        text = votes["text"][failed[0]].decode(errors="replace")
        head, _, rest = text.partition("\n")
        reason = f"{head}\non rank {failed[0]} of the group's {len(votes)}\n{rest}".rstrip()
        return [Reply(Status.FAILED, np.nan, 0.0, reason)] * len(replies)

    def report(self, id: int, step: int, value: float) -> None:
        """Keep an intermediate value until the next poll."""
        self.progress.append(Progress(id, step, value))

    def stopping(self, id: int) -> bool:
        """Return False: nothing reaches an evaluation that keeps its rank busy."""
        return False

    def free(self) -> None:
        """Free the duplicate. Collective over the group."""
        if self._users is not None:
            self._users.Free()


class GroupEvaluator:
    """Evaluate one call within each poll(); the rank is not responsive meanwhile."""

    responsive = False
    depth = 1

    def __init__(self, member: Member, jobs: Jobs, clock: Clock, batch: int, retries: int) -> None:
        self._member, self._jobs, self._clock = member, jobs, clock
        self._batch, self._retries = batch, retries

    @property
    def idle(self) -> bool:
        """Return whether nothing is queued."""
        return not self._jobs

    def start(self) -> None:
        """Do nothing: there is no child to start."""

    def check(self) -> None:
        """Import the function; raises ConfigError."""
        self._member.load()

    def submit(self, task: Task) -> None:
        """Queue a task."""
        self._jobs.add(task)

    def poll(self) -> list[Outcome | Progress]:
        """Evaluate one call, if any waits. Collective over the group."""
        taken = self._jobs.take(self._batch)
        if taken is not None:
            job, rows = taken
            values, id = job.values[rows], int(job.ids[rows[0]])
            for _ in range(1 + self._retries):
                t_start_s = self._clock()
                self._member.send(EVALUATE, id, values)
                replies = self._member.evaluate(id, values)
                t_end_s = self._clock()
                if any(reply.status is not Status.FAILED for reply in replies):
                    break
            for row, reply in zip(rows.tolist(), replies, strict=True):
                self._jobs.finish(job, row, reply, t_start_s, t_end_s)
        progress, self._member.progress = self._member.progress, []
        return [*progress, *self._jobs.outcomes()]

    def filenos(self) -> list[int]:
        """Return nothing: while not idle, poll() always has something to do."""
        return []

    def stop(self, id: int) -> None:
        """Do nothing: an evaluation that keeps its rank busy is over when the rank hears of this."""

    def cancel(self) -> None:
        """Drop every task."""
        self._jobs.clear()

    def close(self) -> None:
        """Let the followers go. Collective over the group: they leave `follow`."""
        self.cancel()
        self._member.send(CLOSE, -1, np.empty((0, 0)))
        self._member.free()


def follow(member: Member) -> None:
    """Take part in the evaluations of rank 0 of the member's group until it closes. Collective over the group."""
    while True:
        op, id, values = member.receive()
        if op == CLOSE:
            member.free()
            return
        member.evaluate(id, values)


def _sleep_until(request: Any, ended: Callable[[], bool] | None = None) -> bool:
    """Sleep until a request is complete (True), or `ended` says so (False)."""
    while not request.Test():
        if ended is not None and ended():
            return False
        time.sleep(SLEEP_S)
    return True
