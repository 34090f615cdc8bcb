"""Keep a shared distribution from settling on one value of a discrete dimension before its neighbours were tried.

CMA-ES with Margin (Hamano, Saito, Nomura, Shirakawa 2022, arXiv 2205.13482): the probability to leave the present cell
never falls below a margin; where it would, the mean moves, and the dimension is widened unless its cell is at an end.
Positions are folded at the walls of the box, so the cells go on, mirrored, outside it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.search.normal import upper_quantile, upper_tail
from osprey_mpi.search.scales import Scales

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Hold the cells around a mean without the folding at the walls: all (n_discrete,).

    A cell at a wall reaches as far behind it; `is_end` marks it.
    """

    lower: Floats
    upper: Floats
    is_end: NDArray[np.bool_]


def cells_around(mean: Floats, scales: Scales) -> Cells:
    """Give the cells that the discrete dimensions of `mean` (n_numeric,) lie in."""
    turns = 2.0 * np.rint(0.5 * mean)
    inside = mean - turns
    lower, upper = scales.cells(np.abs(inside))
    at_low, at_high = lower <= 0.0, upper >= 1.0
    lower, upper = np.where(at_low, -upper, lower), np.where(at_high, 2.0 - lower, upper)
    mirrored = inside[scales.discrete] < 0
    turns = turns[scales.discrete]
    return Cells(np.where(mirrored, -upper, lower) + turns, np.where(mirrored, -lower, upper) + turns, at_low | at_high)


def with_margin(mean: Floats, spread: Floats, scales: Scales, alpha: float) -> tuple[Floats, Floats]:
    """Give the mean and the spread (standard deviations) (n_numeric,) that keep the margin `alpha`."""
    which = scales.discrete
    cells = cells_around(mean, scales)
    m, s = mean[which], spread[which]
    to_low, to_high = m - cells.lower, cells.upper - m
    limit, end_limit = upper_quantile(0.5 * alpha) * s, upper_quantile(alpha) * s
    short = np.where(cells.is_end, np.minimum(to_low, to_high) > end_limit, np.maximum(to_low, to_high) > limit)
    short &= scales.n_levels[which] > 1
    if not short.any():
        return mean, spread
    mean, spread = mean.copy(), spread.copy()
    for i in np.flatnonzero(short):
        if cells.is_end[i]:
            near_high = to_high[i] < to_low[i] or (to_high[i] == to_low[i] and cells.lower[i] < 0.0)
            mean[which[i]] = cells.upper[i] - end_limit[i] if near_high else cells.lower[i] + end_limit[i]
        else:
            mean[which[i]], spread[which[i]] = _corrected(m[i], s[i], cells.lower[i], cells.upper[i], alpha)
    return mean, spread


def _corrected(m: float, s: float, lower: float, upper: float, alpha: float) -> tuple[float, float]:
    low, high = upper_tail((m - lower) / s), upper_tail((upper - m) / s)
    middle = 1.0 - low - high
    floor = 0.5 * alpha
    low, high = max(low, floor), max(high, floor)
    # The three sum to more than 1 now: what is above the floor gives way in proportion (their equations 13 to 17).
    excess = (1.0 - low - high - middle) / (low + high + middle - 3.0 * floor)
    t_low = upper_quantile(min(low + excess * (low - floor), 0.5))
    t_high = upper_quantile(min(high + excess * (high - floor), 0.5))
    width = t_low + t_high
    return (lower * t_high + upper * t_low) / width, (upper - lower) / width
