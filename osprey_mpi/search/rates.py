"""Compute the weights and learning rates of the evolution strategy.

Names and formulas follow Hansen, "The CMA Evolution Strategy: A Tutorial" (2016, arXiv 1604.00772), table 1; the
diagonal variant learns faster by (d + 2) / 3 (Ros and Hansen 2008, sep-CMA-ES).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Above it a full covariance costs more to learn (d^2 evaluations) and to update (d^3) than it gains.
FULL_UP_TO = 64


@dataclass(frozen=True, slots=True, eq=False)
class Rates:
    """Hold the constants of one (population, dimension): weights are (population,), the first mu positive."""

    mu: int
    weights: Floats
    mueff: float
    c_sigma: float
    damping: float
    c_c: float
    c_1: float
    c_mu: float
    chi: float  # E|N(0, I)|
    longest: float  # |z| is clipped here: a rare long step must not raise sigma alone


@lru_cache(maxsize=64)
def rates(population: int, d: int, full: bool) -> Rates:
    """Give the constants for `population` samples in `d` dimensions."""
    d = max(d, 1)
    raw = math.log((population + 1) / 2) - np.log(np.arange(1, population + 1))
    mu = max(population // 2, 1)
    positive, negative = raw[:mu], np.minimum(raw[mu:], 0.0)
    mueff = float(positive.sum() ** 2 / (positive**2).sum())
    c_1 = 2.0 / ((d + 1.3) ** 2 + mueff)
    c_mu = 2.0 * (0.25 + mueff - 2.0 + 1.0 / mueff) / ((d + 2.0) ** 2 + mueff)
    if not full:
        c_1, c_mu = c_1 * (d + 2.0) / 3.0, c_mu * (d + 2.0) / 3.0
    c_1 = min(c_1, 0.5)
    c_mu = min(c_mu, 1.0 - c_1)
    weights = positive / positive.sum()
    if negative.size:
        mueff_negative = float(negative.sum() ** 2 / max((negative**2).sum(), 1e-300))
        by_mueff = 1.0 + 2.0 * mueff_negative / (mueff_negative + 2.0)
        least = min(1.0 + c_1 / c_mu, by_mueff, (1.0 - c_1 - c_mu) / (d * c_mu))
        weights = np.concatenate([weights, negative * max(least, 0.0) / max(-negative.sum(), 1e-300)])
    c_sigma = (mueff + 2.0) / (d + mueff + 5.0)
    return Rates(
        mu=mu,
        weights=weights,
        mueff=mueff,
        c_sigma=c_sigma,
        damping=1.0 + 2.0 * max(0.0, math.sqrt((mueff - 1.0) / (d + 1.0)) - 1.0) + c_sigma,
        c_c=(4.0 + mueff / d) / (d + 4.0 + 2.0 * mueff / d),
        c_1=c_1,
        c_mu=c_mu,
        chi=math.sqrt(d) * (1.0 - 1.0 / (4.0 * d) + 1.0 / (21.0 * d * d)),
        longest=2.0 * (math.sqrt(d) + 2.0 * d / (d + 2.0) + 1.0),
    )
