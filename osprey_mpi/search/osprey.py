"""Do what one osprey does: hover over a position drawn from the shared distribution, and keep the best of a batch."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.search.distribution import Distribution
from osprey_mpi.search.scales import clip

# A share of the range: a position this close to a wall is put on it, so that an optimum on a bound is hit exactly.
WALL = 1e-10


class Box(Protocol):
    """Describe the dimensions of a space."""

    n_numeric: int
    n_categorical: int
    n_choices: tuple[int, ...]


def fold(x: Any, xp: Any = np) -> Any:
    """Reflect coordinates at 0 and 1 as often as needed, in place; what is not a finite number goes to a wall."""
    turns = 0.5 * x
    xp.rint(turns, out=turns)
    turns *= 2.0
    x -= turns
    xp.abs(x, out=x)
    x *= 1.0 + 2.0 * WALL  # stretched by a hair and clipped: half the cost of comparing with both walls
    x -= WALL
    return clip(x, 0.0, 1.0, xp)


def hover(distribution: Distribution, latent: Any, space: Box, xp: Any = np) -> Any:
    """Draw positions (n, n_dims) from latent numbers (n, n_dims), see `streams.latent`; arrays are on `xp`'s device."""
    n = space.n_numeric
    z = latent[:, :n]
    factor = xp.asarray(distribution.factor * distribution.sigma)
    step = z * factor if factor.ndim == 1 else z @ factor.T
    step += xp.asarray(distribution.mean)
    numeric = fold(step, xp)
    if space.n_categorical == 0:
        return numeric
    positions = xp.empty(latent.shape, dtype=xp.float64)
    positions[:, :n] = numeric
    positions[:, n:] = choose(distribution.probabilities, latent[:, n:], space.n_choices, xp)
    return positions


def choose(probabilities: Any, uniforms: Any, n_choices: tuple[int, ...], xp: Any = np) -> Any:
    """Turn uniforms (n, n_categorical) into codes by the inverse of each table's cumulative sum."""
    codes = xp.empty(uniforms.shape, dtype=xp.float64)
    start = 0
    for column, k in enumerate(n_choices):
        edges = xp.cumsum(xp.asarray(probabilities[start : start + k]))[: k - 1]
        codes[:, column] = xp.searchsorted(edges, uniforms[:, column], side="right")
        start += k
    return codes


def survivors(costs: NDArray[np.float64], violations: NDArray[np.float64], k: int) -> NDArray[np.int64]:
    """Give the rows of the `k` best of a block, best first: by violation, then by cost, then by place.

    Failed ones are left out: no cost (NaN) and no violation. One that breaks a constraint needs no cost.
    """
    if violations.any():
        usable = np.flatnonzero((violations > 0.0) | ~np.isnan(costs))
        return usable[np.lexsort((costs[usable], violations[usable]))[:k]]
    n_usable = int(np.count_nonzero(~np.isnan(costs)))
    k = min(k, n_usable)
    if 0 < k < costs.size // 4:
        limit = np.partition(costs, k - 1)[k - 1]  # sorting 4096 costs to keep 40 would cost five times as much
        few = np.flatnonzero(costs <= limit)
        return few[np.argsort(costs[few], kind="stable")[:k]]
    return np.argsort(costs, kind="stable")[:k]


def captures(costs: NDArray[np.float64], best: float) -> NDArray[np.int64]:
    """Give the places of costs (n,) that are better than `best` and than all before them; NaN never is."""
    if not np.fmin.reduce(costs, initial=np.inf) < best:  # the common case
        return np.empty(0, np.int64)
    before = np.fmin.accumulate(np.concatenate([[best], costs[:-1]]))
    return np.flatnonzero(costs < before)


# float64 numbers that the survivors of one block may bring to the leader: 1 MB.
SURVIVOR_NUMBERS = 2**17


def smallest_population(n_dims: int) -> int:
    """Give the population that one distribution needs at least (Hansen 2016, table 1)."""
    return 4 + int(3.0 * math.log(max(n_dims, 1)))


def batch_population(batch: int, n_dims: int) -> int:
    """Give the population of a flock whose blocks have `batch` points.

    One distribution gains up to about 6 samples per dimension and no more (measured on Rosenbrock and ellipsoids).
    """
    least = smallest_population(n_dims)
    return min(max(batch, least), max(least, min(6 * n_dims, SURVIVOR_NUMBERS // max(n_dims, 1))))


def n_survivors(batch: int, n_dims: int) -> int:
    """Give how many of a block of `batch` points the leader learns from: all of a small one, else the best."""
    population = batch_population(batch, n_dims)
    return batch if batch <= population else population // 2
