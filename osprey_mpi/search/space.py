"""Map between the user's parameters and positions in the unit box, whole batches at once.

A *position* is float64 (n_dims,): numeric dimensions in [0, 1] first, then one code per categorical dimension.
A *value row* is float64 (n_columns,): one column per scalar of each parameter in declared order, categories as codes,
inactive parameters as NaN. Bounds are inclusive; positions 0 and 1 hit them exactly, and no value ever leaves them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.errors import ConfigError
from osprey_mpi.search.columns import Kind, Layout, Value, code_of, lay_out, parameters_of, parents_first
from osprey_mpi.search.scales import Scales, axis_of

Floats = NDArray[np.float64]


class Space:
    """Hold the box that a config's parameters span.

    parameters: the models of `config.parameters` by name; constraints: expressions, or their text.
    """

    def __init__(self, parameters: Mapping[str, Any], constraints: Sequence[Any] = ()) -> None:
        self.layouts, self.columns = lay_out(parameters)
        self.n_columns = len(self.columns)
        numbers = [name for name, p in parameters.items() if p.type in (Kind.REAL, Kind.INTEGER)]
        by_name = {layout.name: layout for layout in self.layouts}
        spans = [(name, by_name[name].stop - by_name[name].start) for name in numbers]
        self.scales = Scales([axis_of(name, parameters[name]) for name, size in spans for _ in range(size)])
        is_number = [c.kind in (Kind.REAL, Kind.INTEGER) for c in self.columns]
        self._numeric_columns = np.flatnonzero(is_number)
        self._categorical_columns = np.flatnonzero([c.kind is Kind.CATEGORICAL for c in self.columns])
        self.n_levels = self.scales.n_levels
        self.n_numeric, self.n_categorical = self._numeric_columns.size, self._categorical_columns.size
        self.n_dims = self.n_numeric + self.n_categorical
        self.n_choices = tuple(len(self.columns[i].choices or ()) for i in self._categorical_columns)
        self.is_continuous = self.n_categorical == 0 and not self.n_levels.any()
        self._conditional = parents_first(self.layouts)
        self._plain = self.n_numeric == self.n_columns and not self._conditional
        self.constraints = tuple(_parsed(constraint) for constraint in constraints)
        self._by_name = by_name

    def decode(self, positions: Any, xp: Any = np) -> Any:
        """Map positions (n, n_dims) to value rows (n, n_columns) on `xp`'s device."""
        if self._plain:
            return self.scales.decode(positions, xp)
        values = xp.zeros((positions.shape[0], self.n_columns), dtype=xp.float64)
        if self.n_numeric:
            values[:, self._numeric_columns] = self.scales.decode(positions[:, : self.n_numeric], xp)
        if self.n_categorical:
            last = xp.asarray(np.array(self.n_choices, dtype=np.float64) - 1)
            codes = xp.rint(positions[:, self.n_numeric :])
            values[:, self._categorical_columns] = xp.fmax(xp.fmin(codes, last), 0.0)
        for layout in self._conditional:
            active = xp.ones(positions.shape[0], dtype=bool)
            for column, allowed in layout.when:
                parent = values[:, column]  # NaN where the parent itself is inactive: equal to nothing
                matches = parent == allowed[0] if allowed else xp.zeros_like(active)
                for value in allowed[1:]:
                    matches = matches | (parent == value)
                active = active & matches
            part = values[:, layout.start : layout.stop]
            part[...] = xp.where(active[:, None], part, xp.nan)
        return values

    def encode(self, values: Floats) -> Floats:
        """Map value rows (n, n_columns) to positions; inactive parameters get the middle, or their first choice."""
        positions = np.empty((values.shape[0], self.n_dims))
        positions[:, : self.n_numeric] = self.scales.encode(values[:, self._numeric_columns])
        codes = values[:, self._categorical_columns]
        positions[:, self.n_numeric :] = np.where(np.isnan(codes), 0.0, codes)
        return positions

    def parameters(self, row: Floats) -> dict[str, Value]:
        """Give the parameters of one value row as the types that the objective gets; inactive ones are absent."""
        return parameters_of(self.layouts, row)

    def row(self, parameters: Mapping[str, Any]) -> Floats:
        """Give the value row of named parameters; those not named are NaN.

        Raises ConfigError for an unknown name, a wrong choice, a wrong size or a value out of bounds.
        """
        row = np.full(self.n_columns, np.nan)
        for name, value in parameters.items():
            layout = self._by_name.get(name)
            if layout is None:
                raise ConfigError(f"{name} is not a parameter; parameters are {', '.join(self._by_name)}")
            given = list(value) if layout.is_array and isinstance(value, list | tuple | np.ndarray) else [value]
            if layout.is_array and len(given) == 1:
                given = given * (layout.stop - layout.start)
            if len(given) != layout.stop - layout.start:
                raise ConfigError(f"{name} has {len(given)} values, but its size is {layout.stop - layout.start}")
            numbers = [code_of(layout.choices, v, name) for v in given] if layout.choices else given
            row[layout.start : layout.stop] = np.asarray(numbers, dtype=np.float64)
        self._check_bounds(row)
        return row

    def _check_bounds(self, row: Floats) -> None:
        values = row[self._numeric_columns]
        outside = (values < self.scales.low) | (values > self.scales.high)
        if outside.any():
            i = int(np.flatnonzero(outside)[0])
            name = self.columns[self._numeric_columns[i]].parameter
            low, high = self.scales.low[i], self.scales.high[i]
            raise ConfigError(f"{name} is {values[i]}, but its bounds are [{low}, {high}]")

    def violation(self, values: Any, xp: Any = np) -> Any:
        """Sum how far each value row breaks the constraints: (n,), 0 where all hold.

        An expression that names an inactive parameter holds.
        """
        total = xp.zeros(values.shape[0], dtype=xp.float64)
        for expression in self.constraints:
            named = {name: self._numbers(self._by_name[name], values, xp) for name in expression.names}
            total = total + expression.violation(named, xp)
        return total

    def _numbers(self, layout: Layout, values: Any, xp: Any) -> Any:
        part = values[:, layout.start : layout.stop] if layout.is_array else values[:, layout.start]
        if layout.choices is None:
            return part
        try:
            table = xp.asarray([float(choice) for choice in layout.choices])
        except ValueError:
            raise ConfigError(f"a constraint uses {layout.name}, but its values are not numbers") from None
        missing = xp.isnan(part)
        return xp.where(missing, xp.nan, table[xp.where(missing, 0, part).astype(xp.int64)])

    def start_positions(self, start: Sequence[Mapping[str, Any]]) -> Floats:
        """Give the positions (k, n_dims) of start points; parameters not named take the middle.

        Raises ConfigError as `row` does.
        """
        if not start:
            return np.empty((0, self.n_dims))
        return self.encode(np.stack([self.row(point) for point in start]))

    def middle(self) -> Floats:
        """Give the middle of every range and the first choice of every category."""
        position = np.full(self.n_dims, 0.5)
        position[self.n_numeric :] = 0.0
        return position


def _parsed(constraint: Any) -> Any:
    if not isinstance(constraint, str):
        return constraint
    from osprey_mpi.config.expression import parse

    return parse(constraint)
