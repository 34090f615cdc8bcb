"""Turn columns of value rows into one array a parameter, with the types that the objective got."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.search.columns import Choice, Column, Kind

NO_INTEGER = np.iinfo(np.int64).min  # what an inactive integer holds; parameters stay within 2**53
NO_BOOLEAN = np.int8(-1)


@dataclass(frozen=True, slots=True)
class StoredParameter:
    """Describe one parameter in value rows: its columns are [start, stop)."""

    name: str
    kind: Kind
    choices: tuple[Choice, ...] | None
    start: int
    stop: int
    is_array: bool

    @property
    def description(self) -> str:
        """Return the kind, with the choices where there are some."""
        if self.choices is None:
            return str(self.kind)
        text = ", ".join(str(choice) for choice in self.choices)
        return f"{self.kind}: {text if len(text) < 1000 else text[:1000] + ' ...'}"  # an attribute has its limits


def parameters_of(columns: Sequence[Column]) -> list[StoredParameter]:
    """Group columns by parameter, in their order."""
    parameters: list[StoredParameter] = []
    start = 0
    while start < len(columns):
        first = columns[start]
        stop = start + 1
        while stop < len(columns) and columns[stop].parameter == first.parameter:
            stop += 1
        is_array = first.index is not None
        parameters.append(StoredParameter(first.parameter, first.kind, first.choices, start, stop, is_array))
        start = stop
    return parameters


def values_of(parameter: StoredParameter, values: NDArray[np.float64]) -> tuple[NDArray[Any], Any]:
    """Return (array, fill): (n,) or (n, size); `fill` marks inactive entries, None where every entry is active.

    real: float64, NaN. integer: int64, -2**63. Choices that are all strings, or of several types: strings, "" (no fill:
    netCDF has none for strings); all numbers: as they are; all booleans: int8 0 and 1, -1.
    """
    part = values[:, parameter.start : parameter.stop]
    part = part if parameter.is_array else part[:, 0]
    inactive = np.isnan(part)
    any_inactive = bool(inactive.any())
    if parameter.choices is None:
        if parameter.kind is not Kind.INTEGER:
            return part, np.nan
        whole = np.where(inactive, 0.0, part).astype(np.int64)
        return _filled(whole, inactive, NO_INTEGER), NO_INTEGER if any_inactive else None
    data: NDArray[Any]
    codes = np.where(inactive, 0.0, part).astype(np.int64)
    choices = parameter.choices
    types = {type(choice) for choice in choices}
    if types == {bool}:
        data = np.array(choices, np.int8)[codes]
        return _filled(data, inactive, NO_BOOLEAN), NO_BOOLEAN if any_inactive else None
    if types == {int}:
        data = np.array(choices, np.int64)[codes]
        return _filled(data, inactive, NO_INTEGER), NO_INTEGER if any_inactive else None
    if types <= {int, float}:
        return _filled(np.array(choices, np.float64)[codes], inactive, np.nan), np.nan
    texts = np.array([str(choice) for choice in choices], dtype=object)[codes]
    return _filled(texts, inactive, ""), None


def _filled(data: NDArray[Any], inactive: NDArray[np.bool_], fill: Any) -> NDArray[Any]:
    data[inactive] = fill
    return data
