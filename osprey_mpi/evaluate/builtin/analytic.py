"""Classical test functions of continuous search, each written once for whole batches on any array namespace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.evaluate.builtin.base import (
    ELEMENTARY,
    Array,
    Arrays,
    BatchFunction,
    Builtin,
    Layout,
    Option,
    in_chunks,
    problem,
)

TWO_PI = 2 * np.pi

# The minimum of -z sin(sqrt(z)) over z in [0, 500], where tan(sqrt(z)) = -sqrt(z) / 2.
SCHWEFEL_POINT = 420.968746359982
SCHWEFEL_DEPTH = 418.9828872724338


def _ones(x: Array, xp: ModuleType) -> Array:
    # Row sums as a product with ones: six times faster than sum(axis=1) on rows of a few dozen numbers in NumPy.
    return xp.ones(x.shape[1], dtype=x.dtype)


def sphere(x: Array, xp: ModuleType) -> Array:
    """Compute sum x_i^2 (De Jong 1975, F1)."""
    return (x * x) @ _ones(x, xp)


def ellipsoid(x: Array, xp: ModuleType) -> Array:
    """Compute sum 10^(6 i / (d - 1)) x_i^2, condition number 1e6 (Hansen and Ostermeier 2001)."""
    weights = 10.0 ** (6.0 * xp.arange(x.shape[1], dtype=x.dtype) / max(1, x.shape[1] - 1))
    return (x * x) @ weights


def rosenbrock(x: Array, xp: ModuleType) -> Array:
    """Compute sum 100 (x_{i+1} - x_i^2)^2 + (1 - x_i)^2 (Rosenbrock 1960, chained)."""
    head = x[:, :-1]
    valley = head * head
    valley -= x[:, 1:]
    valley *= valley
    valley *= 100.0
    slope = head - 1.0
    slope *= slope
    valley += slope
    return valley @ _ones(valley, xp)


def rastrigin(x: Array, xp: ModuleType) -> Array:
    """Compute sum x_i^2 - 10 cos(2 pi x_i) + 10 (Rastrigin 1974)."""
    ripple = x * TWO_PI
    xp.cos(ripple, out=ripple)
    ripple -= 1.0  # before the sum: the value near the minimum keeps its digits
    ripple *= -10.0
    ripple += x * x
    return ripple @ _ones(x, xp)


def ackley(x: Array, xp: ModuleType) -> Array:
    """Compute 20 (1 - exp(-0.2 sqrt(mean x_i^2))) + e - exp(mean cos(2 pi x_i)) (Ackley 1987)."""
    mean = _ones(x, xp) / x.shape[1]
    radius = xp.sqrt((x * x) @ mean)
    ripple = x * TWO_PI
    xp.cos(ripple, out=ripple)
    ripple -= 1.0
    # Both terms as expm1: no cancellation, so the minimum is exactly 0.
    return -20.0 * xp.expm1(-0.2 * radius) - np.e * xp.expm1(ripple @ mean)


def griewank(x: Array, xp: ModuleType) -> Array:
    """Compute 1 + sum x_i^2 / 4000 - prod cos(x_i / sqrt(i)) (Griewank 1981), i from 1."""
    ripple = x / xp.sqrt(xp.arange(1, x.shape[1] + 1, dtype=x.dtype))
    xp.cos(ripple, out=ripple)
    return (x * x) @ _ones(x, xp) / 4000.0 + (1.0 - xp.prod(ripple, axis=1))


def schwefel(x: Array, xp: ModuleType) -> Array:
    """Compute sum 418.98... - x_i sin(sqrt |x_i|) (Schwefel 1981, 2.26); defined for |x_i| <= 500."""
    wave = xp.sqrt(xp.abs(x))
    xp.sin(wave, out=wave)
    wave *= x
    wave -= SCHWEFEL_DEPTH
    return -(wave @ _ones(x, xp))


def levy(x: Array, xp: ModuleType) -> Array:
    """Compute Levy's function (Levy and Montalvo 1985; Laguna and Marti 2005, no. 13) with w = 1 + (x - 1) / 4."""
    w = (x - 1.0) / 4.0
    head = w[:, :-1]
    waves = xp.sin(np.pi * head + (np.pi + 1.0))
    inner = head * head * (1.0 + 10.0 * waves * waves)
    first, last = xp.sin(np.pi * w[:, 0]), w[:, -1]  # sin(pi w_1) with w_1 = 1 + w[:, 0]: the sign squares away
    end = xp.sin(TWO_PI * last)
    return first * first + inner @ _ones(inner, xp) + last * last * (1.0 + end * end)


@dataclass(frozen=True, slots=True)
class _Kind:
    function: Callable[[Array, ModuleType], Array]
    summary: str
    point: float  # every coordinate of the minimum, where the cost is 0
    flops: int  # per coordinate
    min_columns: int = 1
    domain: float | None = None  # bound of |x_i| outside which the minimum is another one


KINDS = (
    _Kind(sphere, "convex, separable", 0.0, 2),
    _Kind(ellipsoid, "convex, condition number 1e6", 0.0, 3),
    _Kind(rosenbrock, "a bent narrow valley", 1.0, 8, min_columns=2),
    _Kind(rastrigin, "a bowl with a regular grid of minima", 0.0, ELEMENTARY + 6),
    _Kind(ackley, "nearly flat far away, a deep centre, many minima", 0.0, ELEMENTARY + 6),
    _Kind(griewank, "a bowl with a fine ripple", 0.0, ELEMENTARY + 5),
    _Kind(schwefel, "the minimum lies far from the second best", SCHWEFEL_POINT, ELEMENTARY + 5, domain=500.0),
    _Kind(levy, "a rough valley", 1.0, ELEMENTARY + 8),
)


ROTATION_LIMIT = 4096  # a matrix of 128 MiB, made in half a minute


def _rotation(n: int, seed: int) -> NDArray[np.float64]:
    """Draw a rotation of (n, n), uniform over the orthogonal matrices (Mezzadri 2007)."""
    q, r = np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))
    return np.asarray(q * np.sign(np.diag(r)), dtype=np.float64)


def _build(kind: _Kind, layout: Layout, options: Mapping[str, Any], arrays: Arrays) -> BatchFunction:
    name, d, xp = kind.function.__name__, layout.n_columns, arrays.xp
    if d < kind.min_columns:
        raise problem(name, f"has {d} column, needs at least {kind.min_columns}")
    shift, rotation_seed = float(options["shift"]), options["rotation_seed"]
    if kind.domain is not None:
        reach = max(np.abs(layout.lows - shift).max(), np.abs(layout.highs - shift).max())
        if reach > kind.domain or rotation_seed is not None:
            raise problem(
                name, f"is defined for |x - shift| <= {kind.domain:g} without rotation, the bounds reach {reach:g}"
            )
    if rotation_seed is not None and d > ROTATION_LIMIT:
        where = "objective.options.rotation_seed"
        raise problem(name, f"rotates at most {ROTATION_LIMIT} columns, the parameters have {d}", where)
    point = np.full(d, kind.point)
    turn = None if rotation_seed is None else _rotation(d, rotation_seed)
    if turn is not None:
        point = turn @ point
    flops = kind.flops * d + (d if shift else 0) + (2 * d * d if turn is not None else 0)
    point = point + shift
    inside = bool(np.all((layout.lows <= point) & (point <= layout.highs)))
    moved = partial(_moved, kind.function, shift, None if turn is None else xp.asarray(turn), xp)
    evaluate = in_chunks(moved, 8 * d, arrays)
    return BatchFunction(evaluate, flops, 8 * (d + 1), 0.0 if inside else None, point if inside else None)


def _moved(
    function: Callable[[Array, ModuleType], Array], shift: float, turn: Array | None, xp: ModuleType, x: Array
) -> Array:
    moved = x - shift if shift else x
    return function(moved if turn is None else moved @ turn, xp)


OPTIONS = {
    "shift": Option((int, float), 0.0, "added to every coordinate of the minimum"),
    "rotation_seed": Option((int, type(None)), None, "seed of a random rotation of the coordinates; null: none", 0),
}

ANALYTIC = tuple(
    Builtin(
        kind.function.__name__,
        kind.summary,
        f"real or integer parameters, {kind.min_columns} or more columns",
        partial(_build, kind),
        OPTIONS,
    )
    for kind in KINDS
)
