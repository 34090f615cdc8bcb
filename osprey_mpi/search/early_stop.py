"""Decide by the median stopping rule which evaluations are not worth their time.

An evaluation stops at a step where its best value so far is worse than the median of what others had reported, on
average, up to that step (Golovin et al. 2017, "Google Vizier", section 3.2.2). Lower values are better.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.search.states import State

# Finished evaluations that a median looks at, per step: the newest, so that memory has a bound.
WINDOW = 128
# Steps that are kept apart; later ones count as the last.
MOST_STEPS = 1024


class MedianRule:
    """Judge reports; nothing stops before step `min_steps`, or before `min_reports` others reported at that step."""

    def __init__(self, min_steps: int, min_reports: int) -> None:
        self._min_steps, self._min_reports = min_steps, min_reports
        self._running: dict[int, list[float]] = {}  # id: sum, count, best
        self._averages: dict[int, list[float]] = {}  # step: newest averages, at most WINDOW, as a ring
        self._n_reported: dict[int, int] = {}

    def report(self, id: int, step: int, value: float) -> bool:
        """Take an intermediate value; True: stop this evaluation."""
        step = min(step, MOST_STEPS)
        entry = self._running.setdefault(id, [0.0, 0.0, np.inf])
        if np.isfinite(value):
            entry[0], entry[1], entry[2] = entry[0] + value, entry[1] + 1.0, min(entry[2], value)
        others = self._averages.setdefault(step, [])
        stops = step >= self._min_steps and len(others) >= self._min_reports and entry[2] > float(np.median(others))
        if entry[1] > 0.0:
            self._add(step, entry[0] / entry[1])
        return stops

    def _add(self, step: int, average: float) -> None:
        ring, n = self._averages[step], self._n_reported.get(step, 0)
        if len(ring) < WINDOW:
            ring.append(average)
        else:
            ring[n % WINDOW] = average
        self._n_reported[step] = n + 1

    def finished(self, id: int) -> None:
        """Drop what is kept of an evaluation that reports no more."""
        self._running.pop(id, None)

    def state(self) -> State:
        """Give everything that `load` needs."""
        ids, steps = list(self._running), list(self._averages)
        return {
            "ids": np.array(ids, dtype=np.int64),
            "running": np.array([self._running[i] for i in ids], dtype=np.float64).reshape(-1, 3),
            "steps": np.array(steps, dtype=np.int64),
            "reported": np.array([self._n_reported.get(step, 0) for step in steps], dtype=np.int64),
            "sizes": np.array([len(self._averages[step]) for step in steps], dtype=np.int64),
            "averages": np.array([value for step in steps for value in self._averages[step]], dtype=np.float64),
        }

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from `state`."""
        self._running = {int(i): row.tolist() for i, row in zip(state["ids"], state["running"], strict=True)}
        steps = [int(step) for step in state["steps"]]
        ends = np.cumsum(state["sizes"])
        parts = np.split(state["averages"], ends[:-1]) if steps else []
        self._averages = {step: part.tolist() for step, part in zip(steps, parts, strict=True)}
        self._n_reported = {step: int(n) for step, n in zip(steps, state["reported"], strict=True)}
