"""Choose the evaluator that a config asks for."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from osprey_mpi.errors import ConfigError, Problem
from osprey_mpi.evaluate.command import STDERR, STDOUT, Specification, read_template
from osprey_mpi.evaluate.jobs import Jobs
from osprey_mpi.evaluate.objective import Function
from osprey_mpi.evaluate.placeholders import SPECIAL, names_in
from osprey_mpi.evaluate.pool import ProcessEvaluator, Settings
from osprey_mpi.evaluate.schema import Schema
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
    return CheckedProcessEvaluator(config, jobs, schema, process_settings(config, schema, rank, root), clock)


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


class CheckedProcessEvaluator(ProcessEvaluator):
    """Look at what can be seen without running anything before the child is asked."""

    def __init__(self, config: Any, jobs: Jobs, schema: Schema, settings: Settings, clock: Callable[[], float]) -> None:
        super().__init__(jobs, schema, settings, clock)
        self._config = config

    def check(self) -> None:
        """Check the command, or wait until the child has imported the function; raises ConfigError."""
        if self._settings.is_command:
            check_command(self._config, self._schema)
        super().check()


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
    return Settings(order, folder, scratch_root, rank, objective.batch, objective.retries, objective.time_limit_s)


def command_specification(objective: Any, schema: Schema, folder: Path) -> Specification:
    """Describe the command with absolute paths: the program's current folder will be its scratch folder.

    A program with a slash is relative to the config's folder, one without is found on PATH, as in a shell.
    """
    program, *arguments = objective.command
    return Specification(
        argv=[str(folder / program) if "/" in program else program, *arguments],
        names=[*(layout.name for layout in schema.layouts), *SPECIAL],
        template=[(str(folder / item.source), item.target) for item in objective.template],
        pattern=None if objective.result is None else objective.result.pattern,
        file=None if objective.result is None else objective.result.file,
        time_limit_s=objective.time_limit_s,
        keep_scratch=objective.keep_scratch,
    )


def check_command(config: Any, schema: Schema) -> None:
    """Check the program and its templates; raises ConfigError. Placeholders are the config's business."""
    spec = command_specification(config.objective, schema, Path(config.base_dir).absolute())
    program = spec["argv"][0]
    if not names_in(program):
        path = shutil.which(program)
        if path is None and os.access(program, os.F_OK) and not os.access(program, os.X_OK):
            raise ConfigError(f"objective.command starts {program}, which is not executable (chmod +x)")
        if path is None:
            where = "no such file" if "/" in program else "found in no folder of PATH"
            raise ConfigError(f"objective.command starts {program!r}: {where}")
    for i, (source, target) in enumerate(spec["template"]):
        where = f"objective.template[{i}]"
        if fault := _unusable(Path(source)):
            raise ConfigError([Problem(f"{where}.source", f"is {source}, {fault}")])
        if str(Path(target)) in (STDOUT, STDERR):
            raise ConfigError([Problem(f"{where}.target", f"is {target}, but the program's own output goes there")])


def _unusable(source: Path) -> str:
    """Say why a file cannot be a template; empty if it can."""
    try:
        mode = source.stat().st_mode
        if not stat.S_ISREG(mode):
            return "which is a folder, must be a text file" if stat.S_ISDIR(mode) else "which is no regular file"
        read_template(source)
    except OSError as error:
        return f"which does not exist or cannot be read: {error.strerror}"
    except UnicodeDecodeError as error:
        return f"which is not UTF-8: byte {error.start} is 0x{error.object[error.start]:02x}"
    return ""
