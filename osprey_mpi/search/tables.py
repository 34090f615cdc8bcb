"""Adapt one probability table per categorical dimension from ranked samples.

CatCMA (Hamano, Saito, Nomura, Uchida, Shirakawa 2024, arXiv 2405.09962): a natural gradient step whose length adapts
to the signal in the recent gradients (ASNG, Akimoto et al. 2019), and a lower margin for every choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Their recommended setting: all dimensions keep the most likely choice with probability 0.73.
KEPT = 0.73
# Signal-to-noise threshold of ASNG.
ALPHA = 1.5


class Tables:
    """Hold the tables, all zero-padded to the longest: probabilities (n_categorical, k_max)."""

    def __init__(self, n_choices: tuple[int, ...]) -> None:
        self.n_choices = np.array(n_choices, dtype=np.int64)
        n, k_max = len(n_choices), max(n_choices, default=0)
        self.exists = np.arange(k_max) < self.n_choices[:, None] if n else np.zeros((0, 0), dtype=bool)
        self.least = (1.0 - KEPT ** (1.0 / max(n, 1))) / np.maximum(self.n_choices - 1, 1)
        self.probabilities = self.exists / np.maximum(self.n_choices, 1)[:, None]
        self.path = np.zeros((n, k_max))
        self.trust, self.weight = 1.0, 0.0  # capital delta and gamma of ASNG
        self.n_free = max(int((self.n_choices - 1).sum()), 1)

    @property
    def flat(self) -> Floats:
        """Give the tables one after the other, without the padding, as a `Distribution` holds them."""
        return self.probabilities[self.exists]

    def lean(self, codes: Floats, share: float) -> None:
        """Give the choices `codes` (n_categorical,) the probability `share` on top of the rest."""
        hit = np.arange(self.exists.shape[1]) == codes[:, None]
        self.probabilities = (1.0 - share) * self.probabilities + share * hit

    def update(self, codes: Floats, weights: Floats) -> None:
        """Move towards the ranked `codes` (n, n_categorical) with positive `weights` (n,) that sum to 1."""
        hits = codes[:, :, None] == np.arange(self.exists.shape[1])
        gradient = np.einsum("i,ijk->jk", weights, hits) - self.probabilities
        normal = self._normalised(gradient)
        length = float(np.sqrt((normal * normal).sum())) + 1e-30
        step = 1.0 / self.trust
        q = self.probabilities + step / length * gradient
        beta = step / self.n_free**0.5
        self.path = (1.0 - beta) * self.path + np.sqrt(beta * (2.0 - beta)) * normal / length
        self.weight = (1.0 - beta) ** 2 * self.weight + beta * (2.0 - beta)
        self.trust *= float(np.exp(beta * (self.weight - (self.path * self.path).sum() / ALPHA)))
        self.trust = max(self.trust, 1.0 / self.n_free**0.5)  # beta must stay a rate: at most 1
        self.probabilities = self._with_margin(q)

    def _normalised(self, gradient: Floats) -> Floats:
        """Multiply by the square root of the Fisher information (Akimoto et al. 2019, appendix B)."""
        rows = np.arange(self.n_choices.size)
        root = np.sqrt(np.where(self.exists, self.probabilities, 1.0))
        last = self.n_choices - 1
        q_last = self.probabilities[rows, last]
        free = self.exists.copy()
        free[rows, last] = False
        inner = np.where(free, gradient, 0.0)
        shared = inner.sum(axis=1) / (q_last + np.sqrt(q_last))
        return np.where(free, inner / root + root * shared[:, None], 0.0)

    def _with_margin(self, q: Floats) -> Floats:
        least = np.where(self.exists, self.least[:, None], 0.0)
        raised = np.where(self.exists, np.maximum(q, least), 0.0)
        above = raised - least
        total = np.maximum(above.sum(axis=1, keepdims=True), 1e-300)
        q = raised - (raised.sum(axis=1, keepdims=True) - 1.0) * above / total
        q = np.where((self.n_choices == 1)[:, None], self.exists * 1.0, q)
        result: Floats = q / q.sum(axis=1, keepdims=True)
        return result

    def state(self) -> dict[str, NDArray[Any]]:
        """Give everything that `load` needs."""
        return {"probabilities": self.probabilities, "path": self.path, "scalars": np.array([self.trust, self.weight])}

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from `state`."""
        self.probabilities, self.path = state["probabilities"], state["path"]
        self.trust, self.weight = (float(number) for number in state["scalars"])
