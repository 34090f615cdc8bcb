"""Work out whole start points, to refuse one that violates a constraint."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from osprey_mpi.config.conditions import conditions_of, same
from osprey_mpi.config.expression import Expression
from osprey_mpi.config.parameters import CategoricalParameter, FixedParameter, IntegerParameter, Parameter
from osprey_mpi.config.section import Fault, show, show_constraint


def middle(parameter: Parameter) -> Any:
    """Give the value, of each element, that a start point has where it names none: as `search.space` decodes 1/2."""
    if isinstance(parameter, FixedParameter):
        return parameter.value
    if isinstance(parameter, CategoricalParameter):
        return parameter.choices[0]
    low, high = parameter.low, parameter.high
    if isinstance(parameter, IntegerParameter):
        if parameter.scale == "log":
            return round(math.exp(0.5 * (math.log(low - 0.5) + math.log(high + 0.5))))
        return low + (int(high) - int(low) + 1) // 2
    if parameter.scale == "log":
        return math.exp(0.5 * (math.log(low) + math.log(high)))
    if parameter.step is not None:
        return low + (round((high - low) / parameter.step) + 1) // 2 * parameter.step
    return low + 0.5 * (high - low)


def violated_starts(
    start: Sequence[Mapping[str, Any]], parameters: Mapping[str, Parameter], constraints: Sequence[Expression]
) -> Iterator[Fault]:
    """Yield each constraint that a start point violates; points and conditions must be valid for themselves."""
    for i, point in enumerate(start):
        for constraint in constraints:
            values = {name: _value(name, point, parameters) for name in constraint.names}
            rows = {name: _row(value, parameters[name]) for name, value in values.items()}
            amount = float(np.max(constraint.violation(rows)))
            if amount > 0.0:
                named = ", ".join(
                    f"{name} = {show(value)}{'' if name in point else ' (its middle)'}"
                    for name, value in values.items()
                )
                text = show_constraint(constraint.text)
                yield Fault(("start", i), f"has {named}, which violates the constraint {text}")


def _value(name: str, point: Mapping[str, Any], parameters: Mapping[str, Parameter]) -> Any:
    """Give the value of a parameter at a point, None where it is inactive."""
    for parent, allowed in conditions_of(parameters[name]).items():
        actual = _value(parent, point, parameters)
        if not any(same(actual, value) for value in allowed):
            return None
    return point[name] if name in point else middle(parameters[name])


def _row(value: Any, parameter: Parameter) -> Any:
    """Give one row of the values of a parameter: (1,), or (1, size) for an array parameter."""
    size = None if isinstance(parameter, FixedParameter) else parameter.size
    elements = np.atleast_1d(np.array(np.nan if value is None else value, dtype=np.float64))
    return elements if size is None else np.broadcast_to(elements, (1, size))
