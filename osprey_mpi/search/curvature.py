"""Estimate the inverse Hessian from pairs of steps and gradient changes."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# BFGS keeps d^2 numbers and pays d^2 per step: up to here it needs fewer gradients than L-BFGS.
DENSE_UP_TO = 40
# Pairs that L-BFGS remembers.
MEMORY = 20


class Curvature(Protocol):
    """Turn gradients into directions; `n_pairs` counts the pairs learnt since the last `forget`."""

    n_pairs: int

    def times(self, gradient: Floats) -> Floats:
        """Multiply by the inverse Hessian."""
        ...

    def learn(self, step: Floats, change: Floats) -> None:
        """Take a step and the change of the gradient along it; pairs without positive curvature are skipped."""
        ...

    def forget(self) -> None:
        """Start again from the identity."""
        ...

    def state(self) -> dict[str, NDArray[Any]]:
        """Give everything that `load` needs."""
        ...

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from `state`."""
        ...


def curvature_for(d: int) -> Curvature:
    """Choose the estimate for `d` dimensions."""
    return Dense(d) if d <= DENSE_UP_TO else Limited(d)


def is_usable(step: Floats, change: Floats) -> bool:
    """Tell whether a pair has positive curvature beyond rounding."""
    product = float(step @ change)
    return product > 1e-10 * float(np.sqrt((step @ step) * (change @ change))) and np.isfinite(product)


class Dense:
    """Keep the whole inverse Hessian (BFGS; Nocedal and Wright 2006, equation 6.17)."""

    def __init__(self, d: int) -> None:
        self.n_pairs = 0
        self.inverse = np.eye(d)

    def times(self, gradient: Floats) -> Floats:
        """Multiply by the inverse Hessian."""
        result: Floats = self.inverse @ gradient
        return result

    def learn(self, step: Floats, change: Floats) -> None:
        """Take a step and the change of the gradient along it; pairs without positive curvature are skipped."""
        if not is_usable(step, change):
            return
        product = float(step @ change)
        if self.n_pairs == 0:  # the scale of the first inverse (their equation 6.20)
            self.inverse = np.eye(step.size) * (product / float(change @ change))
        turned = np.eye(step.size) - np.outer(step, change) / product
        inverse = turned @ self.inverse @ turned.T + np.outer(step, step) / product
        self.inverse = 0.5 * (inverse + inverse.T)
        self.n_pairs += 1

    def forget(self) -> None:
        """Start again from the identity."""
        self.n_pairs, self.inverse = 0, np.eye(self.inverse.shape[0])

    def state(self) -> dict[str, NDArray[Any]]:
        """Give everything that `load` needs."""
        return {"inverse": self.inverse, "n_pairs": np.array(self.n_pairs, dtype=np.int64)}

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from `state`."""
        self.inverse, self.n_pairs = state["inverse"], int(state["n_pairs"])


class Limited:
    """Keep the last pairs (L-BFGS, two loops; Nocedal and Wright 2006, algorithm 7.4)."""

    def __init__(self, d: int) -> None:
        self._d = d
        self.n_pairs = 0
        self._pairs: deque[tuple[Floats, Floats]] = deque(maxlen=MEMORY)

    def times(self, gradient: Floats) -> Floats:
        """Multiply by the inverse Hessian."""
        q, parts = gradient.copy(), []
        for step, change in reversed(self._pairs):
            part = float(step @ q) / float(step @ change)
            q -= part * change
            parts.append(part)
        if self._pairs:
            step, change = self._pairs[-1]
            q *= float(step @ change) / float(change @ change)
        for (step, change), part in zip(self._pairs, reversed(parts), strict=True):
            q += (part - float(change @ q) / float(step @ change)) * step
        return q

    def learn(self, step: Floats, change: Floats) -> None:
        """Take a step and the change of the gradient along it; pairs without positive curvature are skipped."""
        if is_usable(step, change):
            self._pairs.append((step.copy(), change.copy()))
            self.n_pairs += 1

    def forget(self) -> None:
        """Start again from the identity."""
        self._pairs.clear()
        self.n_pairs = 0

    def state(self) -> dict[str, NDArray[Any]]:
        """Give everything that `load` needs."""
        pairs = np.array(self._pairs, dtype=np.float64).reshape(-1, 2, self._d)
        return {"pairs": pairs, "n_pairs": np.array(self.n_pairs, dtype=np.int64)}

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from `state`."""
        self._pairs = deque(((pair[0], pair[1]) for pair in state["pairs"]), maxlen=MEMORY)
        self.n_pairs = int(state["n_pairs"])
