"""What a built-in objective declares: its parameters, its options, its best known cost and its work per evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.config.section import INT64_LIMIT
from osprey_mpi.errors import ConfigError, Problem

# Arrays of `Arrays.xp`, NumPy's or CuPy's (which has no stubs).
Array = Any

# Work of one elementary function in floating point operations, for the ceiling report: what a double precision
# exp, log, sin or cos costs in multiply-adds on machines without a hardware unit for it (order of magnitude).
ELEMENTARY = 20


@dataclass(frozen=True, slots=True)
class Arrays:
    """Say where arrays live and how large a temporary may be.

    chunk_bytes: bound on each temporary that grows with the batch times something else (pairs, angles).
    """

    xp: ModuleType = np
    chunk_bytes: int = 1 << 20  # a temporary of 1 MiB stays in the second level cache of one core

    def chunk_rows(self, row_bytes: int) -> int:
        """Return how many rows of `row_bytes` one temporary may have, at least one."""
        return max(1, self.chunk_bytes // max(1, row_bytes))


@dataclass(frozen=True, slots=True)
class Layout:
    """Describe the parameters as a built-in sees them: names and numbers of columns in declared order.

    lows, highs: (n_columns,) bounds of each column; a fixed parameter has both at its value.
    fixed: columns of fixed parameters, whose value rows hold a code in place of the number.
    """

    sizes: Mapping[str, int]
    lows: NDArray[np.float64]
    highs: NDArray[np.float64]
    fixed: tuple[int, ...] = ()

    @property
    def n_columns(self) -> int:
        return sum(self.sizes.values())

    def columns(self, name: str) -> slice:
        """Return the columns of one parameter."""
        start = 0
        for other, size in self.sizes.items():
            if other == name:
                return slice(start, start + size)
            start += size
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class BatchFunction:
    """Hold one built-in made ready for a layout: values (n, n_columns) float64 -> costs (n,) float64, same device.

    The values are never written to. `optimum` is the best cost known over the given bounds (None: not known) and
    `optimum_values` (n_columns,) a point that has it. `flops` and `bytes` are per evaluation: what one fused kernel
    would have to compute and to move, so measured time against them gives the share of the device's ceiling.
    """

    evaluate: Callable[[Array], Array]
    flops: float
    bytes: float
    optimum: float | None = None
    optimum_values: NDArray[np.float64] | None = None


def in_chunks(function: Callable[[Array], Array], row_bytes: int, arrays: Arrays) -> Callable[[Array], Array]:
    """Return `function` made to see no more rows at once than its temporaries of `row_bytes` a row allow."""
    rows, xp = arrays.chunk_rows(row_bytes), arrays.xp

    def evaluate(values: Array) -> Array:
        if values.shape[0] <= rows:
            return function(values)
        costs = xp.empty(values.shape[0], dtype=values.dtype)
        for start in range(0, values.shape[0], rows):
            costs[start : start + rows] = function(values[start : start + rows])
        return costs

    return evaluate


@dataclass(frozen=True, slots=True)
class Option:
    """Describe one keyword of `objective.options`: its type, default and meaning, and bounds of whole numbers.

    The bounds keep what is made from the number within the memory of a rank, and within what NumPy takes.
    """

    kind: type | tuple[type, ...]
    default: Any
    meaning: str
    least: int = 1 - INT64_LIMIT
    most: int = INT64_LIMIT - 1

    def out_of_bounds(self, value: int) -> str:
        """Say which bound a whole number breaks; empty if none."""
        if value < self.least:
            return f"must be at least {self.least}"
        return f"must be at most {self.most}" if value > self.most else ""


@dataclass(frozen=True, slots=True)
class Builtin:
    """Register one built-in: `build` gets checked options and raises ConfigError for parameters that do not fit."""

    name: str
    summary: str
    needs: str
    build: Callable[[Layout, Mapping[str, Any], Arrays], BatchFunction]
    options: Mapping[str, Option] = field(default_factory=dict)


def problem(name: str, message: str, where: str = "parameters") -> ConfigError:
    """Make the error of one built-in whose parameters or options do not fit."""
    return ConfigError([Problem(where, f"objective.builtin {name}: {message}")])


def single_array(name: str, layout: Layout, size: int | None, meaning: str) -> None:
    """Refuse a layout that is not one array parameter of `size` (None: any) columns."""
    if len(layout.sizes) != 1:
        raise problem(name, f"needs one array parameter ({meaning}), the config has {', '.join(layout.sizes)}")
    ((parameter, given),) = layout.sizes.items()
    if size is not None and given != size:
        raise problem(name, f"size is {given}, must be {size} ({meaning})", f"parameters.{parameter}")
