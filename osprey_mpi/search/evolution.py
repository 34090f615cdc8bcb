"""Run one (mu/mu_w, lambda) evolution strategy: a mean, a step size and a covariance that learn from ranked steps.

A step counts as it was drawn, from the mean of its day to the present mean ("birth"): moving late points to where they
would be drawn today broke the step-size control on ill-conditioned functions, applying them as drawn did not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.search.margin import with_margin
from osprey_mpi.search.rates import FULL_UP_TO, Rates, rates
from osprey_mpi.search.scales import Scales

Floats = NDArray[np.float64]

# The largest standard deviation as a share of the range: folded at the walls, more is no wider than this.
WIDEST = 1.0
# Covariances beyond this condition number are noise.
CONDITION = 1e14


class Evolution:
    """Hold mean (d,), sigma, covariance (d, d) or (d,), its symmetric root, both paths, and the margin's widening (d,).

    The root is B D B^T, so that C^(-1/2) y is the latent z itself.
    """

    def __init__(self, mean: Floats, sigma: float, covariance: Floats | None = None) -> None:
        d = mean.size
        self.mean, self.sigma, self.n_generations = mean, sigma, 0
        self.is_full = d <= FULL_UP_TO
        self.covariance = covariance if covariance is not None else (np.eye(d) if self.is_full else np.ones(d))
        self.root, self.condition, self._rooted_at = self.covariance, 1.0, 0
        self.widening = np.ones(d)
        self.path_sigma, self.path_c = np.zeros(d), np.zeros(d)
        if covariance is not None:
            self._take_root()

    @property
    def spread(self) -> Floats:
        """Give the standard deviations without the widening (n_numeric,)."""
        variances = np.diagonal(self.covariance) if self.is_full else self.covariance
        result: Floats = self.sigma * np.sqrt(np.maximum(variances, 0.0))  # negative: not sound, see is_sound
        return result

    @property
    def factor(self) -> Floats:
        """Give the factor of a `Distribution`."""
        return self.widening[:, None] * self.root if self.is_full else self.widening * self.root

    @property
    def is_sound(self) -> bool:
        """Tell whether the numbers are finite and the covariance is not degenerate."""
        return math.isfinite(self.sigma) and self.condition < CONDITION and bool(np.isfinite(self.mean).all())

    def update(self, population: int, z: Floats, sigmas: Floats, core: Floats, step: Floats, complete: bool) -> None:
        """Learn from ranked samples, best first.

        z: (n, d) latent numbers; sigmas: (n,) the step sizes of their day; step: (n, d) as drawn; core: (n, d) the same
        without the widening of their day.
        complete: the samples are all that were drawn, so that the worst may repel.
        """
        d, n = self.mean.size, z.shape[0]
        r = rates(population, d, self.is_full)
        mu = min(r.mu, n)
        w = r.weights[:mu] if mu == r.mu else r.weights[:mu] / r.weights[:mu].sum()
        squared = np.einsum("ij,ij->i", z, z)
        clipped = np.minimum(1.0, r.longest / np.sqrt(np.maximum(squared[:mu], 1e-300)))
        y = core / self.sigma
        self.n_generations += 1
        mean = self.mean + w @ step[:mu]
        self.mean = mean - 2.0 * np.rint(0.5 * mean)  # folding at both walls repeats every 2
        self.path_sigma = (1.0 - r.c_sigma) * self.path_sigma + math.sqrt(
            r.c_sigma * (2.0 - r.c_sigma) * r.mueff
        ) * ((w * clipped) @ z[:mu])
        length2 = float(self.path_sigma @ self.path_sigma)
        warmed = 1.0 - (1.0 - r.c_sigma) ** (2 * self.n_generations)
        # 1 - h_sigma: no rank-one update while sigma rises fast
        stalled = length2 / warmed / d >= 2.0 + 4.0 / (d + 1.0)
        self.path_c = (1.0 - r.c_c) * self.path_c
        if not stalled:
            self.path_c = self.path_c + math.sqrt(r.c_c * (2.0 - r.c_c) * r.mueff) * (w @ y[:mu])
        n_negative = population - r.mu if complete and n >= population else 0
        # |C^(-1/2) y|^2, as far as the root has not changed since the step was drawn.
        lengths2 = squared * (sigmas / self.sigma) ** 2
        self._learn_covariance(r, y, lengths2, w, n_negative, stalled)
        self.sigma *= math.exp(min(1.0, r.c_sigma / r.damping * (math.sqrt(length2) / r.chi - 1.0)))
        self._take_root_if_due(r.c_1 + r.c_mu)
        widest = float(self.spread.max())
        if widest > WIDEST:
            self.sigma *= WIDEST / widest

    def _learn_covariance(
        self, r: Rates, y: Floats, lengths2: Floats, w: Floats, n_negative: int, stalled: bool
    ) -> None:
        rows, weight_sum = y[: w.size], 1.0
        if n_negative:
            negative = r.weights[-n_negative:]
            weight_sum += float(negative.sum())
            # Long repelling steps would make the covariance indefinite: all get the same length (tutorial, eq. 46).
            w = np.concatenate([w, negative * self.mean.size / np.maximum(lengths2[-n_negative:], 1e-300)])
            rows = np.concatenate([rows, y[-n_negative:]])
        keep = 1.0 - r.c_1 - r.c_mu * weight_sum + (r.c_1 * r.c_c * (2.0 - r.c_c) if stalled else 0.0)
        if self.is_full:
            learnt = keep * self.covariance + r.c_1 * np.outer(self.path_c, self.path_c)
            learnt += r.c_mu * ((rows.T * w) @ rows)
            self.covariance = 0.5 * (learnt + learnt.T)
        else:
            learnt = keep * self.covariance + r.c_1 * self.path_c**2 + r.c_mu * (w @ (rows * rows))
            self.covariance = np.maximum(learnt, 1e-30)

    def _take_root_if_due(self, rate: float) -> None:
        # A covariance that moved by less than a tenth of what one dimension learns needs no new root (tutorial, B.2).
        if (self.n_generations - self._rooted_at) * rate * self.mean.size * 10.0 >= 1.0:
            self._take_root()

    def _take_root(self) -> None:
        self._rooted_at = self.n_generations
        if not self.is_full:
            self.root = np.sqrt(self.covariance)
            largest, smallest = float(self.covariance.max()), float(self.covariance.min())
        elif np.isfinite(self.covariance).all():
            values, vectors = np.linalg.eigh(self.covariance)
            largest, smallest = float(values[-1]), float(values[0])
            self.root = (vectors * np.sqrt(np.maximum(values, largest / CONDITION))) @ vectors.T
        else:
            largest, smallest = math.inf, 1.0
        self.condition = largest / smallest if smallest > 0.0 else math.inf

    def keep_margin(self, scales: Scales, population: int) -> None:
        """Move the mean and widen discrete dimensions so that their neighbours stay within reach."""
        if scales.discrete.size == 0:
            return
        core = np.maximum(self.spread, 1e-150)
        alpha = 1.0 / (self.mean.size * population)
        self.mean, spread = with_margin(self.mean, self.widening * core, scales, alpha)
        self.widening = np.where(spread == self.widening * core, self.widening, spread / core)

    def state(self) -> dict[str, NDArray[Any]]:
        """Give everything that `load` needs."""
        scalars = np.array([self.sigma, self.condition, self.n_generations, self._rooted_at], dtype=np.float64)
        return {
            "mean": self.mean,
            "covariance": self.covariance,
            "root": self.root,
            "widening": self.widening,
            "path_sigma": self.path_sigma,
            "path_c": self.path_c,
            "scalars": scalars,
        }

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from `state`."""
        self.mean, self.covariance, self.root = state["mean"], state["covariance"], state["root"]
        self.widening, self.path_sigma, self.path_c = state["widening"], state["path_sigma"], state["path_c"]
        sigma, condition, n_generations, rooted_at = (float(number) for number in state["scalars"])
        self.sigma, self.condition = sigma, condition
        self.n_generations, self._rooted_at = int(n_generations), int(rooted_at)
