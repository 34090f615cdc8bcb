"""Hold what a worker needs to hover: the shared distribution of its flock."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """Describe N(mean, (sigma * factor)^2) over the numeric dimensions and one table per categorical dimension.

    mean: (n_numeric,), may lie outside [0, 1] (positions are folded back); factor: (n_numeric,) for a diagonal or
    (n_numeric, n_numeric), symmetric up to the rows that a margin widens; probabilities: (sum(n_choices),), one table
    after the other, each sums to 1.
    """

    generation: int
    mean: Floats
    sigma: float
    factor: Floats
    probabilities: Floats
