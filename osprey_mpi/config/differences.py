"""Compare two configs key by key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Say of each key that differs both values; lists are compared as a whole.

    old, new: configs as run.json holds them. The order of parameters counts, since positions and columns follow it.
    """
    found = [f"{'.'.join(path)}: {before} -> {after}" for path, before, after in _compare(old, new, ())]
    before, after = (list(config["parameters"]) for config in (old, new))
    if before != after and set(before) == set(after):
        found.append(f"parameters: order {', '.join(before)} -> {', '.join(after)}")
    return found


def _compare(old: Any, new: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str, str]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys((*old, *new)):
            yield from _compare(old.get(key, _ABSENT), new.get(key, _ABSENT), (*path, key))
        return
    before, after = _text(old), _text(new)
    if before != after:  # the texts, not the values: 1, 1.0 and true are equal in Python and are not the same here
        yield path, before, after


_ABSENT = object()


def _text(value: Any) -> str:
    return "absent" if value is _ABSENT else json.dumps(value, ensure_ascii=False)
