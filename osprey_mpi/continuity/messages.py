"""Every message between ranks, as frozen dataclasses with one fixed binary layout each (see codec.py).

A worker is to its leader what a leader is to the root, so most messages serve both levels.

    up      Hello, Delta, Heartbeat, Farewell, Want, Progress, Snapshot, Trouble
    down    Order, Steer, Ack, Resync, Lease, Best, Halt, SnapshotRequest, Stop, Goodbye
    across  Gossip, from leader to leader
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.continuity.records import NO_ID, PIECE, RECORD, VIEW

Floats = NDArray[np.float64]


class Role(IntEnum):
    """Name the state machine of a rank that a message is for; it is the MPI tag."""

    WORKER = 1
    LEADER = 2
    ROOT = 3


def array(dtype: Any, ndim: int) -> Any:
    """Declare an array field: its dtype on the wire and its number of dimensions; empty by default."""
    shape = (0,) * ndim
    return field(default_factory=lambda: np.empty(shape, dtype), metadata={"dtype": np.dtype(dtype), "ndim": ndim})


class Message:
    """Mark the classes that travel."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Hello(Message):
    """Announce a sender. `responsive` is 0 when it cannot answer while it evaluates."""

    incarnation: int
    responsive: int = 1


@dataclass(frozen=True, slots=True)
class Delta(Message):
    """Tell what changed since the sender's last delta.

    `counter` is contiguous from 1 within an incarnation. `n_evaluations` is the sender's total so far; cost, violation
    and best_id are those of its best point so far, whose position travels only when it is new (a capture).
    `checksum` is that of the resulting state: the collector replays the delta and must get the same (the proof of
    continuity).
    `reasons` is JSON, a list of [id, attempt, status, text].
    """

    incarnation: int
    counter: int
    n_evaluations: int
    checksum: int
    cost: float = float("inf")
    violation: float = 0.0
    best_id: int = NO_ID
    position: Floats = array("<f8", 1)
    pieces: NDArray[Any] = array(PIECE, 1)
    records: NDArray[Any] = array(RECORD, 1)
    values: Floats = array("<f8", 2)
    costs: Floats = array("<f8", 1)
    violations: Floats = array("<f8", 1)
    survivor_costs: Floats = array("<f8", 1)
    survivor_violations: Floats = array("<f8", 1)
    survivor_latent: Floats = array("<f8", 2)
    reasons: str = ""


@dataclass(frozen=True, slots=True)
class Heartbeat(Message):
    """Say "still here, and this is how many deltas I have sent"; the collector answers with an Ack."""

    incarnation: int
    counter: int


@dataclass(frozen=True, slots=True)
class Farewell(Message):
    """Say "I will send nothing more; I sent n_sent deltas"."""

    incarnation: int
    n_sent: int


@dataclass(frozen=True, slots=True)
class Want(Message):
    """Ask for n more evaluation ids."""

    n: int


@dataclass(frozen=True, slots=True)
class Progress(Message):
    """Pass on a value that a running evaluation reported."""

    id: int
    step: int
    value: float


@dataclass(frozen=True, slots=True)
class Snapshot(Message):
    """Give the state of a flock's search for a checkpoint; `state` is packed by codec.pack_arrays."""

    serial: int
    flock: int
    state: NDArray[np.uint8] = array("u1", 1)


@dataclass(frozen=True, slots=True)
class Trouble(Message):
    """Ask the root to stop the run, with the reason.

    is_signal: 1 when somebody asked this rank to stop. is_failure: 1 when an evaluation failed and that ends the run.
    """

    reason: str
    is_signal: int = 0
    is_failure: int = 0


@dataclass(frozen=True, slots=True)
class Order(Message):
    """Evaluate rows [row_start, row_stop) of the block [first, first + n).

    With positions (n, n_dims) these are evaluated; without, the worker hovers: it draws from the newest distribution
    that it holds.
    """

    first: int
    n: int
    row_start: int
    row_stop: int
    cycle: int
    attempt: int = 0
    positions: Floats = array("<f8", 2)


@dataclass(frozen=True, slots=True)
class Steer(Message):
    """Give the flock's newest distribution; factor is a diagonal (n_numeric, 1) or a matrix (n_numeric, n_numeric)."""

    generation: int
    sigma: float
    mean: Floats = array("<f8", 1)
    factor: Floats = array("<f8", 2)
    probabilities: Floats = array("<f8", 1)


@dataclass(frozen=True, slots=True)
class Ack(Message):
    """Acknowledge as durable (on disk, after fsync) all deltas up to `counter` of that incarnation."""

    incarnation: int
    counter: int


@dataclass(frozen=True, slots=True)
class Resync(Message):
    """Ask a suspect for a Heartbeat and for every delta after `counter`."""

    counter: int


@dataclass(frozen=True, slots=True)
class Lease(Message):
    """Hand out evaluation ids as ranges, (n_ranges, 2).

    With positions (one row per id, n_dims) these ids are to be done again there, as attempt number `attempt`.
    n_left: how many evaluations this flock has still to do, about; -1 if that is open.
    """

    attempt: int = 0
    n_left: int = -1
    ranges: NDArray[np.int64] = array("<i8", 2)
    positions: Floats = array("<f8", 2)


@dataclass(frozen=True, slots=True)
class Best(Message):
    """Spread the best point of the run."""

    cost: float
    violation: float
    id: int
    position: Floats = array("<f8", 1)


@dataclass(frozen=True, slots=True)
class Gossip(Message):
    """Tell another leader all that is known here of the flocks; it answers, unless this is an answer."""

    is_answer: int
    cost: float
    violation: float
    best_id: int
    position: Floats = array("<f8", 1)
    views: NDArray[Any] = array(VIEW, 1)


@dataclass(frozen=True, slots=True)
class Halt(Message):
    """Tell one running evaluation to stop early."""

    id: int


@dataclass(frozen=True, slots=True)
class SnapshotRequest(Message):
    """Ask for the state of the search."""

    serial: int


@dataclass(frozen=True, slots=True)
class Stop(Message):
    """End the search: cut off what runs, send what is finished, then a farewell."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Goodbye(Message):
    """Let everybody go with the exit code of the run; the files are written."""

    exit_code: int


MESSAGES: tuple[type[Message], ...] = (
    Hello, Delta, Heartbeat, Farewell, Want, Progress, Snapshot, Trouble,
    Order, Steer, Ack, Resync, Lease, Best, Halt, SnapshotRequest, Stop, Goodbye, Gossip,
)  # fmt: skip
