"""Run evaluators on small functions, under a time limit, and leave no process behind."""

from __future__ import annotations

import os
import select
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from osprey_mpi.config import config_from_mapping
from osprey_mpi.continuity.records import Status
from osprey_mpi.evaluate.make import make_evaluator
from osprey_mpi.evaluate.task import Outcome, Progress, Task
from osprey_mpi.search.space import Space

LIMIT_S = 20.0
HOST = SimpleNamespace(
    xp=np, chunk_bytes=1 << 18, to_host=np.asarray, free=lambda: None, use=lambda: None,
    is_out_of_memory=lambda error: False,
)  # fmt: skip


@dataclass
class Collected:
    """Gather what came back, in order."""

    outcomes: list[Outcome] = field(default_factory=list)
    progress: list[Progress] = field(default_factory=list)

    @property
    def records(self) -> Any:
        return np.concatenate([outcome.records for outcome in self.outcomes])

    @property
    def costs(self) -> list[float]:
        return np.concatenate([outcome.costs for outcome in self.outcomes]).tolist()

    @property
    def status(self) -> list[Status]:
        return [Status(s) for s in self.records["status"].tolist()]

    @property
    def reasons(self) -> dict[int, str]:
        return {id: text for outcome in self.outcomes for id, text in outcome.reasons.items()}


@dataclass
class Rig:
    """Hold an evaluator with its space."""

    evaluator: Any
    space: Space
    started_s: float

    def task(self, points: list[dict[str, Any]], first: int = 0) -> Task:
        positions = self.space.encode(np.stack([self.space.row(point) for point in points]))
        return Task(first, len(points), 0, len(points), -1, 0, positions, None)

    def drain(self, limit_s: float = LIMIT_S) -> Collected:
        """Poll until the evaluator is idle, as a rank's loop does."""
        collected = Collected()
        end_s = time.monotonic() + limit_s
        while True:
            for item in self.evaluator.poll():
                (collected.outcomes if isinstance(item, Outcome) else collected.progress).append(item)
            if self.evaluator.idle:
                return collected
            assert time.monotonic() < end_s, f"not idle after {limit_s} s: {collected}"
            select.select(self.evaluator.filenos(), [], [], 0.002)

    def run(self, points: list[dict[str, Any]], first: int = 0, limit_s: float = LIMIT_S) -> Collected:
        self.evaluator.submit(self.task(points, first))
        return self.drain(limit_s)


X = {"x": {"type": "real", "low": 0.0, "high": 1.0}}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    """Make rigs: source of `user.py`, keys of the objective section, parameters, other sections."""
    made: list[Rig] = []

    def make(
        source: str = "",
        parameters: dict[str, Any] | None = None,
        *,
        function: Any = None,
        record_all: bool = True,
        comm: Any = None,
        more: dict[str, Any] | None = None,
        check: bool = True,
        **objective: Any,
    ) -> Rig:
        folder = tmp_path / "config"
        folder.mkdir(exist_ok=True)
        (folder / "user.py").write_text(textwrap.dedent(source))
        if "command" not in objective:
            objective.setdefault("python", "user:f")
        data = {"name": "t", "seed": 3, "objective": objective, "parameters": parameters or X}
        config = config_from_mapping({**data, "budget": {"evaluations": 10}, **(more or {})}, base_dir=folder)
        space = Space(config.parameters, config.constraints)
        started_s = time.monotonic()
        evaluator = make_evaluator(
            config, space, rank=2, clock=lambda: time.monotonic() - started_s, record_all=record_all, device=HOST,
            scratch_root=tmp_path / "scratch", comm=comm, function=function,
        )  # fmt: skip
        made.append(Rig(evaluator, space, started_s))
        if check:
            evaluator.start()
            evaluator.check()
        return made[-1]

    yield make
    for rig in made:
        begin_s = time.monotonic()
        rig.evaluator.close()
        assert time.monotonic() - begin_s < 5.0, "close() is bounded"
    assert children() == [], "no process is left behind"


@pytest.fixture
def processes() -> SimpleNamespace:
    """Look at processes: alive(pid), children() of this one, wait_until(condition)."""
    return SimpleNamespace(alive=alive, children=children, wait_until=wait_until)


def children() -> list[int]:
    """List the children of this process."""
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    return [int(pid) for pid in path.read_text().split()]


def alive(pid: int) -> bool:
    """Tell whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition: Callable[[], bool], limit_s: float = 5.0) -> None:
    """Wait until a condition holds; fail after the limit."""
    end_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end_s, "the condition did not come true"
        time.sleep(0.01)
