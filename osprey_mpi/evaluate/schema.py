"""Turn value rows into the parameters that an objective gets, where neither the config nor the space is at hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.search.columns import Kind, Layout, Value, arrays_of, parameters_of


class Schema:
    """Hold the layout of a value row; it travels to the child process as JSON."""

    def __init__(self, layouts: Sequence[Layout]) -> None:
        self.layouts = tuple(layouts)
        self.n_columns = self.layouts[-1].stop if self.layouts else 0

    def to_json(self) -> str:
        """Write the layout as JSON."""
        rows = [[x.name, str(x.kind), x.start, x.stop, x.is_array, x.choices] for x in self.layouts]
        return json.dumps(rows)

    @classmethod
    def from_json(cls, text: str) -> Schema:
        """Read what `to_json` wrote; conditions are left out, inactive values say NaN themselves."""
        rows = json.loads(text)
        return cls(
            [
                Layout(name, Kind(kind), start, stop, is_array, None if choices is None else tuple(choices))
                for name, kind, start, stop, is_array, choices in rows
            ]
        )

    def parameters(self, row: NDArray[np.float64]) -> dict[str, Value]:
        """Give the parameters of one value row, see `columns.parameters_of`."""
        return parameters_of(self.layouts, row)

    def batch(self, rows: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
        """Give the parameters of value rows as arrays, see `columns.arrays_of`."""
        return arrays_of(self.layouts, rows)
