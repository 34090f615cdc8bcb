"""Nest the flat states that snapshots are made of: names joined by dots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

State = dict[str, NDArray[Any]]


def named(name: str, state: Mapping[str, NDArray[Any]]) -> State:
    """Put a part's state under its name."""
    return {f"{name}.{key}": array for key, array in state.items()}


def part_of(state: Mapping[str, NDArray[Any]], name: str) -> State:
    """Take out what `named` put in; empty if there is no such part."""
    start = name + "."
    return {key[len(start) :]: array for key, array in state.items() if key.startswith(start)}
