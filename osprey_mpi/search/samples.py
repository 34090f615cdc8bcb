"""Collect results until there are enough of them for one update."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Samples:
    """Hold the results since the last update in order of arrival: at most a population and a block."""

    def __init__(self) -> None:
        self._chunks: list[tuple[Floats, Floats, Floats, int]] = []
        self.n_drawn = 0
        self._n_rows = 0

    def add(self, latent: Floats, major: Floats, minor: Floats, generation: int, n_drawn: int) -> None:
        """Take the rows of one block: latent (n, n_dims), both ranking keys (n,); n_drawn >= n samples were drawn."""
        self._chunks.append((latent, major, minor, generation))
        self.n_drawn += n_drawn
        self._n_rows += latent.shape[0]

    def clear(self) -> None:
        """Drop everything."""
        self._chunks, self.n_drawn, self._n_rows = [], 0, 0

    def take(self) -> tuple[Floats, Floats, Floats, NDArray[np.int64], bool]:
        """Hand out latent, major, minor and generation of all rows, and whether these are all that were drawn."""
        latent, major, minor, generations = self._arrays()
        complete = self._n_rows == self.n_drawn
        self.clear()
        return latent, major, minor, generations, complete

    def _arrays(self) -> tuple[Floats, Floats, Floats, NDArray[np.int64]]:
        latent, major, minor = (np.concatenate([chunk[i] for chunk in self._chunks]) for i in range(3))
        sizes = [chunk[1].size for chunk in self._chunks]
        return latent, major, minor, np.repeat(np.array([chunk[3] for chunk in self._chunks], dtype=np.int64), sizes)

    def state(self) -> dict[str, NDArray[Any]]:
        """Give everything that `load` needs."""
        state: dict[str, NDArray[Any]] = {"n_drawn": np.array(self.n_drawn, dtype=np.int64)}
        if self._chunks:
            arrays = self._arrays()
            state |= dict(zip(("latent", "major", "minor", "generations"), arrays, strict=True))
        return state

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from `state`: chunks come back as one row each."""
        self.clear()
        if "latent" in state:
            for i, generation in enumerate(state["generations"]):
                row = slice(i, i + 1)
                self.add(state["latent"][row], state["major"][row], state["minor"][row], int(generation), 1)
        self.n_drawn = int(state["n_drawn"])
