"""Apply `--set a.b=VALUE` to a config as it was read, before it is checked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from osprey_mpi.config.section import KeyPath, dotted, show
from osprey_mpi.config.source import Origin, Source
from osprey_mpi.config.yaml_source import MAX_DEPTH, read_value
from osprey_mpi.errors import ConfigError, Problem

# Problems with overrides are listed behind those with the file's lines.
_BEHIND_ALL_LINES = 10**9
_PART = re.compile(r"([^.\[\]]+)((?:\[\d{1,9}\])*)")


def apply_overrides(source: Source, overrides: Sequence[str]) -> None:
    """Set each "a.b=VALUE" in the source's data; VALUE is a YAML scalar or flow collection.

    What cannot be set is collected as a problem named `--set a.b`.
    """
    seen: set[KeyPath] = set()
    for i, override in enumerate(overrides):
        order = _BEHIND_ALL_LINES + i
        key, equals, text = override.partition("=")
        key = key.strip()
        label = f"--set {key}"
        path = _path(key)
        if not equals or path is None:
            source.problems.append((order, Problem(f"--set {override}", "must be KEY=VALUE, such as seed=3")))
        elif path in seen:
            source.problems.append((order, Problem(label, "is given twice; keep one")))
        elif not text.strip():
            source.problems.append((order, Problem(label, "has no value; write null to unset it, '' for empty text")))
        else:
            seen.add(path)
            _set(source, path, text, Origin(label, order))


def _path(key: str) -> KeyPath | None:
    parts: list[str | int] = []
    for part in key.split("."):
        match = _PART.fullmatch(part.strip())
        if match is None:
            return None
        parts.append(match[1])
        parts += [int(index) for index in re.findall(r"\d+", match[2])]
    return tuple(parts) if len(parts) <= MAX_DEPTH else None


def _set(source: Source, path: KeyPath, text: str, origin: Origin) -> None:
    source.replace(path, origin)
    try:
        value = read_value(text, source, origin.label, path)
    except ConfigError as error:
        source.problems += [(origin.order, problem) for problem in error.problems]
        source.unreadable.add(path)
        return
    place: Any = source.data
    for i, part in enumerate(path):
        is_last = i == len(path) - 1
        if isinstance(place, dict) and isinstance(part, str):
            if is_last:
                place[part] = value
            elif place.get(part) is None and _is_index(path[i + 1]):
                _refuse_item(source, path, i + 1, text, origin)
                return
            elif place.get(part) is None:  # a section that the file leaves out, or leaves empty
                source.replace(path[: i + 1], origin)
                place[part] = {}
        elif isinstance(place, list) and isinstance(part, int) and part < len(place):
            if is_last:
                place[part] = value
        else:
            around = dotted(path[:i]) or "the config"
            if isinstance(place, list):
                form = f"is a list: write {around}[{part if _is_index(part) else 0}]"
                reason = form if isinstance(part, str) else f"has {len(place)} items, the first is 0"
            else:
                reason = f"is {show(place)}, no section"
            if not source.is_hidden(path):
                source.problems.append((origin.order, Problem(origin.label, f"cannot be set: {around} {reason}")))
            return
        place = value if is_last else place[part]


def _is_index(part: str | int) -> bool:
    """Tell whether a part of a key counts the items of a list, written [0] or, by mistake, .0: no key is a number."""
    return isinstance(part, int) or part.isdecimal()


def _refuse_item(source: Source, path: KeyPath, i: int, text: str, origin: Origin) -> None:
    """Report an item, path[i], of a list that is not there, with the list as it can be given."""
    whole = text.strip()
    for part in reversed(path[i:]):
        whole = f"[{whole}]" if _is_index(part) else f"{{{part}: {whole}}}"
    what = dotted(path[:i])
    message = f"cannot be set: the config has no {what}; give the list, as in --set '{what}={whole}'"
    source.problems.append((origin.order, Problem(origin.label, message)))
    source.unreadable.add(path[:i])
