"""A start point is whole before a constraint is asked: what it does not name has the middle of the search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from osprey_mpi.config import Config
from osprey_mpi.config.middle import middle
from osprey_mpi.config.parameters import Parameter
from osprey_mpi.errors import ConfigError
from osprey_mpi.search.space import Space

ONE: TypeAdapter[Any] = TypeAdapter(Parameter)
Make = Callable[..., Config]


def as_searched(parameter: Any) -> Any:
    """Return what the search gives an objective in the middle of its space."""
    space = Space({"p": parameter, "x": ONE.validate_python({"type": "real", "low": 0, "high": 1})})
    return space.parameters(space.decode(space.middle()[None, :])[0])["p"]


@pytest.mark.parametrize(
    ("mapping", "value"),
    [
        ({"type": "real", "low": -5, "high": 7}, 1.0),
        ({"type": "real", "low": 0, "high": 1, "step": 0.25}, 0.5),
        ({"type": "real", "low": 0, "high": 0.75, "step": 0.25}, 0.5),
        ({"type": "integer", "low": 1, "high": 9}, 5),
        ({"type": "integer", "low": 1, "high": 10}, 6),
        ({"type": "integer", "low": -4, "high": -3}, -3),
        ({"type": "integer", "low": 1, "high": 1000, "scale": "log"}, 22),
        ({"type": "categorical", "choices": [3, 1, 2]}, 3),
        ({"type": "fixed", "value": "hi"}, "hi"),
    ],
)
def test_middles(mapping: dict[str, Any], value: Any) -> None:
    parameter = ONE.validate_python(mapping)
    assert middle(parameter) == value == as_searched(parameter)
    assert type(middle(parameter)) is type(value)


def test_the_middle_of_a_log_scale() -> None:
    parameter = ONE.validate_python({"type": "real", "low": 1e-5, "high": 1e-1, "scale": "log"})
    assert middle(parameter) == pytest.approx(1e-3, rel=1e-12) == as_searched(parameter)


@given(st.integers(1, 2**40), st.integers(1, 2**40), st.sampled_from(["linear", "log"]))
@settings(max_examples=60, deadline=None)
def test_the_middle_of_integers_is_that_of_the_search(low: int, span: int, scale: str) -> None:
    parameter = ONE.validate_python({"type": "integer", "low": low, "high": low + span, "scale": scale})
    assert middle(parameter) == pytest.approx(as_searched(parameter), rel=1e-12, abs=0)


X = {"x": {"type": "real", "low": 0, "high": 1}}
XY = {**X, "y": {"type": "real", "low": 0, "high": 4}}


def test_a_start_point_that_violates_a_constraint_is_named_with_its_values(make: Make) -> None:
    with pytest.raises(ConfigError) as caught:
        make(parameters=XY, constraints=["x + y <= 1", "y <= 3"], start=[{"y": 0.5}, {"x": 0.25}, {"x": 0, "y": 3.5}])
    assert str(caught.value).splitlines() == [
        "start[1]: has x = 0.25, y = 2.0 (its middle), which violates the constraint 'x + y <= 1'",
        "start[2]: has x = 0, y = 3.5, which violates the constraint 'x + y <= 1'",
        "start[2]: has y = 3.5, which violates the constraint 'y <= 3'",
    ]


def test_one_number_stands_for_all_elements_of_an_array(make: Make) -> None:
    array = {"x": {"type": "real", "low": 0, "high": 1, "size": 3}}
    assert make(parameters=array, constraints=["sum(x) <= 1.5"], start=[{"x": 0.5}, {"x": [1, 0, 0.5]}, {}])
    with pytest.raises(ConfigError, match=r"start\[0\]: has x = 0\.75, which violates the constraint 'sum\(x\) <= 2'"):
        make(parameters=array, constraints=["sum(x) <= 2"], start=[{"x": 0.75}])


def test_a_constraint_on_an_inactive_parameter_holds(make: Make) -> None:
    parameters = {**X, "k": {"type": "categorical", "choices": ["a", "b"]}}
    parameters["d"] = {"type": "integer", "low": 2, "high": 5, "when": {"k": "b"}}
    assert make(parameters=parameters, constraints=["d <= 1"], start=[{"x": 0.1}])
    with pytest.raises(ConfigError, match=r"has d = 4 \(its middle\), which violates the constraint 'd <= 1'"):
        make(parameters=parameters, constraints=["d <= 1"], start=[{"k": "b"}])


def test_other_faults_come_first(make: Make) -> None:
    """A point that is wrong for itself is not asked for its constraints."""
    with pytest.raises(ConfigError) as caught:
        make(parameters=X, constraints=["x <= 0.5"], start=[{"x": 2}, {"x": 0.75}])
    assert str(caught.value) == "start[0].x: is 2, must be between 0.0 and 1.0"
