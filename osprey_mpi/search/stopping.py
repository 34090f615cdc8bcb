"""Notice that a descent of the shared distribution has come to its end."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Costs that differ by less are equal; Hansen's TolHistFun of the BIPOP experiments (2009).
TOLERANCE = 1e-11
# A spread below this share of the range is a point.
POINT = 1e-12
# Generations kept to see stagnation; the tutorial keeps up to 20000, whose medians change nothing.
LONGEST = 2000
# Stagnation compares medians: often enough if asked every few generations.
EVERY = 16


class Stopping:
    """Keep the best and the median cost of recent generations, at most `LONGEST` of each."""

    def __init__(self) -> None:
        self._best: deque[float] = deque(maxlen=LONGEST)
        self._median: deque[float] = deque(maxlen=LONGEST)
        self._n_flat = 0
        self._n = 0

    def record(self, minor: Floats, major: Floats) -> None:
        """Take the ranked keys of one generation; a violation counts as a cost once nothing is feasible."""
        ranked = minor if major[0] == 0.0 else major
        self._n += 1
        self._best.append(float(ranked[0]))
        self._median.append(float(ranked[ranked.size // 2]))
        # Flat: the best and three quarters of the generation cost the same.
        self._n_flat = self._n_flat + 1 if ranked[0] == ranked[(3 * ranked.size) // 4] else 0

    def is_over(self, population: int, d: int, spread: Floats | None) -> bool:
        """Tell whether the descent has ended; spread: (k,) of the continuous dimensions, None where there is none."""
        window = 10 + int(30 * d / population)
        if self._n >= window:
            recent = list(self._best)[-window:]
            low, high = min(recent), max(recent)
            if high - low <= max(TOLERANCE, 4e-16 * abs(low)) or (np.isinf(low) and low == high):
                return True
        if self._n_flat >= window:
            return True
        if spread is not None and float(spread.max()) < POINT:
            return True
        return self._n % EVERY == 0 and self._stagnates(population, d)

    def _stagnates(self, population: int, d: int) -> bool:
        """Compare the first and the last 30 % of the last fifth (tutorial, B.3)."""
        length = min(max(int(0.2 * self._n), 120 + int(30 * d / population)), LONGEST)
        if self._n < 100 + 100 * d**1.5 / population or len(self._best) < length:
            return False
        part = max(int(0.3 * length), 1)
        for history in (self._best, self._median):
            recent = list(history)[-length:]
            if np.median(recent[-part:]) < np.median(recent[:part]):
                return False
        return True

    def state(self) -> dict[str, NDArray[Any]]:
        """Give everything that `load` needs."""
        return {
            "best": np.array(self._best, dtype=np.float64),
            "median": np.array(self._median, dtype=np.float64),
            "counts": np.array([self._n_flat, self._n], dtype=np.int64),
        }

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from `state`."""
        self._best = deque(state["best"].tolist(), maxlen=LONGEST)
        self._median = deque(state["median"].tolist(), maxlen=LONGEST)
        self._n_flat, self._n = (int(number) for number in state["counts"])
