"""Send dives out one after the other, each from another place."""

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

# Where the next dive starts: the middle of the hover, around the flock's best, else anywhere.
FROM_HOVER, FROM_BEST = 0.2, 0.3


@dataclass(frozen=True, slots=True)
class Ticket:
    """Name some points of one round of one dive."""

    dive: int
    round: int
    rows: Indices


class Divers:
    """Hold the present dive; `n_ended` dives came before it."""

    def __init__(self, d: int, seed: int, flock: int, batch: int, is_on: bool) -> None:
        self.is_on, self.n_ended = is_on, 0
        self._d, self._seed, self._flock, self._batch = d, seed, flock, batch
        self._dive: Dive | None = None

    @property
    def n_open(self) -> int:
        """Count the points that a worker could take now."""
        return self._dive.round.n_open if self._dive is not None else 0

    @property
    def is_resting(self) -> bool:
        """Tell whether a dive could start."""
        return self.is_on and self._dive is None

    def start(self, best: Best, hover_mean: Floats, is_adopted: bool) -> None:
        """Start the next dive; best: the flock's, or one adopted from another flock, where it starts at once."""
        is_first = self.n_ended == 0
        if is_first or is_adopted:
            self._dive = self._new(best.position, best.cost, is_first)
            return
        random = stream(self._seed, self._key, Purpose.DIVE_START)
        where = random.random()
        if where < FROM_HOVER:
            x = hover_mean
        elif where < FROM_HOVER + FROM_BEST:
            width = 10.0 ** random.uniform(-2.5, -0.7)
            x = fold(best.position + width * random.standard_normal(self._d))
        else:
            x = random.random(self._d)
        self._dive = self._new(x, math.nan, is_first)

    @property
    def _key(self) -> int:
        return (self._flock << 32) | self.n_ended

    def _new(self, x: Floats, cost: float, is_first: bool) -> Dive:
        return Dive(x, cost, is_first=is_first, batch=self._batch, seed=self._seed, key=self._key)

    def take(self, n: int) -> tuple[Ticket, Floats]:
        """Hand out up to `n` open points: their ticket and positions (m, d)."""
        assert self._dive is not None
        rows = self._dive.round.take(n)
        return Ticket(self.n_ended, self._dive.round.number, rows), self._dive.points(rows)

    def _is_current(self, ticket: Ticket) -> bool:
        return self._dive is not None and (ticket.dive, ticket.round) == (self.n_ended, self._dive.round.number)

    def put_back(self, ticket: Ticket) -> None:
        """Open points again that nobody will tell."""
        if self._dive is not None and self._is_current(ticket):
            self._dive.round.put_back(ticket.rows)

    def tell(self, ticket: Ticket, costs: Floats, flock_best: float) -> None:
        """Take the costs of points that were handed out; the last of a round makes the dive go on."""
        if self._dive is None or not self._is_current(ticket):
            return
        self._dive.round.tell(ticket.rows, costs)
        if not self._dive.round.is_complete:
            return
        self._dive.advance(flock_best)
        if self._dive.is_over:
            self.is_on = self.is_on and not self._dive.is_noisy
            self._dive = None
            self.n_ended += 1

    def state(self) -> State:
        """Give everything that `load` needs, flat."""
        state: State = {"counts": np.array([self.is_on, self.n_ended], dtype=np.int64)}
        return state if self._dive is None else state | named("dive", self._dive.state())

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from `state`."""
        self.is_on, self.n_ended = bool(state["counts"][0]), int(state["counts"][1])
        dive = part_of(state, "dive")
        self._dive = Dive.load(dive, batch=self._batch, seed=self._seed, key=self._key) if dive else None
