"""Fill `{name}` placeholders of command lines and template files with the parameters of one point.

    {x}  {x[2]}  {x:.3f}  {x[2]:8.1e}    parameters; an array without index gives its values with blanks between
    {id}  {seed}  {scratch}              the evaluation's id, its seed and its folder

Numbers are written in full precision unless a format says otherwise, True and False as true and false. What is filled
in is not looked at again: a fixed parameter whose value is the text "{x}" writes that.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

SPECIAL = ("id", "seed", "scratch")
_PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)(?:\[(\d+)\])?(?::([^{}]*))?\}")

_FORMAT = re.compile(r"(.?[<>=^])?[-+ ]?#?0?\d*[,_]?(\.\d+)?[bcdeEfFgGnosxX%]|(.?[<>=^])?\d*\.\d+")


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


def strangers_in(text: str, names: Collection[str]) -> Iterator[tuple[int, str, str, bool]]:
    """Yield (line, placeholder, name, whether it has a format) of what looks like a placeholder of no known name."""
    for number, line in enumerate(text.splitlines(), 1):
        for match in _PLACEHOLDER.finditer(line):
            name, _, style = match.groups()
            if name not in names:
                yield number, match.group(), name, style is not None and _FORMAT.fullmatch(style) is not None


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
