"""Name the columns of a value row and the layout of one parameter in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from osprey_mpi.errors import ConfigError

Choice = str | int | float | bool


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
