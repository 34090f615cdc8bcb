"""Choose the evaluator that a config asks for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from osprey_mpi.errors import ConfigError
from osprey_mpi.evaluate.jobs import Jobs
from osprey_mpi.evaluate.objective import Function
from osprey_mpi.evaluate.pool import ProcessEvaluator
from osprey_mpi.evaluate.schema import Schema
from osprey_mpi.evaluate.specification import Settings, command_specification
from osprey_mpi.evaluate.task import Evaluator
from osprey_mpi.search.space import Space


def make_evaluator(
    config: Any,
    space: Space,
    *,
    rank: int,
    clock: Callable[[], float],
    record_all: bool,
    device: Any,
    scratch_root: Path,
    comm: Any = None,
    function: Function | None = None,
) -> Evaluator:
    """Return an evaluator that is not started yet.

    rank: world rank. clock: seconds since the run first started. comm: the group of an objective that needs several
    ranks; collective over it then, and its other ranks make a `group.Member` and `follow`. function: what to minimise
    instead of `objective.python`; it runs in a thread, as does everything that could keep the rank from listening.
    """
    objective, schema = config.objective, Schema(space.layouts)
    where = _where(objective, comm, function)
    root = Path(scratch_root).absolute()
    if is_inline(objective, comm, function):
        from osprey_mpi.evaluate.aside import Aside
        from osprey_mpi.evaluate.inline import InlineEvaluator

        inline = InlineEvaluator(
            config, space, rank=rank, clock=clock, record_all=record_all, device=device, scratch_root=root,
            function=function,
        )  # fmt: skip
        return inline if inline.responsive else Aside(inline, device.use)
    jobs = Jobs(space, config.seed, clock, objective.batch, record_all)
    if where == "none":
        from osprey_mpi.evaluate.group import GroupEvaluator, Member

        member = Member(config, schema, rank, root, comm, function)
        return GroupEvaluator(member, jobs, clock, objective.batch, objective.retries)
    if where == "thread":
        from osprey_mpi.evaluate.thread import Settings as ThreadSettings
        from osprey_mpi.evaluate.thread import ThreadEvaluator

        if objective.array == "cupy":  # a thread would need a context, a stream and a pool of its own
            raise ConfigError("objective.isolation is thread, but objective.array is cupy: must be auto or none")
        return ThreadEvaluator(function, config, jobs, schema, ThreadSettings(config, rank, clock, root))
    return ProcessEvaluator(jobs, schema, process_settings(config, schema, rank, root), clock)


def records_all(config: Any) -> bool:
    """Tell whether every evaluation of a run gets a row of its own, not captures only."""
    record = config.output.record
    return bool(record == "all" or (record == "auto" and config.objective.batch == 1))


def is_inline(objective: Any, comm: Any = None, function: Function | None = None) -> bool:
    """Tell whether whole batches are drawn and evaluated in the rank itself."""
    is_batch = objective.kind == "builtin" or (objective.batch > 1 and comm is None)
    return is_batch and _where(objective, comm, function) == "none"


def _where(objective: Any, comm: Any, function: Function | None) -> str:
    """Tell where evaluations run. In the rank itself: only what lets it listen in between, and groups."""
    where: str = objective.runs_in
    is_point = objective.kind == "python" and objective.batch == 1 and comm is None
    return "thread" if (where == "none" and is_point) or (where == "process" and function is not None) else where


def process_settings(config: Any, schema: Schema, rank: int, scratch_root: Path) -> Settings:
    """Write the order that the child process gets."""
    objective = config.objective
    folder = Path(config.base_dir).absolute()
    order = {
        "schema": schema.to_json(),
        "seed": config.seed,
        "batch": objective.batch,
        "retries": objective.retries,
        "scratch_root": str(scratch_root),
        "rank": rank,
        "folder": str(folder),
        "python": objective.python,
        "options": objective.options,
        "command": None if objective.command is None else command_specification(objective, schema, folder),
    }
    return Settings(
        order=order, folder=folder, scratch_root=scratch_root, rank=rank, batch=objective.batch,
        retries=objective.retries, time_limit_s=objective.time_limit_s,
    )  # fmt: skip
