"""Map the unit interval to the values of numeric parameters, many dimensions at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.errors import ConfigError
from osprey_mpi.search.columns import Kind

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Axis:
    """Describe one numeric dimension: t = base + u * span, then exp, floor or rounding by its scale."""

    low: float
    high: float
    step: float | None  # None: continuous
    is_log: bool

    @property
    def n_levels(self) -> int:
        """Count the values of a discrete dimension; 0 if it is continuous."""
        if self.step is None:
            return 0
        if self.step == 1.0 and self.low.is_integer() and self.high.is_integer():
            return int(self.high) - int(self.low) + 1
        # (0.3 - 0) / 0.1 is 2.9999999999999996, and the upper end belongs to the grid; 4e-16 is two roundings.
        steps = (self.high - self.low) / self.step
        return int(np.floor(steps + 1e-9 + steps * 4e-16)) + 1

    @property
    def top(self) -> float:
        """Give the greatest value: `high`, or the last level of a step that does not divide the range."""
        if self.step is None:
            return self.high
        last = self.low + (self.n_levels - 1) * self.step
        return self.high if abs(last - self.high) <= 1e-6 * self.step else last

    @property
    def base(self) -> float:
        """Give t at u = 0. The cell of a log integer k reaches from log(k - 1/2) to log(k + 1/2)."""
        if not self.is_log:
            return 0.0 if self.step else self.low
        return float(np.log(self.low - 0.5 if self.step else self.low))

    @property
    def span(self) -> float:
        """Give the length of t; nudged up where rounding would keep u = 1 below the upper end."""
        if self.is_log:
            return float(np.log(self.high + 0.5 if self.step else self.high)) - self.base
        if self.step:
            return float(self.n_levels)
        span = self.high - self.low
        while self.low + span < self.high:
            span = float(np.nextafter(span, np.inf))
        return span


def axis_of(name: str, parameter: Any) -> Axis:
    """Read the axis of a real or integer parameter.

    Raises ConfigError for a range that float64 cannot span or a log scale that reaches zero.
    """
    step = getattr(parameter, "step", None)
    if parameter.type == Kind.INTEGER:
        step = step or 1
    is_log = parameter.scale == "log"
    low, high = float(parameter.low), float(parameter.high)
    if not np.isfinite(high - low) or high < low:
        raise ConfigError(f"{name}: low {low} and high {high} must be finite, in order, less than 1.8e308 apart")
    if is_log and low <= 0:
        raise ConfigError(f"{name}: low is {low}, but a log scale needs low > 0")
    return Axis(low, high, None if step is None else float(step), is_log)


def clip(x: Any, low: Any, high: Any, xp: Any) -> Any:
    """Limit `x` to [low, high] in place; NaN becomes `high`."""
    if xp is np and isinstance(low, float):  # the fast way, for numbers and not for rows; but it lets NaN through
        np.clip(x, low, high, out=x)
        if not np.isnan(np.min(x, initial=low)):
            return x
    xp.fmin(x, high, out=x)
    return xp.fmax(x, low, out=x)


class Scales:
    """Decode and encode the numeric columns; all arrays are (n_numeric,), kept once per array module."""

    def __init__(self, axes: Sequence[Axis]) -> None:
        self.low = np.array([axis.low for axis in axes], dtype=np.float64)
        self.n_levels = np.array([axis.n_levels for axis in axes], dtype=np.int64)
        self.step = np.array([axis.step or 0.0 for axis in axes], dtype=np.float64)
        self.high = np.array([axis.top for axis in axes], dtype=np.float64)
        self.base = np.array([axis.base for axis in axes], dtype=np.float64)
        self.span = np.array([axis.span for axis in axes], dtype=np.float64)
        is_log = np.array([axis.is_log for axis in axes], dtype=bool)
        discrete = self.n_levels > 0
        self.log, self.grid = np.flatnonzero(is_log & ~discrete), np.flatnonzero(discrete & ~is_log)
        self.log_grid = np.flatnonzero(is_log & discrete)
        self.discrete = np.flatnonzero(discrete)
        self._modules: dict[Any, tuple[Any, ...]] = {}
        # One number for all dimensions takes NumPy half the time of a row of equal ones.
        ends = np.stack((self.low, self.high, self.base, self.span))
        is_cube = bool(len(axes)) and bool((ends == ends[:, :1]).all())
        self._plain: list[float] | None = ends[:, 0].tolist() if is_cube else None

    def _on(self, xp: Any) -> tuple[Any, ...]:
        if xp not in self._modules:
            arrays = (self.low, self.high, self.base, self.span, self.step, self.n_levels.astype(np.float64))
            self._modules[xp] = tuple(xp.asarray(array) for array in arrays)
        return self._modules[xp]

    def decode(self, positions: Any, xp: Any) -> Any:
        """Map (n, n_numeric) positions to values; NaN goes to the upper end, everything else is clipped last."""
        if not (self.log.size or self.discrete.size):
            low, high, base, span = self._plain if self._plain is not None else self._on(xp)[:4]
            values = positions * span
            values += base
            return clip(values, low, high, xp)
        low, high, base, span, step, n_levels = self._on(xp)
        u = clip(positions.copy(), 0.0, 1.0, xp)
        values = u * span
        values += base
        if self.grid.size:
            g = self.grid
            level = xp.floor(values[:, g])
            values[:, g] = xp.where(level >= n_levels[g] - 1, high[g], low[g] + level * step[g])
        if self.log_grid.size:
            values[:, self.log_grid] = xp.rint(xp.exp(values[:, self.log_grid]))
        if self.log.size:  # exp(log(high)) can miss high by one unit in the last place
            g = self.log
            ends = xp.where(u[:, g] >= 1.0, high[g], low[g])
            values[:, g] = xp.where((u[:, g] > 0.0) & (u[:, g] < 1.0), xp.exp(values[:, g]), ends)
        return clip(values, low, high, xp)

    def encode(self, values: Floats) -> Floats:
        """Map (n, n_numeric) values to positions: the middle of the cell for a discrete dimension, 1/2 for NaN."""
        values = np.clip(values, self.low, self.high)
        t = values.copy()
        for g in (self.log, self.log_grid):
            t[:, g] = np.log(values[:, g])
        t[:, self.grid] = np.rint((values[:, self.grid] - self.low[self.grid]) / self.step[self.grid]) + 0.5
        span = np.where(self.span > 0, self.span, 1.0)
        u = (t - self.base) / span
        continuous = self.n_levels == 0
        u = np.where(continuous & (values >= self.high), 1.0, np.where(continuous & (values <= self.low), 0.0, u))
        return np.where(np.isnan(u), 0.5, np.clip(u, 0.0, 1.0))

    def cells(self, position: Floats) -> tuple[Floats, Floats]:
        """Give the lower and upper edge, in the unit interval, of the cells that the discrete dimensions lie in.

        position: (n_numeric,) in [0, 1]; both results are (n_discrete,), in the order of `discrete`.
        """
        lower, upper = np.zeros(self.low.size), np.ones(self.low.size)
        n = self.n_levels[self.grid]
        level = np.minimum(np.floor(position[self.grid] * n), n - 1)
        lower[self.grid], upper[self.grid] = level / n, (level + 1) / n
        g = self.log_grid
        k = np.clip(np.rint(np.exp(position[g] * self.span[g] + self.base[g])), self.low[g], self.high[g])
        lower[g] = (np.log(k - 0.5) - self.base[g]) / self.span[g]
        upper[g] = (np.log(k + 0.5) - self.base[g]) / self.span[g]
        return lower[self.discrete], upper[self.discrete]
