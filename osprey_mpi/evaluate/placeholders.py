"""Fill `{name}` placeholders of command lines and template files with the parameters of one point.

    {x}  {x[2]}  {x:.3f}  {x[2]:8.1e}    parameters; an array without index gives its values with blanks between
    {id}  {seed}  {scratch}              the evaluation's id, its seed and its folder

Numbers are written in full precision unless a format says otherwise, True and False as true and false.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

SPECIAL = ("id", "seed", "scratch")
_PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)(?:\[(\d+)\])?(?::([^{}]*))?\}")


def fill_text(text: str, values: Mapping[str, Any], names: Collection[str]) -> str:
    """Fill the placeholders of a template: other braces stay as they are, inactive parameters become nothing."""

    def replace(match: re.Match[str]) -> str:
        name, index, style = match.groups()
        if name not in names:
            return match.group()
        return _write(values[name], index, style) if name in values else ""

    return _PLACEHOLDER.sub(replace, text)


def fill_arguments(arguments: Collection[str], values: Mapping[str, Any], names: Collection[str]) -> list[str]:
    """Fill the placeholders of a command line; an argument that names an inactive parameter is left out."""
    return [
        fill_text(argument, values, names)
        for argument in arguments
        if all(name in values for name in names_in(argument) if name in names)
    ]


def names_in(text: str) -> list[str]:
    """List the names that placeholders of a text refer to."""
    return [match.group(1) for match in _PLACEHOLDER.finditer(text)]


def _write(value: Any, index: str | None, style: str | None) -> str:
    if isinstance(value, np.ndarray):
        if index is None:
            return " ".join(_write(item, None, style) for item in value.tolist())
        value = value.tolist()[int(index)]
    if style is not None:
        return format(value, style)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
