"""Keep track of points that are wanted together: asked in any portions, told in any order, lost and asked again."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


class Stage(IntEnum):
    """Name what the points of a round are for."""

    START = 0
    GRADIENT = 1
    COARSE = 2
    FINE = 3
    HOVER = 4


class Round:
    """Hold one round: `costs` (n,), which of them were told, and which are asked and not told.

    `number` tells rounds apart, so that a result of an earlier round is not taken for one of this.
    """

    def __init__(self, number: int, stage: Stage, n: int) -> None:
        self.number, self.stage = number, stage
        self.costs = np.full(n, np.nan)
        self._told, self._asked = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
        self._n_open, self._n_told = n, 0

    @property
    def n_open(self) -> int:
        """Count the points that nobody works on."""
        return self._n_open

    @property
    def is_complete(self) -> bool:
        """Tell whether every point was told."""
        return self._n_told == self.costs.size

    def take(self, n: int) -> Indices:
        """Hand out up to `n` open points, in order."""
        rows = np.flatnonzero(~self._asked)[:n]
        self._asked[rows] = True
        self._n_open -= rows.size
        return rows

    def tell(self, rows: Indices, costs: Floats) -> None:
        """Take the costs of points that were handed out."""
        assert self._asked[rows].all() and not self._told[rows].any()
        self.costs[rows] = costs
        self._told[rows] = True
        self._n_told += rows.size

    def put_back(self, rows: Indices) -> None:
        """Open points again whose results will never come."""
        self._asked[rows] = False
        self._n_open += rows.size

    def state(self) -> dict[str, NDArray[Any]]:
        """Give everything that `load` needs; points that are asked and not told count as open."""
        header = np.array([self.number, int(self.stage)], dtype=np.int64)
        return {"header": header, "costs": self.costs.copy(), "told": self._told.astype(np.uint8)}

    @classmethod
    def load(cls, state: Mapping[str, NDArray[Any]]) -> Round:
        """Continue from `state`."""
        number, stage = (int(word) for word in state["header"])
        made = cls(number, Stage(stage), state["costs"].size)
        made.costs[:] = state["costs"]
        made._told[:] = state["told"].astype(bool)
        made._asked[:] = made._told
        made._n_told = int(made._told.sum())
        made._n_open = made.costs.size - made._n_told
        return made
