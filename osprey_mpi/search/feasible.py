"""Estimate how much of a space satisfies its constraints."""

from __future__ import annotations

import numpy as np

from osprey_mpi.search.space import Space
from osprey_mpi.search.streams import Purpose, stream

CHUNK_NUMBERS = 2**20  # positions drawn at once: 8 MiB of float64


def feasible_share(space: Space, n: int, seed: int) -> float:
    """Give the share of `n` points, uniform in the unit box, that satisfy all constraints of a space."""
    generator = np.random.Generator(np.random.Philox(key=int(stream(seed, 0, Purpose.SHARE).integers(2**62))))
    n_rows = max(1, CHUNK_NUMBERS // max(space.n_dims, 1))
    n_feasible = 0
    for first in range(0, n, n_rows):
        positions = generator.random((min(n_rows, n - first), space.n_dims))
        positions[:, space.n_numeric :] = np.floor(positions[:, space.n_numeric :] * np.array(space.n_choices))
        n_feasible += int(np.count_nonzero(space.violation(space.decode(positions)) == 0.0))
    return n_feasible / n
