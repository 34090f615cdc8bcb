"""Check `when`: that parents exist, can take the values named, and do not depend on their own children."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from osprey_mpi.config.nearest import suggestion
from osprey_mpi.config.parameters import (
    CategoricalParameter,
    FixedParameter,
    IntegerParameter,
    Parameter,
    RealParameter,
)
from osprey_mpi.config.section import Fault, Section, show


def conditions_of(parameter: Section) -> Mapping[str, Sequence[Any]]:
    """Give the conditions of a parameter, none for a fixed one."""
    return {} if isinstance(parameter, FixedParameter) else getattr(parameter, "when", {})


def same(a: object, b: object) -> bool:
    """Tell if two values are the same choice: 1 and 1.0 are, 1 and true are not."""
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def condition_faults(parameters: Mapping[str, Parameter], broken: Sequence[str]) -> Iterator[Fault]:
    """Yield conditions that cannot be read, that can never hold, or that form a cycle."""
    for name, parameter in parameters.items():
        for parent_name, values in conditions_of(parameter).items():
            path = ("parameters", name, "when", parent_name)
            parent = parameters.get(parent_name)
            if parent is None:
                if parent_name not in broken:
                    others = [other for other in (*parameters, *broken) if other != name]
                    yield Fault(path, f"is no parameter{suggestion(parent_name, others)}")
                continue
            for value in values:
                message = _impossible(parent, value)
                if message:
                    yield Fault(path, f"is {show(value)}, but '{parent_name}' {message}")
    cycles = list(_cycles(parameters))
    for cycle in cycles:
        yield Fault(("parameters", cycle[0], "when"), f"form a cycle: {' needs '.join((*cycle, cycle[0]))}")
    if not cycles:
        yield from _never_active(parameters)


def _impossible(parent: Section, value: object) -> str:
    """Say why a parent can never have this value; empty if it can."""
    if getattr(parent, "size", None) is not None:
        return "is an array: conditions are on single values"
    if isinstance(parent, RealParameter):
        return "is real: it hardly ever has one exact value; use a categorical or an integer parameter"
    if isinstance(parent, CategoricalParameter) and not any(same(choice, value) for choice in parent.choices):
        texts = [choice for choice in parent.choices if isinstance(choice, str)]
        return f"has the choices {show(parent.choices)}{suggestion(value, texts)}"
    if isinstance(parent, IntegerParameter):
        if isinstance(value, bool) or not isinstance(value, int):
            return "is an integer"
        if not parent.low <= value <= parent.high:
            return f"is between {parent.low} and {parent.high}"
    if isinstance(parent, FixedParameter) and not same(parent.value, value):
        return f"is fixed at {show(parent.value)}"
    return ""


def _cycles(parameters: Mapping[str, Parameter]) -> Iterator[tuple[str, ...]]:
    """Yield each cycle once, beginning with its first parameter."""
    finished: set[str] = set()
    for start in parameters:
        trail: list[str] = []
        open_branches = [iter((start,))]
        while open_branches:
            name = next(open_branches[-1], None)
            if name is None:
                open_branches.pop()
                if trail:
                    finished.add(trail.pop())
            elif name in trail:
                yield tuple(trail[trail.index(name) :])
            elif name in parameters and name not in finished:
                trail.append(name)
                open_branches.append(iter(tuple(conditions_of(parameters[name]))))


def _never_active(parameters: Mapping[str, Parameter]) -> Iterator[Fault]:
    """Yield conditions that exclude each other through a parent's own conditions: a needs k=1, its child needs k=2."""
    for name, parameter in parameters.items():
        allowed: dict[str, list[Any]] = {}
        waiting, seen = [parameter], {name}
        while waiting:
            for parent, values in conditions_of(waiting.pop()).items():
                before = allowed.get(parent)
                allowed[parent] = [v for v in values if before is None or any(same(v, other) for other in before)]
                if before and not allowed[parent]:
                    yield Fault(
                        ("parameters", name, "when"),
                        f"can never hold: its conditions need different values of '{parent}'",
                    )
                if parent in parameters and parent not in seen:
                    seen.add(parent)
                    waiting.append(parameters[parent])
