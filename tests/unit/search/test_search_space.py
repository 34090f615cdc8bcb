"""Positions and parameters: types, bounds, shares, conditions, constraints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from search_helpers import category, fixed, integer, real

from osprey_mpi.errors import ConfigError
from osprey_mpi.search.columns import Column, Kind
from osprey_mpi.search.scales import clip
from osprey_mpi.search.space import Space

MIXED = Space(
    {
        "a": real(0.001, 0.5),
        "rate": real(1e-5, 1e-1, scale="log"),
        "w": real(0, 1, step=0.25),
        "n": integer(1, 1000, scale="log"),
        "m": integer(-3, 3),
        "kernel": category("rbf", "poly", 3),
        "degree": integer(2, 5, when={"kernel": "poly"}),
        "q": real(-1, 1, size=2, when={"degree": [2, 3]}),
        "c": fixed("hi"),
    }
)


def test_lays_out_numbers_first_and_columns_in_declared_order() -> None:
    assert (MIXED.n_dims, MIXED.n_numeric, MIXED.n_categorical, MIXED.n_columns) == (9, 8, 1, 10)
    assert MIXED.n_levels.tolist() == [0, 0, 5, 1000, 7, 4, 0, 0]
    assert MIXED.n_choices == (3,)
    assert MIXED.columns[5] == Column("kernel", None, Kind.CATEGORICAL, ("rbf", "poly", 3))
    assert MIXED.columns[8] == Column("q", 1, Kind.REAL, None)
    assert MIXED.columns[9] == Column("c", None, Kind.FIXED, ("hi",))


@pytest.mark.parametrize("end", [0.0, 1.0])
def test_hits_both_bounds_exactly(end: float) -> None:
    position = np.full((1, 9), end)
    position[0, 8] = 1.0  # poly
    parameters = MIXED.parameters(MIXED.decode(position)[0])
    low = {"a": 0.001, "rate": 1e-5, "w": 0.0, "n": 1, "m": -3, "degree": 2}
    high = {"a": 0.5, "rate": 1e-1, "w": 1.0, "n": 1000, "m": 3, "degree": 5}
    assert {k: parameters[k] for k in low} == (low if end == 0.0 else high)


@given(low=st.floats(-1e300, 1e300), length=st.floats(1e-300, 1e300))
@settings(max_examples=300, deadline=None)
def test_hits_the_bounds_of_any_real_range(low: float, length: float) -> None:
    if not low < low + length:
        return
    space = Space({"x": real(low, low + length)})
    assert space.decode(np.array([[0.0], [1.0]]))[:, 0].tolist() == [low, low + length]
    ends = np.array([[low], [low + length]])
    assert (space.decode(space.encode(ends)) == ends).all()


def test_gives_python_types_and_leaves_inactive_ones_out() -> None:
    position = np.full((3, 9), 0.3)
    position[:, 8] = [0, 1, 2]
    rows = [MIXED.parameters(row) for row in MIXED.decode(position)]
    assert list(rows[0]) == ["a", "rate", "w", "n", "m", "kernel", "c"]
    assert list(rows[1]) == ["a", "rate", "w", "n", "m", "kernel", "degree", "q", "c"]
    types = [type(value) for value in rows[1].values()]
    assert types == [float, float, float, int, int, str, int, np.ndarray, str]
    assert rows[2]["kernel"] == 3
    assert type(rows[2]["kernel"]) is int
    assert list(range(10))[rows[1]["degree"]] == 3  # usable as an index
    array = Space({"k": integer(0, 9, size=3)}).parameters(np.array([1.0, 2.0, 3.0]))["k"]
    assert isinstance(array, np.ndarray)
    assert array.dtype == np.int64


@pytest.mark.parametrize(
    ("choices", "dtype", "values"),
    [
        ((1, 2, 4), "int64", [4, 1]),
        ((1, 2, 4.0), "float64", [4.0, 1.0]),
        ((True, False), "bool", [False, True]),
        (("a", 2, True), "object", [True, "a"]),
    ],
)
def test_an_array_of_choices_has_one_type(choices: tuple[Any, ...], dtype: str, values: list[Any]) -> None:
    space = Space({"k": category(*choices, size=2)})
    array = space.parameters(np.array([len(choices) - 1.0, 0.0]))["k"]
    assert isinstance(array, np.ndarray) and array.dtype == dtype and repr(array.tolist()) == repr(values)


def test_switches_off_what_depends_on_an_inactive_parameter() -> None:
    position = np.zeros((1, 9))  # kernel rbf; degree, if it were active, would be 2 and switch q on
    values = MIXED.decode(position)[0]
    assert np.isnan(values[6:9]).all()
    assert not np.isnan(np.delete(values, [6, 7, 8])).any()


def test_gives_every_level_the_same_share() -> None:
    u = (np.arange(70_000) + 0.5) / 70_000
    for parameter in (integer(-3, 3), real(0, 1.5, step=0.25)):
        _, counts = np.unique(Space({"p": parameter}).decode(u[:, None]), return_counts=True)
        assert counts.tolist() == [10_000] * 7


def test_gives_log_integers_their_share_on_the_log_scale() -> None:
    u = (np.arange(100_000) + 0.5) / 100_000
    values, counts = np.unique(Space({"p": integer(1, 100, scale="log")}).decode(u[:, None]), return_counts=True)
    assert values.tolist() == list(range(1, 101))
    expected = np.log((values + 0.5) / (values - 0.5)) / np.log(100.5 / 0.5)
    assert np.abs(counts / 100_000 - expected).max() < 2e-5


def test_reaches_integers_of_53_bits() -> None:
    space = Space({"n": integer(-(2**53), 2**53)})
    ends = space.decode(np.array([[0.0], [1.0]]))[:, 0]
    assert [int(v) for v in ends] == [-(2**53), 2**53]


def test_stays_in_the_log_range_after_the_round_trip() -> None:
    space = Space({"x": real(1e-5, 1e-1, scale="log")})
    u = np.concatenate([[0.0, 1.0], np.random.default_rng(0).random(10_000)])
    values = space.decode(u[:, None])
    again = space.decode(space.encode(values))
    assert values.min() == 1e-5
    assert values.max() == 1e-1
    assert ((again >= 1e-5) & (again <= 1e-1)).all()
    np.testing.assert_allclose(again, values, rtol=1e-14)


@given(arrays(np.float64, (7, 9), elements=st.floats(allow_nan=True, allow_infinity=True)))
@settings(max_examples=300, deadline=None)
def test_keeps_any_position_in_bounds(positions: np.ndarray) -> None:
    with np.errstate(all="ignore"):
        values = MIXED.decode(positions)
    low, high = [0.001, 1e-5, 0.0, 1, -3, 0, 2, -1, -1, 0], [0.5, 1e-1, 1.0, 1000, 3, 2, 5, 1, 1, 0]
    inactive = np.isnan(values)
    assert not inactive[:, [0, 1, 2, 3, 4, 5, 9]].any()
    assert (inactive | ((values >= low) & (values <= high))).all()


def test_encodes_what_it_decodes() -> None:
    random = np.random.default_rng(3)
    positions = random.random((2000, 9))
    positions[:, 8] = random.integers(0, 3, 2000)
    values = MIXED.decode(positions)
    again = MIXED.decode(MIXED.encode(values))
    np.testing.assert_allclose(again, values, rtol=1e-13, equal_nan=True)
    discrete = [2, 3, 4, 5, 6]
    np.testing.assert_array_equal(again[:, discrete], values[:, discrete])


def test_makes_start_points_from_names() -> None:
    (position,) = MIXED.start_positions([{"rate": 1e-3, "kernel": "poly", "q": [0.5, -0.5], "degree": 3}])
    parameters = MIXED.parameters(MIXED.decode(position[None])[0])
    assert parameters["rate"] == pytest.approx(1e-3, rel=1e-14)
    assert parameters["kernel"] == "poly"
    assert parameters["q"].tolist() == [0.5, -0.5]  # type: ignore[union-attr]  # an array parameter
    assert parameters["m"] == 0
    assert MIXED.start_positions([]).shape == (0, 9)


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ({"m": 4}, r"m is 4\.0, but its bounds are \[-3\.0, 3\.0\]"),
        ({"kernel": "lin"}, "kernel is 'lin', but its choices are"),
        ({"nope": 1}, "nope is not a parameter"),
        ({"q": [1, 2, 3]}, "q has 3 values, but its size is 2"),
    ],
)
def test_refuses_wrong_start_points(start: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MIXED.start_positions([start])


def test_measures_violations() -> None:
    space = Space(
        {"x": real(-5, 5, size=2), "a": real(0, 9), "s": category(1, 10), "b": real(0, 9, when={"s": 10})},
        ["sum(x) + a <= 1", "b >= 4", "s * a <= 20"],
    )
    values = np.array([[0.5, 0.5, 0, 0, np.nan], [1, 2, 3, 1, 1]])
    assert space.violation(values).tolist() == [0.0, 5.0 + 3.0 + 10.0]


def test_refuses_cycles_of_conditions() -> None:
    with pytest.raises(ConfigError, match="cycle"):
        Space({"a": category(1, 2, when={"b": 1}), "b": category(1, 2, when={"a": 1})})


@pytest.mark.parametrize("ends", [(0.0, 1.0), (np.zeros(3), np.ones(3))])
@given(arrays(np.float64, (4, 3), elements=st.floats(allow_nan=True, allow_infinity=True)))
def test_clips_everything_and_sends_nan_to_the_upper_end(ends: tuple[object, object], x: np.ndarray) -> None:
    """What is in range stays as it is, bit for bit; so it is with one number for all columns as with one for each."""
    expected = np.where(np.isnan(x), 1.0, np.minimum(np.maximum(x, 0.0), 1.0))
    assert np.array_equal(clip(x.copy(), *ends, np), expected)
