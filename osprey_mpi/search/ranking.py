"""Order results: feasible ones by cost, then infeasible ones by violation (Deb 2000), failed ones last."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Best:
    """Hold the best evaluation so far; position: (n_dims,).

    `cost` is NaN if nothing but infeasible points without a cost came.
    """

    cost: float
    violation: float
    position: Floats

    def is_beaten_by(self, cost: float, violation: float) -> bool:
        """Compare with another result; equal ones do not beat."""
        if math.isnan(cost) and not violation > 0.0:
            return False
        return (violation, _finite_first(cost)) < (self.violation, _finite_first(self.cost))


def _finite_first(cost: float) -> float:
    return math.inf if math.isnan(cost) else cost


@dataclass(frozen=True, slots=True, eq=False)
class Results:
    """Hold the results of some points, (n,) each: their costs (NaN if failed) and the two keys that order them.

    major: the violation, infinite if failed; minor: the cost, infinite if failed. Neither is NaN.
    """

    costs: Floats
    major: Floats
    minor: Floats

    @classmethod
    def of(cls, costs: Floats, violations: Floats | None) -> Results:
        """Order costs (n,), where only a finite one is a cost, and violations (n,) >= 0, None for none."""
        finite = np.isfinite(costs)
        is_plain = violations is None or not violations.any()
        if is_plain and finite.all():
            return cls(costs, np.zeros(costs.size), costs)
        major = np.zeros(costs.size) if violations is None else np.maximum(violations, 0.0)
        major = np.where(finite | (major > 0.0), major, np.inf)
        return cls(np.where(finite, costs, np.nan), major, np.where(finite, costs, np.inf))

    def first(self) -> int:
        """Find the best, the first of equal ones. Python is faster than NumPy where there are few."""
        if self.major.size > 64:
            return int(order(self.major, self.minor)[0])
        pairs = list(zip(self.major.tolist(), self.minor.tolist(), strict=True))
        return pairs.index(min(pairs))


def order(major: Floats, minor: Floats) -> NDArray[np.int64]:
    """Sort by the keys of `Results`, ties by place."""
    if not major.any():
        return np.argsort(minor, kind="stable")
    return np.lexsort((minor, major))
