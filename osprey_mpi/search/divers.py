"""Send dives out, each from another place.

One dive is enough as long as a worker finds work in it. Where many evaluate at once it mostly waits for the last points
of its round: then others begin beside it, so that dives get their share whatever the number of workers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.search.dive import Dive
from osprey_mpi.search.osprey import fold
from osprey_mpi.search.ranking import Best
from osprey_mpi.search.rounds import Indices
from osprey_mpi.search.states import State, named, part_of
from osprey_mpi.search.streams import Purpose, stream

Floats = NDArray[np.float64]

# Dives under way at most: each keeps a curvature estimate.
MOST_DIVES = 16
# Where the next dive starts: the middle of the hover, around the flock's best, else anywhere.
FROM_HOVER, FROM_BEST = 0.2, 0.3


@dataclass(frozen=True, slots=True)
class Ticket:
    """Name some points of one round of one dive."""

    dive: int
    round: int
    rows: Indices


class Divers:
    """Hold the dives that are under way, by number; `n_ended` are over."""

    def __init__(self, d: int, seed: int, flock: int, batch: int, is_on: bool) -> None:
        self.is_on, self.n_ended = is_on, 0
        self._d, self._seed, self._flock, self._batch = d, seed, flock, batch
        self._n_begun = 0
        self._dives: dict[int, Dive] = {}

    @property
    def _waiting(self) -> int | None:
        """Find the oldest dive with a point that nobody works on."""
        return next((number for number, dive in self._dives.items() if dive.round.n_open), None)

    @property
    def has_points(self) -> bool:
        """Tell whether a worker could take a point now."""
        return self._waiting is not None

    def can_start(self, is_turn: bool) -> bool:
        """Tell whether a dive may begin: one always, more when it is the dives' turn.

        Not beside the first: it looks for noise, and may be all that a function with one valley needs.
        """
        if not self.is_on or not self._dives:
            return self.is_on
        return is_turn and self.n_ended > 0 and len(self._dives) < MOST_DIVES and not self.has_points

    def start(self, best: Best, hover_mean: Floats, is_adopted: bool) -> None:
        """Start the next dive; best: the flock's, or one adopted from another flock, where it starts at once."""
        is_first, number = self._n_begun == 0, self._n_begun
        self._n_begun += 1
        if is_first or is_adopted:
            self._dives[number] = self._new(number, best.position, best.cost, is_first)
            return
        random = stream(self._seed, self._key(number), Purpose.DIVE_START)
        where = random.random()
        if where < FROM_HOVER:
            x = hover_mean
        elif where < FROM_HOVER + FROM_BEST:
            width = 10.0 ** random.uniform(-2.5, -0.7)
            x = fold(best.position + width * random.standard_normal(self._d))
        else:
            x = random.random(self._d)
        self._dives[number] = self._new(number, x, math.nan, is_first)

    def _key(self, number: int) -> int:
        return (self._flock << 32) | number

    def _new(self, number: int, x: Floats, cost: float, is_first: bool) -> Dive:
        return Dive(x, cost, is_first=is_first, batch=self._batch, seed=self._seed, key=self._key(number))

    def take(self, n: int) -> tuple[Ticket, Floats]:
        """Hand out up to `n` open points of one dive: their ticket and positions (m, d)."""
        number = self._waiting
        assert number is not None
        dive = self._dives[number]
        rows = dive.round.take(n)
        return Ticket(number, dive.round.number, rows), dive.points(rows)

    def _dive_of(self, ticket: Ticket) -> Dive | None:
        """Find a ticket's dive if it is still at that round."""
        dive = self._dives.get(ticket.dive)
        return dive if dive is not None and dive.round.number == ticket.round else None

    def put_back(self, ticket: Ticket) -> None:
        """Open points again that nobody will tell."""
        dive = self._dive_of(ticket)
        if dive is not None:
            dive.round.put_back(ticket.rows)

    def tell(self, ticket: Ticket, costs: Floats, flock_best: float) -> None:
        """Take the costs of points that were handed out; the last of a round makes the dive go on."""
        dive = self._dive_of(ticket)
        if dive is None:
            return
        dive.round.tell(ticket.rows, costs)
        if not dive.round.is_complete:
            return
        dive.advance(flock_best)
        if dive.is_over:
            self.is_on = self.is_on and not dive.is_noisy
            del self._dives[ticket.dive]
            self.n_ended += 1

    def state(self) -> State:
        """Give everything that `load` needs, flat."""
        state: State = {
            "counts": np.array([self.is_on, self.n_ended, self._n_begun], dtype=np.int64),
            "numbers": np.array(list(self._dives), dtype=np.int64),
        }
        for number, dive in self._dives.items():
            state |= named(f"dive{number}", dive.state())
        return state

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from `state`."""
        is_on, self.n_ended, self._n_begun = (int(count) for count in state["counts"])
        self.is_on = bool(is_on)
        self._dives = {}
        for number in state["numbers"].tolist():
            part = part_of(state, f"dive{number}")
            self._dives[number] = Dive.load(part, batch=self._batch, seed=self._seed, key=self._key(number))
