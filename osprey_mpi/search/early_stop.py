"""Decide by the median stopping rule which evaluations are not worth their time.

An evaluation stops at a step where its best value so far is worse than the median of what others reported at that very
step. Golovin et al. 2017 ("Google Vizier", section 3.2.2) compare with the others' averages up to the step instead:
those hold the bad values of the first steps, and next to nothing is stopped where values fall, as losses do.
"""

from __future__ import annotations

import numpy as np

# Finished evaluations that a median looks at, per step: the newest, so that memory has a bound.
WINDOW = 128
# Steps that are kept apart; later ones count as the last.
MOST_STEPS = 1024


class MedianRule:
    """Judge reports; nothing stops before step `min_steps`, or before `min_reports` others reported at that step."""

    def __init__(self, min_steps: int, min_reports: int) -> None:
        self._min_steps, self._min_reports = min_steps, min_reports
        self._best: dict[int, float] = {}  # by id
        self._values: dict[int, list[float]] = {}  # by step: the newest, at most WINDOW, as a ring
        self._n_reported: dict[int, int] = {}

    def report(self, id: int, step: int, value: float) -> bool:
        """Take an intermediate value; True: stop this evaluation."""
        step = min(step, MOST_STEPS)
        is_value = bool(np.isfinite(value))
        best = self._best[id] = min(self._best.get(id, np.inf), value if is_value else np.inf)
        others = self._values.setdefault(step, [])
        stops = step >= self._min_steps and len(others) >= self._min_reports and best > float(np.median(others))
        if is_value:
            self._add(step, value)
        return stops

    def _add(self, step: int, value: float) -> None:
        ring, n = self._values[step], self._n_reported.get(step, 0)
        if len(ring) < WINDOW:
            ring.append(value)
        else:
            ring[n % WINDOW] = value
        self._n_reported[step] = n + 1

    def finished(self, id: int) -> None:
        """Drop what is kept of an evaluation that reports no more."""
        self._best.pop(id, None)
