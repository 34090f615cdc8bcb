"""Give an objective what it may ask for besides its parameters."""

from __future__ import annotations

import numbers
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from osprey_mpi.evaluate import StopEvaluation
from osprey_mpi.evaluate.objective import Failure, real, short

N_STEPS = 1 << 63  # a step travels as int64


class Link(Protocol):
    """Carry what an objective says while it runs, and hear whether it is to stop."""

    def report(self, id: int, step: int, value: float) -> None: ...

    def stopping(self, id: int) -> bool: ...


class Silent:
    """Carry nothing and hear nothing: the link where nobody listens."""

    def report(self, id: int, step: int, value: float) -> None:
        """Drop the report."""

    def stopping(self, id: int) -> bool:
        """Return False."""
        return False


class Question:
    """Ask anew each time it is called or used as a condition: `if q:` and `if q():` are the same."""

    __slots__ = ("_ask",)

    def __init__(self, ask: Callable[[], bool]) -> None:
        self._ask = ask

    def __call__(self) -> bool:
        """Return the answer."""
        return self._ask()

    def __bool__(self) -> bool:
        """Return the answer."""
        return self._ask()

    def __repr__(self) -> str:
        return str(self._ask())


class Context:
    """Describe one evaluation to the objective.

    id: identity of the evaluation; of a batch, that of its first point.
    seed: 63 bit, depends on the run's seed and the id only, so the same point draws the same numbers on any rank.
    comm: the sub-communicator of an objective that needs several ranks, None otherwise.
    """

    def __init__(self, id: int, run_seed: int, scratch_root: Path, name: str, link: Link, comm: Any = None) -> None:
        self.id = id
        self.comm = comm
        self._run_seed = run_seed
        self._scratch_root = scratch_root
        self._name = name
        self._link = link
        self._scratch: Path | None = None
        self.told_to_stop = False
        self.reported: tuple[int, float] | None = None

    @property
    def seed(self) -> int:
        """Return the seed of this evaluation."""
        from osprey_mpi.search.streams import evaluation_seed  # only objectives that draw numbers pay for it

        return evaluation_seed(self._run_seed, self.id)

    @property
    def scratch(self) -> Path:
        """Return an empty folder of this evaluation alone; it is made when first asked for, and removed afterwards."""
        if self._scratch is None:
            self._scratch = make_scratch(self._scratch_root, self._name)
        return self._scratch

    @property
    def scratch_path(self) -> Path | None:
        """Return the scratch folder if it has been asked for."""
        return self._scratch

    def report(self, step: int, value: float) -> None:
        """Tell an intermediate value of the cost; raises StopEvaluation if the evaluation is to stop here.

        step: a whole number from 0 to 2**63 - 1. value: a number, also NaN or infinite. Raises Failure for others.
        """
        self.reported = (_whole(step), real(value, "the value given to context.report"))
        self._link.report(self.id, *self.reported)
        if self._is_to_stop():
            raise StopEvaluation(f"evaluation {self.id} was told to stop after step {step}")

    @property
    def should_stop(self) -> Question:
        """Tell whether the evaluation is to stop early; what it then returns still counts.

        Use it as a condition or call it: `if context.should_stop:` and `if context.should_stop():` ask the same.
        """
        return Question(self._is_to_stop)

    def _is_to_stop(self) -> bool:
        self.told_to_stop = self.told_to_stop or self._link.stopping(self.id)
        return self.told_to_stop

    def agree(self, ok: bool) -> None:
        """Raise on every rank of the group unless `ok` is true on all of them. Collective over `comm`.

        An objective that may fail on one rank alone calls it before its next communication: nobody then waits for
        a rank that is gone.
        """
        if self.comm is None:
            votes = [ok]
        else:
            every = np.empty(self.comm.Get_size(), np.uint8)
            self.comm.Allgather(np.array([ok], np.uint8), every)
            votes = every.tolist()
        failed = [rank for rank, vote in enumerate(votes) if not vote]
        if failed:
            raise RuntimeError(f"rank {failed[0]} of the group did not agree to go on")

    def keep_scratch(self) -> Path:
        """Return the scratch folder and leave it in place when the evaluation is over."""
        folder, self._scratch = self.scratch, None
        return folder

    def close(self) -> None:
        """Remove the scratch folder if there is one."""
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)


def _whole(step: Any) -> int:
    """Return a step as int, or raise Failure with what it is instead."""
    is_whole = isinstance(step, numbers.Integral) and not isinstance(step, bool)
    if not is_whole or not 0 <= int(step) < N_STEPS:
        rule = "a whole number from 0 to 2**63 - 1 is needed"
        raise Failure(f"the step given to context.report is {short(step, 80)}, but {rule}")
    return int(step)


def scratch_name(id: int, rank: int) -> str:
    """Name the scratch folder of an evaluation; the rank, because a lost rank may still be writing into its own."""
    return f"evaluation-{id:08d}-rank-{rank:04d}"


def make_scratch(root: Path, name: str) -> Path:
    """Make an empty folder; what an earlier try left under the name stays, and the new one gets a number."""
    root.mkdir(parents=True, exist_ok=True)
    for attempt in range(10_000):
        folder = root / (f"{name}.{attempt}" if attempt else name)
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise OSError(f"{root} already holds 10000 folders named {name}")


def remove_scratch(root: Path, name: str) -> None:
    """Remove what a killed evaluation left behind."""
    for folder in root.glob(f"{name}*"):
        shutil.rmtree(folder, ignore_errors=True)
