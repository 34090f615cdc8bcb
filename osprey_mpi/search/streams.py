"""Draw the random numbers of a run from keys alone, so that every rank can draw any block again.

Philox 4x64 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3") is keyed by (seed, number); the last
word of its counter names the purpose, so that no two purposes share numbers.
"""

from __future__ import annotations

import threading
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
from numpy.random import Generator, Philox
from numpy.typing import NDArray

Floats = NDArray[np.float64]
WORD = 2**64 - 1


class Purpose(IntEnum):
    """Separate the streams of one seed."""

    LATENT = 0
    OBJECTIVE = 1
    RESTART = 2
    DIVE = 3
    DIVE_START = 4
    SHARE = 5


class Dimensions(Protocol):
    """Count the numeric and the categorical dimensions of a space."""

    n_numeric: int
    n_categorical: int


class _Reused(threading.local):
    """Keep one generator per thread: setting its key costs 1 us, making a new one 7 us."""

    def __init__(self) -> None:
        self.philox = Philox(key=0)
        self.generator = Generator(self.philox)
        self.state: Any = self.philox.state


_reused = _Reused()


def stream(seed: int, number: int, purpose: Purpose) -> Generator:
    """Give the generator of (seed, number, purpose) at its start.

    The generator is shared within the thread: draw from it before the next call, and do not keep it.
    """
    state = _reused.state
    words = state["state"]
    words["key"][0], words["key"][1] = seed & WORD, number & WORD
    words["counter"][:3] = 0
    words["counter"][3] = int(purpose)
    state["buffer_pos"] = 4  # empty: the next draw runs the cipher
    state["has_uint32"] = 0
    _reused.philox.state = state
    return _reused.generator


def latent(seed: int, first: int, n: int, space: Dimensions) -> Floats:
    """Draw the block [first, first + n): (n, n_dims), standard normals, then uniforms in [0, 1) for categories.

    The numbers of a block depend on where it starts: a part of a block is rows of the whole, never a block of its own.
    """
    generator = stream(seed, first, Purpose.LATENT)
    if space.n_categorical == 0:
        return generator.standard_normal((n, space.n_numeric))
    numbers = np.empty((n, space.n_numeric + space.n_categorical))
    numbers[:, : space.n_numeric] = generator.standard_normal((n, space.n_numeric))
    numbers[:, space.n_numeric :] = generator.random((n, space.n_categorical))
    return numbers


def evaluation_seed(seed: int, evaluation: int) -> int:
    """Draw the seed (63 bit) that the objective of one evaluation gets."""
    return int(stream(seed, evaluation, Purpose.OBJECTIVE).integers(0, 2**63, dtype=np.int64, endpoint=False))


def evaluation_seeds(seed: int, evaluations: NDArray[np.int64]) -> NDArray[np.int64]:
    """Draw the seed of each of these evaluations, (n,)."""
    return np.fromiter((evaluation_seed(seed, id) for id in evaluations.tolist()), np.int64, len(evaluations))
