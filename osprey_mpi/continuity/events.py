"""What happens to a state machine (events) and what it wants done (actions)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.continuity.messages import Message, Order, Role, Steer
from osprey_mpi.continuity.records import RowReason

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Received:
    """A message came from `source` (a world rank)."""

    source: int
    message: Message


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Rows [row_start, row_stop) of the running order are finished; the arrays are those of evaluate.task.Outcome.

    elapsed_s: time that the objective took for these rows together.
    """

    order: Order
    _: KW_ONLY  # a swap of two arrays would pass for right
    generation: int
    row_start: int
    row_stop: int
    records: NDArray[Any]
    values: Floats
    positions: Floats
    costs: Floats
    violations: Floats
    elapsed_s: float
    survivors: tuple[NDArray[np.int64], Floats] | None = None
    reasons: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reported:
    """A running evaluation reported an intermediate value."""

    id: int
    step: int
    value: float


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. `sendable` tells whether the way to the collector has a free send slot (backpressure)."""

    sendable: bool = True


@dataclass(frozen=True, slots=True)
class StopAsked:
    """This rank was asked to stop, by a signal or because its launcher is gone."""

    reason: str


@dataclass(frozen=True, slots=True)
class PeerLost:
    """The process of another rank has ended, as MPI has seen: it will never come back."""

    rank: int


@dataclass(frozen=True, slots=True)
class Appended:
    """The rows of Append number `serial` are on disk after fsync; `error` says why they are not."""

    serial: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointTried:
    """A checkpoint was written, or could not be: it took `cost_s` seconds either way."""

    cost_s: float


@dataclass(frozen=True, slots=True)
class Concluded:
    """The files are made, as far as they could be: with this code the run ends, if its result can be given."""

    exit_code: int


Event = Received | Evaluated | Reported | Tick | StopAsked | PeerLost | Appended | CheckpointTried | Concluded


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to a role on a world rank."""

    rank: int
    role: Role
    message: Message


@dataclass(frozen=True, slots=True)
class Evaluate:
    """Start an order; without positions of its own it draws from `steer`."""

    order: Order
    steer: Steer | None


@dataclass(frozen=True, slots=True)
class HaltEvaluation:
    """Tell one running evaluation to stop early."""

    id: int


@dataclass(frozen=True, slots=True)
class CancelEvaluations:
    """Cut off and forget everything that runs."""


@dataclass(frozen=True, slots=True)
class Append:
    """Put rows on disk; answered by Appended(serial). With an error the same rows come again, before newer ones."""

    serial: int
    records: NDArray[Any]
    values: Floats
    blocks: NDArray[Any]
    reasons: list[RowReason]
    elapsed_s: float = 0.0  # that the objective took for these rows


@dataclass(frozen=True, slots=True)
class WriteCheckpoint:
    """Write a checkpoint of the whole run."""

    groups: dict[str, dict[str, NDArray[Any]]]
    meta: dict[str, int | float | str]


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Write status.json; everything in it is on disk already. exit_code: None while the run is active."""

    state: str
    reason: str = ""
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Conclude:
    """Merge the segments, before anybody is let go; answered by Concluded."""

    exit_code: int


@dataclass(frozen=True, slots=True)
class Finish:
    """Leave the loop with this exit code."""

    exit_code: int


@dataclass(frozen=True, slots=True)
class Log:
    """Write one line to the rank's log; warnings also reach the user."""

    text: str
    warning: bool = False


Action = (
    Send
    | Evaluate
    | HaltEvaluation
    | CancelEvaluations
    | Append
    | WriteCheckpoint
    | WriteStatus
    | Conclude
    | Finish
    | Log
)
