"""Hand out evaluation ids: each once in a life, the lowest first, none beyond the budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from osprey_mpi.continuity.ids import IdRanges
from osprey_mpi.continuity.messages import Lease
from osprey_mpi.continuity.redo import Redo


class Leases:
    """Know which ids are taken, and who waits for some.

    done: ids of earlier lives. A lease is at most half of what its flock will still do at the pace of all so far: no
    leader has many at the end while others have none.
    """

    def __init__(self, done: IdRanges, redo: Redo, budget: int | None, *, exact: bool) -> None:
        self.taken = IdRanges(done)
        self.redo = redo
        self._budget, self._exact = budget, exact
        self._wants: dict[int, int] = {}

    def give(self, start: int, stop: int) -> None:
        """Note that somebody is at these ids already."""
        self.taken.add(start, stop)

    def want(self, leader: int, n: int) -> None:
        """Note that a leader asks for n ids."""
        self._wants[leader] = n

    def grant(self, n_done: int, done_by: Mapping[int, int]) -> list[tuple[int, Lease]]:
        """Return leases for those who wait. n_done: of the run. done_by: leader -> evaluations of its flock.

        Without free ids the leader of an exact run gets an empty lease, because its round waits for all that there are.
        Any other just gets none: there will never be more.
        """
        granted = []
        for leader, n in list(self._wants.items()):
            share = (done_by[leader] + 1) / (sum(done_by.values()) + len(done_by))
            n_left = None if self._budget is None else int(share * max(0, self._budget - n_done))
            lease = self.redo.lease(n) or self._fresh(n, n_left)
            if lease is None and not self._exact:
                break
            del self._wants[leader]
            granted.append((leader, replace(lease or Lease(), n_left=-1 if n_left is None else n_left)))
        return granted

    def _fresh(self, n: int, n_left: int | None) -> Lease | None:
        if n_left is not None and not self._exact:
            n = min(n, max(1, n_left // 2))
        ranges: list[tuple[int, int]] = []
        while n > 0:
            start, stop = self._next_free(n)
            if stop == start:
                break
            self.taken.add(start, stop)
            ranges.append((start, stop))
            n -= stop - start
        return Lease(ranges=np.array(ranges, np.int64)) if ranges else None

    def _next_free(self, n: int) -> tuple[int, int]:
        """Return the lowest run of at most n free ids below the budget; (0, 0) when there is none."""
        low, high = self.taken.first_run()
        start = high if low == 0 else 0
        limit = start + n if self._budget is None else min(start + n, self._budget)
        free = self.taken.gaps(start, limit)
        return free[0] if free else (0, 0)
