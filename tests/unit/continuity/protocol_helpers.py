"""Make messages and events for the tests of the protocol."""


from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.continuity.events import Action, Evaluate, Evaluated, Send
from osprey_mpi.continuity.messages import Delta, Message, Order
from osprey_mpi.continuity.records import EXPLICIT, PIECE, RECORD, RowReason, Status
from osprey_mpi.continuity.sender import Sender

N_DIMS = 2


def sends(actions: list[Action], kind: type[Message] | None = None) -> list[Any]:
    """Return the messages that are sent, of one class."""
    return [a.message for a in actions if isinstance(a, Send) and (kind is None or isinstance(a.message, kind))]


def piece(
    first: int, n: int = 1, row_start: int = 0, row_stop: int | None = None, **fields: float
) -> NDArray[Any]:
    """Return one row of PIECE."""
    made = np.zeros(1, PIECE)
    made["first"], made["n"], made["row_start"] = first, n, row_start
    made["row_stop"] = n if row_stop is None else row_stop
    for name, value in fields.items():
        made[name] = value
    return made


def record(id: int, cost: float = 1.0, status: Status = Status.OK, **fields: float) -> NDArray[Any]:
    """Return one row of RECORD."""
    made = np.zeros(1, RECORD)
    made["id"], made["cost"], made["status"] = id, cost, status
    for name, value in fields.items():
        made[name] = value
    return made


def evaluated(
    order: Order, start: int, stop: int, costs: list[float], *, generation: int = 0, elapsed_s: float = 1.0,
    keep: list[int] | None = None, violations: list[float] | None = None, **options: Any,
) -> Evaluated:  # fmt: skip
    """Return the event of rows [start, stop) of an order; keep: places of the rows that have a record."""
    array = np.array(costs)
    records = np.zeros(stop - start, RECORD)
    records["id"], records["cost"] = np.arange(order.first + start, order.first + stop), array
    records["violation"] = 0.0 if violations is None else violations
    records["status"] = np.where(np.isnan(array) & (records["violation"] <= 0.0), Status.FAILED, Status.OK)
    records["attempt"] = order.attempt
    positions = np.full((stop - start, N_DIMS), 0.25) + 0.001 * np.arange(start, stop)[:, None]
    kept = list(range(stop - start)) if keep is None else keep
    return Evaluated(
        order, generation=EXPLICIT if order.positions.size else generation, row_start=start, row_stop=stop,
        records=records[kept], values=positions[kept], positions=positions[kept], costs=array,
        violations=records["violation"].copy(), elapsed_s=elapsed_s, **options,
    )  # fmt: skip


def started(actions: list[Action]) -> list[Order]:
    """Return the orders that are started."""
    return [action.order for action in actions if isinstance(action, Evaluate)]


def delta_of(sender: Sender, *pieces: Any, records: Any = None, reasons: Sequence[RowReason] = ()) -> Delta:
    """Stamp a delta with pieces, rows and reasons."""
    sender.load.pieces += pieces
    if records is not None:
        sender.load.records.append(records)
        sender.load.values.append(np.full((len(records), 2), 0.5))
    sender.load.reasons += reasons
    return sender.stamp()
