"""Options of built-ins that NumPy refuses, or that would take all memory: one sentence with their key."""

from __future__ import annotations

from typing import Any

import pytest

from osprey_mpi.config import RealParameter
from osprey_mpi.errors import ConfigError
from osprey_mpi.evaluate.builtin import prepare


def box(size: int) -> dict[str, RealParameter]:
    return {"x": RealParameter(low=-5.0, high=5.0, size=size)}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("sphere", {"rotation_seed": -1}, "is -1, must be at least 0"),
        ("sphere", {"shift": 10**400}, "must be at most 9223372036854775807"),
        ("lennard_jones", {"n_atoms": 4097}, "is 4097, must be at most 4096"),
        ("travelling_salesman", {"n_cities": 10**12}, "is 1000000000000, must be at most 1000000"),
        ("travelling_salesman", {"cities_seed": -1}, "is -1, must be at least 0"),
        ("travelling_salesman", {"cities": [[0, 10**400], [0, 0], [1, 1]]}, "city 0 is a list of 2 items, must be"),
        ("antenna_array", {"n_angles": 10**12}, "is 1000000000000, must be at most 16384"),
        ("antenna_array", {"n_elements": 10**12}, "is 1000000000000, must be at most 4096"),
    ],
)
def test_numbers_that_no_array_could_be_made_of_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        prepare(name, box(3), options)
    (problem,) = caught.value.problems
    assert problem.where == f"objective.options.{next(iter(options))}"
    assert message in problem.message


def test_a_rotation_that_fills_the_memory_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"rotation_seed: .*rotates at most 4096 columns, the parameters have 4097"):
        prepare("sphere", box(4097), {"rotation_seed": 1})
