"""Say what to run: what the command line and minimize() ask a session for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from osprey_mpi.config import Config
from osprey_mpi.drivers.outcome import RunResult


@dataclass(frozen=True, slots=True)
class Request:
    """Hold one request: `load` for a new run, `resume`, the folder, for an old one.

    load: returns the config; called on rank 0 alone. With `resume` too, the old run goes on with it, if nothing differs
    that must not change. overrides: "KEY=VALUE", of the config of an old run. max_evaluations: short for one of them.
    function: evaluates instead of the config's objective.
    keep_mpi: the caller's program goes on after the run, and may use MPI.
    lock_wait_s: for how long to try an old run's lock. retry: names of the statuses whose evaluations are done again.
    on_result: called on the root before anybody leaves. wording: turns a message into what the caller should read.
    """

    load: Callable[[], Config] | None = None
    resume: Path | None = None
    out: Path | None = None
    overwrite: bool = False
    overrides: tuple[str, ...] = ()
    max_evaluations: int | None = None
    retry: tuple[str, ...] = ()
    function: Callable[..., Any] | None = None
    quiet: bool = False
    lock_wait_s: float = 0.3
    keep_mpi: bool = False
    on_result: Callable[[RunResult], None] = field(default=lambda result: None)
    wording: Callable[[str], str] = str
