"""The names that the config accepts are the built-ins that exist."""

from __future__ import annotations

from osprey_mpi.config.builtin_names import BUILTIN_NAMES
from osprey_mpi.evaluate.builtin import BUILTIN


def test_names_are_those_of_the_registry() -> None:
    assert set(BUILTIN_NAMES) == set(BUILTIN)
