"""Carry a block that the budget cut in two over to the resumed run, so that the search goes on bit for bit.

A run of one process evaluates a batched objective in blocks of fixed size. Where the budget ends inside a block, the
search must not learn from half of it: an uninterrupted run would not have. So the checkpoint holds the search as it was
before that block was asked for, and what its rows gave; the resumed run asks again, gets the same block, evaluates the
rest, and tells the search the whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.continuity.ids import IdRanges
from osprey_mpi.continuity.messages import Order
from osprey_mpi.continuity.orders import OpenOrder
from osprey_mpi.search.flock import Flock

Arrays = dict[str, NDArray[Any]]
_PREFIX = "carry_"


class Carry:
    """Hold the cut block of an exact run of one worker, if there is one.

    It is held until the whole block has taught the search, however many lives that takes.
    """

    def __init__(self, arrays: Arrays | None = None) -> None:
        self._before: Arrays | None = None
        self._cut: Arrays | None = arrays
        self._positions: NDArray[np.float64] | None = None  # of the cut block, when this life asked for it
        self._is_open = False  # the rest of the cut block is out

    @classmethod
    def split(cls, snapshot: Arrays) -> tuple[Arrays, Carry]:
        """Split a leader's snapshot into that of its search and the cut block."""
        carried = {name[len(_PREFIX) :]: value for name, value in snapshot.items() if name.startswith(_PREFIX)}
        search = {name: value for name, value in snapshot.items() if not name.startswith(_PREFIX)}
        return search, cls(carried or None)

    def before_ask(self, search: Flock, *, cut: bool) -> None:
        """Remember the search as it is before a block that will be cut; an older one is over."""
        self._before = search.snapshot() if cut else None
        self._cut = self._positions = None
        self._is_open = False

    def keep(self, entry: OpenOrder) -> bool:
        """Keep a cut block; return False when the search was not remembered: then it learns from what there is."""
        if self._before is None:
            return False
        n_dims = entry.survivor_latent[0].shape[1] if entry.survivor_latent else 0
        costs, violations, latent = entry.survivors(n_dims)
        self._cut = {
            "block": np.array([entry.order.first, entry.order.n, entry.order.row_stop, entry.generation]),
            "costs": entry.costs,
            "violations": entry.violations,
            "survivor_costs": costs,
            "survivor_violations": violations,
            "survivor_latent": latent,
        }
        self._positions, self._is_open = entry.order.positions, False
        return True

    def complete(self) -> None:
        """Let go of the cut block: the search has learned from the whole of it."""
        self._before = self._cut = self._positions = None
        self._is_open = False

    def snapshot(self, search: Flock) -> Arrays:
        """Return the search as a resumed run needs it, with the cut block beside it."""
        if self._cut is None:
            return dict(search.snapshot())
        before = search.snapshot() if self._before is None else self._before
        return {**before, **{_PREFIX + name: value for name, value in self._cut.items()}}

    def resume(self, pool: IdRanges, search: Flock, cycle: int) -> Order | None:
        """Return the order for the rest of the cut block, when the pool holds its ids."""
        if self._cut is None or self._is_open:
            return None
        first, n, row_start, _ = (int(v) for v in self._cut["block"])
        start, stop = pool.first_run()
        if start != first + row_start or stop <= start:
            return None
        if self._positions is None:
            self._before = search.snapshot()
            proposal = search.ask(first, n)
            self._positions = np.empty((0, 0)) if proposal.positions is None else proposal.positions
        row_stop = min(n, row_start + stop - start)
        pool.remove(start, first + row_stop)
        self._is_open = True
        return Order(first, n, row_start, row_stop, cycle, 0, self._positions)

    def fill(self, entry: OpenOrder) -> None:
        """Enter what was found before the cut into the resumed block."""
        assert self._cut is not None and self._is_open
        saved, done = self._cut, entry.order.row_start
        entry.costs[:done], entry.violations[:done] = saved["costs"][:done], saved["violations"][:done]
        if len(saved["survivor_costs"]):
            entry.survivor_costs.append(saved["survivor_costs"])
            entry.survivor_violations.append(saved["survivor_violations"])
            entry.survivor_latent.append(saved["survivor_latent"])
