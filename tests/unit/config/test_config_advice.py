"""Advice: silent where the program fits, one sentence with its numbers where something else does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from osprey_mpi.config import Config, advice

X = {"type": "real", "low": 0, "high": 1}


def test_no_advice_where_the_program_fits(make: Callable[..., Config]) -> None:
    config = make(objective={"python": "m:f"}, parameters={"x": X | {"size": 40}}, budget={"evaluations": 20000})
    assert advice(config) == []
    assert advice(config, n_ranks=64) == []


@pytest.mark.parametrize(
    ("sections", "n_ranks", "words"),
    [
        (
            {"objective": {"python": "m:f"}, "parameters": {"x": X | {"size": 6}}, "budget": {"evaluations": 300}},
            None,
            "With 6 real dimensions (below 20)",
        ),
        (
            {"parameters": {"x": X | {"size": 6}}, "budget": {"evaluations": 6000}},
            None,
            "6000 evaluations are 1000 per",
        ),
        (
            {"parameters": {"x": X | {"size": 90}}, "budget": {"evaluations": 500}},
            None,
            "500 evaluations for 90 dimensions",
        ),
        ({"budget": {"evaluations": 400}, "parameters": {"x": X | {"size": 4}}}, 4, "random search or plain pycma"),
        ({"budget": {"evaluations": 250}}, 8, "8 ranks, 32 points a call, can evaluate more at once"),
        ({"objective": {"python": "m:f"}, "budget": {"evaluations": 999}}, 16, "Flocks of 16 for 1 dimension:"),
        ({"budget": {"evaluations": 100000}}, 2, "with 32 points a call: a cheap one is several times faster with obj"),
        (
            {"objective": {"python": "m:f", "ranks": 4}},
            None,
            "Each evaluation takes 4 ranks: start 5, 9, 13, ... of them, for rank 0 coordinates",
        ),
        ({"budget": {"stagnation": 99}}, None, "neither evaluations nor walltime"),
        ({"constraints": ["x == 0.5"]}, None, "holds almost nowhere"),
        (
            {"parameters": {f"k{i}": {"type": "categorical", "choices": ["a", "b", "c"]} for i in range(9)}},
            None,
            "9 of 9 dimensions are categorical",
        ),
        (
            {"parameters": {"n": {"type": "integer", "low": 1, "high": 10}, "s": X | {"step": 0.125}}},
            None,
            "There are 90 different points and 100 evaluations",
        ),
        (
            {"objective": {"command": ["./p", "{x}"], "result": {"pattern": "(.)"}}, "parameters": {"x": X, "y": X}},
            None,
            "The command has no placeholder for y and no template",
        ),
    ],
)
def test_advice_names_the_numbers_behind_it(
    make: Callable[..., Config], sections: dict[str, Any], n_ranks: int | None, words: str
) -> None:
    given = advice(make(**sections), n_ranks)
    assert any(words in sentence for sentence in given), given
    assert all(sentence.endswith(".") for sentence in given)


def test_enumeration_replaces_the_other_advice_on_methods(make: Callable[..., Config]) -> None:
    config = make(parameters={"k": {"type": "categorical", "choices": ["a", "b"]}})
    assert len(advice(config)) == 1


def test_a_conditional_search_is_not_called_smooth(make: Callable[..., Config]) -> None:
    parameters = {"k": {"type": "categorical", "choices": ["a", "b"]}, "x": X | {"size": 4, "when": {"k": "a"}}}
    assert not any("Bayesian" in sentence for sentence in advice(make(parameters=parameters)))
