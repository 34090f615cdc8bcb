"""Check start points: known names, right types, inside the bounds, and active."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from osprey_mpi.config.conditions import conditions_of, same
from osprey_mpi.config.nearest import suggestion
from osprey_mpi.config.parameters import (
    CategoricalParameter,
    FixedParameter,
    IntegerParameter,
    Parameter,
    RealParameter,
)
from osprey_mpi.config.section import Fault, Section, show


def start_faults(
    start: Sequence[Mapping[str, Any]], parameters: Mapping[str, Parameter], broken: Sequence[str]
) -> Iterator[Fault]:
    """Yield what is wrong with the start points; for an array one number stands for all its elements."""
    for i, point in enumerate(start):
        for name, value in point.items():
            path = ("start", i, name)
            parameter = parameters.get(name)
            if parameter is None:
                if name not in broken:
                    yield Fault(path, f"is no parameter{suggestion(name, (*parameters, *broken))}")
                continue
            for message in _value_messages(parameter, value):
                yield Fault(path, message)
            for parent, values in conditions_of(parameter).items():
                actual = _parent_value(parent, point, parameters)
                if actual is not None and not any(same(actual, allowed) for allowed in values):
                    needed = " or ".join(show(allowed) for allowed in values)
                    yield Fault(
                        path, f"only exists when '{parent}' is {needed}, but at this point it is {show(actual)}"
                    )


def _parent_value(name: str, point: Mapping[str, Any], parameters: Mapping[str, Parameter]) -> object:
    """Give the value a parent has at this point: the first choice of a category not named; None if not known."""
    parameter = parameters.get(name)
    if name not in point and isinstance(parameter, CategoricalParameter):
        return parameter.choices[0]
    if name not in point and isinstance(parameter, FixedParameter):
        return parameter.value
    return point.get(name)


def _value_messages(parameter: Section, value: object) -> Iterator[str]:
    size = getattr(parameter, "size", None)
    if not isinstance(value, list | tuple):
        message = _wrong(parameter, value)
        if message:
            yield message
    elif size is None:
        yield f"is {show(value)}, but the parameter is no array: must be one value"
    elif len(value) != size:
        yield f"has {len(value)} elements, but size is {size}"
    else:
        for i, item in enumerate(value):
            message = _wrong(parameter, item)
            if message:
                yield f"element {i} {message}"


def _wrong(parameter: Section, value: object) -> str:
    """Say what is wrong with one value; empty if nothing is."""
    if isinstance(parameter, CategoricalParameter):
        if not any(same(choice, value) for choice in parameter.choices):
            texts = [choice for choice in parameter.choices if isinstance(choice, str)]
            return f"is {show(value)}, but the choices are {show(parameter.choices)}{suggestion(value, texts)}"
        return ""
    if isinstance(parameter, FixedParameter):
        fixed = show(parameter.value)
        return "" if same(parameter.value, value) else f"is {show(value)}, but the parameter is fixed at {fixed}"
    assert isinstance(parameter, RealParameter | IntegerParameter)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"is {show(value)}, must be a number"
    if isinstance(parameter, IntegerParameter) and not isinstance(value, int):
        return f"is {show(value)}, must be a whole number"
    if not parameter.low <= value <= parameter.high:
        return f"is {show(value)}, must be between {show(parameter.low)} and {show(parameter.high)}"
    if isinstance(parameter, RealParameter) and not parameter.is_on_grid(value):
        return f"is {show(value)}, which no number of steps of {parameter.step} from {show(parameter.low)} reaches"
    return ""
