"""What must fit between sections: names, conditions, constraints, start points, placeholders."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from osprey_mpi.config.conditions import condition_faults, conditions_of
from osprey_mpi.config.expression import parse
from osprey_mpi.config.middle import violated_starts
from osprey_mpi.config.nearest import listed, nearest, suggestion
from osprey_mpi.config.objective import Objective
from osprey_mpi.config.parameters import (
    CategoricalParameter,
    FixedParameter,
    IntegerParameter,
    Parameter,
    RealParameter,
)
from osprey_mpi.config.running import Device, Swarm
from osprey_mpi.config.section import Fault, Section, show, show_constraint
from osprey_mpi.config.start import start_faults

# Numbers that the positions of one call may hold: 1 GiB of float64.
CALL_LIMIT = 2**27
# HDF5 keeps what is on the axis of evaluations in one attribute: 64 kB, 16 bytes each, a few for our own.
PARAMETER_LIMIT = 4000
# Names of variables, dimensions and placeholders that every run has.
RESERVED = frozenset(
    (
        *("evaluation", "cost", "status", "violation", "rank", "flock", "attempt", "generation", "seed"),
        *("t_start_s", "t_end_s", "reason", "id", "scratch"),
    )
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# {name}, {name[2]} or {name:.3f}, as the objective fills them in; braces around anything else (JSON) are left alone.
_PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)(?:\[(\d+)\])?(?::[^{}]*)?\}")


@dataclass(frozen=True, slots=True)
class Pieces:
    """Hold the parts of a config that are valid for themselves; a broken section is None, a broken parameter a name."""

    parameters: Mapping[str, Parameter]
    broken: Sequence[str]
    constraints: Sequence[str] = ()
    start: Sequence[Mapping[str, Any]] = ()
    objective: Objective | None = None
    swarm: Swarm | None = None
    device: Device | None = None


def faults_between(pieces: Pieces) -> Iterator[Fault]:
    """Yield all that is wrong between the pieces; what hangs on a broken parameter is left for the next try."""
    names = (*pieces.parameters, *pieces.broken)
    for name in names:
        yield from _name_faults(name, names)
    if not pieces.broken and all(isinstance(p, FixedParameter) for p in pieces.parameters.values()):
        yield Fault(("parameters",), "are all fixed: there is nothing to search")
    if len(names) > PARAMETER_LIMIT:
        most = f"at most {PARAMETER_LIMIT} fit a file of results"
        yield Fault(("parameters",), f"are {len(names)}, but {most}; make arrays of them with `size:`")
    found = list(condition_faults(pieces.parameters, pieces.broken))
    for i, text in enumerate(pieces.constraints):
        found += [Fault(("constraints", i), message) for message in _constraint_messages(text, pieces)]
    found += start_faults(pieces.start, pieces.parameters, pieces.broken)
    yield from found
    if pieces.start and not found and not pieces.broken:
        yield from violated_starts(pieces.start, pieces.parameters, [parse(text) for text in pieces.constraints])
    if pieces.objective is not None:
        yield from _objective_faults(pieces.objective, names, pieces)


def _name_faults(name: str, names: Sequence[str]) -> Iterator[Fault]:
    path = ("parameters", name)
    if not _NAME.fullmatch(name):
        yield Fault(path, "is no name: must be letters a-z and A-Z, digits and underscores, not beginning with a digit")
    elif name in RESERVED:
        yield Fault(
            path,
            f"is a reserved name: results have a variable '{name}' already; reserved are {', '.join(sorted(RESERVED))}",
        )
    elif name.endswith("_index") and name.removesuffix("_index") in names:
        yield Fault(path, f"is a reserved name: it is the index of the elements of '{name.removesuffix('_index')}'")


def _constraint_messages(text: str, pieces: Pieces) -> Iterator[str]:
    try:
        expression = parse(text)
    except ValueError as error:
        yield f"{show_constraint(text)} {error}"
        return
    sizes: dict[str, int | None] = {}
    is_complete = True
    for name in expression.names:
        parameter = pieces.parameters.get(name)
        if parameter is None:
            is_complete = False
            if name not in pieces.broken:
                meant = suggestion(name, (*pieces.parameters, *pieces.broken))
                yield f"{show_constraint(text)} names {show(name)}, which is no parameter{meant}"
        elif not _is_numeric(parameter):
            is_complete = False
            yield f"{show_constraint(text)} names '{name}', which is {parameter.type} and no number"
        else:
            sizes[name] = _size(parameter)
    if is_complete:
        try:
            expression.check(sizes)
        except ValueError as error:
            yield f"{show_constraint(text)} {error}"


def _size(parameter: Parameter) -> int | None:
    return None if isinstance(parameter, FixedParameter) else parameter.size


def _is_numeric(parameter: Section) -> bool:
    if isinstance(parameter, CategoricalParameter):
        return all(_is_number(choice) for choice in parameter.choices)
    if isinstance(parameter, FixedParameter):
        return _is_number(parameter.value)
    return isinstance(parameter, RealParameter | IntegerParameter)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _objective_faults(objective: Objective, names: Sequence[str], pieces: Pieces) -> Iterator[Fault]:
    known = (*names, "id", "seed", "scratch")
    for i, argument in enumerate(objective.command or ()):
        for name, index in _PLACEHOLDER.findall(argument):
            if index and name in pieces.parameters and int(index) >= (_size(pieces.parameters[name]) or 0):
                yield Fault(
                    ("objective", "command", i),
                    f"uses {{{name}[{index}]}}, but '{name}' has no such element",
                )
            if name not in known:
                meant = nearest(name, known)
                hint = f"; did you mean '{meant}'?" if meant else ""
                message = f"uses {{{name}}}, but there is no such parameter (known: {listed(known)}){hint}"
                yield Fault(("objective", "command", i), message)
    n_values = sum(_size(parameter) or 1 for parameter in pieces.parameters.values())
    if not pieces.broken and objective.batch * n_values > CALL_LIMIT:
        most = f"must be at most {CALL_LIMIT // n_values}, or a call would not fit a rank's memory"
        yield Fault(("objective", "batch"), f"is {objective.batch} points of {n_values} values each: {most}")
    conditional = [name for name, parameter in pieces.parameters.items() if conditions_of(parameter)]
    if conditional and objective.batch > 1 and objective.kind == "python":
        reason = f"'{conditional[0]}' is a conditional parameter, which has no place in an array"
        yield Fault(("objective", "batch"), f"is {objective.batch}, but {reason}: must be 1")
    if pieces.swarm is not None and pieces.swarm.deterministic and objective.early_stop is not None:
        yield Fault(
            ("objective", "early_stop"),
            "cannot be used with swarm.deterministic: which evaluations are "
            "stopped depends on the order in which they report",
        )
    if pieces.device is not None and pieces.device.kind == "cpu" and objective.array == "cupy":
        yield Fault(("objective", "array"), "is cupy, but device is cpu: CuPy arrays are on a GPU")


def unused_parameters(objective: Objective, parameters: Mapping[str, Parameter]) -> list[str]:
    """List the parameters that a command without templates never gets."""
    if objective.command is None or objective.template:
        return []
    used = {name for argument in objective.command for name, _ in _PLACEHOLDER.findall(argument)}
    return [name for name in parameters if name not in used]
