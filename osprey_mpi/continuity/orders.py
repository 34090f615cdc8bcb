"""Keep a leader's order book: which blocks are out, at whom, and what has come back of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.continuity.messages import Delta, Order
from osprey_mpi.continuity.records import EXPLICIT

Floats = NDArray[np.float64]

# An order of fast evaluations should last about this long. Shorter ones cost every rank more than they gain the search,
# and longer ones the search: on Rosenbrock in 20 dimensions orders of 1, 2 and 3 points of 10 ms take 19, 21 and 27
# thousand evaluations with 4 workers (simulated, without dives).
ORDER_S = 0.020
# With dives three points cost the coordinator a fifth less of its time than two. Where times vary much (log-normal,
# sigma 1) the search takes as many evaluations: the same Rosenbrock 11 thousand either way, a rotated ellipsoid 7.4 or
# 7.5 thousand. Where they hardly do it takes more: the ellipsoid 5.7 thousand instead of 4.5, Rosenbrock 8 instead of 7
# (tests/bench/orders.py).
ORDER_DIVES_S = 0.030
# With many dimensions a round is larger, and orders may be. On Rosenbrock and an ellipsoid in 300 dimensions the best
# cost after 20000 evaluations is the same with 20 and with 40 ms (4 workers, 4 seeds, simulated), in 100 that of the
# ellipsoid a fifth higher.
LONG_FROM_DIMS, ORDER_LONG_S = 150, 0.040
# Work that a worker should have behind the order in progress, so that the leader can look seldom.
QUEUED_S = 0.012
# Standard deviations below the mean: how long points take at least in four cases of five.
SURE = 0.8
# Longer orders are not queued ahead: a round trip of a few milliseconds costs them little.
PREFETCH_BELOW_S = 0.200
# Shorter ones only once: a message takes longer than such work, and what waits grows stale. The antenna of `configs`
# on 9 ranks, 30 seeds: two orders behind reach its result with 26, one with 30, in the same time.
PREFETCH_TWICE_S = 0.002


class Piece(NamedTuple):
    """Hold one row of PIECE as Python numbers: reading the fields of a NumPy row takes ten times as long."""

    first: int
    n: int
    row_start: int
    row_stop: int
    generation: int
    cycle: int
    n_records: int
    n_costs: int
    n_survivors: int
    n_failed: int
    elapsed_s: float


@dataclass(slots=True)
class OpenOrder:
    """Hold an order that is out; costs and violations are (n,), NaN where nothing has come back.

    is_foreign: another leader gave it, which is gone; this one's search did not ask for it. is_whole: all rows came
    back, not the best of them alone, of which there may be none.
    """

    order: Order
    worker: int
    costs: Floats
    violations: Floats
    generation: int = EXPLICIT
    rows_back: int = 0
    is_foreign: bool = False
    is_whole: bool = False
    survivor_costs: list[Floats] = field(default_factory=list)
    survivor_violations: list[Floats] = field(default_factory=list)
    survivor_latent: list[Floats] = field(default_factory=list)

    @classmethod
    def of(cls, order: Order, worker: int) -> OpenOrder:
        """Open an order."""
        return cls(order, worker, np.full(order.n, np.nan), np.zeros(order.n), rows_back=order.row_start)

    @property
    def explicit(self) -> bool:
        """Tell whether its positions were given."""
        return bool(self.order.positions.size)

    @property
    def finished(self) -> bool:
        """Tell whether all ordered rows are back."""
        return self.rows_back >= self.order.row_stop

    @property
    def complete(self) -> bool:
        """Tell whether the whole block is back, so that the search can learn from it."""
        return self.finished and self.order.row_stop == self.order.n

    def follows(self, piece: Piece) -> bool:
        """Tell whether a piece is the next part of this very order, not of one that was taken back."""
        order = self.order
        same = piece.n == order.n and piece.cycle == order.cycle and (piece.generation == EXPLICIT) == self.explicit
        return same and piece.row_start == self.rows_back and piece.row_stop <= order.row_stop

    def survivors(self, n_dims: int) -> tuple[Floats, Floats, Floats]:
        """Return the costs (n,), violations (n,) and latent numbers (n, n_dims) of the best rows; n may be 0."""
        none = np.empty(0)
        return (
            np.concatenate([none, *self.survivor_costs]),
            np.concatenate([none, *self.survivor_violations]),
            np.concatenate([np.empty((0, n_dims)), *self.survivor_latent]),
        )

    def take(self, piece: Piece, rows: Part) -> None:
        """Enter what came back for rows [row_start, row_stop)."""
        start, stop = piece.row_start, piece.row_stop
        if len(rows.survivor_costs):
            self.survivor_costs.append(rows.survivor_costs)
            self.survivor_violations.append(rows.survivor_violations)
            self.survivor_latent.append(rows.survivor_latent)
        elif len(rows.records) == stop - start:
            self.costs[start:stop] = rows.records["cost"]
            self.violations[start:stop] = rows.records["violation"]
            self.is_whole = True
        elif len(rows.costs) == stop - start:
            self.costs[start:stop] = rows.costs
            self.violations[start:stop] = rows.violations
            self.is_whole = True
        self.generation = piece.generation
        self.rows_back = stop


@dataclass(slots=True)
class Part:
    """Hold the slices of a delta's arrays that belong to one piece."""

    records: NDArray[Any]
    costs: Floats
    violations: Floats
    survivor_costs: Floats
    survivor_violations: Floats
    survivor_latent: Floats


def parts(delta: Delta) -> list[tuple[Piece, Part]]:
    """Split a delta into its pieces and their rows."""
    result = []
    record = cost = survivor = 0
    for row in delta.pieces.tolist():
        piece = Piece._make(row)
        records = slice(record, record + piece.n_records)
        costs = slice(cost, cost + piece.n_costs)
        survivors = slice(survivor, survivor + piece.n_survivors)
        part = Part(
            delta.records[records], delta.costs[costs], delta.violations[costs], delta.survivor_costs[survivors],
            delta.survivor_violations[survivors], delta.survivor_latent[survivors],
        )  # fmt: skip
        result.append((piece, part))
        record, cost, survivor = records.stop, costs.stop, survivors.stop
    return result


def order_s(n_dims: int, dives: bool) -> float:
    """Return how long an order should last, in seconds, for a search in so many dimensions, with dives or without."""
    if not dives:
        return ORDER_S
    return ORDER_LONG_S if n_dims > LONG_FROM_DIMS else ORDER_DIVES_S


@dataclass(slots=True)
class Pace:
    """Learn how long a worker takes for one point, and size its orders by it. variance: of one point, seconds^2."""

    mean_s: float = 0.0
    variance: float = 0.0
    n_seen: int = 0

    def learn(self, n_rows: int, elapsed_s: float) -> None:
        """Take in a finished call; the mean forgets with a horizon of about 20 calls, so that it follows a change."""
        if n_rows <= 0 or not elapsed_s >= 0.0:
            return
        self.n_seen += 1
        n = min(self.n_seen, 20)
        off_s = elapsed_s / n_rows - self.mean_s
        self.mean_s += off_s / n
        self.variance += (n_rows * off_s * off_s * (n - 1) / n - self.variance) / n

    def sure_s(self, n_rows: int) -> float:
        """Return how long so many points will take at least, four times in five; 0 while nothing is known."""
        return max(0.0, n_rows * self.mean_s - SURE * math.sqrt(n_rows * self.variance))

    def n_rows(self, most: int, last_s: float = ORDER_S) -> int:
        """Return how many points the next order should hold, at most `most`, to last so long."""
        if self.n_seen == 0:
            return 1
        if self.mean_s * most <= last_s:
            return most
        return max(1, min(most, round(last_s / self.mean_s)))

    def n_behind(self, n_rows: int) -> int:
        """Return how many orders to keep at the worker behind the one in progress: they hide the way of a message."""
        lasts_s = self.mean_s * n_rows
        if self.n_seen == 0 or lasts_s >= PREFETCH_BELOW_S:
            return 0
        is_enough = self.sure_s(n_rows) >= QUEUED_S or lasts_s >= 4.0 * QUEUED_S
        return 1 if is_enough or lasts_s < PREFETCH_TWICE_S else 2


class OrderBook:
    """Know the open orders of a flock."""

    def __init__(self) -> None:
        self.open: dict[int, OpenOrder] = {}
        self.n_rows_out = 0
        self._at: dict[int, dict[int, OpenOrder]] = {}  # worker -> its open orders, in the order in which they went out

    def add(self, entry: OpenOrder) -> None:
        """Enter an order that goes out."""
        self.open[entry.order.first] = entry
        self._at.setdefault(entry.worker, {})[entry.order.first] = entry
        self.n_rows_out += entry.order.row_stop - entry.rows_back

    def take(self, entry: OpenOrder, piece: Piece, rows: Part) -> None:
        """Enter what came back of an open order."""
        entry.take(piece, rows)
        self.n_rows_out -= piece.row_stop - piece.row_start

    def close(self, first: int) -> OpenOrder:
        """Take an order out of the book."""
        entry = self.open.pop(first)
        del self._at[entry.worker][first]
        self.n_rows_out -= entry.order.row_stop - entry.rows_back
        return entry

    def rows_at(self, worker: int) -> list[int]:
        """Return how many rows are out of each unfinished order of a worker, in the order in which they went out."""
        at = self._at.get(worker, {}).values()
        return [entry.order.row_stop - entry.rows_back for entry in at if not entry.finished]

    def of(self, worker: int) -> list[OpenOrder]:
        """Return the open orders of a worker, in the order in which they went out."""
        return list(self._at.get(worker, {}).values())

    def holds(self, worker: int, id: int) -> bool:
        """Tell whether an evaluation is ordered at that worker."""
        return any(first <= id < first + entry.order.n for first, entry in self._at.get(worker, {}).items())

    def check(self) -> None:
        """Assert the invariants: no two open blocks share an id."""
        last = -1
        for first in sorted(self.open):
            entry = self.open[first]
            assert first == entry.order.first and first + entry.order.row_start > last
            assert entry.order.row_start <= entry.rows_back <= entry.order.row_stop <= entry.order.n
            last = first + entry.order.row_stop - 1
        assert self.n_rows_out == sum(entry.order.row_stop - entry.rows_back for entry in self.open.values())
