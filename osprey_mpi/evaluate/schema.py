"""Turn value rows into the parameters that an objective gets, where neither the config nor the space is at hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.search.columns import Choice, Kind, Layout

Value = Choice | NDArray[Any]


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
        """Give the parameters of one value row (n_columns,) as real Python types; inactive ones are absent."""
        numbers = row.tolist()  # Python floats: many times faster than reading NumPy scalars one by one
        result: dict[str, Value] = {}
        for layout in self.layouts:
            number = numbers[layout.start]
            if number != number:  # NaN
                continue
            if layout.is_array:
                result[layout.name] = _array(layout, row[layout.start : layout.stop])
            elif layout.choices is not None:
                result[layout.name] = layout.choices[int(number)]
            else:
                result[layout.name] = int(number) if layout.kind is Kind.INTEGER else number
        return result

    def batch(self, rows: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
        """Give the parameters of value rows (n, n_columns) as arrays: (n,) for a scalar, (n, size) for an array.

        Reals are float64, integers int64, choices as `choice_table` has them. Inactive values have no place in an
        array, so the config refuses conditional parameters in a batch.
        """
        result: dict[str, NDArray[Any]] = {}
        for layout in self.layouts:
            part = rows[:, layout.start : layout.stop]
            result[layout.name] = _array(layout, part if layout.is_array else part[:, 0])
        return result


def choice_table(choices: Sequence[Choice]) -> NDArray[Any]:
    """Return choices as an array to be indexed by codes: numbers where all are numbers, else Python objects.

    Numbers, because arithmetic on an object array gives an object array, which is no array of costs.
    """
    kinds = {type(choice) for choice in choices}
    return np.array(choices) if kinds <= {int, float} or kinds == {bool} else np.array(choices, dtype=object)


def _array(layout: Layout, part: NDArray[np.float64]) -> NDArray[Any]:
    if layout.choices is not None:
        return choice_table(layout.choices)[part.astype(np.int64)]
    return part.astype(np.int64) if layout.kind is Kind.INTEGER else part.copy()
