"""Remember the last few distributions, so that late results count with the step they were really drawn with."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.search.distribution import Distribution
from osprey_mpi.search.margin import cells_around
from osprey_mpi.search.scales import Scales

Floats = NDArray[np.float64]

# More than may still teach: the position of a late best is computed from them.
KEPT = 8


@dataclass(frozen=True, slots=True, eq=False)
class Birth:
    """Keep one distribution; `widening`: (n_numeric,) the part of its factor that a margin added."""

    distribution: Distribution
    widening: Floats
    scales: Scales

    def steps(self, z: Floats) -> tuple[Floats, Floats]:
        """Give the steps (n, n_numeric) that latent numbers stood for, and the same without the widening.

        In a discrete dimension the widened step counts where it led to another value; where it did not, its length is
        the margin's doing, and noise.
        """
        factor = self.distribution.factor
        step = (z * factor if factor.ndim == 1 else z @ factor.T) * self.distribution.sigma
        core = step / self.widening
        which = self.scales.discrete
        if which.size:
            cells = cells_around(self.distribution.mean, self.scales)
            x = self.distribution.mean[which] + step[:, which]
            step[:, which] = np.where((x < cells.lower) | (x > cells.upper), step[:, which], core[:, which])
        return step, core


class Births:
    """Keep the last `KEPT` distributions of the present descent; generations are consecutive."""

    def __init__(self, scales: Scales) -> None:
        self._scales = scales
        self._kept: deque[Birth] = deque(maxlen=KEPT)

    def add(self, birth: Birth) -> None:
        """Take the newest."""
        self._kept.append(birth)

    def clear(self) -> None:
        """Forget all: a new descent begins, what was drawn before tells nothing about it."""
        self._kept.clear()

    def get(self, generation: int) -> Birth | None:
        """Find a generation, None if it is too old or was never drawn."""
        place = generation - self._kept[0].distribution.generation if self._kept else -1
        return self._kept[place] if 0 <= place < len(self._kept) else None

    def state(self) -> dict[str, NDArray[Any]]:
        """Give everything that `load` needs, one row per birth."""
        ds = [birth.distribution for birth in self._kept]
        return {
            "generations": np.array([d.generation for d in ds], dtype=np.int64),
            "sigmas": np.array([d.sigma for d in ds]),
            "means": np.stack([d.mean for d in ds]),
            "factors": np.stack([d.factor for d in ds]),
            "probabilities": np.stack([d.probabilities for d in ds]),
            "widenings": np.stack([birth.widening for birth in self._kept]),
        }

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from `state`."""
        self.clear()
        for i, generation in enumerate(state["generations"]):
            distribution = Distribution(
                generation=int(generation),
                mean=state["means"][i],
                sigma=float(state["sigmas"][i]),
                factor=state["factors"][i],
                probabilities=state["probabilities"][i],
            )
            self.add(Birth(distribution, state["widenings"][i], self._scales))
