"""Say in status.json where a run is; readers need nothing else, and no lock."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from osprey_mpi.errors import ExitCode
from osprey_mpi.storage.files import read_regular, write_atomic

_NAME = "status.json"
NOT_CALLED = "not called: {} (they break a constraint)"


class State(StrEnum):
    """Tell where a run is. INTERRUPTED is never written: it is what a reader sees of a run that was killed."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"
    INTERRUPTED = "interrupted"

    @property
    def is_active(self) -> bool:
        """Tell whether a process should be alive in this state."""
        return self in (State.STARTING, State.RUNNING, State.STOPPING)


# What a life's exit code says of its run; a run that is done ends with ENVIRONMENT where a file of it is missing.
_ENDS: dict[int, State] = {
    ExitCode.DONE: State.DONE, ExitCode.ENVIRONMENT: State.DONE, ExitCode.NO_RESULT: State.FAILED
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Best:
    """Hold the best result so far."""

    cost: float | None
    violation: float
    parameters: Mapping[str, Any]
    id: int

    @property
    def remark(self) -> str:
        """Say that it is not feasible; '' if it is."""
        return violation_remark(self.violation)


def violation_remark(violation: float) -> str:
    """Say by how much a point violates the constraints; '' for one that satisfies them."""
    return f" (violates constraints by {violation:g})" if violation > 0 else ""


@dataclass(frozen=True, slots=True)
class RunStatus:
    """Hold one status of a run.

    exit_code: of the whole run, None while it runs. counts: evaluations by how they ended. n_infeasible: of these, with
    a violation above 0; n_not_called: of these, for which the objective was not called; None: not known. budget: the
    limits of the config that are set. wall_s: over all lives. idle_share: of this life, None before the first
    evaluation. n_flocks: 0 where it is not known. fault_tolerance: "ulfm", "heartbeats" or "none".
    """

    state: State
    exit_code: int | None = None
    reason: str = ""
    n_evaluations: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    n_infeasible: int | None = 0
    n_not_called: int | None = 0
    best: Best | None = None
    n_ranks: int = 1
    n_flocks: int = 1
    life: int = 1
    epoch: int = 1
    budget: Mapping[str, float | int | None] = field(default_factory=dict)
    wall_s: float = 0.0
    updated_unix_s: float = 0.0
    started_unix_s: float = 0.0
    host: str = ""
    pid: int = 0
    fault_tolerance: str = "none"
    idle_share: float | None = None
    version: str = ""

    def to_mapping(self) -> dict[str, Any]:
        """Return what status.json holds: plain JSON values."""
        mapping = plain(dataclasses.asdict(self))
        assert isinstance(mapping, dict)
        return mapping


def as_of(status: RunStatus | None, life: Mapping[str, Any]) -> RunStatus | None:
    """Return the status as the newest life's record in run.json has it, where status.json could not be written since.

    None where that life has neither written one nor ended.
    """
    number, ended_unix_s = life["life"], life.get("ended_unix_s")
    if status is None and ended_unix_s is None:
        return None
    if status is not None and (status.life, status.updated_unix_s) >= (number, ended_unix_s or 0.0):
        return status
    if status is None or status.life != number:
        facts = {name: life[name] for name in ("n_ranks", "host", "pid", "fault_tolerance") if name in life}
        wall_s, began = (0.0, 0.0) if status is None else (status.wall_s, status.started_unix_s)
        status = RunStatus(State.STARTING, life=number, n_flocks=0, wall_s=wall_s, started_unix_s=began, **facts)
    if ended_unix_s is None:
        return dataclasses.replace(status, updated_unix_s=life["started_unix_s"])
    code = int(life["exit_code"] or 0)
    return dataclasses.replace(
        status, state=_ENDS.get(code, State.STOPPED), exit_code=code, reason=life.get("reason", status.reason),
        n_evaluations=life.get("n_evaluations") or status.n_evaluations, updated_unix_s=ended_unix_s,
    )  # fmt: skip


def not_called_lines(n: int | None) -> list[str]:
    """Say for how many points the objective was not called; nothing if for all."""
    if n is None:
        return ["not called: not known, for batches record captures only"]
    return [NOT_CALLED.format(n)] if n else []


def idle_share(busy_s: float, available_s: float) -> float | None:
    """Return which part of their time evaluating ranks had nothing to evaluate; None where they had no time.

    busy_s: in evaluations; available_s: from the first start of an evaluation in a life to the last end, for each rank.
    """
    return max(0.0, 1.0 - busy_s / available_s) if available_s > 0.0 else None


def plain(value: Any) -> Any:
    """Return `value` as strict JSON values: arrays as lists, NaN and infinities as None."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):  # NumPy arrays and scalars
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, StrEnum | Path) else value


def write_status(folder: Path, status: RunStatus) -> None:
    """Replace status.json; raise StorageError and keep the old one if that fails."""
    text = json.dumps(status.to_mapping(), indent=1, ensure_ascii=False, allow_nan=False)
    write_atomic(folder / _NAME, (text + "\n").encode())


def read_status(folder: Path) -> RunStatus | None:
    """Return the status of the run in `folder`, or None where there is none that can be read.

    Keys of other versions are ignored.
    """
    try:
        return TypeAdapter(RunStatus).validate_json(read_regular(folder / _NAME), strict=True)
    except (OSError, ValueError):  # pydantic's ValidationError is a ValueError
        return None
