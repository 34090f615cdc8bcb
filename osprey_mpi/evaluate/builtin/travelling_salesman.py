"""Length of a closed tour whose order is coded by random keys: routing for a search over real numbers."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.config.parameters import SIZE_LIMIT
from osprey_mpi.config.section import show
from osprey_mpi.evaluate.builtin.base import (
    Array,
    Arrays,
    BatchFunction,
    Builtin,
    Layout,
    Option,
    in_chunks,
    problem,
    single_array,
)

NAME = "travelling_salesman"
LARGEST = float(np.finfo(np.float64).max)  # whole numbers may be larger, but have no place in an array


def tour_length(keys: Array, cities: Array, xp: ModuleType) -> Array:
    """Compute the length of the closed tour that visits the cities in ascending order of their keys (Bean 1994).

    keys: (n, n_cities); cities: (n_cities, 2); returns (n,). Equal keys: some order among them.
    """
    stops = xp.take(cities, xp.argsort(keys, axis=1), axis=0)
    legs = stops - xp.roll(stops, -1, axis=1)
    legs *= legs
    return xp.sqrt(legs[:, :, 0] + legs[:, :, 1]).sum(axis=1)


def _given_cities(cities: list[Any]) -> NDArray[np.float64]:
    where = "objective.options.cities"
    for index, city in enumerate(cities):
        if not (isinstance(city, list | tuple) and len(city) == 2 and all(map(_is_coordinate, city))):
            raise problem(NAME, f"city {index} is {show(city)}, must be [x, y] with two finite numbers", where)
    if len(cities) < 3:
        raise problem(NAME, f"cities has {len(cities)} entries, must have 3 or more", where)
    return np.array(cities, dtype=np.float64)


def _is_coordinate(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def _cities(options: Mapping[str, Any]) -> tuple[NDArray[np.float64], bool]:
    """Return the cities (n_cities, 2) and whether they lie on a circle in an order to be found."""
    cities, n_cities, rng = options["cities"], options["n_cities"], np.random.default_rng(options["cities_seed"])
    if isinstance(cities, list):
        return _given_cities(cities), False
    if n_cities < 3:
        raise problem(NAME, f"n_cities is {n_cities}, must be 3 or more", "objective.options.n_cities")
    if cities == "random":
        return rng.random((n_cities, 2)), False
    if cities == "circle":
        angles = 2 * np.pi * rng.permutation(n_cities) / n_cities
        return np.stack([np.cos(angles), np.sin(angles)], axis=1), True
    raise problem(NAME, f"cities is {cities!r}, must be random, circle or a list of [x, y]", "objective.options.cities")


def _build(layout: Layout, options: Mapping[str, Any], arrays: Arrays) -> BatchFunction:
    cities, circle = _cities(options)
    n = len(cities)
    single_array(NAME, layout, n, f"a key for each of {n} cities")
    on_device = arrays.xp.asarray(cities)

    def evaluate(values: Array) -> Array:
        return tour_length(values, on_device, arrays.xp)

    optimum, keys = None, None
    if circle:
        # The tour along a convex polygon is the shortest: n chords of angle 2 pi / n on the unit circle.
        optimum = 2 * n * float(np.sin(np.pi / n))
        around = np.arctan2(cities[:, 1], cities[:, 0]).argsort().argsort()
        keys = layout.lows + (layout.highs - layout.lows) * around / n
    flops = 7 * n + n * np.log2(n)  # six operations and a root a leg, n log n comparisons
    return BatchFunction(in_chunks(evaluate, 16 * n, arrays), float(flops), 8 * (n + 1), optimum, keys)


TRAVELLING_SALESMAN = Builtin(
    NAME,
    "length of a closed tour, its order coded by random keys",
    "one real array parameter with as many columns as there are cities, any bounds",
    _build,
    {
        "n_cities": Option(int, 20, "number of cities, where they are not given", most=SIZE_LIMIT),
        "cities": Option((str, list), "random", "random (unit square), circle (unit circle) or a list of [x, y]"),
        "cities_seed": Option(int, 0, "seed of random cities, or of their order on the circle", 0),
    },
)
