"""Draw the latent numbers of batched objectives on any array namespace: cheap on a CPU, in place on a GPU.

A counter-based generator in plain array arithmetic: SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom
number generators", OOPSLA 2014), whose state is a counter times a constant, so that number k of a seed needs no
predecessor. Numbers are keyed by (seed, evaluation id, dimension): any rank, any split into calls and any device gives
the same bits, and the same normals up to the rounding of log, sin and cos in single precision. Where every row is
recorded the numbers are those of `search.streams` instead, which the leader draws again.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from osprey_mpi.search.streams import WORD, Dimensions

GAMMA = 0x9E3779B97F4A7C15  # 2^64 / golden ratio, odd: the counter's stride (ibid., section 3)
FIRST = 0xBF58476D1CE4E5B9  # "Mix13" of Stafford, which SplitMix64 uses as its finaliser
SECOND = 0x94D049BB133111EB

TWO_TO_MINUS_32 = 2.0**-32
TWO_TO_MINUS_53 = 2.0**-53



def mix(number: int) -> int:
    """Return the finaliser of SplitMix64 for one 64-bit number."""
    number = (number ^ (number >> 30)) * FIRST & WORD
    number = (number ^ (number >> 27)) * SECOND & WORD
    return number ^ (number >> 31)


def latent(seed: int, first: int, n: int, space: Dimensions, xp: ModuleType = np) -> Any:
    """Return (n, n_dims) float64 for the evaluations [first, first + n): standard normals, then uniforms in [0, 1).

    Normals by Box and Muller (1958) from 32 bits each, so |z| < 6.8 and steps of z near 0 of about 1e-9 or less:
    what a search needs, not what the tail of a distribution needs.
    """
    width = _width(space)
    words = xp.arange(n * width, dtype=xp.uint64)
    words *= np.uint64(GAMMA)
    words += np.uint64((mix(seed & WORD) + first * width * GAMMA) & WORD)
    return _numbers(words.reshape(n, width), space, xp)


def latent_of(seed: int, ids: Any, space: Dimensions, xp: ModuleType = np) -> Any:
    """Return the rows of `latent` for single evaluations, ids (n,) in any order."""
    width = _width(space)
    counters = xp.asarray(ids).astype(xp.uint64)[:, None] * np.uint64(width) + xp.arange(width, dtype=xp.uint64)
    counters *= np.uint64(GAMMA)
    counters += np.uint64(mix(seed & WORD))
    return _numbers(counters, space, xp)


def _width(space: Dimensions) -> int:
    """Count the 64-bit words of one evaluation: one for two normals, one for a uniform."""
    return (space.n_numeric + 1) // 2 + space.n_categorical


def _finalise(words: Any, xp: ModuleType) -> None:
    """Apply `mix` to each word, in place."""
    shifted = words >> np.uint64(30)
    words ^= shifted
    words *= np.uint64(FIRST)
    xp.right_shift(words, np.uint64(27), out=shifted)
    words ^= shifted
    words *= np.uint64(SECOND)
    xp.right_shift(words, np.uint64(31), out=shifted)
    words ^= shifted


def _numbers(words: Any, space: Dimensions, xp: ModuleType) -> Any:
    """Turn counters (n, width) times GAMMA into latent numbers (n, n_dims); overwrites them."""
    _finalise(words, xp)
    d, n_uniform = space.n_numeric, space.n_categorical
    n_pairs = (d + 1) // 2
    n = words.shape[0]
    uniforms = (words[:, n_pairs:] >> np.uint64(11)) * TWO_TO_MINUS_53 if n_uniform else None
    normals = _normals(xp.ascontiguousarray(words[:, :n_pairs]).reshape(-1), xp).reshape(n, 2 * n_pairs)
    if d == normals.shape[1] and uniforms is None:
        return normals
    numbers = xp.empty((n, d + n_uniform), dtype=xp.float64)
    numbers[:, :d] = normals[:, :d]
    if uniforms is not None:
        numbers[:, d:] = uniforms
    return numbers


def _normals(words: Any, xp: ModuleType) -> Any:
    """Turn random words (n,) into (2 n,) normals; one-dimensional throughout, short rows would cost twice the time."""
    halves = words.view(xp.uint32)
    radius = halves[0::2].astype(xp.float32)
    radius += 0.5  # never log(0)
    radius *= TWO_TO_MINUS_32
    xp.log(radius, out=radius)
    radius *= -2.0
    xp.sqrt(radius, out=radius)
    angle = halves[1::2].astype(xp.float32)
    angle *= 2.0 * np.pi * TWO_TO_MINUS_32
    normals = xp.empty(2 * words.shape[0], dtype=xp.float64)
    xp.multiply(radius, xp.cos(angle), out=normals[0::2])
    xp.sin(angle, out=angle)
    xp.multiply(radius, angle, out=normals[1::2])
    return normals
