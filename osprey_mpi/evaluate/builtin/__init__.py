"""Built-in objectives: batched array functions with known optima, run by the rank itself on NumPy or CuPy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import numpy as np

from osprey_mpi.config.section import show
from osprey_mpi.errors import ConfigError, Problem
from osprey_mpi.evaluate.builtin.analytic import ANALYTIC
from osprey_mpi.evaluate.builtin.antenna import ANTENNA_ARRAY
from osprey_mpi.evaluate.builtin.base import Array, Arrays, BatchFunction, Builtin, Layout, Option, problem
from osprey_mpi.evaluate.builtin.lennard_jones import LENNARD_JONES
from osprey_mpi.evaluate.builtin.travelling_salesman import TRAVELLING_SALESMAN

__all__ = ["BUILTIN", "Arrays", "BatchFunction", "Builtin", "Layout", "Option", "layout_of", "prepare"]

BUILTIN: Mapping[str, Builtin] = {
    builtin.name: builtin for builtin in (*ANALYTIC, LENNARD_JONES, ANTENNA_ARRAY, TRAVELLING_SALESMAN)
}


def layout_of(name: str, parameters: Mapping[str, Any]) -> Layout:
    """Describe config parameters to a built-in; raises ConfigError for what is not a number that is always there."""
    sizes: dict[str, int] = {}
    lows: list[float] = []
    highs: list[float] = []
    fixed: list[int] = []
    for key, parameter in parameters.items():
        where = f"parameters.{key}"
        if getattr(parameter, "when", None):
            raise problem(name, "a conditional parameter has no meaning here", where)
        value: Any = getattr(parameter, "value", None)
        low: Any = getattr(parameter, "low", value)
        high: Any = getattr(parameter, "high", value)
        if isinstance(low, bool) or not isinstance(low, int | float):
            raise problem(
                name, f"type {parameter.type} has no meaning here, must be real, integer or a fixed number", where
            )
        size = getattr(parameter, "size", None) or 1
        sizes[key] = size
        fixed += [len(lows)] if value is not None else []
        lows += [low] * size
        highs += [high] * size
    return Layout(sizes, np.array(lows, dtype=np.float64), np.array(highs, dtype=np.float64), tuple(fixed))


def _checked_options(builtin: Builtin, given: Mapping[str, Any]) -> dict[str, Any]:
    problems = []
    for key, value in given.items():
        where, option = f"objective.options.{key}", builtin.options.get(key)
        if option is None:
            near = get_close_matches(key, builtin.options, 1)
            hint = f"; did you mean {near[0]}?" if near else f", has {', '.join(builtin.options)}"
            problems.append(Problem(where, f"objective.builtin {builtin.name} has no such option{hint}"))
            continue
        kinds = option.kind if isinstance(option.kind, tuple) else (option.kind,)
        finite = not isinstance(value, float) or np.isfinite(value)
        if isinstance(value, bool) or not isinstance(value, kinds) or not finite:
            names = " or ".join("null" if kind is type(None) else kind.__name__ for kind in kinds)
            problems.append(Problem(where, f"is {value!r}, must be {names} ({option.meaning})"))
        elif isinstance(value, int) and (rule := option.out_of_bounds(value)):
            problems.append(Problem(where, f"is {show(value)}, {rule} ({option.meaning})"))
    if problems:
        raise ConfigError(problems)
    return {key: given.get(key, option.default) for key, option in builtin.options.items()}


def prepare(
    name: str, parameters: Mapping[str, Any], options: Mapping[str, Any] | None = None, arrays: Arrays | None = None
) -> BatchFunction:
    """Make a built-in ready for the parameters of a config.

    parameters: `config.parameters`. The returned function takes values (n, n_columns) as `Space.decode` gives them.
    Raises ConfigError, with every wrong option, where they do not fit what the built-in needs.
    """
    builtin = BUILTIN.get(name)
    if builtin is None:
        near = get_close_matches(name, BUILTIN, 1)
        hint = f"did you mean {near[0]}?" if near else f"must be one of {', '.join(BUILTIN)}"
        raise ConfigError([Problem("objective.builtin", f"is {name!r}, {hint}")])
    checked = _checked_options(builtin, options or {})
    layout, arrays = layout_of(name, parameters), arrays or Arrays()
    function = builtin.build(layout, checked, arrays)
    return _with_constants(function, layout, arrays) if layout.fixed else function


def _with_constants(function: BatchFunction, layout: Layout, arrays: Arrays) -> BatchFunction:
    """Put the numbers of fixed parameters where the value rows hold their codes."""
    columns = list(layout.fixed)
    constants = arrays.xp.asarray(layout.lows[columns])

    def evaluate(values: Array) -> Array:
        complete = values.copy()
        complete[:, columns] = constants
        return function.evaluate(complete)

    return replace(function, evaluate=evaluate)
