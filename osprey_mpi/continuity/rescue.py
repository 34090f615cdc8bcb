"""Take over what ranks hold of a life that is gone, or ends: each evaluation counts once, and goes on disk once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.continuity.codec import decode, encode
from osprey_mpi.continuity.ledger import rank_key
from osprey_mpi.continuity.messages import Delta, Order, Role
from osprey_mpi.continuity.records import FINAL
from osprey_mpi.continuity.rows import RowBuffer
from osprey_mpi.continuity.tally import Tally

Attempts = set[tuple[int, int]]  # (id, number) of rows beside each evaluation's first


def held_by(machines: Mapping[Role, Any]) -> list[bytes]:
    """Return, encoded, what nobody has called durable to the machines of a rank; a leader's holds its workers'."""
    senders = [machines[role].sender for role in (Role.LEADER, Role.WORKER) if role in machines]
    return [encode(delta) for sender in senders for delta in sender.kept()]


def deltas_in(held: Iterable[bytes]) -> list[Delta]:
    """Return what ranks hold, decoded."""
    return [message for data in held if isinstance(message := decode(data), Delta)]


def rescue(held: Iterable[Delta], tally: Tally, attempts: Attempts, n_columns: int) -> RowBuffer:
    """Enter in `tally` and `attempts` what is news in `held`; return the rows that are to go on disk."""
    rows = RowBuffer(n_columns)
    # A leader's holds those of its workers, and what it knows itself of lost ones: it comes first.
    for delta in sorted(held, key=lambda delta: (len(delta.pieces), len(delta.records)), reverse=True):
        if _is_news(delta, tally, attempts):
            tally.enter(delta.pieces, delta.records, delta.values)
            attempts |= attempts_in(delta.records)
            rows.add(delta)
    return rows


def _is_news(delta: Delta, tally: Tally, attempts: Attempts) -> bool:
    """Tell whether a delta holds what is not on disk: an evaluation, one more attempt at it, or a better point.

    A better point of an evaluation that counts already: its worker had been taken for lost, and another has done it.
    """
    if delta.position.size and rank_key(delta.cost, delta.violation, delta.best_id) < tally.best.key:
        return True
    first = delta.pieces["first"]
    starts, stops = ((first + delta.pieces[row]).tolist() for row in ("row_start", "row_stop"))
    is_new = any(tally.done.gaps(start, stop) for start, stop in zip(starts, stops, strict=True))
    return is_new or not attempts_in(delta.records) <= attempts


def attempts_in(records: NDArray[Any]) -> Attempts:
    """Return (id, number) of the rows that are not an evaluation's first, or that came to nothing."""
    beside = (records["attempt"] > 0) | ~np.isin(records["status"], FINAL)
    return set(zip(records["id"][beside].tolist(), records["attempt"][beside].tolist(), strict=True))


def open_orders(given: Sequence[Order], rows_back: int) -> list[Order]:
    """Return what of a worker's orders has not come back. rows_back: row of the first up to which all have."""
    return [*(replace(order, row_start=rows_back) for order in given[:1]), *given[1:]]
