"""Name the columns of a value row and the layout of one parameter in it; give the parameters of value rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from osprey_mpi.errors import ConfigError

Choice = str | int | float | bool
Value = Choice | NDArray[Any]


class Kind(StrEnum):
    """Tell what a column holds."""

    REAL = "real"
    INTEGER = "integer"
    CATEGORICAL = "categorical"
    FIXED = "fixed"


@dataclass(frozen=True, slots=True)
class Column:
    """Describe one float64 column of a value row.

    `index` is the place in an array parameter, None for a scalar. A column with `choices` holds a code: the value is
    `choices[code]`; a fixed parameter has one choice and the code 0.
    """

    parameter: str
    index: int | None
    kind: Kind
    choices: tuple[Choice, ...] | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """Place one parameter: its value columns [start, stop) and its condition.

    `when` holds (parent column, values of that column that switch this parameter on); all must hold.
    """

    name: str
    kind: Kind
    start: int
    stop: int
    is_array: bool
    choices: tuple[Choice, ...] | None
    when: tuple[tuple[int, tuple[float, ...]], ...] = ()


def code_of(choices: Sequence[Choice], value: object, name: str) -> int:
    """Find the code of a choice; True is not 1 and 1 is not "1", but 1 and 1.0 are the same number.

    Raises ConfigError if it is none of the choices.
    """
    for code, choice in enumerate(choices):
        if choice == value and isinstance(choice, bool) == isinstance(value, bool):
            return code
    raise ConfigError(f"{name} is {value!r}, but its choices are {list(choices)!r}")


def choices_of(parameter: Any) -> tuple[Choice, ...] | None:
    """Give the choices of a categorical or fixed parameter, None for a number."""
    if parameter.type == Kind.CATEGORICAL:
        return tuple(parameter.choices)
    if parameter.type == Kind.FIXED:
        return (parameter.value,)
    return None


def lay_out(parameters: Mapping[str, Any]) -> tuple[tuple[Layout, ...], tuple[Column, ...]]:
    """Lay the parameters out in declared order, one column per scalar.

    Raises ConfigError for a condition on an unknown or an array parameter.
    """
    layouts: dict[str, Layout] = {}
    columns: list[Column] = []
    for name, parameter in parameters.items():
        size = getattr(parameter, "size", None)
        kind, choices = Kind(parameter.type), choices_of(parameter)
        start = len(columns)
        places = (None,) if size is None else tuple(range(size))
        columns += [Column(name, place, kind, choices) for place in places]
        layouts[name] = Layout(name, kind, start, len(columns), size is not None, choices)
    laid_out = tuple(_with_condition(layout, parameters[layout.name], layouts) for layout in layouts.values())
    return laid_out, tuple(columns)


def _with_condition(layout: Layout, parameter: Any, layouts: Mapping[str, Layout]) -> Layout:
    when = getattr(parameter, "when", None)
    if not when:
        return layout
    rules: list[tuple[int, tuple[float, ...]]] = []
    for parent_name, allowed in when.items():
        parent = layouts.get(parent_name)
        if parent is None or parent.is_array:
            raise ConfigError(f"{layout.name} depends on {parent_name}, which is no scalar parameter")
        values = allowed if isinstance(allowed, list | tuple | set | frozenset) else (allowed,)
        if parent.choices is None:
            codes = tuple(float(value) for value in values)
        elif parent.kind is Kind.FIXED:  # a value it never takes is a condition that never holds, not an error
            codes = (0.0,) if parent.choices[0] in values else (float("inf"),)
        else:
            codes = tuple(float(code_of(parent.choices, value, parent_name)) for value in values)
        rules.append((parent.start, codes))
    return Layout(layout.name, layout.kind, layout.start, layout.stop, layout.is_array, layout.choices, tuple(rules))


def parents_first(layouts: Sequence[Layout]) -> tuple[Layout, ...]:
    """Order conditional parameters so that each comes after those it depends on; others are left out.

    Raises ConfigError if conditions form a cycle.
    """
    waiting = [layout for layout in layouts if layout.when]
    ordered: list[Layout] = []
    while waiting:
        open_columns = {layout.start for layout in waiting}
        ready = [layout for layout in waiting if not any(column in open_columns for column, _ in layout.when)]
        if not ready:
            raise ConfigError(f"the conditions of {', '.join(layout.name for layout in waiting)} form a cycle")
        ordered += ready
        waiting = [layout for layout in waiting if layout not in ready]
    return tuple(ordered)


def parameters_of(layouts: Sequence[Layout], row: NDArray[np.float64]) -> dict[str, Value]:
    """Give the parameters of one value row (n_columns,) as the objective gets them; inactive ones are absent.

    Real Python types; an array parameter is an array as `array_of` gives it.
    """
    numbers = row.tolist()  # Python floats: many times faster than reading NumPy scalars one by one
    result: dict[str, Value] = {}
    for layout in layouts:
        number = numbers[layout.start]
        if number != number:  # NaN
            continue
        if layout.is_array:
            result[layout.name] = array_of(layout, row[layout.start : layout.stop])
        elif layout.choices is not None:
            result[layout.name] = layout.choices[int(number)]
        else:
            result[layout.name] = int(number) if layout.kind is Kind.INTEGER else number
    return result


def arrays_of(layouts: Sequence[Layout], rows: Any, tables: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Give the parameters of value rows (n, n_columns) as arrays: (n,) for a scalar, (n, size) for an array.

    tables: the choices by parameter, on the device of `rows`; NumPy's own if None. Inactive values have no place in an
    array, so the config refuses conditional parameters in a batch.
    """
    return {
        layout.name: array_of(
            layout,
            rows[:, layout.start : layout.stop] if layout.is_array else rows[:, layout.start],
            None if tables is None else tables.get(layout.name),
        )
        for layout in layouts
    }


def array_of(layout: Layout, part: Any, table: Any = None) -> Any:
    """Give columns of value rows as an array: reals float64, integers int64, choices as `table` or `choice_table`."""
    if layout.choices is not None:
        return (choice_table(layout.choices) if table is None else table)[part.astype(np.int64)]
    # A copy: user code may write into its arguments.
    return part.astype(np.int64 if layout.kind is Kind.INTEGER else np.float64, copy=True)


def choice_table(choices: Sequence[Choice]) -> NDArray[Any]:
    """Return choices as an array to be indexed by codes: numbers where all are numbers, else Python objects.

    Numbers, because arithmetic on an object array gives an object array, which is no array of costs.
    """
    kinds = {type(choice) for choice in choices}
    return np.array(choices) if kinds <= {int, float} or kinds == {bool} else np.array(choices, dtype=object)
