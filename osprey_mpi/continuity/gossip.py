"""Spread among the leaders what each flock has found and done, without the root: push-pull, merged as a join.

    every cycle   leader --Gossip--> one other; it merges, --Gossip (answer)--> back, merged there as well

In round r of n leaders the i-th turns to number i + 2**r: what one of them knows, all know after log2(n) rounds
(dissemination, Hensgen, Finkel & Manber 1988). Merging keeps the newest word of every leader and the best point, by
total orders: in whatever order, however often, the same comes out. So flocks that were cut off from each other need
nothing but one more round.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.continuity.ledger import rank_key
from osprey_mpi.continuity.messages import Best, Gossip
from osprey_mpi.continuity.records import NO_ID, VIEW

View = tuple[int, int, int, int, int]  # the fields of VIEW without the leader: the newest is the largest


class Rumours:
    """Hold what one leader knows of all flocks.

    views: leader -> incarnation, round of its own, evaluations, workers, lost workers. best: the best point of all.
    """

    def __init__(self, rank: int, leaders: Iterable[int]) -> None:
        self.rank = rank
        self.views: dict[int, View] = {}
        self.best = Best(float("inf"), 0.0, NO_ID)
        self._ring: Sequence[int] = sorted({rank, *leaders})
        self._round = 0

    @property
    def n_evaluations(self) -> int:
        """Count the evaluations of all flocks, as far as they are known here."""
        return sum(view[2] for view in self.views.values())

    def speak(self, incarnation: int, n_evaluations: int, n_workers: int, n_lost: int) -> None:
        """Enter the newest word of this leader."""
        self.views[self.rank] = (incarnation, self._round, n_evaluations, n_workers, n_lost)

    def next_peer(self) -> int | None:
        """Return whom to turn to in this round; None without another leader."""
        n = len(self._ring)
        if n < 2:
            return None
        stride = 1 << self._round % (n - 1).bit_length()
        self._round += 1
        return self._ring[(self._ring.index(self.rank) + stride) % n]

    def merge(self, message: Gossip) -> bool:
        """Take in what another leader knows; return whether its best point is better."""
        for leader, *fields in message.views.tolist():
            self.views[leader] = max(self.views.get(leader, (0, -1, 0, 0, 0)), tuple(fields))
        return self.hear_of(Best(message.cost, message.violation, message.best_id, message.position))

    def hear_of(self, best: Best) -> bool:
        """Take in a point; return whether it is better than all so far."""
        old = self.best
        if not rank_key(best.cost, best.violation, best.id) < rank_key(old.cost, old.violation, old.id):
            return False
        self.best = best
        return True

    def message(self, *, is_answer: bool) -> Gossip:
        """Return all that is known here."""
        rows = [(leader, *view) for leader, view in sorted(self.views.items())]
        views: NDArray[np.void] = np.array(rows, VIEW)
        best = self.best
        return Gossip(int(is_answer), best.cost, best.violation, best.id, best.position, views)
