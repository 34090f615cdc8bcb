"""Hover at the place where a dive ended, with the inverse Hessian that it left as covariance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.search.evolution import Evolution
from osprey_mpi.search.osprey import fold, smallest_population
from osprey_mpi.search.streams import Purpose, stream

Floats = NDArray[np.float64]

# Without a better point for so many evaluations per dimension the spot is left.
PATIENCE = 100


class HoverSpot:
    """Run generations of a small evolution strategy around `x`; key: number of its random stream."""

    def __init__(self, x: Floats, sigma: float, covariance: Floats, seed: int, key: int) -> None:
        self.population = smallest_population(x.size)
        self._evolution = Evolution(x.copy(), sigma, covariance)
        self._seed, self._key = seed, key
        self._best = np.inf
        self._n_since = 0

    def _latent(self) -> Floats:
        d = self._evolution.mean.size
        number = (self._key << 20) + self._evolution.n_generations
        return stream(self._seed, number, Purpose.DIVE).standard_normal((self.population, d))

    def points(self, rows: NDArray[np.int64]) -> Floats:
        """Give the positions (n, d) of some samples of the present generation."""
        e = self._evolution
        points: Floats = fold(e.mean + e.sigma * (self._latent() @ e.root.T))
        return points[rows]

    def learn(self, costs: Floats) -> None:
        """Take the costs (population,) of the present generation; failed ones are infinite."""
        self._n_since += costs.size
        if costs.min() < self._best:
            self._best, self._n_since = float(costs.min()), 0
        rank = np.argsort(costs, kind="stable")
        z = self._latent()[rank]
        step = self._evolution.sigma * (z @ self._evolution.root.T)
        sigmas = np.full(costs.size, self._evolution.sigma)
        self._evolution.update(self.population, z, sigmas, step, step, True)

    @property
    def is_over(self) -> bool:
        """Tell whether hovering here has stopped paying."""
        e = self._evolution
        return self._n_since >= PATIENCE * e.mean.size or not e.is_sound or float(e.spread.max()) < 1e-13

    def state(self) -> dict[str, NDArray[Any]]:
        """Give everything that `load` needs."""
        return self._evolution.state() | {"progress": np.array([self._best, self._n_since], dtype=np.float64)}

    @classmethod
    def load(cls, state: Mapping[str, NDArray[Any]], seed: int, key: int) -> HoverSpot:
        """Continue from `state`."""
        made = cls(state["mean"], 1.0, np.asarray(state["covariance"]), seed, key)
        made._evolution.load(state)
        made._best, made._n_since = float(state["progress"][0]), int(state["progress"][1])
        return made
