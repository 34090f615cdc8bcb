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
    id: int

    def is_beaten_by(self, cost: float, violation: float) -> bool:
        """Compare with another result; equal ones do not beat."""
        if math.isnan(cost) and not violation > 0.0:
            return False
        return (violation, _finite_first(cost)) < (self.violation, _finite_first(self.cost))


def _finite_first(cost: float) -> float:
    return math.inf if math.isnan(cost) else cost


def keys(costs: Floats, violations: Floats | None) -> tuple[Floats, Floats]:
    """Give the major and the minor sort key (n,) each: violation (infinite if failed) and cost."""
    failed = np.isnan(costs)
    if violations is None and not failed.any():
        return np.zeros(costs.size), costs
    minor = np.where(failed, np.inf, costs)
    major = np.zeros(costs.size) if violations is None else np.maximum(violations, 0.0)
    return np.where(failed & ~(major > 0.0), np.inf, major), minor


def order(major: Floats, minor: Floats) -> NDArray[np.int64]:
    """Sort by `keys`, ties by place."""
    if not major.any():
        return np.argsort(minor, kind="stable")
    return np.lexsort((minor, major))
